from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf
from bertpool.encoder.checkpoint import find_checkpoint
from bertpool.encoder.limits import length_limit
from bertpool.errors import ModelError, PoolingError
from bertpool.pooling import STRATEGIES
from embedding import embed, load
from oracle import reference_vectors
from safetensors.torch import save_file
from tiny_models import sentences

Tiny = Callable[[str], Path]

WITH_POOLER = (
    "tiny-bert",
    "tiny-bert-deep",
    "tiny-roberta",
    "tiny-roberta-pad3",
    "tiny-xlm-roberta",
    "tiny-camembert",
    "tiny-mpnet",
    "tiny-albert",
    "tiny-left",
    "tiny-nomax",
    "tiny-classifier",
    "tiny-gamma",
    "tiny-fp16",
    "tiny-bin",
    "tiny-sharded",
    "tiny-baked",
)
NO_POOLER_KIND = ("tiny-distil", "tiny-electra", "tiny-deberta-v2", "tiny-modernbert")
NO_POOLER_WEIGHTS = ("tiny-head", "tiny-nopool")
MODELS = (*WITH_POOLER, *NO_POOLER_KIND, *NO_POOLER_WEIGHTS)
SUPPORTED = [
    (model, strategy)
    for model in MODELS
    for strategy in STRATEGIES
    if strategy != "pooler" or model in WITH_POOLER
]
# Blank, one word, equal lengths, a special token typed out, and some beyond the models' limits.
TEXTS = ["", "hi", "cat one", "dog two", "hello [SEP] </s> word", *sentences(7, 1, 90)]
FEW, MANY = 16, 8192  # token slots in a batch


@pytest.mark.parametrize(("model", "strategy"), SUPPORTED)
def test_vectors_equal_the_reference_whatever_the_batch(
    tiny: Tiny, model: str, strategy: str
) -> None:
    limit = length_limit(find_checkpoint(str(tiny(model)))).tokens
    expected = reference_vectors(tiny(model), TEXTS, strategy, max_length=limit)
    for batch_tokens in (FEW, MANY):
        vectors = embed(tiny(model), TEXTS, strategy=strategy, batch_tokens=batch_tokens)
        np.testing.assert_allclose(vectors, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("model", ["tiny-gamma", "tiny-bin", "tiny-sharded", "tiny-classifier"])
def test_another_way_to_store_the_weights_gives_the_same_vectors(tiny: Tiny, model: str) -> None:
    same = embed(tiny("tiny-bert"), TEXTS, strategy="pooler")
    stored = embed(tiny(model), TEXTS, strategy="pooler")
    np.testing.assert_allclose(stored, same, rtol=0, atol=1e-5)


@pytest.mark.parametrize("model", ["tiny-left", "tiny-nomax", "tiny-baked"])
def test_what_a_tokenizer_says_of_padding_and_length_changes_no_vector(
    tiny: Tiny, model: str
) -> None:
    np.testing.assert_array_equal(embed(tiny(model), TEXTS), embed(tiny("tiny-bert"), TEXTS))


def test_cls_and_pooler_are_different_vectors(tiny: Tiny) -> None:
    cls, pooler = (embed(tiny("tiny-bert"), TEXTS, strategy=s) for s in ("cls", "pooler"))
    assert np.abs(cls - pooler).max() > 0.1


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_same_texts_give_the_same_bytes_again(tiny: Tiny, strategy: str) -> None:
    embedder = load(tiny("tiny-bert"), strategy=strategy, batch_tokens=256)
    one, other = (embedder.embed(TEXTS).vectors["embedding"] for _ in range(2))
    assert one.tobytes() == other.tobytes()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_bfloat16_with_padding_is_finite_and_near(tiny: Tiny, strategy: str) -> None:
    texts = [" ".join(["cat"] * n) for n in range(1, 61, 3)]
    vectors = embed(tiny("tiny-bert"), texts, strategy=strategy, dtype="bfloat16")
    exact = embed(tiny("tiny-bert"), texts, strategy=strategy)
    cosines = (vectors * exact).sum(1) / np.linalg.norm(vectors, axis=1)
    assert (cosines / np.linalg.norm(exact, axis=1) > 0.999).all()


def test_slots_count_the_padding_of_each_batch(tiny: Tiny) -> None:
    embedder = load(tiny("tiny-bin"))
    # 3 and 6 tokens, in one batch
    assert embedder.embed(["cat", "one two a b"]).slots == 12


# Refusals


@pytest.mark.parametrize(
    ("model", "named"),
    [
        ("tiny-badprefix", ["encoder weights are missing", "zzz."]),
        ("tiny-missing", ["encoder.layer.1.output.dense.weight"]),
        ("tiny-wrongshape", ["encoder.layer.0.intermediate.dense.weight", "[48, 32]", "[64, 32]"]),
    ],
)
def test_weights_that_are_not_the_configurations_are_refused_by_name(
    tiny: Tiny, model: str, named: list[str]
) -> None:
    with pytest.raises(ModelError) as refusal:
        load(tiny(model))
    message = str(refusal.value)
    assert all(part in message for part in [model, *named])
    assert "\n" not in message


@pytest.mark.parametrize("model", [*NO_POOLER_KIND, *NO_POOLER_WEIGHTS])
def test_a_pooler_that_is_not_there_is_refused_with_the_strategies_that_are(
    tiny: Tiny, model: str
) -> None:
    with pytest.raises(PoolingError) as refusal:
        load(tiny(model), strategy="pooler")
    supported = str(refusal.value).rsplit("supports: ", 1)[1].split(", ")
    assert supported == [name for name in STRATEGIES if name != "pooler"]


def test_a_missing_pooler_matters_to_no_other_strategy(tiny: Tiny) -> None:
    np.testing.assert_array_equal(
        embed(tiny("tiny-nopool"), TEXTS, strategy="cls"),
        embed(tiny("tiny-bert"), TEXTS, strategy="cls"),
    )


def test_weights_of_more_layers_than_configured_are_refused(tiny: Tiny, tmp_path: Path) -> None:
    directory = copied(tiny("tiny-bert-deep"), tmp_path)
    rewrite(directory / "config.json", num_hidden_layers=2)
    with pytest.raises(ModelError, match=r"no place for: encoder\.layer\.2"):
        load(directory)


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("model.safetensors", b""),
        ("model.safetensors", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n"),
        ("tokenizer.json", b"{"),
    ],
    ids=["empty weights", "a Git LFS pointer", "a cut tokenizer"],
)
def test_a_broken_file_is_an_error_of_the_model(
    tiny: Tiny, tmp_path: Path, file: str, content: bytes
) -> None:
    directory = copied(tiny("tiny-bert"), tmp_path)
    (directory / file).write_bytes(content)
    with pytest.raises(ModelError, match=r"can't be (loaded|read)"):
        load(directory)


