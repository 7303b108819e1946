"""What a checkpoint declares about its own sentence vectors: sentence-transformers' modules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertpool.encoder.checkpoint import Checkpoint, Module, read_modules, read_object
from bertpool.errors import ModelError

# Both spellings of a Pooling module's modes, in the order in which their vectors are concatenated.
POOLING_MODES = {
    "cls": ("pooling_mode_cls_token", "cls"),
    "max": ("pooling_mode_max_tokens", "max"),
    "mean": ("pooling_mode_mean_tokens", "mean"),
    "mean_sqrt_len": ("pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len_tokens"),
    "weighted_mean": ("pooling_mode_weightedmean_tokens", "weightedmean"),
    "last": ("pooling_mode_lasttoken", "lasttoken"),
}
SENTENCE_CONFIG = "config_sentence_transformers.json"
# Keys of a module's configuration that change how model or tokenizer are loaded.
OVERRIDES = ("config_args", "model_args", "tokenizer_args", "model_kwargs", "config_kwargs",
             "processor_kwargs", "processing_kwargs")  # fmt: skip
WITHOUT_EFFECT = ("Transformer", "Dropout")
# sentence-transformers reads the first of these that there is.
TRANSFORMER_CONFIGS = (
    "sentence_bert_config.json",
    "sentence_roberta_config.json",
    "sentence_distilbert_config.json",
    "sentence_camembert_config.json",
    "sentence_albert_config.json",
    "sentence_xlm-roberta_config.json",
    "sentence_xlnet_config.json",
)


@dataclass(frozen=True)
class Dense:
    """A stage: ``activation(x W^T + b)``, its weights in ``folder``."""

    folder: str
    in_features: int
    out_features: int
    bias: bool
    activation: str

    def __str__(self) -> str:
        return f"Dense {self.in_features}->{self.out_features}"


@dataclass(frozen=True)
class Normalize:
    """A stage: unit length."""

    def __str__(self) -> str:
        return "normalization"


@dataclass(frozen=True)
class Declared:
    """The stages after the encoder that a checkpoint declares.

    ``strategies`` is empty when no pooling is declared; several are concatenated. ``stages`` follow
    it in order. ``unknown`` names what bertpool can't apply. ``prompt`` goes before every text.
    ``truncate_dim`` is how many dimensions are kept in the end.
    """

    strategies: tuple[str, ...] = ()
    include_prompt: bool = True
    stages: tuple[Dense | Normalize, ...] = ()
    unknown: tuple[str, ...] = ()
    prompt: str = ""
    lower_case: bool = False
    truncate_dim: int | None = None

    @property
    def dense(self) -> tuple[Dense, ...]:
        """List the Dense stages."""
        return tuple(stage for stage in self.stages if isinstance(stage, Dense))

    @property
    def normalize(self) -> bool:
        """Tell whether normalization is among the stages."""
        return Normalize() in self.stages

    def describe(self) -> str:
        """Name all of it in a phrase: ``mean pooling + normalization``."""
        parts = [f"the prompt {self.prompt!r}"] if self.prompt else []
        parts += ["lower-casing"] if self.lower_case else []
        without = "" if self.include_prompt else " without the prompt"
        parts += [f"{'+'.join(self.strategies)} pooling{without}"] if self.strategies else []
        return " + ".join([*parts, *map(str, self.stages), *self.unknown])


def read_declared(checkpoint: Checkpoint) -> Declared:
    """Read ``modules.json`` and what it points to; without one, nothing is declared.

    Raises:
        ModelError: a file is broken or a pooling mode is unknown.
    """
    modules = read_modules(checkpoint.root)
    if not modules:
        return Declared()
    pooling = _module_config(checkpoint, modules, "Pooling")
    stages: list[Dense | Normalize] = []
    unknown = []
    for module in modules:
        if module.kind == "Normalize":
            stages.append(Normalize())
        elif module.kind == "Dense" and (dense := _read_dense(checkpoint, module.folder)):
            stages.append(dense)
        elif module.kind not in (*WITHOUT_EFFECT, "Pooling"):
            unknown.append("Dense on token vectors" if module.kind == "Dense" else module.kind)
    kinds = [module.kind for module in modules]
    unknown += ["a second Pooling"] * (kinds.count("Pooling") > 1)
    sentence_config = transformer_config(checkpoint)[1]
    unknown += [key for key in OVERRIDES if sentence_config.get(key)]
    own = _optional_json(checkpoint.root / SENTENCE_CONFIG)
    return Declared(
        strategies=_declared_strategies(pooling),
        include_prompt=bool(pooling.get("include_prompt", True)),
        stages=tuple(stages),
        unknown=tuple(unknown),
        prompt=_default_prompt(own),
        lower_case=bool(sentence_config.get("do_lower_case", False)),
        truncate_dim=own.get("truncate_dim"),
    )


def transformer_config(checkpoint: Checkpoint) -> tuple[str, Mapping[str, Any]]:
    """Read ``sentence_bert_config.json`` or one of its like: its name, and what it holds."""
    for name in TRANSFORMER_CONFIGS:
        if (checkpoint.directory / name).is_file():
            return name, _optional_json(checkpoint.directory / name)
    return TRANSFORMER_CONFIGS[0], {}


def _module_config(
    checkpoint: Checkpoint, modules: Sequence[Module], kind: str
) -> Mapping[str, Any]:
    folder = next((module.folder for module in modules if module.kind == kind), None)
    return {} if folder is None else read_object(checkpoint.root / folder / "config.json")


def _declared_strategies(pooling: Mapping[str, Any]) -> tuple[str, ...]:
    if "pooling_mode" not in pooling:
        return tuple(name for name, (old, _) in POOLING_MODES.items() if pooling.get(old))
    mode = pooling["pooling_mode"]
    names = {new: name for name, (_, new) in POOLING_MODES.items()}
    modes = [mode] if isinstance(mode, str) else list(mode)
    if unknown := [mode for mode in modes if mode not in names]:
        raise ModelError(f"the checkpoint declares pooling {unknown[0]!r}, unknown to bertpool")
    return tuple(names[mode] for mode in modes)


def _read_dense(checkpoint: Checkpoint, folder: str) -> Dense | None:
    """Read a Dense module, or None for one that isn't on sentence vectors."""
    config = read_object(checkpoint.root / folder / "config.json")
    if config.get("module_input_name") not in (None, "sentence_embedding"):
        return None
    if not {"in_features", "out_features"} <= set(config):
        raise ModelError(f"{folder}/config.json: no in_features or out_features")
    activation = config.get("activation_function", "torch.nn.modules.activation.Tanh")
    return Dense(
        folder=folder,
        in_features=config["in_features"],
        out_features=config["out_features"],
        bias=config.get("bias", True),
        activation=activation.rsplit(".", 1)[-1],
    )


def _default_prompt(config: Mapping[str, Any]) -> str:
    name = config.get("default_prompt_name")
    prompts = config.get("prompts") or {}
    if name is None:
        return ""
    if not isinstance(prompts, dict) or not isinstance(prompts.get(name), str):
        raise ModelError(
            f"{SENTENCE_CONFIG} names the default prompt {name!r}, and holds no such text"
        )
    prompt: str = prompts[name]
    return prompt


def _optional_json(path: Path) -> Mapping[str, Any]:
    return read_object(path) if path.is_file() else {}
