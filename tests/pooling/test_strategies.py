from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from bertpool.pooling import STRATEGIES, TokenEmbeddings, pool
from bertpool.pooling.attention import attention_received
from bertpool.pooling.reference import REFERENCES
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

NAN, INF = float("nan"), float("inf")
NAMES = tuple(STRATEGIES)
OVER_S = ("mean", "max", "attention", "mean_sqrt_len", "weighted_mean")

# Of the values 1 and 3, which receive 1/4 and 3/4 of the attention, with a pooler output of 0.5.
ONE_THREE = {
    "cls": 1.0,
    "pooler": 0.5,
    "mean": 2.0,
    "max": 3.0,
    "attention": 1 / 4 + 9 / 4,
    "mean_sqrt_len": 4 / math.sqrt(2),
    "weighted_mean": (1 * 1 + 2 * 3) / 3,
    "last": 3.0,
}


def one_text(
    values: list[float],
    *,
    real: str,
    pooled: str | None = None,
    received: list[float] | None = None,
) -> TokenEmbeddings:
    """Return a batch of one text of width 1; masks are written as ``110`` and the like."""
    mask, chosen = (torch.tensor([[c == "1" for c in bits]]) for bits in (real, pooled or real))
    attention = torch.zeros(1, len(values)) if received is None else torch.tensor([received])
    return TokenEmbeddings(
        torch.tensor(values)[None, :, None], mask, chosen, attention, torch.tensor([[0.5]])
    )


def random_texts(lengths: list[int], *, seed: int = 0, hidden: int = 5) -> list[TokenEmbeddings]:
    """Return texts of random token vectors, each a batch of one without padding."""
    generator = torch.Generator().manual_seed(seed)
    texts = []
    for length in lengths:
        mask = torch.ones(1, length, dtype=torch.bool)
        received = torch.rand(1, length, generator=generator)
        texts.append(
            TokenEmbeddings(
                torch.randn(1, length, hidden, generator=generator),
                mask,
                mask,
                received / received.sum(),
                torch.randn(1, hidden, generator=generator),
            )
        )
    return texts


def padded(text: TokenEmbeddings, *, left: int, right: int, fill: float = 0.0) -> TokenEmbeddings:
    """Return the text with tokens that aren't real on both sides of its own."""

    def around(rows: Tensor) -> Tensor:
        return torch.nn.functional.pad(rows, (left, right))

    assert text.attention_received is not None
    vectors = torch.nn.functional.pad(text.hidden_states, (0, 0, left, right), value=fill)
    return replace(
        text,
        hidden_states=vectors,
        attention_mask=around(text.attention_mask),
        pooled_mask=around(text.pooled_mask),
        attention_received=around(text.attention_received),
    )


def stacked(texts: list[TokenEmbeddings], *, fill: float = 9.0) -> TokenEmbeddings:
    """Return one batch of the texts, each padded on the right to the longest."""
    longest = max(text.attention_mask.shape[1] for text in texts)
    rows = [
        padded(text, left=0, right=longest - text.attention_mask.shape[1], fill=fill)
        for text in texts
    ]
    fields = TokenEmbeddings.__dataclass_fields__.keys() - {"pooled_before"}
    return TokenEmbeddings(**{f: torch.cat([getattr(row, f) for row in rows]) for f in fields})


def pooled_by(name: str, tokens: TokenEmbeddings) -> Tensor:
    return STRATEGIES[name].pool(tokens)


def test_the_numbers_below_cover_every_strategy() -> None:
    assert set(ONE_THREE) == set(STRATEGIES)


@pytest.mark.parametrize("name", NAMES)
def test_one_and_three_are_pooled_without_the_nine_padded_on_the_right(name: str) -> None:
    tokens = one_text([1, 3, 9], real="110", received=[0.25, 0.75, 0.0])
    assert pooled_by(name, tokens).item() == pytest.approx(ONE_THREE[name])


