from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers as hf
from bertpool.encoder.checkpoint import find_checkpoint
from bertpool.encoder.limits import LengthLimit, length_limit
from bertpool.encoder.recipe import Reading
from bertpool.encoder.tokenizer import Specials, TokenizedText, Tokenizer, load_tokenizer
from bertpool.encoder.tokenizer_windows import split
from bertpool.errors import ModelError
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import WORDS

Tiny = Callable[[str], Path]

FAMILIES = (
    "tiny-bert", "tiny-roberta", "tiny-xlm-roberta", "tiny-camembert", "tiny-mpnet",
    "tiny-albert", "tiny-deberta-v2", "tiny-modernbert", "tiny-nospecial",
)  # fmt: skip
LONG = " ".join(WORDS[:25])


def tokenizer_of(
    directory: Path, max_length: int | None = None, *, stride: int | None, **reading: Any
) -> Tokenizer:
    checkpoint = find_checkpoint(str(directory))
    limit = length_limit(checkpoint, max_length)
    return load_tokenizer(checkpoint, limit, Reading(**reading), stride=stride)


def encoded(tokenizer: Tokenizer, text: str) -> TokenizedText:
    (tokenized,) = tokenizer.encode([text])
    return tokenized


def words_of(directory: Path, text: TokenizedText) -> str:
    own = hf.AutoTokenizer.from_pretrained(directory)
    return " ".join(own.convert_ids_to_tokens(text.input_ids))


def pooled_ids(text: TokenizedText) -> list[int]:
    """Return what all windows pool, in their order."""
    ids: list[int] = []
    for window in text.windows:
        assert window.excluded is not None
        ids += np.array(window.input_ids)[~window.excluded].tolist()
    return ids


# Where the windows are


def test_windows_overlap_by_the_stride_and_each_is_framed() -> None:
    windows = split(12, before=1, after=1, limit=6, stride=1)
    assert [window.positions.tolist() for window in windows] == [
        [0, 1, 2, 3, 4, 11], [0, 4, 5, 6, 7, 11], [0, 7, 8, 9, 10, 11],
    ]  # fmt: skip


def test_windows_without_overlap_follow_one_another() -> None:
    windows = split(10, before=1, after=1, limit=6, stride=0)
    assert [window.positions.tolist() for window in windows] == [
        [0, 1, 2, 3, 4, 9], [0, 5, 6, 7, 8, 9],
    ]  # fmt: skip


def test_the_last_window_is_full() -> None:
    *_, last = split(11, before=1, after=1, limit=6, stride=0)
    assert last.positions.tolist() == [0, 6, 7, 8, 9, 10]


def test_an_overlap_is_shared_by_halves_of_which_the_later_has_the_odd_token() -> None:
    windows = split(9, before=0, after=0, limit=6, stride=3)
    assert [window.positions[window.owned].tolist() for window in windows] == [
        [0, 1, 2, 3], [4, 5, 6, 7, 8],
    ]  # fmt: skip


def test_special_tokens_are_owned_at_the_texts_ends_only() -> None:
    windows = split(12, before=1, after=1, limit=6, stride=1)
    ends = [(bool(window.owned[0]), bool(window.owned[-1])) for window in windows]
    assert ends == [(True, False), (False, False), (False, True)]


@settings(deadline=None, derandomize=True, database=None, max_examples=200)
@given(data=st.data())
def test_each_token_is_owned_once_and_in_order(data: st.DataObject) -> None:
    before, after, room = (data.draw(st.integers(*ends)) for ends in ((0, 2), (0, 2), (1, 12)))
    stride = data.draw(st.integers(0, room - 1))
    limit = before + after + room
    length = limit + data.draw(st.integers(1, 60))
    windows = list(split(length, before=before, after=after, limit=limit, stride=stride))
    owned = np.concatenate([window.positions[window.owned] for window in windows])
    assert owned.tolist() == list(range(length))


@settings(deadline=None, derandomize=True, database=None, max_examples=200)
@given(data=st.data())
def test_each_window_is_full_and_its_neighbour_shares_the_stride(data: st.DataObject) -> None:
    room = data.draw(st.integers(1, 12))
    stride = data.draw(st.integers(0, room - 1))
    length = 2 + room + data.draw(st.integers(1, 60))
    windows = list(split(length, before=1, after=1, limit=room + 2, stride=stride))
    starts = np.array([window.positions[1] for window in windows])
    assert {len(window.positions) for window in windows} == {room + 2}
    assert set(np.diff(starts)[:-1]) <= {room - stride}
    assert 1 <= starts[-1] - starts[-2] <= room - stride


