from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf
from bertpool.encoder.checkpoint import find_checkpoint
from bertpool.encoder.limits import length_limit
from bertpool.encoder.packed.attention import Run, relative_position_bias
from bertpool.encoder.packed.encoder import PackedEncoder, build_encoder, make_runs
from bertpool.encoder.packed.families import FAMILIES, read_shape, unsupported
from bertpool.encoder.packed.weights import read_weights
from bertpool.encoder.padded import PaddedEncoder
from bertpool.pooling import STRATEGIES
from embedding import embed, load
from oracle import load as load_reference
from oracle import reference_vectors
from tiny_models import sentences
from transformers.models.mpnet.modeling_mpnet import MPNetEncoder

Tiny = Callable[[str], Path]

NO_POOLER = ("tiny-electra", "tiny-distil")
PACKED = (
    "tiny-bert",
    "tiny-roberta",
    "tiny-roberta-pad3",
    "tiny-xlm-roberta",
    "tiny-camembert",
    "tiny-mpnet",
    *NO_POOLER,
)
TEXTS = ["", "hi", "cat one", "dog two", *sentences(7, 1, 90)]
TYPED_PADDING = ["<pad>", "<pad> cat <pad>", "cat <pad><pad> dog", "<pad> one two", "one two"]


# Which encoder runs


def test_what_runs_packed_does_not_import_transformers(tiny: Tiny) -> None:
    code = (
        "import sys; from pathlib import Path; from embedding import embed\n"
        "for directory in sys.argv[1:]: embed(Path(directory), ['cat one', ''])\n"
        "print('transformers' in sys.modules)"
    )
    finished = subprocess.run(
        [sys.executable, "-c", code, *(str(tiny(model)) for model in PACKED)],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.strip() == "False"


@pytest.mark.parametrize("model", [*PACKED, "tiny-sharded", "tiny-gamma", "tiny-fp16"])
def test_these_families_run_packed(tiny: Tiny, model: str) -> None:
    assert isinstance(load(tiny(model)).encoder, PackedEncoder)


@pytest.mark.parametrize("model", ["tiny-albert", "tiny-deberta-v2", "tiny-modernbert", "tiny-bin"])
def test_what_the_packed_way_does_not_have_runs_padded(tiny: Tiny, model: str) -> None:
    assert isinstance(load(tiny(model)).encoder, PaddedEncoder)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({}, None),
        ({"hidden_act": "gelu_new"}, None),
        ({"hidden_act": "relu"}, None),
        ({"is_decoder": False, "pruned_heads": {}, "quantization_config": None}, None),
        ({"position_embedding_type": "absolute"}, None),
        ({"model_type": "albert"}, "model type albert"),
        ({"model_type": None}, "model type None"),
        ({"hidden_act": "silu"}, "activation silu"),
        ({"hidden_act": None}, "activation None"),
        ({"position_embedding_type": "relative_key"}, "relative positions"),
        ({"is_decoder": True}, "a decoder"),
        ({"add_cross_attention": True}, "cross attention"),
        ({"quantization_config": {"quant_method": "gptq"}}, "quantized weights"),
        ({"pruned_heads": {"0": [1]}}, "pruned heads"),
        ({"model_type": "distilbert"}, "activation None"),
        ({"model_type": "distilbert", "activation": "gelu"}, None),
    ],
)
def test_the_reason_why_a_configuration_runs_padded_is_said(
    changed: Mapping[str, Any], reason: str | None
) -> None:
    assert unsupported({"model_type": "bert", "hidden_act": "gelu", **changed}) == reason


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("changed", [{"hidden_act": "silu"}, {"is_decoder": True}])
def test_what_runs_padded_instead_equals_the_reference(
    tiny: Tiny, tmp_path: Path, changed: dict[str, Any], strategy: str
) -> None:
    directory = changed_config(tiny("tiny-bert"), tmp_path, **changed)
    assert isinstance(load(directory).encoder, PaddedEncoder)
    assert_equal_to_the_reference(directory, TEXTS, strategy)


# What the layers compute


