from __future__ import annotations

import json
import random
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from bertpool.errors import PoolingError
from embedding import embed, load
from oracle import encode_alone, reference_vectors
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from tiny_models import sentences

Tiny = Callable[[str], Path]

CORPUS = Path(__file__).parents[2] / "sample_data" / "corpus.txt"
MINILM_STRATEGIES = ("cls", "pooler", "mean", "max", "attention")
MINILM_LIMIT = 256
FEW, MANY = 300, 8192  # token slots in a batch


def mixed_texts(count: int, seed: int = 0) -> list[str]:
    """Join real lines into texts, most of them short, some of more tokens than a model takes."""
    lines = CORPUS.read_text(encoding="utf-8").splitlines()
    rng = random.Random(seed)
    joined = [rng.choices((1, 2, 4, 8, 24), weights=(60, 20, 10, 6, 4))[0] for _ in range(count)]
    return [" ".join(rng.choices(lines, k=number)) for number in joined]


@pytest.fixture(scope="module")
def texts() -> list[str]:
    return mixed_texts(300)


def differences(
    vectors: npt.NDArray[np.float32], minilm: Path, texts: list[str], strategy: str
) -> float:
    expected = reference_vectors(minilm, texts, strategy, max_length=MINILM_LIMIT)
    return float(np.abs(vectors - expected).max())


# The real model against transformers, one text at a time


@pytest.mark.parametrize("strategy", MINILM_STRATEGIES)
def test_the_real_models_vectors_equal_the_reference(
    minilm: Path, texts: list[str], strategy: str
) -> None:
    vectors = embed(minilm, texts, strategy=strategy, batch_tokens=MANY)
    assert differences(vectors, minilm, texts, strategy) < 1e-5


@pytest.mark.parametrize("strategy", MINILM_STRATEGIES)
def test_the_real_models_vectors_equal_the_reference_in_tiny_batches(
    minilm: Path, texts: list[str], strategy: str
) -> None:
    vectors = embed(minilm, texts[:150], strategy=strategy, batch_tokens=FEW)
    assert differences(vectors, minilm, texts[:150], strategy) < 1e-5


@pytest.mark.parametrize("strategy", MINILM_STRATEGIES)
def test_the_real_models_vector_of_a_text_alone_equals_the_reference(
    minilm: Path, texts: list[str], strategy: str
) -> None:
    embedder = load(minilm, strategy=strategy)
    alone = [embedder.embed([text]).vectors["embedding"][0] for text in texts[:60]]
    assert differences(np.array(alone), minilm, texts[:60], strategy) < 1e-5


def test_the_mixed_texts_reach_beyond_the_real_models_limit(minilm: Path, texts: list[str]) -> None:
    tokenized = load(minilm).tokenizer.encode(texts)
    assert min(text.n_tokens for text in tokenized) < 10
    assert max(len(text.input_ids) for text in tokenized) == MINILM_LIMIT
    assert 3 < sum(text.truncated for text in tokenized) < 60


# auto against sentence-transformers


