"""Which hidden states are pooled: layers by index, or averages of several."""

from __future__ import annotations

import re
from collections.abc import Sequence

from bertpool.errors import ModelError

# Indices into transformers' ``hidden_states`` (0 the embeddings), averaged where several.
Layers = tuple[int, ...]
LAST = "-1"


def parse_layers(layers: Sequence[str | int], num_layers: int) -> dict[str, Layers]:
    """Read what ``--layer`` names: each one's label and the layers that it averages.

    ``k`` is ``hidden_states[k]`` (negative from the end), ``first-last`` the average of the first
    and the last layer (not of the embeddings), ``last-N`` that of the last N.

    >>> parse_layers([-2, "first-last", "last-4"], 12)
    {'layer11': (11,), 'first_last': (1, 12), 'last_4': (9, 10, 11, 12)}

    Raises:
        ModelError: it names no layer of this model.
    """
    parsed: dict[str, Layers] = {}
    for name in layers:
        label, indices = _parse(str(name).strip(), num_layers)
        if indices not in parsed.values():
            parsed[label] = indices
    return parsed


def _parse(name: str, num_layers: int) -> tuple[str, Layers]:
    if re.fullmatch(r"-?[0-9]{1,9}", name):
        index = int(name)
        if index == -1:
            return f"layer{num_layers}", (num_layers,)  # also where their number isn't known
        if -num_layers - 1 <= index <= num_layers:
            index %= num_layers + 1
            return f"layer{index}", (index,)
    elif name == "first-last":
        return "first_last", tuple(sorted({1, num_layers}))
    elif match := re.fullmatch(r"last-([0-9]{1,9})", name):
        count = int(match[1])
        if 1 <= count <= num_layers:
            return f"last_{count}", tuple(range(num_layers - count + 1, num_layers + 1))
    raise ModelError(
        f"--layer {name}: give 0 (the embeddings) to {num_layers}, negative from the end, "
        f"first-last, or last-N with N up to {num_layers}",
        usage=True,
    )
