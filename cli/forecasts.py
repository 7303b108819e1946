"""What ``--dry-run`` shows."""

from __future__ import annotations

from collections.abc import Iterator

from bertpool.cli.messages import show, stderr
from bertpool.forecast import Forecast, forecast
from bertpool.plan import Plan
from rich.text import Text

BAR = 40  # columns of the longest bar
NARROW_BAR = 12
UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB")


def show_forecast(plan: Plan, *, quiet: bool) -> Forecast:
    """Make the forecast of a run, show it unless ``quiet``, and return it."""
    result = forecast(plan)
    if not quiet:
        for line in _bars(result):
            stderr.print(line)
        for label, value in _facts(result):
            show(f"{label}: ", "bold", value)
    return result


def _bars(result: Forecast) -> Iterator[Text]:
    """Draw the histogram, a line for each bin of tokens."""
    width = BAR if stderr.width >= 2 * BAR else NARROW_BAR
    largest = max(one.rows for one in result.histogram) or 1
    for one in result.histogram:
        label = f"over {one.least - 1}" if one.most is None else f"{one.least}-{one.most}"
        style = "yellow" if one.most is None else "cyan"
        bar = "\u2588" * round(width * one.rows / largest)
        yield Text.assemble(f"{label:>11} ", (f"{bar:<{width}}", style), f" {one.rows:,}")


def _facts(result: Forecast) -> Iterator[tuple[str, str]]:
    rows = f"{result.rows:,}"
    if result.sampled < result.rows:
        rows += f" ({result.sampled:,} of them tokenized, the figures scaled up)"
    yield "rows", rows
    yield "tokens", f"{result.tokens:,}, at most {result.max_length} a row"
    yield "truncated", f"{result.truncated:,} rows, {result.truncated_share:.1%}"
    yield "padding avoided", f"{result.padding_avoided:.0%} of the slots of padded batches of 32"
    speed = f"{result.tokens_per_second:,.0f} tokens/s in a probe"
    yield "time", f"about {_duration(result.seconds)} ({speed})"
    yield "output", f"about {_size(result.output_bytes)}"
    yield "memory", f"about {_size(result.peak_memory_bytes)}"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02} min"


def _size(count: float) -> str:
    unit = 0
    while count >= 1024 and unit < len(UNITS) - 1:
        count, unit = count / 1024, unit + 1
    return f"{count:,.0f} {UNITS[unit]}" if unit == 0 else f"{count:,.1f} {UNITS[unit]}"