@pytest.mark.parametrize("name", NAMES)
def test_one_and_three_are_pooled_without_the_nine_padded_on_the_left(name: str) -> None:
    tokens = one_text([9, 1, 3], real="011", received=[0.0, 0.25, 0.75])
    assert pooled_by(name, tokens).item() == pytest.approx(ONE_THREE[name])


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("mean", 4.0),
        ("max", 5.0),
        ("attention", (0.2 * 3 + 0.1 * 5) / 0.3),
        ("mean_sqrt_len", 8 / math.sqrt(2)),
        ("weighted_mean", (1 * 3 + 2 * 5) / 3),
    ],
)
def test_excluded_tokens_are_left_out_and_the_weights_renormalised(
    name: str, expected: float
) -> None:
    tokens = one_text([70, 3, 5, 80], real="1111", pooled="0110", received=[0.5, 0.2, 0.1, 0.2])
    assert pooled_by(name, tokens).item() == pytest.approx(expected)


@pytest.mark.parametrize(("name", "expected"), [("cls", 70.0), ("last", 80.0), ("pooler", 0.5)])
def test_a_single_position_is_taken_among_real_tokens_even_where_it_is_excluded(
    name: str, expected: float
) -> None:
    tokens = one_text([70, 3, 5, 80, 9], real="11110", pooled="01100")
    assert pooled_by(name, tokens).item() == expected


def test_weights_count_along_the_pooled_tokens_over_gaps() -> None:
    tokens = one_text([2, 90, 5, 90, 8], real="11111", pooled="10101")
    assert pooled_by("weighted_mean", tokens).item() == pytest.approx((2 + 2 * 5 + 3 * 8) / 6)


def test_the_largest_of_negative_values_is_negative_beside_padding_of_zero() -> None:
    tokens = one_text([-4, -2, 0, 0], real="1100")
    assert pooled_by("max", tokens).item() == -2.0


def test_values_below_any_magic_number_are_still_the_largest() -> None:
    tokens = one_text([-3e38, 0], real="10")
    assert pooled_by("max", tokens).item() == pytest.approx(-3e38)


@pytest.mark.parametrize("name", NAMES)
def test_a_text_of_one_token_is_that_token(name: str) -> None:
    tokens = replace(
        one_text([7, 9], real="10", received=[1.0, 0.0]), pooler_output=torch.tensor([[7.0]])
    )
    assert pooled_by(name, tokens).item() == pytest.approx(7.0)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("left", "right"), [(0, 1), (0, 13), (1, 0), (13, 0), (5, 8)])
def test_more_padding_changes_nothing(name: str, left: int, right: int) -> None:
    (text,) = random_texts([6])
    more = pooled_by(name, padded(text, left=left, right=right, fill=9.0))
    torch.testing.assert_close(more, pooled_by(name, text))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("fill", [NAN, INF, -INF], ids=str)
@pytest.mark.parametrize(("left", "right"), [(0, 3), (3, 0)], ids=["right", "left"])
def test_nan_and_infinity_in_padding_change_nothing(
    name: str, fill: float, left: int, right: int
) -> None:
    (text,) = random_texts([6])
    polluted = pooled_by(name, padded(text, left=left, right=right, fill=fill))
    clean = pooled_by(name, padded(text, left=left, right=right, fill=0.0))
    assert torch.equal(polluted, clean)


@pytest.mark.parametrize("name", OVER_S)
def test_nan_in_excluded_tokens_changes_nothing(name: str) -> None:
    tokens = one_text([NAN, 3, 5, INF], real="1111", pooled="0110", received=[0.5, 0.2, 0.1, 0.2])
    assert pooled_by(name, tokens).isfinite().all()


@pytest.mark.parametrize("name", NAMES)
def test_the_order_of_a_batch_changes_nothing(name: str) -> None:
    texts = random_texts([3, 1, 7, 2, 7])
    order = [4, 2, 0, 3, 1]
    shuffled = pooled_by(name, stacked([texts[i] for i in order]))
    assert torch.equal(shuffled, pooled_by(name, stacked(texts))[order])


@pytest.mark.parametrize("name", NAMES)
def test_neighbours_change_nothing(name: str) -> None:
    texts = random_texts([3, 1, 7, 2, 7])
    alone = torch.cat([pooled_by(name, text) for text in texts])
    torch.testing.assert_close(pooled_by(name, stacked(texts)), alone)


@pytest.mark.parametrize("name", NAMES)
def test_a_neighbour_of_nan_changes_nothing(name: str) -> None:
    clean, other = random_texts([4, 4])
    spoilt = replace(other, hidden_states=other.hidden_states * NAN)
    beside = pooled_by(name, stacked([clean, spoilt]))[:1]
    torch.testing.assert_close(beside, pooled_by(name, clean))