def test_a_bin_file_that_runs_code_is_refused(tiny: Tiny, tmp_path: Path) -> None:
    directory = copied(tiny("tiny-bin"), tmp_path)
    ran = tmp_path / "ran"

    class Payload:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.touch, (ran,)

    torch.save({"embeddings.word_embeddings.weight": Payload()}, directory / "pytorch_model.bin")
    with pytest.raises(ModelError):
        load(directory)
    assert not ran.exists()


def test_a_checkpoint_that_needs_its_own_code_is_refused(tiny: Tiny, tmp_path: Path) -> None:
    directory = copied(tiny("tiny-bert"), tmp_path)
    classes = {"AutoConfig": "code.Config", "AutoModel": "code.Model"}
    rewrite(directory / "config.json", model_type="unheard-of", auto_map=classes)
    (directory / "code.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    with pytest.raises(ModelError):
        load(directory)
    assert not (tmp_path / "ran").exists()


def test_a_tokenizer_with_more_entries_than_the_model_has_vectors_is_an_error_of_the_model(
    tiny: Tiny, tmp_path: Path
) -> None:
    directory = copied(tiny("tiny-bert"), tmp_path)
    tokenizer = hf.AutoTokenizer.from_pretrained(directory)
    tokenizer.add_tokens(["newword"])
    tokenizer.save_pretrained(directory)
    with pytest.raises(ModelError):
        embed(directory, ["cat newword"])


# Models that read their padding, or give no attention weights


@pytest.mark.parametrize("family", ["fnet", "convbert"])
def test_a_model_that_reads_its_padding_gives_each_text_the_vector_it_has_alone(
    tiny: Tiny, tmp_path: Path, family: str
) -> None:
    embedder = load(other_family(family, tiny, tmp_path))
    alone = [embedder.embed([text]).vectors["embedding"][0] for text in TEXTS]
    together = embedder.embed(TEXTS).vectors["embedding"]
    np.testing.assert_allclose(together, alone, rtol=0, atol=1e-5)


@pytest.mark.parametrize("family", ["fnet", "convbert"])
def test_a_model_that_reads_its_padding_gets_none(tiny: Tiny, tmp_path: Path, family: str) -> None:
    embedder = load(other_family(family, tiny, tmp_path))
    embedded = embedder.embed(TEXTS)
    assert embedded.slots == embedded.encoded_tokens.sum()


def test_a_model_that_masks_its_padding_is_batched_with_it(tiny: Tiny) -> None:
    embedder = load(tiny("tiny-bin"))
    assert [sorted(b) for b in embedder.encoder.batches(embedder.tokenizer.encode(TEXTS[:3]))] == [
        [0, 1, 2]
    ]


@pytest.mark.parametrize("family", ["fnet", "longformer", "big_bird"])
def test_attention_pooling_is_refused_where_a_model_gives_no_weight_for_each_pair_of_tokens(
    tiny: Tiny, tmp_path: Path, family: str
) -> None:
    directory = other_family(family, tiny, tmp_path)
    with pytest.raises(PoolingError, match="attention"):
        embed(directory, TEXTS, strategy="attention")


def test_the_encoder_of_t5_is_loaded_from_a_checkpoint_that_holds_no_decoder(
    tiny: Tiny, tmp_path: Path
) -> None:
    directory = other_family("t5", tiny, tmp_path)
    tokenizer = hf.AutoTokenizer.from_pretrained(directory)
    model: Any = hf.T5EncoderModel.from_pretrained(directory)
    with torch.inference_mode():
        hidden = model(**tokenizer("cat one", return_tensors="pt")).last_hidden_state
    np.testing.assert_allclose(
        embed(directory, ["cat one"]), hidden.mean(dim=1).numpy(), rtol=0, atol=1e-5
    )


# Token types


@pytest.mark.parametrize("model", ["tiny-roberta", "tiny-distil"])
def test_token_types_are_dropped_where_the_model_tells_none_apart(
    tiny: Tiny, tmp_path: Path, model: str
) -> None:
    directory = copied(tiny(model), tmp_path)
    names = ["input_ids", "token_type_ids", "attention_mask"]
    rewrite(directory / "tokenizer_config.json", model_input_names=names)
    assert "token_type_ids" in hf.AutoTokenizer.from_pretrained(directory)("cat")
    np.testing.assert_array_equal(embed(directory, TEXTS), embed(tiny(model), TEXTS))


def test_token_types_reach_a_model_that_tells_them_apart(tiny: Tiny, tmp_path: Path) -> None:
    directory = typed_one(tiny("tiny-bert"), tmp_path, "[CLS]", "[SEP]")
    limit = length_limit(find_checkpoint(str(directory))).tokens
    vectors = embed(directory, TEXTS)
    expected = reference_vectors(directory, TEXTS, "mean", max_length=limit)
    np.testing.assert_allclose(vectors, expected, rtol=0, atol=1e-5)
    assert np.abs(vectors - embed(tiny("tiny-bert"), TEXTS)).max() > 1e-2


def test_token_types_beyond_those_the_model_knows_are_dropped(tiny: Tiny, tmp_path: Path) -> None:
    directory = typed_one(tiny("tiny-roberta"), tmp_path, "<s>", "</s>")
    np.testing.assert_allclose(
        embed(directory, TEXTS), embed(tiny("tiny-roberta"), TEXTS), rtol=0, atol=1e-5
    )


def typed_one(directory: Path, tmp_path: Path, start: str, end: str) -> Path:
    """Copy a model and let its tokenizer give every token the type 1."""
    copy = copied(directory, tmp_path)
    content = json.loads((copy / "tokenizer.json").read_text(encoding="utf-8"))
    vocab = content["model"]["vocab"]
    ends = [{"SpecialToken": {"id": token, "type_id": 1}} for token in (start, end)]
    single = [ends[0], {"Sequence": {"id": "A", "type_id": 1}}, ends[1]]
    specials = {t: {"id": t, "ids": [vocab[t]], "tokens": [t]} for t in (start, end)}
    template = {"type": "TemplateProcessing", "single": single, "pair": [*single, *single]}
    rewrite(copy / "tokenizer.json", post_processor={**template, "special_tokens": specials})
    names = ["input_ids", "token_type_ids", "attention_mask"]
    generic = "PreTrainedTokenizerFast"  # a class of its own would write its own post-processor
    rewrite(copy / "tokenizer_config.json", model_input_names=names, tokenizer_class=generic)
    assert set(load(copy).tokenizer.encode(["cat"])[0].token_type_ids or ()) == {1}
    return copy


# What the tests above build


def copied(directory: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(directory, tmp_path / directory.name))


def rewrite(path: Path, **values: object) -> None:
    content = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**content, **values}), encoding="utf-8")


