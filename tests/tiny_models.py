"""Tiny seeded random checkpoints of many encoder families, built without a network."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
import transformers as hf
from safetensors.torch import load, save_file
from tokenizers import Tokenizer, decoders, pre_tokenizers, processors
from tokenizers.models import BPE
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

Builder = Callable[[Path], None]
Edit = Callable[[Path], None]
Weights = dict[str, Tensor]
MakeTokenizer = Callable[..., PreTrainedTokenizerBase]

WORDS = """
hi ok cat one two a b hello word same the dog runs x y z and or not but of to in on at by for with
from is are was be has have had do does did can will would may must this that these it he she we
you they i me my his her our your who what when where why how all some no many more most few little
big small old new good bad hot cold red blue green white black fast slow man woman child friend
house home school city road river sea hill tree bird fish horse food water bread milk fire sun moon
star day night year time work play read write say see hear think know go come run walk sleep eat
drink give take make find first last long short high low here there now then yes three four five
six seven eight nine ten
""".split()

_ALPHANUMERIC = "abcdefghijklmnopqrstuvwxyz0123456789"
_CHARACTERS = [*_ALPHANUMERIC, *".,!?[]()<>/-\"':;", *"中文日本語", "é"]

_SAFETENSORS = "model.safetensors"
_TOKENIZER_CONFIG = "tokenizer_config.json"
_WIDE = "encoder.layer.0.intermediate.dense.weight"
_LAST_NORM = "encoder.layer.1.output.LayerNorm."
_SPREAD = 0.3

_SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
_SIZES |= {"intermediate_size": 64, "max_position_embeddings": 64}
_DISTIL = {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64, "max_position_embeddings": 64}


def sentences(count: int, seed: int, longest: int) -> list[str]:
    """Return `count` texts of 1 to `longest` words, the same for the same arguments."""
    rng = random.Random(seed)
    return [" ".join(rng.choices(WORDS, k=rng.randint(1, longest))) for _ in range(count)]


def _numbered(tokens: list[str]) -> dict[str, int]:
    """Return the distinct tokens with ids in order of first appearance."""
    return {token: index for index, token in enumerate(dict.fromkeys(tokens))}


def _wordpiece(kind: MakeTokenizer, first: str, last: str = "") -> MakeTokenizer:
    """Return `kind` with a WordPiece vocabulary between the given special tokens."""
    suffixes = [f"##{suffix}" for suffix in (*_ALPHANUMERIC, "ing")]
    tokens = [*first.split(), *WORDS, *_CHARACTERS, *suffixes, *last.split()]
    return partial(kind, vocab=_numbered(tokens))


def _unigram(kind: MakeTokenizer, first: str, last: str = "") -> MakeTokenizer:
    """Return `kind` with a scored Unigram vocabulary between the given special tokens."""
    words = [(f"▁{word}", -2 - index / 100) for index, word in enumerate(WORDS)]
    pieces = [("▁", -5.0), ("ing", -5.0), *((character, -6.0) for character in _CHARACTERS)]
    start, end = ([(token, 0.0) for token in tokens.split()] for tokens in (first, last))
    return partial(kind, vocab=[*start, *words, *pieces, *end])


def _byte_level(kind: Callable[..., Any], first: str, last: str) -> Callable[..., Any]:
    """Return `kind` with a byte-level BPE vocabulary and merges that make ` word` one token."""
    merges = [("Ġ" + word[:end], word[end]) for word in WORDS for end in range(len(word))]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merged = [left + right for left, right in merges]
    vocab = _numbered([*first.split(), *alphabet, *merged, *last.split()])
    return partial(kind, vocab=vocab, merges=list(dict.fromkeys(merges)))


def _modernbert_tokenizer(**options: Any) -> PreTrainedTokenizerBase:
    """Return a byte-level BPE tokenizer with BERT's special tokens at the end of the vocabulary."""
    specials = "[UNK] [CLS] [SEP] [PAD] [MASK]"
    tokenizer = Tokenizer(_byte_level(BPE, "", specials)())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:0 [SEP]:0",
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in ("[CLS]", "[SEP]")],
    )
    options |= {f"{token[1:-1].lower()}_token": token for token in specials.split()}
    make: MakeTokenizer = hf.PreTrainedTokenizerFast
    return make(tokenizer_object=tokenizer, **options)