@pytest.mark.parametrize("name", [name for name in NAMES if name != "pooler"])
@pytest.mark.parametrize("fill", [9.0, NAN], ids=str)
def test_a_text_without_tokens_is_zero(name: str, fill: float) -> None:
    tokens = one_text([fill, fill], real="00")
    assert pooled_by(name, tokens).item() == 0.0


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_vectors_are_float32_whatever_the_model_computes_in(name: str, dtype: torch.dtype) -> None:
    (text,) = random_texts([6])
    assert text.pooler_output is not None
    half = replace(
        text,
        hidden_states=text.hidden_states.to(dtype),
        pooler_output=text.pooler_output.to(dtype),
    )
    assert pooled_by(name, half).dtype == torch.float32


# bfloat16 holds 1 and 1 + 1/128, and nothing between them.
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("mean", 1 + 1 / 256),
        ("attention", 1 + 3 / 512),
        ("mean_sqrt_len", (2 + 1 / 128) / math.sqrt(2)),
        ("weighted_mean", 1 + 2 / 384),
    ],
)
def test_bfloat16_is_summed_in_float32(name: str, expected: float) -> None:
    tokens = one_text([1, 1 + 1 / 128, 9], real="110", received=[0.25, 0.75, 0.0])
    half = replace(tokens, hidden_states=tokens.hidden_states.bfloat16())
    assert pooled_by(name, half).item() == pytest.approx(expected, abs=1e-6)


@settings(deadline=None, derandomize=True, database=None, max_examples=30)
@given(data=st.data())
@pytest.mark.parametrize("name", [name for name in NAMES if name != "pooler"])
def test_a_strategy_equals_its_reference_under_random_masks(name: str, data: st.DataObject) -> None:
    batch, width = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 9))
    row = st.lists(st.booleans(), min_size=width, max_size=width).filter(any)
    real = np.array([data.draw(row) for _ in range(batch)])
    pooled = real & np.array([data.draw(row) for _ in range(batch)])
    pooled[~pooled.any(axis=1)] = real[~pooled.any(axis=1)]
    generator = np.random.default_rng(data.draw(st.integers(0, 1000)))
    hidden = generator.normal(size=(batch, width, 3))
    # Rows of the softmax that give padded keys nothing, as a masked model's do.
    weights = generator.random((batch, 2, width, width)) * real[:, None, None, :]
    weights /= weights.sum(axis=-1, keepdims=True)
    masks = {"cls": (real,), "last": (real,), "attention": (real, pooled, weights)}
    expected = REFERENCES[name](hidden, *masks.get(name, (pooled,)))

    hidden[~real] = NAN
    mask = torch.from_numpy(real)
    received = attention_received(torch.from_numpy(weights).float(), mask)
    tokens = TokenEmbeddings(
        torch.from_numpy(hidden).float(), mask, torch.from_numpy(pooled), received
    )
    np.testing.assert_allclose(pooled_by(name, tokens).numpy(), expected, atol=1e-5)


def test_every_strategy_but_the_checkpoints_own_pooler_has_a_reference() -> None:
    assert set(REFERENCES) == set(STRATEGIES) - {"pooler"}


@pytest.mark.parametrize("name", NAMES)
def test_a_row_of_the_table_bears_its_functions_name(name: str) -> None:
    assert STRATEGIES[name].pool.__name__ == name


@pytest.mark.parametrize("name", NAMES)
def test_a_strategy_names_its_source(name: str) -> None:
    assert "Source: " in (STRATEGIES[name].pool.__doc__ or "")


@pytest.mark.parametrize(
    ("name", "complaint"), [("pooler", "no pooler output"), ("attention", "no attention weights")]
)
def test_a_strategy_without_what_it_needs_raises(name: str, complaint: str) -> None:
    bare = replace(one_text([1], real="1"), attention_received=None, pooler_output=None)
    with pytest.raises(ValueError, match=complaint):
        pooled_by(name, bare)


def test_several_strategies_at_once_are_each_alone() -> None:
    tokens = stacked(random_texts([3, 1, 7]))
    together = pool(tokens, ("max", "cls"))
    assert list(together) == ["max", "cls"]
    assert all(torch.equal(vectors, pooled_by(name, tokens)) for name, vectors in together.items())


def test_the_table_is_read_without_importing_torch() -> None:
    code = "import sys, bertpool.pooling; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
