"""Texts -> token ids, exactly as the model's own tokenizer reads them, truncation counted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import tokenizers
from bertpool.encoder.checkpoint import Checkpoint
from bertpool.encoder.limits import LengthLimit
from bertpool.encoder.recipe import Reading
from bertpool.encoder.tokenizer_json import OwnTokenizer, read_tokenizer_json
from bertpool.encoder.tokenizer_pairs import EncodePairs, Ids, fast_pairs, slow_pairs
from bertpool.encoder.tokenizer_windows import split
from bertpool.errors import ModelError
from tokenizers import normalizers

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Encode = Callable[[list[str]], list[tuple[Ids, "Ids | None"]]]
Spell = Callable[[Ids], list[str]]
PROBE = "a b"  # any text: it shows how many special tokens stand on either side


def _as_numbers(ids: Ids) -> list[str]:
    return [str(i) for i in ids]


@dataclass(frozen=True)
class TokenizedText:
    """One text, or pair of texts, as the model reads it.

    Attributes:
        input_ids: ids after truncation, specials included.
        token_type_ids: segment ids, where the tokenizer emits them.
        n_tokens: how many tokens the whole text has, specials included.
        excluded: ``(tokens)`` bool, tokens left out of the pooling; None for none. With a stride
            every text has it.
        prompt_tokens: how many leading tokens the pooling takes for no part of the text.
        windows: where a stride splits the text, its parts in order, to be encoded in its stead;
            everything else but ``n_tokens`` is then the first window's. Each window frames its
            tokens by the special ones and excludes what another window owns, so that all of them
            together pool each token of the text once; one that pools nothing is left out.
            ``prompt_tokens`` is set in the first part of the text only.
        pooled_before: how many pooled tokens the text's windows before this one hold.
    """

    input_ids: Ids
    token_type_ids: Ids | None
    n_tokens: int
    excluded: npt.NDArray[np.bool_] | None = None
    prompt_tokens: int = 0
    windows: tuple[TokenizedText, ...] = ()
    pooled_before: int = 0

    @property
    def truncated(self) -> bool:
        """Tell whether tokens were cut off."""
        return not self.windows and self.n_tokens > len(self.input_ids)


@dataclass(frozen=True)
class Specials:
    """How many special tokens the tokenizer puts before and after a text, and around a pair."""

    before: int
    after: int
    around_pair: int


class Tokenizer:
    """Tokenizes batches of texts without padding, and truncates between the special tokens.

    Args:
        encode: texts -> their ids and token type ids (None where not emitted), never truncated.
        encode_pairs: pairs of texts -> the same, truncated to the limit, and the number of tokens
            before that.
        reading: what is done to a text before, and which of its tokens are pooled.
        limit: the length limit, specials included.
        specials: special tokens on either side of a text.
        special_ids: ids of special tokens, the unknown token not among them: it stands for a word.
        pad_id: the id to fill with.
        unknown_id: the id of the unknown token, if there is one.
        truncate_left: cut tokens from the text's start instead of its end.
        vocab_size: ids that the model has embeddings for; None where no id can be beyond them.
        stride: split a longer text into windows that overlap by so many of its tokens, instead of
            cutting it; pairs are cut nevertheless.
        spell: ids -> the tokens as the vocabulary spells them.

    Raises:
        ModelError: the limit leaves no room for a token of the text, or the stride none to advance.
    """

    def __init__(
        self,
        encode: Encode,
        *,
        encode_pairs: EncodePairs,
        reading: Reading,
        limit: LengthLimit,
        specials: Specials,
        special_ids: frozenset[int],
        pad_id: int,
        unknown_id: int | None,
        truncate_left: bool = False,
        vocab_size: int | None = None,
        stride: int | None = None,
        spell: Spell = _as_numbers,
    ) -> None:
        _check_room(limit, specials)
        if stride is not None:
            _check_stride(stride, limit, specials)
        self._encode = encode
        self._encode_pairs = encode_pairs
        self._stride = stride
        self._reading = reading
        self._specials = specials
        self._truncate_left = truncate_left
        self._vocab_size = vocab_size
        self.spell = spell
        self.limit = limit
        self.special_ids = special_ids
        self.pad_id = pad_id
        self.unknown_id = unknown_id
        self._prompt_tokens = 0 if reading.include_prompt else self._prompt_length()

    def encode(
        self, texts: Sequence[str], pairs: Sequence[str] | None = None
    ) -> list[TokenizedText]:
        """Tokenize texts, in order, each after the prompt and, if given, with its pair after it.

        Raises:
            ModelError: a token has no embedding, or the limit no room for a pair.
        """
        prompted = [self._reading.prompt + text for text in texts]
        if pairs is None:
            return [self._tokenized(ids, types) for ids, types in self._encode(prompted)]
        self.check_pair_room()
        read = self._encode_pairs(list(zip(prompted, pairs, strict=True)))
        return [self._kept(ids, types, n_tokens) for ids, types, n_tokens in read]

    def read_whole(self, text: str) -> tuple[Ids, Ids]:
        """Tokenize one text after the prompt: all its ids, and the places of those it is cut to."""
        ids, _ = self._encode([self._reading.prompt + text])[0]
        return ids, self._cut(list(range(len(ids))))

    def check_pair_room(self) -> None:
        """Check that a pair fits: its special tokens and a token of each text.

        Raises:
            ModelError: it doesn't; the message says what would.
        """
        if self.limit.tokens < self._specials.around_pair + 2:
            raise _no_room(self.limit, self._specials.around_pair, "a token of each text", 2)

    def _tokenized(self, ids: Ids, types: Ids | None) -> TokenizedText:
        if self._stride is not None and len(ids) > self.limit.tokens:
            return self._windowed(ids, types, self._stride)
        return self._kept(self._cut(ids), None if types is None else self._cut(types), len(ids))

    def _kept(self, ids: Ids, types: Ids | None, n_tokens: int) -> TokenizedText:
        self._check_embeddings(ids)
        marks = self._reading.exclude_special or self._stride is not None
        excluded = self._excluded(ids) if marks else None
        return TokenizedText(ids, types, n_tokens, excluded, self._prompt_tokens)

    def _windowed(self, ids: Ids, types: Ids | None, stride: int) -> TokenizedText:
        self._check_embeddings(ids)
        pooled = self._pooled(ids)
        before, after = self._specials.before, self._specials.after
        windows: list[TokenizedText] = []
        for window in split(
            len(ids), before=before, after=after, limit=self.limit.tokens, stride=stride
        ):
            places = window.positions.tolist()
            part = TokenizedText(
                input_ids=[ids[i] for i in places],
                token_type_ids=None if types is None else [types[i] for i in places],
                n_tokens=len(places),
                excluded=~(window.owned & pooled[window.positions]),
                prompt_tokens=0 if windows else self._prompt_tokens,
            )
            windows.append(part)
        return _with_windows(len(ids), windows)

    def _pooled(self, ids: Ids) -> npt.NDArray[np.bool_]:
        """Mark what is pooled of a whole text, ``(tokens)``, as is done with one in one piece."""
        prompt = np.arange(len(ids)) < self._prompt_tokens
        real = _unless_nothing_is_left(np.ones_like(prompt), ~prompt)
        return _unless_nothing_is_left(real, ~self._excluded(ids))

    def _excluded(self, ids: Ids) -> npt.NDArray[np.bool_]:
        if not self._reading.exclude_special:
            return np.zeros(len(ids), dtype=bool)
        return np.isin(ids, list(self.special_ids))

    def _check_embeddings(self, ids: Ids) -> None:
        if self._vocab_size is not None and max(ids, default=0) >= self._vocab_size:
            raise ModelError(
                f"the tokenizer gives id {max(ids)}, and the model has {self._vocab_size} "
                "embeddings: they don't belong together"
            )

    def _prompt_length(self) -> int:
        """Count the tokens that the prompt and the specials before it take up."""
        if not self._reading.prompt:
            return 0
        ids, _ = self._encode([self._reading.prompt])[0]
        return len(ids) - self._specials.after

    def unknown_only(self, text: TokenizedText) -> bool:
        """Tell whether all that the model sees of a text is the unknown token."""
        parts = text.windows or (text,)
        words = [i for part in parts for i in part.input_ids if i not in self.special_ids]
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


def _with_windows(n_tokens: int, parts: list[TokenizedText]) -> TokenizedText:
    """Join a text's windows, without those that pool nothing, and count along them."""
    windows: list[TokenizedText] = []
    before = 0
    for part in parts:
        pooled = 0 if part.excluded is None else int((~part.excluded).sum())
        if pooled:
            windows.append(replace(part, pooled_before=before))
        before += pooled
    return replace(windows[0], n_tokens=n_tokens, windows=tuple(windows))


