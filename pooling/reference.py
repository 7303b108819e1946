"""The definitions in plain NumPy, float64, one text after another: slow, and made to be read.

Everything faster in bertpool is tested against these. Shapes: ``hidden_states (batch, tokens,
hidden)``, masks ``(batch, tokens)`` bool, results ``(batch, hidden)``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


def bert_pooler(hidden_states: Floats, W_pool: Floats, b_pool: Floats) -> Floats:
    """Compute ``tanh(h_0 W + b)`` from the first token of each text.

    NumPy multiplies ``h W``; a checkpoint's ``nn.Linear`` stores the transpose, so pass
    ``pooler.dense.weight.T``.

    Args:
        hidden_states: ``(batch, tokens, hidden)``, padding on the right.
        W_pool: ``(hidden, hidden)``.
        b_pool: ``(hidden)``.

    Returns:
        ``(batch, hidden)`` float64, each value within (-1, 1).

    Raises:
        ValueError: the shapes don't fit.

    Source: Devlin et al. 2019, BERT, section 3.

    >>> identity = np.eye(2)
    >>> bert_pooler(np.array([[[0.0, 0.5], [9.0, 9.0]]]), identity, np.zeros(2)).round(4)
    array([[0.    , 0.4621]])
    """
    hidden_states, W_pool, b_pool = (
        np.asarray(array, dtype=np.float64) for array in (hidden_states, W_pool, b_pool)
    )
    if hidden_states.ndim != 3:
        raise ValueError(
            f"hidden_states: (batch, tokens, hidden) wanted, not {hidden_states.shape}"
        )
    hidden = hidden_states.shape[2]
    if W_pool.shape != (hidden, hidden) or b_pool.shape != (hidden,):
        wanted = f"W_pool ({hidden}, {hidden}) and b_pool ({hidden},) wanted"
        raise ValueError(f"{wanted}, not {W_pool.shape} and {b_pool.shape}")
    result: Floats = np.tanh(hidden_states[:, 0] @ W_pool + b_pool)
    return result


def cls(hidden_states: Floats, real: Mask) -> Floats:
    """Take the first real token's vector."""
    return np.array([h[r][0] for h, r in zip(hidden_states, real, strict=True)])


def last(hidden_states: Floats, real: Mask) -> Floats:
    """Take the last real token's vector."""
    return np.array([h[r][-1] for h, r in zip(hidden_states, real, strict=True)])


def mean(hidden_states: Floats, pooled: Mask) -> Floats:
    """Average the pooled tokens.

    Values 1, 3 and a padded 9 have the mean 2:

    >>> mean(np.array([[[1.0], [3.0], [9.0]]]), np.array([[True, True, False]]))
    array([[2.]])
    """
    return np.array([h[s].mean(axis=0) for h, s in zip(hidden_states, pooled, strict=True)])


def max(hidden_states: Floats, pooled: Mask) -> Floats:
    """Take the largest value of each dimension over the pooled tokens."""
    return np.array([h[s].max(axis=0) for h, s in zip(hidden_states, pooled, strict=True)])


def mean_sqrt_len(hidden_states: Floats, pooled: Mask) -> Floats:
    """Sum the pooled tokens, divided by the square root of their number."""
    pairs = zip(hidden_states, pooled, strict=True)
    return np.array([h[s].sum(axis=0) / np.sqrt(s.sum()) for h, s in pairs])


def weighted_mean(hidden_states: Floats, pooled: Mask) -> Floats:
    """Average the pooled tokens with weights 1, 2, 3, ... along them."""
    pairs = zip(hidden_states, pooled, strict=True)
    return np.array([np.average(h[s], axis=0, weights=np.arange(s.sum()) + 1) for h, s in pairs])


def attention(
    hidden_states: Floats, real: Mask, pooled: Mask, probabilities: npt.NDArray[np.float64]
) -> Floats:
    """Average the pooled tokens, weighted by the attention that each receives.

    Args:
        hidden_states: ``(batch, tokens, hidden)``.
        real: R, the real tokens: only their queries count.
        pooled: S, within R.
        probabilities: ``(batch, heads, queries, keys)``, the softmax weights of the layer.
    """
    rows = []
    for h, r, s, p in zip(hidden_states, real, pooled, probabilities, strict=True):
        received = p[:, r, :].mean(axis=(0, 1))  # over heads and real queries
        rows.append(np.average(h[s], axis=0, weights=received[s]))
    return np.array(rows)


def join_windows(hidden_states: Sequence[Floats], owned: Sequence[Mask]) -> Floats:
    """Join the tokens that a text's windows own into one text, to be pooled at once.

    Args:
        hidden_states: each window's ``(tokens, hidden)``.
        owned: each window's ``(tokens)`` bool.

    Returns:
        ``(1, tokens, hidden)``, without the tokens that aren't owned.

    >>> first, second = np.array([[1.0], [3.0]]), np.array([[4.0], [5.0]])
    >>> join_windows([first, second], [np.array([True, True]), np.array([False, True])])
    array([[[1.],
            [3.],
            [5.]]])
    """
    pairs = zip(hidden_states, owned, strict=True)
    return np.concatenate([h[o] for h, o in pairs])[np.newaxis]


REFERENCES: dict[str, Callable[..., Floats]] = {
    function.__name__: function
    for function in (cls, last, mean, max, mean_sqrt_len, weighted_mean, attention)
}