def test_a_text_of_a_million_tokens_is_split_into_as_many_as_its_steps() -> None:
    windows = list(split(1_000_000, before=1, after=1, limit=512, stride=110))
    assert len(windows) == 1 + -(-(1_000_000 - 512) // 400)
    assert sum(int(window.owned.sum()) for window in windows) == 1_000_000


# What becomes of a text


def test_a_long_text_is_split_at_its_tokens(tiny: Tiny) -> None:
    text = encoded(tokenizer_of(tiny("tiny-bert"), 6, stride=2), "cat one two dog word red")
    assert [words_of(tiny("tiny-bert"), window) for window in text.windows] == [
        "[CLS] cat one two dog [SEP]",
        "[CLS] two dog word red [SEP]",
    ]


@pytest.mark.parametrize("model", FAMILIES)
@pytest.mark.parametrize("stride", [0, 3])
def test_the_windows_together_pool_each_token_of_the_text_once(
    tiny: Tiny, model: str, stride: int
) -> None:
    own = hf.AutoTokenizer.from_pretrained(tiny(model))
    text = encoded(tokenizer_of(tiny(model), 8, stride=stride), LONG)
    assert pooled_ids(text) == own(LONG)["input_ids"]


@pytest.mark.parametrize("model", FAMILIES)
def test_a_window_is_framed_like_a_text(tiny: Tiny, model: str) -> None:
    own = hf.AutoTokenizer.from_pretrained(tiny(model))
    bare = own(LONG, add_special_tokens=False)["input_ids"]
    text = encoded(tokenizer_of(tiny(model), 8, stride=0), LONG)
    frame = own("")["input_ids"]  # nothing, or a token on either side
    room = 8 - len(frame)
    content = bare[room : 2 * room]
    assert text.windows[1].input_ids == [*frame[:1], *content, *frame[1:]]


def test_a_window_has_the_token_types_of_a_text(tiny: Tiny) -> None:
    text = encoded(tokenizer_of(tiny("tiny-bert"), 8, stride=2), LONG)
    assert [window.token_type_ids for window in text.windows] == [[0] * 8] * len(text.windows)


def test_a_tokenizer_without_token_types_gives_windows_none(tiny: Tiny) -> None:
    text = encoded(tokenizer_of(tiny("tiny-roberta"), 8, stride=2), LONG)
    assert all(window.token_type_ids is None for window in text.windows)


def test_a_text_in_windows_counts_all_its_tokens_and_is_not_truncated(tiny: Tiny) -> None:
    text = encoded(tokenizer_of(tiny("tiny-bert"), 8, stride=2), LONG)
    assert (text.n_tokens, text.truncated) == (27, False)


def test_a_window_is_not_truncated(tiny: Tiny) -> None:
    text = encoded(tokenizer_of(tiny("tiny-bert"), 8, stride=2), LONG)
    assert not any(window.truncated for window in text.windows)


def test_a_text_in_windows_has_the_ids_of_the_first(tiny: Tiny) -> None:
    text = encoded(tokenizer_of(tiny("tiny-bert"), 8, stride=2), LONG)
    assert text.input_ids == text.windows[0].input_ids


def test_a_window_tells_how_many_tokens_are_pooled_before_it(tiny: Tiny) -> None:
    text = encoded(tokenizer_of(tiny("tiny-bert"), 8, stride=0), " ".join(WORDS[:18]))
    assert [window.pooled_before for window in text.windows] == [0, 1 + 6, 1 + 12]


def test_a_text_that_just_fits_has_no_windows(tiny: Tiny) -> None:
    fits, exceeds = tokenizer_of(tiny("tiny-bert"), 10, stride=2).encode(["cat " * 8, "cat " * 9])
    assert (len(fits.windows), len(exceeds.windows)) == (0, 2)


def test_without_a_stride_a_text_is_cut(tiny: Tiny) -> None:
    text = encoded(tokenizer_of(tiny("tiny-bert"), 8, stride=None), LONG)
    assert (text.windows, text.truncated) == ((), True)


def test_with_a_stride_short_texts_have_marks_too(tiny: Tiny) -> None:
    text = encoded(tokenizer_of(tiny("tiny-bert"), stride=2), "cat")
    assert text.excluded is not None
    assert text.excluded.tolist() == [False, False, False]


def test_with_a_stride_pairs_are_cut(tiny: Tiny) -> None:
    (pair,) = tokenizer_of(tiny("tiny-bert"), 8, stride=2).encode([LONG], ["cat"])
    assert (pair.windows, pair.truncated) == ((), True)


# What isn't pooled


def test_special_tokens_are_excluded_in_every_window(tiny: Tiny) -> None:
    own = hf.AutoTokenizer.from_pretrained(tiny("tiny-bert"))
    text = encoded(tokenizer_of(tiny("tiny-bert"), 8, stride=2, exclude_special=True), LONG)
    assert pooled_ids(text) == own(LONG, add_special_tokens=False)["input_ids"]


def test_a_window_of_typed_special_tokens_only_is_left_out(tiny: Tiny) -> None:
    tokenizer = tokenizer_of(tiny("tiny-bert"), 5, stride=0, exclude_special=True)
    text = encoded(tokenizer, "cat one two [SEP] [SEP] [SEP] dog word red")
    assert [words_of(tiny("tiny-bert"), window) for window in text.windows] == [
        "[CLS] cat one two [SEP]",
        "[CLS] dog word red [SEP]",
    ]


def test_a_window_left_out_pools_nothing_before_the_next(tiny: Tiny) -> None:
    tokenizer = tokenizer_of(tiny("tiny-bert"), 5, stride=0, exclude_special=True)
    text = encoded(tokenizer, "cat one two [SEP] [SEP] [SEP] dog word red")
    assert [window.pooled_before for window in text.windows] == [0, 3]


def test_a_text_of_special_tokens_only_pools_them_all(tiny: Tiny) -> None:
    tokenizer = tokenizer_of(tiny("tiny-bert"), 5, stride=1, exclude_special=True)
    text = encoded(tokenizer, "[SEP] " * 8)
    assert len(pooled_ids(text)) == text.n_tokens == 10


def test_a_prompt_stands_in_the_first_window_only(tiny: Tiny) -> None:
    tokenizer = tokenizer_of(
        tiny("tiny-bert"), 6, stride=0, prompt="the cat ", include_prompt=False
    )
    text = encoded(tokenizer, "one two dog word red blue")
    assert [window.prompt_tokens for window in text.windows] == [3, 0]
    assert [words_of(tiny("tiny-bert"), window) for window in text.windows] == [
        "[CLS] the cat one two [SEP]",
        "[CLS] dog word red blue [SEP]",
    ]


@pytest.mark.parametrize("exclude_special", [True, False])
def test_a_prompt_to_leave_out_is_pooled_in_no_window(tiny: Tiny, exclude_special: bool) -> None:
    own = hf.AutoTokenizer.from_pretrained(tiny("tiny-bert"))
    text = encoded(
        tokenizer_of(
            tiny("tiny-bert"), 5, stride=2, prompt="the cat runs the cat runs ",
            include_prompt=False, exclude_special=exclude_special,
        ),
        "one two dog word red blue",
    )  # fmt: skip
    expected = own("one two dog word red blue", add_special_tokens=not exclude_special)["input_ids"]
    assert pooled_ids(text) == (expected if exclude_special else expected[1:])


def test_a_prompt_pooled_like_the_rest_is_pooled_once(tiny: Tiny) -> None:
    own = hf.AutoTokenizer.from_pretrained(tiny("tiny-bert"))
    text = encoded(tokenizer_of(tiny("tiny-bert"), 6, stride=2, prompt="the cat "), LONG)
    assert pooled_ids(text) == own(f"the cat {LONG}")["input_ids"]


def test_a_side_of_truncation_makes_no_difference(tiny: Tiny, tmp_path: Path) -> None:
    left = Path(shutil.copytree(tiny("tiny-bert"), tmp_path / "left"))
    config = left / "tokenizer_config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "truncation_side": "left"}))
    directories = (tiny("tiny-bert"), left)
    sides = [encoded(tokenizer_of(directory, 8, stride=2), LONG) for directory in directories]
    ids = [[window.input_ids for window in text.windows] for text in sides]
    assert ids[0] == ids[1]


@pytest.mark.parametrize(("last", "unknown"), [("\U0001f600", True), ("cat", False)])
def test_unknown_tokens_are_looked_for_in_all_windows(tiny: Tiny, last: str, unknown: bool) -> None:
    tokenizer = tokenizer_of(tiny("tiny-bert"), 5, stride=0)
    text = encoded(tokenizer, "\U0001f600 " * 6 + last)
    assert tokenizer.unknown_only(text) is unknown


# What is refused


@pytest.mark.parametrize("stride", [6, 7, 600, -1])
def test_a_stride_that_leaves_no_room_to_advance_is_refused_with_the_most(
    tiny: Tiny, stride: int
) -> None:
    with pytest.raises(ModelError) as refusal:
        tokenizer_of(tiny("tiny-bert"), 8, stride=stride)
    assert f"--stride {stride}: " in str(refusal.value)
    assert "give 0 to 5" in str(refusal.value)
    assert refusal.value.exit_code == 2


def test_a_stride_beyond_a_limit_that_nobody_asked_for_is_wrong_usage_all_the_same(
    tiny: Tiny,
) -> None:
    checkpoint = find_checkpoint(str(tiny("tiny-bert")))
    limit = LengthLimit(8, "tokenizer_config.json")
    with pytest.raises(ModelError, match=r"tokenizer_config\.json") as refusal:
        load_tokenizer(checkpoint, limit, Reading(), stride=6)
    assert refusal.value.exit_code == 2


def test_the_largest_stride_advances_by_one_token(tiny: Tiny) -> None:
    text = encoded(tokenizer_of(tiny("tiny-bert"), 8, stride=5), "cat " * 10)
    assert len(text.windows) == 5


def test_an_id_without_embedding_is_refused_in_any_window() -> None:
    tokenizer = Tokenizer(
        lambda texts: [([1, *[5] * 30, 9, 2], None) for _ in texts],
        encode_pairs=lambda pairs: [],
        reading=Reading(),
        limit=LengthLimit(8, "--max-length"),
        specials=Specials(1, 1, 3),
        special_ids=frozenset({1, 2}),
        pad_id=0,
        unknown_id=None,
        vocab_size=9,
        stride=2,
    )
    with pytest.raises(ModelError, match="gives id 9"):
        tokenizer.encode(["text"])
