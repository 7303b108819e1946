from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from bertpool.pooling.reference import REFERENCES, bert_pooler

# DESIGN.md section 4, the worked example: row i of W meets dimension i of h_0.
H_0 = [0.8, -0.3, 1.2, -0.5]
W = [[0.5, 0.1, -0.3, 0.2], [-0.1, 0.4, 0.6, -0.2], [0.3, -0.5, 0.2, 0.7], [0.2, 0.3, -0.1, 0.4]]
B = [0.1, 0.0, -0.1, 0.05]
# z_0 =  0.40 + 0.03 + 0.36 - 0.10 + 0.10 =  0.79
# z_1 =  0.08 - 0.12 - 0.60 - 0.15 + 0.00 = -0.79
# z_2 = -0.24 - 0.18 + 0.24 + 0.05 - 0.10 = -0.23
# z_3 =  0.16 + 0.06 + 0.84 - 0.20 + 0.05 =  0.91
Z = [0.79, -0.79, -0.23, 0.91]
# tanh(z) = (e^2z - 1) / (e^2z + 1):
# e^1.58 = 4.854956: 3.854956 / 5.854956 = 0.658409
# e^0.46 = 1.584074: 0.584074 / 2.584074 = 0.226028
# e^1.82 = 6.171858: 5.171858 / 7.171858 = 0.721132
POOLED = [0.658409, -0.658409, -0.226028, 0.721132]
# docs/pooling.md, the classifier on top: row i of W_C meets dimension i of the pooled vector.
W_C = [[0.6, -0.4], [-0.3, 0.5], [0.2, -0.1], [0.4, -0.6]]
B_C = [0.1, -0.1]
# l_0 =  0.395045 + 0.197523 - 0.045206 + 0.288453 + 0.1 =  0.935815
# l_1 = -0.263364 - 0.329205 + 0.022603 - 0.432679 - 0.1 = -1.102645
LOGITS = [0.935815, -1.102645]
# e^0.935815 = 2.549291, e^-1.102645 = 0.331992: 2.549291 / 2.881283 = 0.884776
POSITIVE = 0.884776

MEANS = {
    "cls": [1.0, 4.0],
    "last": [3.0, -2.0],
    "mean": [2.0, 1.0],
    "max": [3.0, 4.0],
    "mean_sqrt_len": [4 / math.sqrt(2), 2 / math.sqrt(2)],
    "weighted_mean": [(1 + 2 * 3) / 3, (4 - 2 * 2) / 3],
}
TOKENS = np.array([[[1.0, 4.0], [3.0, -2.0], [9.0, 9.0]]])
REAL = np.array([[True, True, False]])


def test_the_worked_example_of_the_pooler_comes_out() -> None:
    hidden_states = np.array([[H_0, [9.0, 9.0, 9.0, 9.0]]])
    pooled = bert_pooler(hidden_states, np.array(W), np.array(B))
    np.testing.assert_allclose(pooled, [POOLED], atol=1e-6)


def test_the_worked_example_before_the_tanh_comes_out() -> None:
    pooled = bert_pooler(np.array([[H_0]]), np.array(W), np.array(B))
    np.testing.assert_allclose(np.arctanh(pooled), [Z], atol=1e-12)


def test_the_worked_example_of_a_classifier_on_the_pooler_comes_out() -> None:
    logits = bert_pooler(np.array([[H_0]]), np.array(W), np.array(B)) @ np.array(W_C) + B_C
    np.testing.assert_allclose(logits, [LOGITS], atol=1e-6)
    odds = np.exp(logits[0])
    assert odds[0] / odds.sum() == pytest.approx(POSITIVE, abs=1e-6)


def test_the_pooler_reads_the_first_token_only() -> None:
    generator = np.random.default_rng(0)
    hidden_states = generator.normal(size=(3, 5, 4))
    other = np.concatenate([hidden_states[:, :1], np.full((3, 2, 4), np.nan)], axis=1)
    expected = bert_pooler(hidden_states, np.array(W), np.array(B))
    np.testing.assert_array_equal(bert_pooler(other, np.array(W), np.array(B)), expected)


def test_a_checkpoints_linear_layer_is_passed_transposed() -> None:
    torch.manual_seed(0)
    linear = torch.nn.Linear(4, 4).double()
    hidden_states = torch.randn(2, 3, 4, dtype=torch.float64)
    expected = linear(hidden_states[:, 0]).tanh().detach().numpy()
    weight, bias = (parameter.detach().numpy() for parameter in linear.parameters())
    pooled = bert_pooler(hidden_states.numpy(), weight.T, bias)
    np.testing.assert_allclose(pooled, expected, atol=1e-12)


def test_lists_of_float32_are_computed_in_float64() -> None:
    hidden_states = np.array([[H_0]], dtype=np.float32)
    assert bert_pooler(hidden_states, W, B).dtype == np.float64  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("hidden_states", "weight", "bias"),
    [
        ((4,), (4, 4), (4,)),
        ((2, 4), (4, 4), (4,)),
        ((1, 2, 3, 4), (4, 4), (4,)),
        ((2, 3, 4), (4, 3), (4,)),
        ((2, 3, 4), (3, 3), (3,)),
        ((2, 3, 4), (4,), (4,)),
        ((2, 3, 4), (4, 4), (1,)),
        ((2, 3, 4), (4, 4), (1, 4)),
        ((2, 3, 4), (4, 4), ()),
    ],
    ids=str,
)
def test_shapes_that_do_not_fit_raise(
    hidden_states: tuple[int, ...], weight: tuple[int, ...], bias: tuple[int, ...]
) -> None:
    with pytest.raises(ValueError, match="wanted, not"):
        bert_pooler(np.zeros(hidden_states), np.zeros(weight), np.zeros(bias))


@pytest.mark.parametrize("name", MEANS)
def test_two_tokens_are_pooled_without_the_padding(name: str) -> None:
    np.testing.assert_allclose(REFERENCES[name](TOKENS, REAL), [MEANS[name]], atol=1e-12)


@pytest.mark.parametrize("name", MEANS)
def test_two_tokens_are_pooled_the_same_with_padding_on_the_left(name: str) -> None:
    left, real = TOKENS[:, [2, 0, 1]], REAL[:, [2, 0, 1]]
    np.testing.assert_allclose(REFERENCES[name](left, real), [MEANS[name]], atol=1e-12)


def test_attention_pooling_weights_by_what_the_real_queries_give() -> None:
    # One head. The real queries give token 0 (0.5 + 0.25) / 2 and token 1 the rest; 9 is padding.
    probabilities = np.array([[[[0.5, 0.5, 0], [0.25, 0.75, 0], [1.0, 0, 0]]]])
    pooled = REFERENCES["attention"](TOKENS, REAL, REAL, probabilities)
    expected = [0.375 * 1 + 0.625 * 3, 0.375 * 4 - 0.625 * 2]
    np.testing.assert_allclose(pooled, [expected], atol=1e-12)


def test_attention_pooling_of_fewer_tokens_renormalises() -> None:
    probabilities = np.array([[[[0.5, 0.5, 0], [0.25, 0.75, 0], [1.0, 0, 0]]]])
    second = np.array([[False, True, False]])
    pooled = REFERENCES["attention"](TOKENS, REAL, second, probabilities)
    np.testing.assert_allclose(pooled, [[3.0, -2.0]], atol=1e-12)


@pytest.mark.parametrize("name", MEANS)
def test_a_mask_for_another_number_of_texts_raises(name: str) -> None:
    with pytest.raises(ValueError, match="zip"):
        REFERENCES[name](TOKENS, np.repeat(REAL, 2, axis=0))
