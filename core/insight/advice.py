"""Advice from figures: rules, each with its condition and the reason it gives.

The first rule that applies says which strategy to take; those that warn follow. A rule returns its
sentence, or None where the figures don't ask for it.
"""

from __future__ import annotations

from collections.abc import Callable

from bertpool.insight.comparison import Comparison
from bertpool.insight.similarity import STATISTICS, Estimate

Rule = Callable[[Comparison], "str | None"]

CONE = 0.5  # a mean cosine of random texts above it says that directions are hardly used
DOMINATED = 0.5  # share of the attention on special tokens above it


def keep_declared(found: Comparison) -> str | None:
    """Keep what the checkpoint declares unless another is better beyond chance."""
    declared, best = found.declared, found.best
    if declared is None or best is None or _clearly_behind(found, declared):
        return None
    title, value = _title(found), found.main_value(declared)
    if best == declared:
        return f"keep {declared}, which the checkpoint declares: nothing here has a higher {title}"
    behind = _behind(found, declared)
    return (
        f"keep {declared}, which the checkpoint declares ({title} {value:.3f}): {best} is ahead by "
        f"{behind.value:.3f}, and the 95% interval of that, {_range(behind)}, includes 0"
    )


def leave_declared(found: Comparison) -> str | None:
    """Leave what the checkpoint declares where another is better beyond chance."""
    declared, best = found.declared, found.best
    if declared is None or best is None or not _clearly_behind(found, declared):
        return None
    behind = _behind(found, declared)
    return (
        f"take {best} instead of the declared {declared}: its {_title(found)} is higher by "
        f"{behind.value:.3f} on these pairs, 95% interval {_range(behind)}"
    )


def take_best(found: Comparison) -> str | None:
    """Take the best where nothing compared is declared, and say what can't be told from it."""
    best = found.best
    if found.declared is not None or best is None:
        return None
    equal = [n for n in found.contenders if n != best and not _clearly_behind(found, n)]
    beside = f"; {', '.join(equal)} can't be told from it on these pairs" if equal else ""
    return f"take {best}: the highest {_title(found)}, {found.main_value(best):.3f}{beside}"


def keep_unlabelled(found: Comparison) -> str | None:
    """Keep what is declared where no label could speak against it."""
    if found.main is not None or found.declared is None:
        return None
    return (
        f"keep {found.declared}, which the checkpoint declares: figures without labels describe "
        "vectors and can't show a better one; give labelled pairs to choose by"
    )


def take_least_cone(found: Comparison) -> str | None:
    """Start with the least anisotropic where nothing is declared and there are no labels."""
    if found.main is not None or found.declared is not None:
        return None
    spread = {name: one.geometry.anisotropy for name, one in found.contenders.items()}
    least = min(spread, key=spread.__getitem__)
    return (
        f"start with {least}, whose cosines have the most room: two random texts have "
        f"{spread[least]:.2f} on average; only labelled pairs can tell whether it is the best"
    )


def beware_of_cls(found: Comparison) -> str | None:
    """Warn of the raw [CLS] where nothing trained it for similarity."""
    for name, one in found.contenders.items():
        if one.strategy == "cls" and not one.declared and one.geometry.anisotropy > CONE:
            return (
                f"don't compare raw {name} vectors by cosine: two random texts already have "
                f"{one.geometry.anisotropy:.2f} on average, and the checkpoint doesn't declare "
                "them as its sentence vectors"
            )
    return None


def beware_of_pooler(found: Comparison) -> str | None:
    """Warn of a pooler that separates worst of all, beyond chance."""
    if found.main is None:
        return None
    values = {name: found.main_value(name) for name in found.contenders}
    worst = min(values, key=values.__getitem__)
    if found.contenders[worst].strategy != "pooler" or not _clearly_behind(found, worst):
        return None
    return (
        f"leave {worst} out: it separates worst ({_title(found)} {values[worst]:.3f}, "
        f"{found.best} {values[found.best or worst]:.3f}); its weights were trained for next-"
        "sentence prediction, or not at all"
    )


def beware_of_specials(found: Comparison) -> str | None:
    """Warn of attention pooling that pools special tokens rather than words."""
    share = found.special_share
    if share is None or share <= DOMINATED:
        return None
    return (
        f"pool attention with --exclude-special: {share:.0%} of its weight lies on [CLS], [SEP] "
        "and their like"
    )


ADVICE: tuple[Rule, ...] = (
    keep_declared,
    leave_declared,
    take_best,
    keep_unlabelled,
    take_least_cone,
)
WARNINGS: tuple[Rule, ...] = (beware_of_cls, beware_of_pooler, beware_of_specials)


def advise(found: Comparison) -> str:
    """Say in one sentence which strategy to take, and why: the first rule that applies."""
    return next(sentence for rule in ADVICE if (sentence := rule(found)) is not None)


def warn(found: Comparison) -> tuple[str, ...]:
    """Say what else the figures warn of, a sentence each."""
    return tuple(sentence for rule in WARNINGS if (sentence := rule(found)) is not None)


def _title(found: Comparison) -> str:
    assert found.main is not None
    return STATISTICS[found.main].title


def _behind(found: Comparison, name: str) -> Estimate:
    separation = found.contenders[name].separation
    assert separation is not None
    return separation.behind


def _clearly_behind(found: Comparison, name: str) -> bool:
    return _behind(found, name).excludes_zero


def _range(estimate: Estimate) -> str:
    return f"{estimate.low:.3f} to {estimate.high:.3f}"
