"""Load a checkpoint for the packed way."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from bertpool.encoder.batches import PACKED_BATCH_TOKENS
from bertpool.encoder.checkpoint import Checkpoint
from bertpool.encoder.device import Dtype
from bertpool.encoder.layers import Layers
from bertpool.encoder.packed.encoder import PackedEncoder, build_encoder
from bertpool.encoder.packed.families import FAMILIES, Shape, read_shape
from bertpool.encoder.packed.weights import read_weights
from bertpool.encoder.weight_check import check_pooler
from bertpool.errors import ModelError

# Batches run side by side up to here; more threads than that go into each batch's operations.
MAX_WORKERS = 8
MOST_CUDA_TOKENS = 65_536  # more fill no GPU better, and make a window's progress jump


def load_packed(
    checkpoint: Checkpoint,
    *,
    strategies: frozenset[str],
    wanted: Sequence[Layers],
    device: torch.device,
    dtype: Dtype,
    batch_tokens: int | None,
    threads: int,
) -> PackedEncoder:
    """Load a checkpoint of a supported family, with every encoder weight found.

    On a CPU each of a few worker threads runs whole batches by itself: there is nothing to
    synchronize inside an operation, and the number of threads can't change a sum's order.

    Raises:
        ModelError: the checkpoint isn't whole.
        PoolingError: a pooler is needed and the checkpoint has none.
    """
    workers = min(threads, MAX_WORKERS) if device.type == "cpu" else 1
    torch.set_num_threads(max(1, threads // workers))
    family = FAMILIES[checkpoint.config["model_type"]]
    try:
        shape = read_shape(checkpoint.config)
    except KeyError as error:
        raise ModelError(f"{checkpoint.name}: config.json has no {error}") from error
    weights = read_weights(checkpoint, family, shape)
    if "pooler" in strategies:
        missing = {"pooler.dense.weight", "pooler.dense.bias"} - set(weights)
        check_pooler(checkpoint, exists=family.pooler, missing=missing)
    return build_encoder(
        weights,
        family,
        shape,
        device=device,
        dtype=getattr(torch, dtype),
        batch_tokens=batch_tokens or _default_batch_tokens(shape, device),
        strategies=strategies,
        wanted=wanted,
        workers=workers,
    )


def _default_batch_tokens(shape: Shape, device: torch.device) -> int:
    """Return the budget that suits a core's cache, or half of a GPU's free memory."""
    if device.type == "cpu":
        return PACKED_BATCH_TOKENS
    free, _ = torch.cuda.mem_get_info(device)
    token_bytes = 4 * (8 * shape.hidden_size + 2 * shape.intermediate_size)
    return min(MOST_CUDA_TOKENS, max(PACKED_BATCH_TOKENS, free // (2 * token_bytes)))
