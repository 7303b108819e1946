"""Attention over packed tokens: one call for each run of texts of equal length, nothing masked.

Shapes: ``packed`` the tokens of a batch, ``texts`` those of one run, ``length`` their tokens.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

# Up to this length bmm-softmax-bmm beats SDPA on a CPU without matrix units; with them (AMX) SDPA
# is the faster at every length. By dtype; measured, and fixed, so that equal runs give equal bits.
BMM_UP_TO = {torch.float32: 64, torch.bfloat16: 256}
HAS_MATRIX_UNITS = bool(torch.cpu._is_amx_tile_supported())
QUERY_BLOCK = 128  # queries whose weights are in memory at once, where the weights are wanted

Bias = Callable[[int], Tensor]


@dataclass(frozen=True)
class Run:
    """Texts of equal length that follow one another in a batch: rows ``start`` to ``end``."""

    start: int
    texts: int
    length: int

    @property
    def end(self) -> int:
        """Return the row after the last."""
        return self.start + self.texts * self.length


@dataclass(frozen=True)
class SelfAttention:
    """Multi-head self-attention between the projections.

    ``bias`` gives the position bias ``(heads, length, length)``, where the model has one. ``head``
    is the one head whose weights count as attention received; None averages over all.
    """

    num_heads: int
    head_size: int
    bias: Bias | None = None
    head: int | None = None

    def __call__(self, qkv: Tensor, runs: list[Run]) -> Tensor:
        """Attend within each text: ``(packed, 3 * hidden)`` -> ``(packed, hidden)``."""
        if self._takes_all_lengths(qkv):
            return self._at_once(qkv, runs)
        context = self._context(qkv)
        for run in runs:
            query, key, value = self._heads(qkv, run)
            # Written in place: joining the runs afterwards would copy everything once more.
            self._place(context, run).copy_(self._attend(query, key, value))
        return context

    def _takes_all_lengths(self, qkv: Tensor) -> bool:
        """Tell whether one kernel takes texts of every length: flash attention, half precision."""
        half = qkv.dtype in (torch.float16, torch.bfloat16)
        return qkv.is_cuda and half and self.bias is None and varlen_attention() is not None

    def _at_once(self, qkv: Tensor, runs: list[Run]) -> Tensor:
        """Attend within all texts in one call."""
        attend: Any = varlen_attention()
        query, key, value = qkv.view(len(qkv), 3, self.num_heads, self.head_size).unbind(1)
        ends = cumulative_lengths(runs).to(qkv.device, non_blocking=True)
        longest = max(run.length for run in runs)
        context: Tensor = attend(query, key, value, ends, ends, longest, longest)
        return context.reshape(len(qkv), -1)

    def with_received(self, qkv: Tensor, runs: list[Run]) -> tuple[Tensor, list[Tensor]]:
        """Attend, and return for each run what its tokens receive, ``(texts, length)`` float32.

        Received attention is the mean over heads and queries of the softmax weights. The weights
        exist for ``QUERY_BLOCK`` queries at a time.
        """
        context = self._context(qkv)
        received = []
        heads = slice(None) if self.head is None else slice(self.head, self.head + 1)
        counted = self.num_heads if self.head is None else 1
        for run in runs:
            query, key, value = self._heads(qkv, run)
            total = torch.zeros(run.texts, run.length, device=qkv.device)
            place = self._place(context, run)
            for start in range(0, run.length, QUERY_BLOCK):
                rows = slice(start, start + QUERY_BLOCK)
                weights = self._weights(query[:, :, rows], key, rows)
                total += weights[:, heads].float().sum(dim=(1, 2))
                place[:, :, rows].copy_(weights @ value)
            received.append(total / (counted * run.length))
        return context, received

    def of_first(self, query: Tensor, key_value: Tensor, runs: list[Run]) -> Tensor:
        """Attend from each text's first token only.

        Args:
            query: ``(all texts, hidden)``.
            key_value: ``(packed, 2 * hidden)``.
            runs: as the texts follow one another.

        Returns:
            ``(all texts, hidden)``.
        """
        context = torch.empty_like(query)
        done = 0
        for run in runs:
            of_run = slice(done, done + run.texts)
            first = query[of_run].view(run.texts, self.num_heads, 1, self.head_size)
            both = key_value[run.start : run.end].view(
                run.texts, run.length, 2, self.num_heads, self.head_size
            )
            key, value = both.permute(2, 0, 3, 1, 4)
            attended = self._attend(first, key, value)  # (texts, heads, 1, head)
            context[of_run] = attended.reshape(run.texts, -1)
            done += run.texts
        return context

    def _context(self, qkv: Tensor) -> Tensor:
        """Return room for the result; rows after the last text are filler, and stay zero."""
        return qkv.new_zeros(len(qkv), self.num_heads * self.head_size)

    def _heads(self, qkv: Tensor, run: Run) -> tuple[Tensor, Tensor, Tensor]:
        """View a run's rows as query, key, value, each ``(texts, heads, length, head_size)``."""
        shape = (run.texts, run.length, 3, self.num_heads, self.head_size)
        query, key, value = qkv[run.start : run.end].view(shape).permute(2, 0, 3, 1, 4)
        return query, key, value

    def _place(self, context: Tensor, run: Run) -> Tensor:
        """View where a run's result goes as ``(texts, heads, length, head_size)``."""
        shape = (run.texts, run.length, self.num_heads, self.head_size)
        return context[run.start : run.end].view(shape).transpose(1, 2)

    def _attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        length = key.shape[2]
        prefers_bmm = query.device.type == "cpu" and not HAS_MATRIX_UNITS
        if self.bias is not None or (prefers_bmm and length <= BMM_UP_TO.get(query.dtype, 0)):
            return self._weights(query, key, slice(0, query.shape[2])) @ value
        return F.scaled_dot_product_attention(query, key, value)

    def _weights(self, query: Tensor, key: Tensor, queries: slice) -> Tensor:
        """Return softmax weights ``(texts, heads, queries, length)`` of some of the queries."""
        texts, heads, rows, size = query.shape
        length = key.shape[2]
        scale = 1 / math.sqrt(size)
        flat_query = query.reshape(texts * heads, rows, size)
        flat_key = key.reshape(texts * heads, length, size).transpose(1, 2)
        unused = query.new_empty(())
        scores = torch.baddbmm(unused, flat_query, flat_key, beta=0, alpha=scale)
        scores = scores.view(texts, heads, rows, length)
        if self.bias is not None:
            scores = scores + self.bias(length)[:, queries]
        return torch.softmax(scores, dim=-1)


