"""``--strategy tokens``: every token's own vector."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from bertpool.errors import BertpoolError
from bertpool.extraction import extract
from embedding import load
from oracle import encode_alone
from oracle import load as load_reference
from tiny_models import sentences

Tiny = Callable[[str], Path]

TEXTS = ["", "hi", "cat one two", *sentences(12, 4, 50), "hi"]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "notes.txt"
    path.write_text("\n".join(TEXTS))
    return path


@pytest.mark.parametrize("layer", [0, 1, 2])
@pytest.mark.parametrize("model", ["tiny-bert", "tiny-roberta", "tiny-albert"])
def test_they_are_the_references_hidden_states(tiny: Tiny, model: str, layer: int) -> None:
    embedder = load(tiny(model), strategy="tokens", layer=layer, batch_tokens=64)
    tokens = embedder.embed(TEXTS).tokens
    assert tokens is not None
    for text, one in zip(TEXTS, tokens, strict=True):
        expected = encode_alone(tiny(model), text, 64)[0][layer][0]
        assert one.vectors.shape == expected.shape
        assert np.abs(one.vectors - expected).max() < 1e-5


@pytest.mark.parametrize("model", ["tiny-bert", "tiny-roberta"])
def test_the_names_are_the_vocabularys(tiny: Tiny, model: str) -> None:
    tokens = load(tiny(model), strategy="tokens").embed(TEXTS).tokens
    assert tokens is not None
    tokenizer, _ = load_reference(tiny(model))
    for text, one in zip(TEXTS, tokens, strict=True):
        ids = tokenizer(text, truncation=True, max_length=64)["input_ids"]
        assert one.names == tokenizer.convert_ids_to_tokens(ids)


@pytest.mark.parametrize("model", ["tiny-bert", "tiny-albert"])
def test_without_special_tokens_those_are_left_out(tiny: Tiny, model: str) -> None:
    whole = load(tiny(model), strategy="tokens").embed(TEXTS).tokens
    less = load(tiny(model), strategy="tokens", exclude_special=True).embed(TEXTS).tokens
    assert whole is not None
    assert less is not None
    np.testing.assert_allclose(less[2].vectors, whole[2].vectors[1:-1], rtol=0, atol=1e-6)
    assert less[0].names == whole[0].names  # a blank text has no others


def test_they_are_normalized_and_cut_one_by_one(tiny: Tiny) -> None:
    raw = load(tiny("tiny-bert"), strategy="tokens").embed(["cat one"]).tokens
    cut = load(tiny("tiny-bert"), strategy="tokens", dimensions=4, normalize=True)
    short = cut.embed(["cat one"]).tokens
    assert raw is not None
    assert short is not None
    expected = raw[0].vectors[:, :4]
    expected = expected / np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(short[0].vectors, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("output_dtype", ["float32", "float16"])
def test_the_file_holds_them_beside_the_pooled_vectors(
    tiny: Tiny, source: Path, output_dtype: Any
) -> None:
    extract(
        [str(source)], model=str(tiny("tiny-bert")), strategy="tokens,mean",
        output_dtype=output_dtype,
    )  # fmt: skip
    table = pq.read_table(source.with_suffix(".parquet"))
    assert table.column_names[-3:] == ["embedding", "tokens", "token_embeddings"]
    for row in table.to_pylist():
        vectors = np.array(row["token_embeddings"])
        assert len(row["tokens"]) == len(vectors) == min(64, row["n_tokens"])
        assert np.abs(vectors.mean(axis=0) - row["embedding"]).max() < 1e-2
    kind = table.schema.field("token_embeddings").type.value_type
    assert kind.list_size == 32
    assert str(kind.value_type) == {"float32": "float", "float16": "halffloat"}[output_dtype]


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
def test_the_bytes_do_not_depend_on_the_windows(
    tiny: Tiny, source: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [source.with_name(f"{name}{suffix}") for name in ("one", "other")]
    extract([str(source)], model=str(tiny("tiny-bert")), strategy="tokens", output=str(paths[0]))
    monkeypatch.setattr("bertpool.corpus.corpus.WINDOW_ROWS", 32 * 3)
    extract([str(source)], model=str(tiny("tiny-bert")), strategy="tokens", output=str(paths[1]))
    assert paths[0].read_bytes() == paths[1].read_bytes()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"output": "x.npy"}, "one vector a row"),
        ({"on_truncate": "window"}, "windows aren't joined"),
        ({"layer": "1,2"}, "of one --layer"),
        ({"strategy": "auto,tokens"}, "auto stands alone"),
    ],
)
def test_what_they_do_not_go_with_is_refused(
    tiny: Tiny, source: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(BertpoolError, match=message) as caught:
        extract([str(source)], model=str(tiny("tiny-bert")), **{"strategy": "tokens", **options})
    assert caught.value.exit_code == 2
