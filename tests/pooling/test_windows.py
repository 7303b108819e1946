from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from bertpool.pooling import STRATEGIES, TokenEmbeddings, pool_windows
from bertpool.pooling.reference import REFERENCES, join_windows
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

NAMES = tuple(STRATEGIES)
OVER_S = ("mean", "max", "attention", "mean_sqrt_len", "weighted_mean")
NAN = float("nan")

# Two windows own the values 1, 3 and 5, of which 1 and 3 receive 0.1 and 0.3 of the attention in
# the first, and 5 receives 0.6 in the second; their pooler outputs are 0.5 and 0.7.
VALUES = [[1.0, 3.0, 90.0], [80.0, 5.0, 5.0]]
OWNED = [[True, True, False], [False, True, False]]
RECEIVED = [[0.1, 0.3, 0.6], [0.3, 0.6, 0.1]]
AT_ONCE = {
    "cls": (1.0 + 80.0) / 2,
    "pooler": (0.5 + 0.7) / 2,
    "mean": (1.0 + 3.0 + 5.0) / 3,
    "max": 5.0,
    "attention": (0.1 * 1 + 0.3 * 3 + 0.6 * 5) / (0.1 + 0.3 + 0.6),
    "mean_sqrt_len": (1.0 + 3.0 + 5.0) / math.sqrt(3),
    "weighted_mean": (1 * 1 + 2 * 3 + 3 * 5) / (1 + 2 + 3),
    "last": 5.0,
}
WEIGHTS = {
    "cls": [1.0, 1.0],
    "pooler": [1.0, 1.0],
    "mean": [2.0, 1.0],
    "max": [2.0, 1.0],
    "attention": [0.4, 0.6],
    "mean_sqrt_len": [2.0, 1.0],
    "weighted_mean": [1.0 + 2.0, 3.0],
    "last": [1.0, 1.0],
}


def two_windows() -> TokenEmbeddings:
    return TokenEmbeddings(
        torch.tensor(VALUES).unsqueeze(-1),
        torch.ones(2, 3, dtype=torch.bool),
        torch.tensor(OWNED),
        torch.tensor(RECEIVED),
        torch.tensor([[0.5], [0.7]]),
        torch.tensor([0, 2]),
    )


def combined(name: str, tokens: TokenEmbeddings) -> Tensor:
    return STRATEGIES[name].combine(*pool_windows(tokens, (name,))[name])


@pytest.mark.parametrize("name", NAMES)
def test_two_windows_are_combined_to_the_vector_of_their_text(name: str) -> None:
    assert combined(name, two_windows()).tolist() == [pytest.approx(AT_ONCE[name])]


@pytest.mark.parametrize("name", NAMES)
def test_a_window_counts_for_what_it_owns(name: str) -> None:
    _, weights = pool_windows(two_windows(), (name,))[name]
    assert weights.tolist() == pytest.approx(WEIGHTS[name])


@pytest.mark.parametrize("name", NAMES)
def test_weights_and_vectors_are_float32(name: str) -> None:
    tokens = two_windows()
    half = replace(tokens, hidden_states=tokens.hidden_states.bfloat16())
    vectors, weights = pool_windows(half, (name,))[name]
    dtypes = {vectors.dtype, weights.dtype, STRATEGIES[name].combine(vectors, weights).dtype}
    assert dtypes == {torch.float32}


def test_weights_start_at_one_in_whole_texts() -> None:
    whole = replace(two_windows(), pooled_before=None)
    vectors, weights = pool_windows(whole, ("weighted_mean",))["weighted_mean"]
    assert vectors.flatten().tolist() == pytest.approx([(1 + 2 * 3) / 3, 5.0])
    assert weights.tolist() == [3.0, 1.0]


def test_weights_go_on_where_the_window_before_ends() -> None:
    tokens = TokenEmbeddings(
        torch.tensor([[[2.0], [4.0]]]),
        torch.ones(1, 2, dtype=torch.bool),
        torch.ones(1, 2, dtype=torch.bool),
        pooled_before=torch.tensor([10]),
    )
    vectors, weights = pool_windows(tokens, ("weighted_mean",))["weighted_mean"]
    assert vectors.item() == pytest.approx((11 * 2 + 12 * 4) / 23)
    assert weights.item() == 23.0


def test_weights_deep_in_a_text_are_exact() -> None:
    tokens = replace(two_windows(), pooled_before=torch.tensor([1_000_000, 1_000_002]))
    _, weights = pool_windows(tokens, ("weighted_mean",))["weighted_mean"]
    assert weights.tolist() == [2_000_003.0, 1_000_003.0]


@pytest.mark.parametrize("name", OVER_S)
def test_a_window_that_owns_nothing_changes_nothing(name: str) -> None:
    two = two_windows()
    fields = {key: getattr(two, key) for key in TokenEmbeddings.__dataclass_fields__}
    three = TokenEmbeddings(**{key: rows[[0, 0, 1]] for key, rows in fields.items()})
    three.pooled_mask[1] = False
    three.hidden_states[:] *= -1  # so that a zero would be the largest
    two.hidden_states[:] *= -1
    assert torch.equal(combined(name, three), combined(name, two))