@functools.cache
def varlen_attention() -> Callable[..., Any] | None:
    """Return torch's attention over several lengths, where this release has it."""
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        return None
    return varlen_attn


def cumulative_lengths(runs: list[Run]) -> Tensor:
    """Return where each text starts, and where the last ends, ``(texts + 1)`` int32.

    >>> cumulative_lengths([Run(0, 2, 3), Run(6, 1, 2)]).tolist()
    [0, 3, 6, 8]
    """
    lengths = torch.tensor([run.length for run in runs for _ in range(run.texts)])
    return F.pad(lengths.cumsum(0), (1, 0)).int()


def relative_position_bias(table: Tensor, length: int) -> Tensor:
    """Return MPNet's bias ``(heads, length, length)`` from its table ``(buckets, heads)``.

    Half of the buckets are for keys after the query; of each half, one half is exact distances and
    the other logarithmic up to 128.

    Source: Song et al. 2020, MPNet; the buckets are T5's (Raffel et al. 2020, section 2.1).
    """
    positions = torch.arange(length, device=table.device)
    distance = positions[None, :] - positions[:, None]  # key minus query
    half = table.shape[0] // 2
    exact = half // 2
    away = distance.abs()
    logarithmic = torch.log(away.clamp_min(1).float() / exact) / math.log(128 / exact)
    far = (exact + (logarithmic * (half - exact)).long()).clamp_max(half - 1)
    bucket = torch.where(away < exact, away, far) + (distance > 0) * half
    return table[bucket].permute(2, 0, 1).contiguous()
