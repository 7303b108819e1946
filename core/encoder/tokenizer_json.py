"""Read ``tokenizer.json`` without transformers, where transformers would build the same tokenizer.

transformers rebuilds the tokenizers of these families from ``tokenizer_config.json`` and takes only
the vocabulary and the special tokens from ``tokenizer.json``. Where both say the same, the file
itself can be used, and seconds of imports are saved; where they don't, transformers decides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import tokenizers
from bertpool.encoder.checkpoint import Checkpoint, read_object

Json = Mapping[str, Any]


@dataclass(frozen=True)
class OwnTokenizer:
    """A checkpoint's own tokenizer, however it was loaded, neither padding nor truncating.

    Attributes:
        backend: the tokenizer.
        emits_types: token type ids are among the model's inputs.
        special_ids: ids of special tokens, the unknown token among them.
        pad_id: the id to fill with, if there is one.
        unknown_id: the id of the unknown token, if there is one.
        truncate_left: tokens are cut from a text's start.
        size: how many tokens it knows.
    """

    backend: tokenizers.Tokenizer
    emits_types: bool
    special_ids: frozenset[int]
    pad_id: int | None
    unknown_id: int | None
    truncate_left: bool
    size: int


# Which class a model type's tokenizer has where tokenizer_config.json names none.
CLASSES = {
    "bert": "BertTokenizer",
    "camembert": "CamembertTokenizer",
    "distilbert": "DistilBertTokenizer",
    "electra": "BertTokenizer",
    "mpnet": "MPNetTokenizer",
    "roberta": "RobertaTokenizer",
    "xlm-roberta": "XLMRobertaTokenizer",
}
EMIT_TYPES = ("BertTokenizer", "ElectraTokenizer")
# First and last special token of a text, and the others, by the names of tokenizer_config.json.
BERT_TOKENS = {
    "cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]", "unk_token": "[UNK]",
    "mask_token": "[MASK]",
}  # fmt: skip
ROBERTA_TOKENS = {
    "cls_token": "<s>", "sep_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>",
    "mask_token": "<mask>",
}  # fmt: skip


# Keys of tokenizer_config.json that are looked at here, or have no effect on the tokens.
KNOWN_KEYS = frozenset(
    {
        *ROBERTA_TOKENS, "bos_token", "eos_token", "add_prefix_space", "additional_special_tokens",
        "added_tokens_decoder", "backend", "clean_up_tokenization_spaces", "do_basic_tokenize",
        "do_lower_case", "errors", "extra_special_tokens", "full_tokenizer_file", "is_local",
        "max_len", "max_length", "model_input_names", "model_max_length", "name_or_path",
        "never_split", "pad_to_multiple_of", "pad_token_type_id", "padding_side",
        "special_tokens_map_file", "split_special_tokens", "stride", "strip_accents",
        "tokenize_chinese_chars", "tokenizer_class", "tokenizer_file", "trim_offsets",
        "truncation_side", "truncation_strategy", "vocab_file", "wordpieces_prefix",
    }
)  # fmt: skip


def _wordpiece(content: Json, config: Json) -> bool:
    normalizer = {
        "type": "BertNormalizer",
        "clean_text": True,
        "handle_chinese_chars": config.get("tokenize_chinese_chars", True),
        "strip_accents": config.get("strip_accents"),
        "lowercase": config.get("do_lower_case", True),
    }
    model = content["model"]
    return bool(
        content["normalizer"] == normalizer
        and content["pre_tokenizer"] == {"type": "BertPreTokenizer"}
        and model.get("type", "WordPiece") == "WordPiece"
        and model.get("continuing_subword_prefix", "##") == "##"
        and model.get("max_input_chars_per_word", 100) == 100
    )


def _byte_level(content: Json, config: Json) -> bool:
    pre_tokenizer, model = content["pre_tokenizer"] or {}, content["model"]
    return bool(
        content["normalizer"] is None
        and pre_tokenizer.get("type") == "ByteLevel"
        and pre_tokenizer.get("add_prefix_space") == config.get("add_prefix_space", False)
        and pre_tokenizer.get("use_regex", True)
        and model.get("type", "BPE") == "BPE"
        and not model.get("dropout")
        and not model.get("continuing_subword_prefix")
        and not model.get("end_of_word_suffix")
        and not model.get("fuse_unk", False)
        and not model.get("byte_fallback", False)
        and not model.get("ignore_merges", False)
    )


def _unigram(content: Json, config: Json) -> bool:
    normalizer, model = content["normalizer"] or {}, content["model"]
    steps: list[Json] = (content["pre_tokenizer"] or {}).get("pretokenizers", [])
    return bool(
        normalizer.get("type", "Precompiled") == "Precompiled"
        and [step["type"] for step in steps] == ["WhitespaceSplit", "Metaspace"]
        and steps[1].get("replacement", "▁") == "▁"
        and steps[1].get("prepend_scheme", "always") == "always"
        and steps[1].get("split", True)
        and config.get("add_prefix_space", True)
        and model.get("type", "Unigram") == "Unigram"
        and model["vocab"][model.get("unk_id") or 0][0]
        == _content(config.get("unk_token", "<unk>"))
        and not model.get("byte_fallback", False)
    )


AGREEMENT: dict[str, tuple[Callable[[Json, Json], bool], dict[str, str]]] = {
    "BertTokenizer": (_wordpiece, BERT_TOKENS),
    "CamembertTokenizer": (_unigram, ROBERTA_TOKENS),
    "DistilBertTokenizer": (_wordpiece, BERT_TOKENS),
    "ElectraTokenizer": (_wordpiece, BERT_TOKENS),
    "MPNetTokenizer": (_wordpiece, ROBERTA_TOKENS | {"unk_token": "[UNK]"}),
    "RobertaTokenizer": (_byte_level, ROBERTA_TOKENS),
    "XLMRobertaTokenizer": (_unigram, ROBERTA_TOKENS),
}


def read_tokenizer_json(checkpoint: Checkpoint) -> OwnTokenizer | None:
    """Read the tokenizer, or return None where transformers must decide."""
    files = [checkpoint.directory / name for name in ("tokenizer.json", "tokenizer_config.json")]
    if not all(file.is_file() for file in files):
        return None
    content, config = (read_object(file) for file in files)
    default = CLASSES.get(str(checkpoint.config.get("model_type")), "")
    name = str(config.get("tokenizer_class") or default).removesuffix("Fast")
    if name not in AGREEMENT or config.get("auto_map") or checkpoint.config.get("auto_map"):
        return None
    agrees, defaults = AGREEMENT[name]
    names = {key: _content(config.get(key, token)) for key, token in defaults.items()}
    if not _only_known(config):
        return None
    if not (_plain_tokens(content, config, names) and agrees(content, config)):
        return None
    backend = tokenizers.Tokenizer.from_file(str(files[0]))
    backend.no_padding()
    backend.no_truncation()
    ends = [backend.token_to_id(names[key]) for key in ("cls_token", "sep_token")]
    if backend.encode("").ids != ends:
        return None  # the file's post-processor does something else, or nothing
    emits_types = "token_type_ids" in config.get(
        "model_input_names", ["token_type_ids"] if name in EMIT_TYPES else []
    )
    return OwnTokenizer(
        backend=backend,
        emits_types=emits_types,
        special_ids=frozenset(token["id"] for token in content["added_tokens"]),
        pad_id=backend.token_to_id(names["pad_token"]),
        unknown_id=backend.token_to_id(names["unk_token"]),
        truncate_left=config.get("truncation_side") == "left",
        size=backend.get_vocab_size(),
    )


def _content(token: object) -> str:
    return str(token["content"]) if isinstance(token, Mapping) else str(token)


def _only_known(config: Json) -> bool:
    """Tell whether nothing in tokenizer_config.json could change the tokens unnoticed."""
    return (
        set(config) <= KNOWN_KEYS
        and not config.get("never_split")
        and config.get("do_basic_tokenize", True)
        and config.get("split_special_tokens", False) is False
    )


def _plain_tokens(content: Json, config: Json, names: Mapping[str, str]) -> bool:
    """Tell whether the added tokens are the usual special ones and nothing else.

    An ``[MASK]`` may take the space before it; whatever else a token is told to do, transformers
    may do differently.
    """
    extra = config.get("extra_special_tokens") or config.get("additional_special_tokens") or []
    known = {*names.values(), *map(_content, extra)}
    return (
        isinstance(extra, list)
        and all(
            token["content"] in known
            and token["special"]
            and not (token["normalized"] or token["rstrip"] or token["single_word"])
            and (not token["lstrip"] or token["content"] == names["mask_token"])
            for token in content["added_tokens"]
        )
        and known <= {token["content"] for token in content["added_tokens"]}
        and all(
            {**token, "id": None} in ({**other, "id": None} for other in content["added_tokens"])
            for token in config.get("added_tokens_decoder", {}).values()
        )
    )