@pytest.mark.parametrize("name", OVER_S)
def test_windows_that_own_nothing_give_zeros(name: str) -> None:
    nothing = replace(two_windows(), pooled_mask=torch.zeros(2, 3, dtype=torch.bool))
    assert combined(name, nothing).tolist() == [0.0]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("count", [1, 3, 509, 510])
def test_a_window_alone_keeps_its_bits(name: str, count: int) -> None:
    generator = torch.Generator().manual_seed(count)
    mask = torch.ones(1, count, dtype=torch.bool)
    tokens = TokenEmbeddings(
        torch.randn(1, count, 64, generator=generator),
        mask,
        mask,
        torch.rand(1, count, generator=generator),
        torch.randn(1, 64, generator=generator),
    )
    assert torch.equal(combined(name, tokens), STRATEGIES[name].pool(tokens)[0])


@pytest.mark.parametrize("name", NAMES)
def test_nan_of_a_window_is_not_hidden(name: str) -> None:
    tokens = two_windows()
    spoilt = replace(
        tokens,
        hidden_states=tokens.hidden_states * torch.tensor([1.0, NAN])[:, None, None],
        pooler_output=torch.tensor([[0.5], [NAN]]),
    )
    assert combined(name, spoilt).isnan().all()


@pytest.mark.parametrize("name", ["mean", "max", "weighted_mean"])
def test_windows_are_of_one_text_whatever_the_batch_they_came_from(name: str) -> None:
    tokens = two_windows()
    fields = {key: getattr(tokens, key) for key in TokenEmbeddings.__dataclass_fields__}
    alone = [
        pool_windows(
            TokenEmbeddings(**{key: rows[i : i + 1] for key, rows in fields.items()}), (name,)
        )[name]
        for i in (0, 1)
    ]
    vectors, weights = (torch.cat(parts) for parts in zip(*alone, strict=True))
    assert torch.equal(STRATEGIES[name].combine(vectors, weights), combined(name, tokens))


def test_many_long_windows_are_averaged_without_losing_digits() -> None:
    # 1 and 1 + 2^-23 are neighbours in float32, where sums this large couldn't tell them apart.
    vectors = torch.full((4000, 1), 1.0 + 2**-23)
    averaged = STRATEGIES["mean"].combine(vectors, torch.full((4000,), 510.0))
    assert averaged.item() == 1.0 + 2**-23


def test_attention_without_weights_raises() -> None:
    with pytest.raises(ValueError, match="no attention weights"):
        STRATEGIES["attention"].weight(replace(two_windows(), attention_received=None))


def test_the_reference_joins_the_owned_tokens() -> None:
    hidden_states = [np.array(values)[:, np.newaxis] for values in VALUES]
    joined = join_windows(hidden_states, [np.array(owned) for owned in OWNED])
    assert joined.tolist() == [[[1.0], [3.0], [5.0]]]


# Whatever the windows, the strategy means the same as over all owned tokens at once


@settings(deadline=None, derandomize=True, database=None, max_examples=100)
@given(data=st.data())
@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("cls", "pooler")])
def test_combined_windows_equal_the_reference_over_all_owned_tokens(
    name: str, data: st.DataObject
) -> None:
    count, width = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 9))
    lengths = [data.draw(st.integers(1, width)) for _ in range(count)]
    real = np.arange(width) < np.array(lengths)[:, np.newaxis]
    row = st.lists(st.booleans(), min_size=width, max_size=width)
    owned = real & np.array([data.draw(row) for _ in range(count)])
    owned[-1, lengths[-1] - 1] = True  # a text's last token is its last window's
    generator = np.random.default_rng(data.draw(st.integers(0, 1000)))
    hidden = generator.normal(size=(count, width, 3))
    received = generator.uniform(0.1, 1.0, size=(count, width)) * real

    joined = join_windows([*hidden], [*owned])
    every = np.ones(joined.shape[:2], dtype=bool)
    # Each query gives a token what it receives.
    probabilities = np.broadcast_to(received[owned], (1, 1, every.size, every.size))
    masks = (every, every, probabilities) if name == "attention" else (every,)
    expected = REFERENCES[name](joined, *masks)[0]

    hidden[~real] = NAN
    sizes = owned.sum(axis=1)
    tokens = TokenEmbeddings(
        torch.from_numpy(hidden).float(),
        torch.from_numpy(real),
        torch.from_numpy(owned),
        torch.from_numpy(received).float(),
        pooled_before=torch.from_numpy(np.cumsum(sizes) - sizes),
    )
    np.testing.assert_allclose(combined(name, tokens).numpy(), expected, atol=1e-6, rtol=1e-6)
