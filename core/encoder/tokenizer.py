"""Texts -> token ids, exactly as the model's own tokenizer reads them, truncation counted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import tokenizers
from bertpool.encoder.checkpoint import Checkpoint
from bertpool.encoder.limits import LengthLimit
from bertpool.encoder.recipe import Reading
from bertpool.encoder.tokenizer_json import OwnTokenizer, read_tokenizer_json
from bertpool.errors import ModelError
from tokenizers import normalizers

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Ids = list[int]
Encode = Callable[[list[str]], list[tuple[Ids, "Ids | None"]]]
PROBE = "a b"  # any text: it shows how many special tokens stand on either side


@dataclass(frozen=True)
class TokenizedText:
    """One text as the model reads it.

    Attributes:
        input_ids: ids after truncation, specials included.
        token_type_ids: segment ids, where the tokenizer emits them.
        n_tokens: how many tokens the whole text has, specials included.
        excluded: ``(tokens)`` bool, tokens left out of the pooling; None for none.
        prompt_tokens: how many leading tokens the pooling takes for no part of the text.
    """

    input_ids: Ids
    token_type_ids: Ids | None
    n_tokens: int
    excluded: npt.NDArray[np.bool_] | None = None
    prompt_tokens: int = 0

    @property
    def truncated(self) -> bool:
        """Tell whether tokens were cut off."""
        return self.n_tokens > len(self.input_ids)


@dataclass(frozen=True)
class Specials:
    """How many special tokens the tokenizer puts before and after a text."""

    before: int
    after: int


class Tokenizer:
    """Tokenizes batches of texts without padding, and truncates between the special tokens.

    Args:
        encode: texts -> their ids and token type ids (None where not emitted), never truncated.
        reading: what is done to a text before, and which of its tokens are pooled.
        limit: the length limit, specials included.
        specials: special tokens on either side of a text.
        special_ids: ids of special tokens, the unknown token not among them: it stands for a word.
        pad_id: the id to fill with.
        unknown_id: the id of the unknown token, if there is one.
        truncate_left: cut tokens from the text's start instead of its end.
        vocab_size: ids that the model has embeddings for; None where no id can be beyond them.

    Raises:
        ModelError: the limit leaves no room for a token of the text.
    """

    def __init__(
        self,
        encode: Encode,
        *,
        reading: Reading,
        limit: LengthLimit,
        specials: Specials,
        special_ids: frozenset[int],
        pad_id: int,
        unknown_id: int | None,
        truncate_left: bool = False,
        vocab_size: int | None = None,
    ) -> None:
        _check_room(limit, specials)
        self._encode = encode
        self._reading = reading
        self._specials = specials
        self._truncate_left = truncate_left
        self._vocab_size = vocab_size
        self.limit = limit
        self.special_ids = special_ids
        self.pad_id = pad_id
        self.unknown_id = unknown_id
        self._prompt_tokens = 0 if reading.include_prompt else self._prompt_length()

    def encode(self, texts: Sequence[str]) -> list[TokenizedText]:
        """Tokenize texts, in order, each after the prompt.

        Raises:
            ModelError: a token has no embedding.
        """
        prompted = [self._reading.prompt + text for text in texts]
        return [self._tokenized(ids, types) for ids, types in self._encode(prompted)]

    def _tokenized(self, ids: Ids, types: Ids | None) -> TokenizedText:
        kept = self._cut(ids)
        if self._vocab_size is not None and max(kept, default=0) >= self._vocab_size:
            raise ModelError(
                f"the tokenizer gives id {max(kept)}, and the model has {self._vocab_size} "
                "embeddings: they don't belong together"
            )
        kept_types = None if types is None else self._cut(types)
        excluded = None
        if self._reading.exclude_special:
            excluded = np.isin(kept, list(self.special_ids))
        return TokenizedText(kept, kept_types, len(ids), excluded, self._prompt_tokens)

    def _prompt_length(self) -> int:
        """Count the tokens that the prompt and the specials before it take up."""
        if not self._reading.prompt:
            return 0
        ids, _ = self._encode([self._reading.prompt])[0]
        return len(ids) - self._specials.after

    def unknown_only(self, text: TokenizedText) -> bool:
        """Tell whether all that the model sees of a text is the unknown token."""
        words = [i for i in text.input_ids if i not in self.special_ids]
        return bool(words) and all(i == self.unknown_id for i in words)

    def _cut(self, ids: Ids) -> Ids:
        excess = len(ids) - self.limit.tokens
        if excess <= 0:
            return ids
        if self._truncate_left:
            before = self._specials.before
            return ids[:before] + ids[before + excess :]
        end = len(ids) - self._specials.after
        return ids[: end - excess] + ids[end:]


def load_tokenizer(checkpoint: Checkpoint, limit: LengthLimit, reading: Reading) -> Tokenizer:
    """Load the checkpoint's own tokenizer, through transformers where its file doesn't suffice.

    Padding and truncation baked into ``tokenizer.json`` are reset.

    Raises:
        ModelError: there is no tokenizer, it needs code from the repository, or ``limit`` leaves no
            room for a token.
    """
    slow: PreTrainedTokenizerBase | None = None
    own = read_tokenizer_json(checkpoint)
    if own is None:
        own, slow = _through_transformers(checkpoint)
    if reading.lower_case and slow is None:
        _add_lowercase(own.backend)
    encode = _fast_encode(own) if slow is None else _slow_encode(slow)
    return Tokenizer(
        encode,
        reading=reading,
        limit=limit,
        specials=_count_specials(own, slow, encode),
        special_ids=own.special_ids - {own.unknown_id},
        pad_id=own.pad_id if own.pad_id is not None else checkpoint.config.get("pad_token_id") or 0,
        unknown_id=own.unknown_id,
        truncate_left=own.truncate_left,
        vocab_size=_bound(checkpoint, own.size),
    )


def _through_transformers(
    checkpoint: Checkpoint,
) -> tuple[OwnTokenizer, PreTrainedTokenizerBase | None]:
    """Load with transformers; one without a fast backend comes back, too."""
    from transformers import AutoTokenizer

    try:
        own: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
            checkpoint.directory, local_files_only=True, trust_remote_code=False
        )
    except (OSError, ValueError, KeyError, ImportError, AttributeError, TypeError) as error:
        reason = str(error).strip().split("\n")[0]
        raise ModelError(f"the tokenizer of {checkpoint.name} can't be loaded: {reason}") from error
    if own.is_fast:
        _check_vocabulary(checkpoint, own)
        own.backend_tokenizer.no_padding()
        own.backend_tokenizer.no_truncation()
    backend: Any = (
        own.backend_tokenizer if own.is_fast else None
    )  # a slow one is never asked for it
    parts = OwnTokenizer(
        backend=backend,
        emits_types="token_type_ids" in own.model_input_names,
        special_ids=frozenset(own.all_special_ids),
        pad_id=own.pad_token_id,
        unknown_id=own.unk_token_id,
        truncate_left=own.truncation_side == "left",
        size=len(own),
    )
    return parts, None if own.is_fast else own


def _bound(checkpoint: Checkpoint, tokens: int) -> int | None:
    """Return the number of embeddings where the tokenizer knows more tokens than that."""
    size = checkpoint.config.get("vocab_size")
    return size if isinstance(size, int) and size < tokens else None


def _check_vocabulary(checkpoint: Checkpoint, own: PreTrainedTokenizerBase) -> None:
    """Refuse a tokenizer without words: transformers makes one up where its files are missing."""
    words = set(own.get_vocab()) - set(own.all_special_tokens)
    names = sorted({"tokenizer.json", *own.vocab_files_names.values()})
    if not words or not any((checkpoint.directory / name).is_file() for name in names):
        raise ModelError(
            f"the tokenizer of {checkpoint.name} can't be loaded: no vocabulary; "
            f"wanted: {' or '.join(names)}"
        )


def _add_lowercase(backend: tokenizers.Tokenizer) -> None:
    """Lower-case texts as sentence-transformers does: not the special tokens spelled in them."""
    before = backend.normalizer
    if before is None:
        backend.normalizer = normalizers.Lowercase()
    elif "Lowercase" not in str(before) and not getattr(before, "lowercase", False):
        backend.normalizer = normalizers.Sequence([normalizers.Lowercase(), before])


def _fast_encode(own: OwnTokenizer) -> Encode:
    def encode(texts: list[str]) -> list[tuple[Ids, Ids | None]]:
        encodings = own.backend.encode_batch_fast(texts)
        return [(e.ids, e.type_ids if own.emits_types else None) for e in encodings]

    return encode


def _slow_encode(
    own: PreTrainedTokenizerBase,
) -> Encode:
    def encode(texts: list[str]) -> list[tuple[Ids, Ids | None]]:
        if not texts:
            return []
        batch = own(texts, padding=False, truncation=False)
        types = batch.get("token_type_ids") or [None] * len(texts)
        return list(zip(batch["input_ids"], types, strict=True))

    return encode


def _count_specials(
    own: OwnTokenizer, slow: PreTrainedTokenizerBase | None, encode: Encode
) -> Specials:
    """Find the probe's bare ids inside its ids with specials."""
    whole, _ = encode([PROBE])[0]
    bare: Ids = (
        own.backend.encode(PROBE, add_special_tokens=False).ids
        if slow is None
        else slow(PROBE, add_special_tokens=False)["input_ids"]
    )
    extra = len(whole) - len(bare)
    before = next((i for i in range(extra + 1) if whole[i : i + len(bare)] == bare), extra)
    return Specials(before, extra - before)


def _check_room(limit: LengthLimit, specials: Specials) -> None:
    least = specials.before + specials.after + 1
    if limit.tokens < least:
        raise ModelError(
            f"a limit of {limit.tokens} tokens ({limit.origin}) leaves no room for a token of the "
            f"text beside {least - 1} special ones; give --max-length {least} or more",
            usage=limit.origin == "--max-length",
        )
