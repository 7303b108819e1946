"""What a checkpoint declares about its own sentence vectors: sentence-transformers' modules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertpool.encoder.checkpoint import Checkpoint, read_json
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
WITHOUT_EFFECT = ("Transformer", "Dropout")


@dataclass(frozen=True)
class Dense:
    """A declared Dense module: ``activation(x W^T + b)``, its weights in ``folder``."""

    folder: str
    in_features: int
    out_features: int
    bias: bool
    activation: str


@dataclass(frozen=True)
class Declared:
    """The stages after the encoder that a checkpoint declares.

    ``unknown`` names modules that bertpool can't apply. ``strategies`` is empty when no pooling is
    declared; several are concatenated. ``prompt`` goes before every text.
    """

    strategies: tuple[str, ...] = ()
    include_prompt: bool = True
    dense: tuple[Dense, ...] = ()
    normalize: bool = False
    unknown: tuple[str, ...] = ()
    prompt: str = ""
    lower_case: bool = False

    def stages(self) -> str:
        """Name the stages in a phrase: ``mean pooling + normalization``."""
        parts = [f"the prompt {self.prompt!r}"] if self.prompt else []
        parts += ["+".join(self.strategies) + " pooling"] if self.strategies else []
        parts += [f"Dense {d.in_features}->{d.out_features}" for d in self.dense]
        parts += list(self.unknown)
        return " + ".join(parts + ["normalization"] * self.normalize)


def read_declared(checkpoint: Checkpoint) -> Declared:
    """Read ``modules.json`` and what it points to; without one, nothing is declared.

    Raises:
        ModelError: a file is broken or a pooling mode is unknown.
    """
    path = checkpoint.root / "modules.json"
    if not path.is_file():
        return Declared()
    modules = [(m["type"].rsplit(".", 1)[-1], m.get("path", "")) for m in read_json(path)]
    pooling = _module_config(checkpoint, modules, "Pooling")
    known = (*WITHOUT_EFFECT, "Pooling", "Dense", "Normalize")
    return Declared(
        strategies=_declared_strategies(pooling),
        include_prompt=bool(pooling.get("include_prompt", True)),
        dense=tuple(_read_dense(checkpoint, folder) for kind, folder in modules if kind == "Dense"),
        normalize=any(kind == "Normalize" for kind, _ in modules),
        unknown=tuple(kind for kind, _ in modules if kind not in known),
        prompt=_default_prompt(checkpoint),
        lower_case=bool(transformer_config(checkpoint).get("do_lower_case", False)),
    )


def transformer_config(checkpoint: Checkpoint) -> Mapping[str, Any]:
    """Read ``sentence_bert_config.json``, or nothing where there is none."""
    return _optional_json(checkpoint.directory / "sentence_bert_config.json")


def _module_config(
    checkpoint: Checkpoint, modules: list[tuple[str, str]], kind: str
) -> Mapping[str, Any]:
    folder = next((folder for name, folder in modules if name == kind), None)
    if folder is None:
        return {}
    config: Mapping[str, Any] = read_json(checkpoint.root / folder / "config.json")
    return config


def _declared_strategies(pooling: Mapping[str, Any]) -> tuple[str, ...]:
    if "pooling_mode" not in pooling:
        return tuple(name for name, (old, _) in POOLING_MODES.items() if pooling.get(old))
    mode = pooling["pooling_mode"]
    names = {new: name for name, (_, new) in POOLING_MODES.items()}
    modes = [mode] if isinstance(mode, str) else list(mode)
    if unknown := [mode for mode in modes if mode not in names]:
        raise ModelError(f"the checkpoint declares pooling {unknown[0]!r}, unknown to bertpool")
    return tuple(names[mode] for mode in modes)


def _read_dense(checkpoint: Checkpoint, folder: str) -> Dense:
    config = read_json(checkpoint.root / folder / "config.json")
    activation = config.get("activation_function", "torch.nn.modules.activation.Tanh")
    return Dense(
        folder=folder,
        in_features=config["in_features"],
        out_features=config["out_features"],
        bias=config.get("bias", True),
        activation=activation.rsplit(".", 1)[-1],
    )


def _default_prompt(checkpoint: Checkpoint) -> str:
    path = checkpoint.root / "config_sentence_transformers.json"
    config = _optional_json(path)
    name = config.get("default_prompt_name")
    if name is None:
        return ""
    prompt: str | None = (config.get("prompts") or {}).get(name)
    if prompt is None:
        raise ModelError(f"{path.name} names the default prompt {name!r}, which it doesn't hold")
    return prompt


def _optional_json(path: Path) -> Mapping[str, Any]:
    config: Mapping[str, Any] = read_json(path) if path.is_file() else {}
    return config