def _randomise(network: PreTrainedModel) -> None:
    """Redraw every parameter, biases too, so that wrong masks, positions or types show."""
    for name, parameter in network.named_parameters():
        is_scale = "norm" in name.lower() and name.endswith("weight")
        mean, std = (1.0, 0.1) if is_scale else (0.0, _SPREAD)
        torch.nn.init.normal_(parameter, mean, std)


def _read(directory: Path) -> Weights:
    """Return the weights of a checkpoint, free of its file."""
    return dict(sorted(load((directory / _SAFETENSORS).read_bytes()).items()))


def _store(weights: Weights, directory: Path, file: str = _SAFETENSORS) -> None:
    """Write a safetensors file."""
    save_file(weights, directory / file, {"format": "pt"})


def _save(network: PreTrainedModel, directory: Path) -> None:
    """Write config.json and model.safetensors, each shared tensor once under its first name."""
    network.config.architectures = [type(network).__name__]
    network.config.save_pretrained(directory)
    state = network.state_dict()
    first = {tensor.data_ptr(): name for name, tensor in reversed(state.items())}
    _store({name: state[name] for name in first.values()}, directory)


def _family(
    model: type[PreTrainedModel],
    tokenizer: MakeTokenizer,
    sizes: Mapping[str, Any] = _SIZES,
    limit: int = 64,
    **overrides: Any,
) -> Builder:
    """Return a builder of a random `model` whose tokenizer declares at most `limit` tokens."""

    def builder(directory: Path) -> None:
        torch.manual_seed(0)
        tokens = tokenizer(model_max_length=limit)
        config: Any = model.config_class
        ids = {f"{kind}_token_id" for kind in ("pad", "bos", "eos", "cls", "sep")}
        settings = {key: getattr(tokens, key) for key in ids if hasattr(config, key)}
        settings |= {**sizes, "vocab_size": len(tokens), "dtype": "float32", **overrides}
        network = model(config(**settings))
        _randomise(network)
        _save(network, directory)
        tokens.save_pretrained(directory)

    return builder


_bert_tokenizer = _wordpiece(hf.BertTokenizer, "[PAD] [UNK] [CLS] [SEP] [MASK]")
_tiny_bert = _family(hf.BertModel, _bert_tokenizer)
_roberta = partial(_family, max_position_embeddings=66, type_vocab_size=1)


def _variant(*edits: Edit) -> Builder:
    """Return a builder that applies the edits to a fresh tiny-bert."""

    def builder(directory: Path) -> None:
        _tiny_bert(directory)
        for edit in edits:
            edit(directory)

    return builder


def _write(directory: Path, file: str, content: object) -> None:
    """Write a JSON file, making its folder."""
    path = directory / file
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _update(directory: Path, file: str, drop: str = "", **values: object) -> None:
    """Set keys of a JSON file, and drop one."""
    content = json.loads((directory / file).read_text(encoding="utf-8"))
    content.update(values)
    content.pop(drop, None)
    _write(directory, file, content)


def _reweigh(change: Callable[[Weights], Weights]) -> Edit:
    """Return an edit that replaces the weights by `change` of them."""
    return lambda directory: _store(change(_read(directory)), directory)


def _without(prefix: str) -> Edit:
    """Return an edit that removes the weights whose names start with `prefix`."""
    return _reweigh(lambda old: {k: v for k, v in old.items() if not k.startswith(prefix)})


def _renamed(pattern: str, replacement: str) -> Edit:
    """Return an edit that substitutes a pattern in the name of every weight."""
    return _reweigh(lambda old: {re.sub(pattern, replacement, k): v for k, v in old.items()})


def _add_head(directory: Path, model: type[PreTrainedModel]) -> None:
    """Save the same encoder again, inside a random `model` with a head."""
    torch.manual_seed(0)
    network = model(hf.BertConfig.from_pretrained(directory))
    _randomise(network)
    network.base_model.load_state_dict(_read(directory), strict=False)
    _save(network, directory)


def _zero_last_norm(old: Weights) -> Weights:
    """Return the weights with a zero last LayerNorm, which makes every token vector zero."""
    return {k: v * 0 if k.startswith(_LAST_NORM) else v for k, v in old.items()}


