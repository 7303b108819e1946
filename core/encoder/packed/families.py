"""How model families differ: names of weights and settings, positions, what stands around layers.

A family is one row of ``FAMILIES``; the layer itself is the same in all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bertpool.encoder.limits import POSITIONS_AFTER_PAD


@dataclass(frozen=True)
class LayerNames:
    """Names of one layer's weights, below the layer's own prefix."""

    prefix: str = "encoder.layer.{}."
    query: str = "attention.self.query"
    key: str = "attention.self.key"
    value: str = "attention.self.value"
    attention_output: str = "attention.output.dense"
    attention_norm: str = "attention.output.LayerNorm"
    up: str = "intermediate.dense"
    down: str = "output.dense"
    output_norm: str = "output.LayerNorm"


@dataclass(frozen=True)
class Family:
    """One family of encoders.

    Attributes:
        prefix: what a checkpoint with a head puts before the encoder's keys.
        layer: names of a layer's weights.
        settings: this family's names of settings, where they aren't BERT's.
        pooler: the checkpoint may hold ``pooler.dense``.
    """

    prefix: str
    layer: LayerNames = LayerNames()
    settings: Mapping[str, str] = field(default_factory=dict)
    pooler: bool = True


DISTIL_LAYER = LayerNames(
    prefix="transformer.layer.{}.",
    query="attention.q_lin",
    key="attention.k_lin",
    value="attention.v_lin",
    attention_output="attention.out_lin",
    attention_norm="sa_layer_norm",
    up="ffn.lin1",
    down="ffn.lin2",
    output_norm="output_layer_norm",
)
DISTIL_SETTINGS = {
    "hidden_size": "dim",
    "num_hidden_layers": "n_layers",
    "num_attention_heads": "n_heads",
    "intermediate_size": "hidden_dim",
    "hidden_act": "activation",
}
MPNET_LAYER = LayerNames(
    query="attention.attn.q",
    key="attention.attn.k",
    value="attention.attn.v",
    attention_output="attention.attn.o",
    attention_norm="attention.LayerNorm",
)

FAMILIES = {
    "bert": Family("bert."),
    "roberta": Family("roberta."),
    "xlm-roberta": Family("roberta."),
    "camembert": Family("roberta."),
    "electra": Family("electra.", pooler=False),
    "distilbert": Family("distilbert.", DISTIL_LAYER, DISTIL_SETTINGS, pooler=False),
    "mpnet": Family("mpnet.", MPNET_LAYER),
}
ACTIVATIONS = ("gelu", "gelu_new", "relu")


@dataclass(frozen=True)
class Shape:
    """The sizes and settings of one encoder, by BERT's names for them.

    ``first_position`` is the position of a text's first token; ``padding_position`` is where the
    RoBERTa family puts a typed padding token, None in the others.
    """

    hidden_size: int
    embedding_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    vocab_size: int
    num_positions: int
    num_token_types: int
    activation: str
    layer_norm_eps: float
    first_position: int
    padding_position: int | None
    relative_buckets: int

    @property
    def head_size(self) -> int:
        """Return the width of one attention head."""
        return self.hidden_size // self.num_heads


def unsupported(config: Mapping[str, Any]) -> str | None:
    """Say what in a configuration the packed way doesn't have, or None: it then runs packed."""
    model_type = config.get("model_type")
    family = FAMILIES.get(str(model_type))
    if family is None:
        return f"model type {model_type}"
    activation = config.get(family.settings.get("hidden_act", "hidden_act"))
    reasons = (
        (activation not in ACTIVATIONS, f"activation {activation}"),
        (config.get("position_embedding_type", "absolute") != "absolute", "relative positions"),
        (config.get("is_decoder"), "a decoder"),
        (config.get("add_cross_attention"), "cross attention"),
        (config.get("quantization_config"), "quantized weights"),
        (config.get("pruned_heads"), "pruned heads"),
    )
    return next((reason for happened, reason in reasons if happened), None)


def read_shape(config: Mapping[str, Any]) -> Shape:
    """Read sizes and settings of a supported configuration.

    Raises:
        KeyError: a size is missing.
    """
    family = FAMILIES[config["model_type"]]

    def setting(name: str) -> Any:
        return config[family.settings.get(name, name)]

    model_type = config["model_type"]
    after_pad = model_type in POSITIONS_AFTER_PAD
    pad = 1 if config.get("pad_token_id") is None else config["pad_token_id"]
    return Shape(
        hidden_size=setting("hidden_size"),
        embedding_size=config.get("embedding_size") or setting("hidden_size"),
        intermediate_size=setting("intermediate_size"),
        num_layers=setting("num_hidden_layers"),
        num_heads=setting("num_attention_heads"),
        vocab_size=config["vocab_size"],
        num_positions=config["max_position_embeddings"],
        num_token_types=0 if model_type in ("distilbert", "mpnet") else config["type_vocab_size"],
        activation=setting("hidden_act"),
        layer_norm_eps=config.get("layer_norm_eps", 1e-12),
        first_position=pad + 1 if after_pad else 0,
        padding_position=pad if after_pad else None,
        relative_buckets=config.get("relative_attention_num_buckets", 32)
        if model_type == "mpnet"
        else 0,
    )
