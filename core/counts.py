"""What a run counts of its rows, window by window."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bertpool.embedder import Embedded


@dataclass(frozen=True)
class Counts:
    """Counts of some rows; :class:`bertpool.report.Report` says what they mean."""

    rows: int = 0
    tokens: int = 0
    truncated: int = 0
    unknown_only: int = 0
    zero: int = 0
    redone: int = 0
    slots: int = 0
    distinct: int = 0
    distinct_tokens: int = 0
    distinct_pairs: int = 0  # of tokens that attend to one another: sum of squared lengths

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            **{one.name: getattr(self, one.name) + getattr(other, one.name) for one in fields(self)}
        )

    def to_dict(self) -> dict[str, int]:
        """Return them by name."""
        return asdict(self)

    @property
    def padding_share(self) -> float:
        """Return the share of the token slots that held padding."""
        return 1 - self.distinct_tokens / self.slots if self.slots else 0.0


def count_window(embedded: Embedded, zero: int) -> Counts:
    """Count a window; ``zero`` is the number of its zero vectors as they are written."""
    return Counts(
        rows=len(embedded.n_tokens),
        tokens=int(embedded.encoded_tokens.sum()),
        truncated=int(embedded.truncated.sum()),
        unknown_only=int(embedded.unknown_only.sum()),
        zero=zero,
        redone=embedded.redone,
        slots=embedded.slots,
        distinct=embedded.distinct,
        distinct_tokens=embedded.distinct_tokens,
        distinct_pairs=embedded.distinct_pairs,
    )