def _to_bin(directory: Path) -> None:
    """Turn model.safetensors into pytorch_model.bin."""
    torch.save(_read(directory), directory / "pytorch_model.bin")
    (directory / _SAFETENSORS).unlink()


def _to_shards(directory: Path) -> None:
    """Split model.safetensors into two shards and an index."""
    weights = _read(directory)
    names, half = list(weights), len(weights) // 2
    files: dict[str, str] = {}
    for number, part in enumerate((names[:half], names[half:]), start=1):
        file = f"model-0000{number}-of-00002.safetensors"
        _store({name: weights[name] for name in part}, directory, file)
        files |= dict.fromkeys(part, file)
    size = sum(tensor.nbytes for tensor in weights.values())
    index = {"metadata": {"total_size": size}, "weight_map": files}
    _write(directory, f"{_SAFETENSORS}.index.json", index)
    (directory / _SAFETENSORS).unlink()


def _add_modules(directory: Path, third: str = "", **pooling: object) -> None:
    """Add sentence-transformers files: pooling, then a third module if named."""
    paths = {"Transformer": "", "Pooling": "1_Pooling", third: f"2_{third}"}
    listing = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{name}"}
        for i, (name, path) in enumerate(paths.items())
        if name
    ]
    _write(directory, "modules.json", listing)
    _write(directory, "sentence_bert_config.json", {"max_seq_length": 64})
    _write(directory, "1_Pooling/config.json", {"word_embedding_dimension": 32, **pooling})


def _old_pooling(*kinds: str) -> dict[str, Any]:
    """Return the boolean keys by which older sentence-transformers files declare pooling."""
    known = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens")
    return {f"pooling_mode_{kind}": kind in kinds for kind in known}


def _add_dense(directory: Path) -> None:
    """Add the files of a random 32 to 8 Dense module with Tanh."""
    torch.manual_seed(1)
    config = {"in_features": 32, "out_features": 8, "bias": True}
    activation = {"activation_function": "torch.nn.modules.activation.Tanh"}
    _write(directory, "2_Dense/config.json", {**config, **activation})
    shapes = {"linear.weight": (8, 32), "linear.bias": (8,)}
    weights = {name: torch.randn(shape) * _SPREAD for name, shape in shapes.items()}
    _store(weights, directory / "2_Dense")


_PROMPTS = {"prompts": {"query": "the cat "}, "default_prompt_name": "query"}
_TRUNCATION = {"direction": "Right", "strategy": "LongestFirst", "stride": 0}
_PADDING: dict[str, Any] = {"strategy": {"Fixed": 16}, "direction": "Right", "pad_id": 0}
_PADDING |= {"pad_to_multiple_of": None, "pad_type_id": 0, "pad_token": "[PAD]"}
_BAKED: dict[str, Any] = {"padding": _PADDING, "truncation": {**_TRUNCATION, "max_length": 32}}

