from __future__ import annotations

import numpy as np
import pytest
from bertpool.encoder.batches import make_batches
from hypothesis import given, settings
from hypothesis import strategies as st

lengths_of_texts = st.lists(st.integers(0, 50), max_size=60)


def batches(lengths: list[int], batch_tokens: int, *, mixed: bool = True) -> list[list[int]]:
    return [b.tolist() for b in make_batches(lengths, batch_tokens, mixed_lengths=mixed)]


def test_the_longest_texts_come_first_and_fill_the_budget() -> None:
    assert batches([3, 9, 4, 3], 9) == [[1], [2, 0], [3]]


def test_texts_of_one_length_keep_their_order() -> None:
    assert batches([5, 7] * 50, 1000) == [[*range(1, 100, 2), *range(0, 100, 2)]]


def test_a_text_longer_than_the_budget_is_a_batch_of_its_own() -> None:
    assert batches([100, 2, 200], 10) == [[2], [0], [1]]


def test_without_mixed_lengths_a_batch_ends_where_the_length_changes() -> None:
    assert batches([3, 4, 3, 4, 3], 100, mixed=False) == [[1, 3], [0, 2, 4]]


def test_no_texts_make_no_batch() -> None:
    assert batches([], 100) == []


@pytest.mark.parametrize("mixed", [True, False])
@settings(deadline=None, derandomize=True, database=None)
@given(lengths=lengths_of_texts, batch_tokens=st.integers(1, 200))
def test_every_text_is_in_one_batch(mixed: bool, lengths: list[int], batch_tokens: int) -> None:
    found = [index for batch in batches(lengths, batch_tokens, mixed=mixed) for index in batch]
    assert sorted(found) == list(range(len(lengths)))


@pytest.mark.parametrize("mixed", [True, False])
@settings(deadline=None, derandomize=True, database=None)
@given(lengths=lengths_of_texts, batch_tokens=st.integers(1, 200))
def test_the_slots_of_several_texts_stay_within_the_budget(
    mixed: bool, lengths: list[int], batch_tokens: int
) -> None:
    for batch in batches(lengths, batch_tokens, mixed=mixed):
        slots = len(batch) * max(lengths[index] for index in batch)
        assert len(batch) == 1 or slots <= batch_tokens


@settings(deadline=None, derandomize=True, database=None)
@given(lengths=lengths_of_texts, batch_tokens=st.integers(1, 200))
def test_without_mixed_lengths_no_batch_holds_two(lengths: list[int], batch_tokens: int) -> None:
    for batch in batches(lengths, batch_tokens, mixed=False):
        assert len({lengths[index] for index in batch}) == 1


@settings(deadline=None, derandomize=True, database=None)
@given(lengths=lengths_of_texts, batch_tokens=st.integers(1, 200))
def test_no_later_batch_holds_a_longer_text(lengths: list[int], batch_tokens: int) -> None:
    longest = [max(lengths[i] for i in batch) for batch in batches(lengths, batch_tokens)]
    assert (np.diff(longest) <= 0).all()