def _unless_nothing_is_left(
    mask: npt.NDArray[np.bool_], kept: npt.NDArray[np.bool_]
) -> npt.NDArray[np.bool_]:
    narrowed = mask & kept
    return narrowed if narrowed.any() else mask


def load_tokenizer(
    checkpoint: Checkpoint, limit: LengthLimit, reading: Reading, *, stride: int | None = None
) -> Tokenizer:
    """Load the checkpoint's own tokenizer, through transformers where its file doesn't suffice.

    Padding and truncation baked into ``tokenizer.json`` are reset. With a ``stride`` longer texts
    are split into windows that overlap by so many tokens, instead of being cut.

    Raises:
        ModelError: there is no tokenizer, it needs code from the repository, or ``limit`` leaves no
            room for a token, or for a ``stride``.
    """
    slow: PreTrainedTokenizerBase | None = None
    own = read_tokenizer_json(checkpoint)
    if own is None:
        own, slow = _through_transformers(checkpoint)
    if reading.lower_case and slow is None:
        _add_lowercase(own.backend)
    encode = _fast_encode(own) if slow is None else _slow_encode(slow)
    pairs = fast_pairs(own, limit.tokens) if slow is None else slow_pairs(slow, limit.tokens)
    return Tokenizer(
        encode,
        encode_pairs=pairs,
        reading=reading,
        limit=limit,
        specials=_count_specials(own, slow, encode),
        special_ids=own.special_ids - {own.unknown_id},
        pad_id=own.pad_id if own.pad_id is not None else checkpoint.config.get("pad_token_id") or 0,
        unknown_id=own.unknown_id,
        truncate_left=own.truncate_left,
        vocab_size=_bound(checkpoint, own.size),
        stride=stride,
        spell=_fast_spell(own) if slow is None else _slow_spell(slow),
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


def _fast_spell(own: OwnTokenizer) -> Spell:
    def spell(ids: Ids) -> list[str]:
        return [own.backend.id_to_token(i) or str(i) for i in ids]

    return spell


def _slow_spell(own: PreTrainedTokenizerBase) -> Spell:
    def spell(ids: Ids) -> list[str]:
        return [str(own.convert_ids_to_tokens(i)) for i in ids]

    return spell


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
    around_pair = (
        own.backend.num_special_tokens_to_add(is_pair=True)
        if slow is None
        else slow.num_special_tokens_to_add(pair=True)
    )
    return Specials(before, extra - before, around_pair)


def _check_room(limit: LengthLimit, specials: Specials) -> None:
    if limit.tokens <= specials.before + specials.after:
        raise _no_room(limit, specials.before + specials.after, "a token of the text", 1)


def _no_room(limit: LengthLimit, specials: int, wanted: str, tokens: int) -> ModelError:
    return ModelError(
        f"a limit of {limit.tokens} tokens ({limit.origin}) leaves no room for {wanted} beside "
        f"{specials} special ones; give --max-length {specials + tokens} or more",
        usage=limit.origin == "--max-length",
    )


def _check_stride(stride: int, limit: LengthLimit, specials: Specials) -> None:
    room = limit.tokens - specials.before - specials.after
    if not 0 <= stride < room:
        raise ModelError(
            f"--stride {stride}: a window of {limit.tokens} tokens ({limit.origin}) holds {room} "
            f"of the text; give 0 to {room - 1}",
            usage=True,
        )