MODELS: dict[str, Builder] = {
    "tiny-bert": _tiny_bert,
    "tiny-bert-deep": _family(hf.BertModel, _bert_tokenizer, num_hidden_layers=4),
    "tiny-roberta": _roberta(
        hf.RobertaModel,
        _byte_level(hf.RobertaTokenizer, "<s> <pad> </s> <unk>", "<mask>"),
    ),
    "tiny-roberta-pad3": _roberta(
        hf.RobertaModel,
        _byte_level(hf.RobertaTokenizer, "<s> <unk> </s> <pad>", "<mask>"),
    ),
    "tiny-xlm-roberta": _roberta(
        hf.XLMRobertaModel,
        _unigram(hf.XLMRobertaTokenizer, "<s> <pad> </s> <unk>", "<mask>"),
    ),
    "tiny-camembert": _roberta(
        hf.CamembertModel,
        _unigram(
            hf.CamembertTokenizer,
            "<s>NOTUSED <pad> </s>NOTUSED <unk> <unk>NOTUSED <s> </s>",
            "<mask>",
        ),
    ),
    "tiny-distil": _family(hf.DistilBertModel, _bert_tokenizer, _DISTIL),
    "tiny-electra": _family(hf.ElectraModel, _bert_tokenizer, embedding_size=16),
    "tiny-mpnet": _family(
        hf.MPNetModel,
        _wordpiece(hf.MPNetTokenizer, "<s> <pad> </s> [UNK]", "<mask>"),
        max_position_embeddings=66,
        relative_attention_num_buckets=32,
    ),
    "tiny-albert": _family(
        hf.AlbertModel,
        _unigram(hf.AlbertTokenizer, "<pad> <unk> [CLS] [SEP] [MASK]"),
        embedding_size=16,
        num_hidden_groups=1,
    ),
    "tiny-deberta-v2": _family(
        hf.DebertaV2Model,
        _unigram(hf.DebertaV2Tokenizer, "[PAD] [CLS] [SEP] [UNK]", "[MASK]"),
        type_vocab_size=0,
        relative_attention=True,
        pos_att_type=["p2c", "c2p"],
        position_biased_input=False,
        share_att_key=True,
        norm_rel_ebd="layer_norm",
        position_buckets=16,
        max_relative_positions=-1,
    ),
    "tiny-modernbert": _family(
        hf.ModernBertModel,
        _modernbert_tokenizer,
        limit=128,
        num_hidden_layers=3,
        max_position_embeddings=128,
        global_attn_every_n_layers=2,
        local_attention=16,
    ),
    "tiny-left": _variant(partial(_update, file=_TOKENIZER_CONFIG, padding_side="left")),
    "tiny-nomax": _variant(partial(_update, file=_TOKENIZER_CONFIG, drop="model_max_length")),
    "tiny-baked": _variant(partial(_update, file="tokenizer.json", **_BAKED)),
    "tiny-nopool": _variant(_without("pooler.")),
    "tiny-head": _variant(partial(_add_head, model=hf.BertForMaskedLM)),
    "tiny-classifier": _variant(partial(_add_head, model=hf.BertForSequenceClassification)),
    "tiny-badprefix": _variant(_renamed("^", "zzz.")),
    "tiny-missing": _variant(_without("encoder.layer.1.output.dense.weight")),
    "tiny-wrongshape": _variant(_reweigh(lambda old: {**old, _WIDE: old[_WIDE][:48]})),
    "tiny-gamma": _variant(
        _renamed(r"Norm\.weight$", "Norm.gamma"), _renamed(r"Norm\.bias$", "Norm.beta")
    ),
    "tiny-fp16": _variant(
        _reweigh(lambda old: {name: tensor.half() for name, tensor in old.items()}),
        partial(_update, file="config.json", dtype="float16"),
    ),
    "tiny-bin": _variant(_to_bin),
    "tiny-sharded": _variant(_to_shards),
    "tiny-zero": _variant(_reweigh(_zero_last_norm)),
    "tiny-nospecial": _variant(
        partial(_update, file="tokenizer.json", post_processor=None),
        partial(_update, file=_TOKENIZER_CONFIG, tokenizer_class="PreTrainedTokenizerFast"),
    ),
    "tiny-limits": _variant(
        partial(_update, file=_TOKENIZER_CONFIG, model_max_length=512, max_length=8),
        partial(_update, file="tokenizer.json", truncation={**_TRUNCATION, "max_length": 16}),
        partial(_write, file="sentence_bert_config.json", content={"max_seq_length": 32}),
    ),
    "tiny-st-cls": _variant(partial(_add_modules, **_old_pooling("cls_token"))),
    "tiny-st-mean-normalize": _variant(
        partial(_add_modules, third="Normalize", pooling_mode="mean")
    ),
    "tiny-st-dense": _variant(
        partial(_add_modules, third="Dense", **_old_pooling("mean_tokens")), _add_dense
    ),
    "tiny-st-multi": _variant(
        partial(_add_modules, **_old_pooling("cls_token", "mean_tokens", "max_tokens"))
    ),
    "tiny-st-prompt": _variant(
        partial(_add_modules, **_old_pooling("mean_tokens"), include_prompt=False),
        partial(_write, file="config_sentence_transformers.json", content=_PROMPTS),
    ),
}


def build(name: str, directory: Path) -> Path:
    """Build the model called `name` in `directory`, made if missing, and return `directory`."""
    directory.mkdir(parents=True, exist_ok=True)
    MODELS[name](directory)
    return directory