@pytest.mark.parametrize("activation", ["gelu_new", "relu"])
@pytest.mark.parametrize("model", ["tiny-bert", "tiny-distil"])
def test_other_activations_equal_the_reference(
    tiny: Tiny, tmp_path: Path, model: str, activation: str
) -> None:
    key = "activation" if model == "tiny-distil" else "hidden_act"
    directory = changed_config(tiny(model), tmp_path, **{key: activation})
    assert isinstance(load(directory).encoder, PackedEncoder)
    for strategy in strategies_of(model):
        assert_equal_to_the_reference(directory, TEXTS, strategy)
    assert np.abs(embed(directory, TEXTS) - embed(tiny(model), TEXTS)).max() > 1e-4


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(
    "model", ["tiny-roberta", "tiny-roberta-pad3", "tiny-xlm-roberta", "tiny-mpnet"]
)
def test_padding_tokens_typed_into_a_text_equal_the_reference(
    tiny: Tiny, model: str, strategy: str
) -> None:
    embedder = load(tiny(model))
    typed = embedder.tokenizer.encode(TYPED_PADDING[1:2])[0]
    assert typed.input_ids.count(embedder.tokenizer.pad_id) == 2
    assert_equal_to_the_reference(tiny(model), TYPED_PADDING, strategy)


@pytest.mark.parametrize("strategies", [frozenset({"mean"}), frozenset({"cls"})])
@pytest.mark.parametrize("model", PACKED)
def test_layers_after_the_last_one_asked_for_are_not_run(
    tiny: Tiny, model: str, strategies: frozenset[str]
) -> None:
    checkpoint = find_checkpoint(str(tiny(model)))
    family, shape = FAMILIES[checkpoint.config["model_type"]], read_shape(checkpoint.config)
    encoder = build_encoder(
        read_weights(checkpoint, family, shape),
        family,
        shape,
        device=torch.device("cpu"),
        dtype=torch.float32,
        batch_tokens=4096,
        strategies=strategies,
        wanted=[(1,)],
    )
    assert shape.num_layers == 2
    assert len(encoder.layers) == 1
    tokenizer, network = load_reference(tiny(model))
    for text in ("hi", "cat one two a b"):
        inputs = tokenizer(text, return_tensors="pt")
        with torch.inference_mode():
            expected = network(**inputs, output_hidden_states=True).hidden_states[1]
        ((_, block),) = encoder.encode(load(tiny(model)).tokenizer.encode([text]))
        if strategies == {"cls"}:
            expected = expected[:, :1]
        torch.testing.assert_close(block.hidden_states, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("length", [1, 2, 40, 300])
def test_the_position_bias_equals_mpnets_own(length: int) -> None:
    torch.manual_seed(0)
    config = hf.MPNetConfig(
        vocab_size=8, hidden_size=32, num_hidden_layers=1, num_attention_heads=4
    )
    own: Any = MPNetEncoder(config).eval()
    with torch.inference_mode():
        torch.nn.init.normal_(own.relative_attention_bias.weight)
        expected = own.compute_position_bias(torch.zeros(1, length, 32))[0]
        bias = relative_position_bias(own.relative_attention_bias.weight, length)
    torch.testing.assert_close(bias, expected, rtol=0, atol=0)


# Batches


@pytest.mark.parametrize(
    ("lengths", "runs"),
    [
        ([], []),
        ([5], [Run(0, 1, 5)]),
        ([4, 4, 4], [Run(0, 3, 4)]),
        ([3, 3, 2], [Run(0, 2, 3), Run(6, 1, 2)]),
        ([9, 4, 4, 1], [Run(0, 1, 9), Run(9, 2, 4), Run(17, 1, 1)]),
    ],
)
def test_equal_lengths_that_follow_one_another_are_one_run(
    lengths: list[int], runs: list[Run]
) -> None:
    assert make_runs(lengths) == runs


@pytest.mark.parametrize("model", PACKED)
def test_a_batch_takes_no_slot_beside_its_tokens(tiny: Tiny, model: str) -> None:
    embedded = load(tiny(model)).embed([*TEXTS, *TEXTS])
    assert embedded.distinct == len(TEXTS)
    assert embedded.slots == embedded.distinct_tokens
    assert embedded.slots * 2 == embedded.encoded_tokens.sum()


# What the tests above use


def strategies_of(model: str) -> list[str]:
    return [name for name in STRATEGIES if name != "pooler" or model not in NO_POOLER]


def assert_equal_to_the_reference(directory: Path, texts: list[str], strategy: str) -> None:
    limit = length_limit(find_checkpoint(str(directory))).tokens
    expected = reference_vectors(directory, texts, strategy, max_length=limit)
    for batch_tokens in (16, 8192):
        vectors = embed(directory, texts, strategy=strategy, batch_tokens=batch_tokens)
        np.testing.assert_allclose(vectors, expected, rtol=0, atol=1e-5)


def changed_config(directory: Path, tmp_path: Path, **values: object) -> Path:
    """Copy a model and set keys of its config.json."""
    copy = Path(shutil.copytree(directory, tmp_path / directory.name))
    content = json.loads((copy / "config.json").read_text(encoding="utf-8"))
    (copy / "config.json").write_text(json.dumps({**content, **values}), encoding="utf-8")
    return copy