def encode(directory: Path, texts: list[str]) -> npt.NDArray[np.float32]:
    """Encode as any user of sentence-transformers would."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = SentenceTransformer(str(directory), device="cpu")
        return np.asarray(model.encode(texts, show_progress_bar=False))


def test_auto_equals_sentence_transformers_for_the_real_model(
    minilm: Path, texts: list[str]
) -> None:
    sample = texts[:100]
    vectors = embed(minilm, sample, strategy="auto")
    np.testing.assert_allclose(vectors, encode(minilm, sample), rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    "model",
    ["tiny-st-cls", "tiny-st-mean-normalize", "tiny-st-dense", "tiny-st-multi", "tiny-st-prompt"],
)
def test_auto_equals_sentence_transformers(tiny: Tiny, model: str) -> None:
    lines = ["", "hello [SEP] word", *sentences(20, 3, 90)]
    vectors = embed(tiny(model), lines, strategy="auto")
    np.testing.assert_allclose(vectors, encode(tiny(model), lines), rtol=0, atol=1e-5)


OLD_KEYS = (
    "cls_token", "max_tokens", "mean_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens",
    "lasttoken",
)  # fmt: skip
NEW_MODES = ("cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")
POOLINGS: list[dict[str, Any]] = [
    *({f"pooling_mode_{key}": True, "pooling_mode_mean_tokens": False} for key in OLD_KEYS[:2]),
    *({f"pooling_mode_{key}": True} for key in OLD_KEYS[2:3]),
    *({f"pooling_mode_{key}": True, "pooling_mode_mean_tokens": False} for key in OLD_KEYS[3:]),
    *({"pooling_mode": mode} for mode in NEW_MODES),
    {"pooling_mode": ["max", "cls"]},
    {"pooling_mode_max_tokens": True, "pooling_mode_cls_token": True},
    {},
]


@pytest.mark.parametrize("pooling", POOLINGS, ids=str)
def test_auto_equals_sentence_transformers_for_every_declared_pooling(
    tiny: Tiny, tmp_path: Path, pooling: dict[str, Any]
) -> None:
    directory = with_modules(tiny, tmp_path, ["Pooling"], pooling=pooling)
    assert_equal_to_sentence_transformers(directory)


def test_weighting_by_position_without_the_prompt_is_refused(tiny: Tiny, tmp_path: Path) -> None:
    # sentence-transformers counts the prompt's positions there, bertpool those that are pooled.
    pooling = {"pooling_mode": "weightedmean", "include_prompt": False}
    directory = with_modules(tiny, tmp_path, ["Pooling"], pooling=pooling)
    write(directory, "config_sentence_transformers.json", **PROMPT)
    with pytest.raises(PoolingError, match="weighted_mean pooling without the prompt"):
        load(directory, strategy="auto")


@pytest.mark.parametrize("mode", [mode for mode in NEW_MODES if mode != "weightedmean"])
def test_auto_equals_sentence_transformers_where_the_prompt_is_left_out_of_the_pooling(
    tiny: Tiny, tmp_path: Path, mode: str
) -> None:
    pooling = {"pooling_mode": mode, "include_prompt": False}
    directory = with_modules(tiny, tmp_path, ["Pooling"], pooling=pooling)
    write(directory, "config_sentence_transformers.json", **PROMPT)
    assert_equal_to_sentence_transformers(directory)


@pytest.mark.parametrize("activation", ["Identity", "Tanh", "Sigmoid", "ReLU"])
def test_auto_equals_sentence_transformers_for_every_activation_of_a_dense_module(
    tiny: Tiny, tmp_path: Path, activation: str
) -> None:
    directory = with_modules(tiny, tmp_path, ["Pooling", "Dense", "Normalize"])
    name = f"torch.nn.modules.linear.{activation}"
    if activation != "Identity":
        name = f"torch.nn.modules.activation.{activation}"
    write(directory, "2_Dense/config.json", **DENSE, activation_function=name)
    assert_equal_to_sentence_transformers(directory)


def test_auto_follows_the_order_of_the_declared_modules(tiny: Tiny, tmp_path: Path) -> None:
    directory = with_modules(tiny, tmp_path, ["Pooling", "Normalize", "Dense"])
    assert_equal_to_sentence_transformers(directory)


def test_auto_equals_sentence_transformers_for_a_transformer_in_its_own_folder(
    tiny: Tiny, tmp_path: Path
) -> None:
    directory = with_modules(tiny, tmp_path, ["Pooling"], transformer="0_Transformer")
    write(directory, "0_Transformer/sentence_bert_config.json", max_seq_length=20)
    assert_equal_to_sentence_transformers(directory)


@pytest.mark.parametrize("file", ["sentence_bert_config.json", "sentence_roberta_config.json"])
def test_auto_cuts_texts_where_sentence_transformers_does(
    tiny: Tiny, tmp_path: Path, file: str
) -> None:
    directory = with_modules(tiny, tmp_path, ["Pooling"], base="tiny-roberta")
    write(directory, file, max_seq_length=10)
    assert_equal_to_sentence_transformers(directory)


@pytest.mark.parametrize("base", ["tiny-bert", "tiny-roberta"])
def test_auto_lower_cases_where_sentence_transformers_does(
    tiny: Tiny, tmp_path: Path, base: str
) -> None:
    directory = with_modules(tiny, tmp_path, ["Pooling"], base=base)
    write(directory, "sentence_bert_config.json", max_seq_length=60, do_lower_case=True)
    lines = ["CAT One", "Hello [SEP] Word", "one two", "É"]
    assert_equal_to_sentence_transformers(directory, lines)


@pytest.mark.parametrize("base", ["tiny-bert", "tiny-roberta"])
def test_auto_lower_cases_the_prompt_too_where_it_is_left_out_of_the_pooling(
    tiny: Tiny, tmp_path: Path, base: str
) -> None:
    pooling = {"pooling_mode": "mean", "include_prompt": False}
    directory = with_modules(tiny, tmp_path, ["Pooling"], base=base, pooling=pooling)
    write(directory, "sentence_bert_config.json", max_seq_length=60, do_lower_case=True)
    write(
        directory,
        "config_sentence_transformers.json",
        prompts={"query": "THE CAT "},
        default_prompt_name="query",
    )
    assert_equal_to_sentence_transformers(directory, ["", "cat", "One two"])


@pytest.mark.parametrize("text", ["", "cat", "cat one " * 40], ids=["blank", "short", "long"])
def test_auto_equals_sentence_transformers_for_a_left_truncating_tokenizer(
    tiny: Tiny, tmp_path: Path, text: str
) -> None:
    directory = with_modules(tiny, tmp_path, ["Pooling"])
    config = json.loads((directory / "tokenizer_config.json").read_text(encoding="utf-8"))
    write(directory, "tokenizer_config.json", **{**config, "truncation_side": "left"})
    assert_equal_to_sentence_transformers(directory, [text, "dog"])


def test_a_prompt_given_goes_before_every_text(tiny: Tiny) -> None:
    lines = sentences(5, 4, 20)
    prompted = embed(tiny("tiny-bert"), lines, prompt="the dog ")
    typed = embed(tiny("tiny-bert"), [f"the dog {line}" for line in lines])
    np.testing.assert_array_equal(prompted, typed)


def test_an_empty_prompt_takes_the_place_of_the_declared_one(tiny: Tiny) -> None:
    lines = sentences(5, 4, 20)
    bare = embed(tiny("tiny-st-prompt"), lines, strategy="auto", prompt="")
    np.testing.assert_allclose(bare, embed(tiny("tiny-bert"), lines), rtol=0, atol=1e-6)


def test_a_prompt_left_out_of_the_pooling_still_changes_the_vector(tiny: Tiny) -> None:
    lines = sentences(5, 4, 20)
    declared = embed(tiny("tiny-st-prompt"), lines, strategy="auto")
    assert np.abs(declared - embed(tiny("tiny-bert"), lines)).max() > 1e-2


# Order


@pytest.mark.parametrize("batch_tokens", [1, 70, 640, 30_000])
def test_every_row_is_its_own_texts_vector(tiny: Tiny, batch_tokens: int) -> None:
    lines = sentences(300, 5, 12)
    for row in (0, 150, 299):
        lines[row] = "same word"
    embedder = load(tiny("tiny-bert"), batch_tokens=batch_tokens)
    vectors = embedder.embed(lines).vectors["embedding"]
    expected = reference_vectors(tiny("tiny-bert"), lines, "mean", max_length=64)
    assert vectors.shape == (300, 32)
    np.testing.assert_allclose(vectors, expected, rtol=0, atol=1e-5)


def test_rows_follow_their_texts_into_another_order(tiny: Tiny) -> None:
    lines = sentences(100, 6, 60)
    order = random.Random(0).sample(range(100), 100)
    embedder = load(tiny("tiny-bert"), batch_tokens=256)
    vectors = embedder.embed(lines).vectors["embedding"]
    shuffled = embedder.embed([lines[i] for i in order])
    np.testing.assert_allclose(shuffled.vectors["embedding"], vectors[order], rtol=0, atol=1e-5)


def test_counts_of_tokens_follow_the_order_of_the_texts(tiny: Tiny) -> None:
    embedded = load(tiny("tiny-bert")).embed(["cat one", "one " * 80, "", "cat"])
    assert embedded.n_tokens.tolist() == [4, 82, 2, 3]
    assert embedded.encoded_tokens.tolist() == [4, 64, 2, 3]
    assert embedded.truncated.tolist() == [False, True, False, False]


def test_no_texts_give_no_rows_of_the_full_width(tiny: Tiny) -> None:
    embedded = load(tiny("tiny-bert")).embed([])
    assert embedded.vectors["embedding"].shape == (0, 32)
    assert embedded.finite.shape == (0,)


def test_every_text_and_token_is_announced_once(tiny: Tiny) -> None:
    seen: list[tuple[int, int]] = []
    lines = sentences(50, 7, 90)
    embedder = load(tiny("tiny-bert"), batch_tokens=128)
    embedded = embedder.embed(lines, on_batch=lambda rows, tokens: seen.append((rows, tokens)))
    totals = np.array(seen).sum(axis=0)
    assert totals.tolist() == [50, embedded.encoded_tokens.sum()]


# Special tokens, and texts without any


@pytest.mark.parametrize(
    ("strategy", "reduce"),
    [
        ("mean", lambda h: h.mean(axis=0)),
        ("max", lambda h: h.max(axis=0)),
        ("mean_sqrt_len", lambda h: h.sum(axis=0) / np.sqrt(len(h))),
    ],
)
def test_excluding_special_tokens_pools_the_words_alone(
    tiny: Tiny, strategy: str, reduce: Callable[[Any], Any]
) -> None:
    lines = ["cat one two", "dog", *sentences(5, 8, 20)]
    vectors = embed(tiny("tiny-bert"), lines, strategy=strategy, exclude_special=True)
    hidden = [encode_alone(tiny("tiny-bert"), line, 64)[0][-1][0] for line in lines]
    expected = [reduce(h[1:-1]) for h in hidden]
    np.testing.assert_allclose(vectors, expected, rtol=0, atol=1e-5)


def test_attention_without_special_tokens_shares_their_weight_out(tiny: Tiny) -> None:
    vectors = embed(tiny("tiny-bert"), ["cat one"], strategy="attention", exclude_special=True)
    states, _, attentions = encode_alone(tiny("tiny-bert"), "cat one", 64)
    received = attentions[-1][0].mean(axis=(0, 1))[1:-1]
    expected = received @ states[-1][0, 1:-1] / received.sum()
    np.testing.assert_allclose(vectors[0], expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("strategy", ["cls", "last", "pooler"])
def test_excluding_special_tokens_leaves_single_positions_as_they_are(
    tiny: Tiny, strategy: str
) -> None:
    lines = ["cat one", "dog"]
    left_out = embed(tiny("tiny-bert"), lines, strategy=strategy, exclude_special=True)
    np.testing.assert_array_equal(left_out, embed(tiny("tiny-bert"), lines, strategy=strategy))


@pytest.mark.parametrize("blank", ["", "   ", "\t", "\u3000", "\u200b", "[SEP]", "[PAD] [CLS]"])
def test_a_text_of_special_tokens_only_is_pooled_over_them(tiny: Tiny, blank: str) -> None:
    directory = tiny("tiny-bert")
    left_out = embed(directory, ["cat one", blank], exclude_special=True)[1]
    np.testing.assert_allclose(left_out, embed(directory, [blank])[0], rtol=0, atol=1e-6)


def test_a_special_token_typed_by_the_user_is_excluded_too(tiny: Tiny) -> None:
    text = "cat [SEP] dog"
    vectors = embed(tiny("tiny-bert"), [text], exclude_special=True)
    hidden = encode_alone(tiny("tiny-bert"), text, 64)[0][-1][0]
    assert len(hidden) == 5
    np.testing.assert_allclose(vectors[0], hidden[[1, 3]].mean(axis=0), rtol=0, atol=1e-5)


def test_an_unknown_word_is_a_word_and_not_excluded(tiny: Tiny) -> None:
    text = "cat \U0001f600"
    vectors = embed(tiny("tiny-bert"), [text], exclude_special=True)
    hidden = encode_alone(tiny("tiny-bert"), text, 64)[0][-1][0]
    np.testing.assert_allclose(vectors[0], hidden[1:3].mean(axis=0), rtol=0, atol=1e-5)


@pytest.mark.parametrize("strategy", ["cls", "pooler", "mean", "max", "attention", "last"])
def test_a_text_without_any_token_gets_zeros_and_its_neighbours_their_vectors(
    tiny: Tiny, strategy: str
) -> None:
    directory = tiny("tiny-nospecial")
    lines = ["", "cat one", "   ", "dog"]
    vectors = embed(directory, lines, strategy=strategy)
    assert not vectors[[0, 2]].any()
    expected = reference_vectors(directory, ["cat one", "dog"], strategy, max_length=64)
    np.testing.assert_allclose(vectors[[1, 3]], expected, rtol=0, atol=1e-5)


def test_texts_without_any_token_need_no_other_text(tiny: Tiny) -> None:
    embedded = load(tiny("tiny-nospecial")).embed(["", ""])
    assert not embedded.vectors["embedding"].any()
    assert embedded.n_tokens.tolist() == [0, 0]


def test_rows_of_unknown_tokens_only_are_told(tiny: Tiny) -> None:
    embedded = load(tiny("tiny-bert")).embed(["\U0001f600", "cat \U0001f600", "", "cat"])
    assert embedded.unknown_only.tolist() == [True, False, False, False]


# After the pooling


def test_normalizing_gives_norm_one_and_leaves_zero_vectors_zero(tiny: Tiny) -> None:
    normal = embed(tiny("tiny-bert"), sentences(5, 9, 20), normalize=True)
    np.testing.assert_allclose(np.linalg.norm(normal, axis=1), 1, atol=1e-5)
    assert not embed(tiny("tiny-zero"), sentences(5, 9, 20), normalize=True).any()


def test_zero_vectors_are_told(tiny: Tiny) -> None:
    assert load(tiny("tiny-zero")).embed(["cat", "dog"]).zero.all()
    assert not load(tiny("tiny-bert")).embed(["cat", "dog"]).zero.any()


def test_dimensions_are_cut_before_normalizing(tiny: Tiny) -> None:
    lines = sentences(5, 9, 20)
    full = embed(tiny("tiny-bert"), lines)[:, :8]
    cut = embed(tiny("tiny-bert"), lines, dimensions=8, normalize=True)
    expected = full / np.linalg.norm(full, axis=1, keepdims=True)
    np.testing.assert_allclose(cut, expected, rtol=0, atol=1e-6)


def test_vectors_that_are_not_finite_are_told_for_their_rows(tiny: Tiny, tmp_path: Path) -> None:
    directory = Path(shutil.copytree(tiny("tiny-bert"), tmp_path / "nan"))
    weights = load_file(directory / "model.safetensors")
    cat = load(tiny("tiny-bert")).tokenizer.encode(["cat"])[0].input_ids[1]
    weights["embeddings.word_embeddings.weight"][cat] = float("nan")
    save_file(weights, directory / "model.safetensors", {"format": "pt"})
    embedded = load(directory).embed(["dog", "one cat two", "hi"])
    assert embedded.finite.tolist() == [True, False, True]


# What the tests above build

PROMPT = {"prompts": {"query": "the cat "}, "default_prompt_name": "query"}
DENSE = {"in_features": 32, "out_features": 8, "bias": True}


def write(directory: Path, file: str, **content: Any) -> None:
    (directory / file).parent.mkdir(exist_ok=True)
    (directory / file).write_text(json.dumps(content), encoding="utf-8")


def with_modules(
    tiny: Tiny,
    tmp_path: Path,
    kinds: list[str],
    *,
    base: str = "tiny-bert",
    transformer: str = "",
    pooling: dict[str, Any] | None = None,
) -> Path:
    """Put the modules of sentence-transformers behind a tiny transformer, in the order given."""
    directory = tmp_path / "model"
    shutil.copytree(tiny(base), directory / transformer)
    paths = {"Transformer": transformer, **{k: f"{i}_{k}" for i, k in enumerate(kinds, start=1)}}
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (kind, path) in enumerate(paths.items())
    ]
    (directory / "modules.json").write_text(json.dumps(modules))
    declared = {"pooling_mode": "mean"} if pooling is None else pooling
    write(directory, "1_Pooling/config.json", word_embedding_dimension=32, **declared)
    if "Dense" in kinds:
        folder = paths["Dense"]
        activation = "torch.nn.modules.activation.Tanh"
        write(directory, f"{folder}/config.json", **DENSE, activation_function=activation)
        torch.manual_seed(1)
        weights = {"linear.weight": torch.randn(8, 32) * 0.3, "linear.bias": torch.randn(8) * 0.3}
        save_file(weights, directory / folder / "model.safetensors", {"format": "pt"})
    return directory


def assert_equal_to_sentence_transformers(directory: Path, lines: list[str] | None = None) -> None:
    lines = ["", "hello [SEP] word", *sentences(12, 3, 90)] if lines is None else lines
    vectors = embed(directory, lines, strategy="auto")
    np.testing.assert_allclose(vectors, encode(directory, lines), rtol=0, atol=1e-5)
