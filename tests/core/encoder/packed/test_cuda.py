"""The packed way on a CUDA device gives what it gives on a CPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from bertpool.encoder.device import Dtype
from embedding import embed
from tiny_models import sentences

pytestmark = [
    pytest.mark.requires_cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
TEXTS = sentences(60, 3, 60)


@pytest.mark.parametrize("model", ["tiny-bert", "tiny-roberta", "tiny-electra", "tiny-mpnet"])
@pytest.mark.parametrize("strategy", ["cls", "mean", "max", "attention"])
def test_float32_equals_the_cpu(tiny: Callable[[str], Path], model: str, strategy: str) -> None:
    on_gpu = embed(tiny(model), TEXTS, strategy=strategy, device="cuda")
    on_cpu = embed(tiny(model), TEXTS, strategy=strategy)
    np.testing.assert_allclose(on_gpu, on_cpu, rtol=0, atol=1e-4)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_is_close_to_float32(minilm: Path, dtype: Dtype) -> None:
    half = embed(minilm, TEXTS, dtype=dtype, device="cuda")
    exact = embed(minilm, TEXTS)
    lengths = np.linalg.norm(half, axis=1) * np.linalg.norm(exact, axis=1)
    assert ((half * exact).sum(1) / lengths).min() > 0.999
