"""Weights straight from safetensors: mapped, named alike in all families, and all of them there."""

from __future__ import annotations

from collections.abc import Iterator

from bertpool.encoder.checkpoint import Checkpoint
from bertpool.encoder.packed.families import Family, Shape
from bertpool.encoder.weight_check import Misshapen, check_weights
from bertpool.errors import ModelError
from safetensors import SafetensorError, safe_open
from torch import Tensor

OLD_NORM_NAMES = ((".gamma", ".weight"), (".beta", ".bias"))
OWN_MODULES = ("embeddings", "embeddings_project", "encoder", "transformer")


def read_weights(checkpoint: Checkpoint, family: Family, shape: Shape) -> dict[str, Tensor]:
    """Read the encoder's weights, in their stored dtype, memory-mapped.

    Raises:
        ModelError: a weight is missing, has another shape than config.json asks for, or belongs to
            an encoder that config.json doesn't describe.
    """
    expected = expected_shapes(family, shape)
    found: dict[str, Tensor] = {}
    others: list[str] = []
    for key, tensor in _stored(checkpoint):
        name = _plain_name(key, family)
        if name in expected or name.startswith("pooler."):
            found[name] = tensor
        else:
            others.append(key)
    check_weights(
        checkpoint,
        misshapen=[
            Misshapen(name, found[name].shape, size)
            for name, size in expected.items()
            if name in found and found[name].shape != size
        ],
        missing=set(expected) - set(found),
        others=others,
        own_modules=OWN_MODULES,
        prefix=family.prefix,
    )
    return found


def expected_shapes(family: Family, shape: Shape) -> dict[str, tuple[int, ...]]:
    """List every weight that an encoder must have, without its pooler."""
    hidden, embedding = shape.hidden_size, shape.embedding_size
    expected: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (shape.vocab_size, embedding),
        "embeddings.position_embeddings.weight": (shape.num_positions, embedding),
        **_norm("embeddings.LayerNorm", embedding),
    }
    if shape.num_token_types:
        expected["embeddings.token_type_embeddings.weight"] = (shape.num_token_types, embedding)
    if embedding != hidden:
        expected.update(_linear("embeddings_project", hidden, embedding))
    if shape.relative_buckets:
        name = "encoder.relative_attention_bias.weight"
        expected[name] = (shape.relative_buckets, shape.num_heads)
    for index in range(shape.num_layers):
        expected.update(_layer_shapes(family, shape, index))
    return expected


def _layer_shapes(family: Family, shape: Shape, index: int) -> dict[str, tuple[int, ...]]:
    names, hidden, wide = family.layer, shape.hidden_size, shape.intermediate_size
    shapes: dict[str, tuple[int, ...]] = {}
    for name in (names.query, names.key, names.value, names.attention_output):
        shapes.update(_linear(name, hidden, hidden))
    shapes.update(_norm(names.attention_norm, hidden))
    shapes.update(_linear(names.up, wide, hidden))
    shapes.update(_linear(names.down, hidden, wide))
    shapes.update(_norm(names.output_norm, hidden))
    return {names.prefix.format(index) + name: size for name, size in shapes.items()}


def _linear(name: str, out_features: int, in_features: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (out_features, in_features), f"{name}.bias": (out_features,)}


def _norm(name: str, size: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (size,), f"{name}.bias": (size,)}


def _stored(checkpoint: Checkpoint) -> Iterator[tuple[str, Tensor]]:
    """Yield every stored weight with its key."""
    try:
        for file in checkpoint.weight_files():
            with safe_open(file, framework="pt") as weights:
                for key in weights.keys():
                    yield key, weights.get_tensor(key)
    except (SafetensorError, OSError) as error:
        raise ModelError(f"{checkpoint.name}: can't be loaded: {error}") from error


def _plain_name(key: str, family: Family) -> str:
    name = key.removeprefix(family.prefix)
    for old, new in OLD_NORM_NAMES:
        name = name.removesuffix(old) + new if name.endswith(old) else name
    return name