FAMILIES: dict[str, tuple[Any, dict[str, Any]]] = {
    "fnet": (hf.FNetModel, {}),
    "convbert": (hf.ConvBertModel, {"num_attention_heads": 4, "embedding_size": 32}),
    "big_bird": (hf.BigBirdModel, {"num_attention_heads": 4, "block_size": 4}),
    "longformer": (
        hf.LongformerModel,
        {"num_attention_heads": 4, "attention_window": 8, "max_position_embeddings": 70},
    ),
    "t5": (hf.T5EncoderModel, {"num_heads": 4, "d_kv": 8, "d_model": 32, "d_ff": 64}),
}


def other_family(family: str, tiny: Tiny, tmp_path: Path) -> Path:
    """Build a random model of a family that has no fixture, with tiny-bert's tokenizer."""
    directory = copied(tiny("tiny-bert"), tmp_path)
    tokenizer = hf.AutoTokenizer.from_pretrained(directory)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 64}
    sizes |= {"max_position_embeddings": 64, "vocab_size": len(tokenizer), "pad_token_id": 0}
    model, overrides = FAMILIES[family]
    torch.manual_seed(0)
    network = model(model.config_class(**{**sizes, **overrides}))
    for name, parameter in network.named_parameters():
        is_scale = "norm" in name.lower() and name.endswith("weight")
        torch.nn.init.normal_(parameter, 1.0 if is_scale else 0.0, 0.1 if is_scale else 0.3)
    network.config.save_pretrained(directory)
    state = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    save_file(state, directory / "model.safetensors", {"format": "pt"})
    return directory
