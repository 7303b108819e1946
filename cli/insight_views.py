"""What explain and compare show: their results as tables, and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from bertpool.cli.tables import Cell, show_json, show_line, show_table
from bertpool.insight.advice import advise, warn
from bertpool.insight.comparison import Comparison, Contender
from bertpool.insight.explain import Explanation, Token
from bertpool.insight.similarity import STATISTICS, Estimate

# Okabe and Ito 2008: told apart by colour-blind eyes, too.
COLOURS = ("#56B4E9", "#E69F00", "#009E73", "#CC79A7", "#F0E442", "#D55E00", "#0072B2", "#999999")
SHOWN_CUT = 12  # tokens beyond the limit that are listed
GREY = "bright_black"


def show_explanation(explanation: Explanation, *, json: bool) -> None:
    """Show a row for each token, with its weight in each strategy's vector."""
    if json:
        show_json(explanation_json(explanation))
        return
    tokens, names = explanation.tokens, list(explanation.weights)
    rows = [_token_row(explanation, token) for token in _shown(explanation)]
    head = "" if explanation.head is None else f", head {explanation.head}"
    title = f"{explanation.model}, {explanation.layer}{head}: {len(tokens)} tokens"
    headers = ["#", "token", "id", "", *(_header(explanation, name) for name in names)]
    show_table(title, headers, rows, left=4)
    for line in _remarks(explanation):
        show_line(line, GREY)


def _cut(explanation: Explanation) -> list[Token]:
    return [token for token in explanation.tokens if token.cut]


def _shown(explanation: Explanation) -> Iterator[Token]:
    """Yield the tokens that the model sees, and some of those it doesn't."""
    cut = 0
    for token in explanation.tokens:
        cut += token.cut
        if not token.cut or cut <= SHOWN_CUT:
            yield token


def _header(explanation: Explanation, name: str) -> str:
    return name if explanation.linear(name) else f"{name}*"


def _token_row(explanation: Explanation, token: Token) -> list[Cell]:
    style = GREY if token.cut else "bold" if token.special else ""
    cells = [str(token.position), token.text, str(token.id), _mark(token)]
    row = [Cell(text, style) for text in cells]
    for colour, weights in zip(COLOURS, explanation.weights.values(), strict=False):
        weight, largest = float(weights[token.position]), float(weights.max())
        if token.cut:
            row.append(Cell("", GREY, 0.0))
        else:
            share = weight / largest if largest > 0.0 else 0.0
            row.append(Cell(f"{weight:.3f}", colour if weight else GREY, share))
    return row


def _mark(token: Token) -> str:
    """Say in a word what is particular about a token."""
    if token.cut:
        return "cut"
    if token.special:
        return "special" if token.pooled else "special, left out"
    return "" if token.pooled else "left out"


def _remarks(explanation: Explanation) -> Iterator[str]:
    cut = len(_cut(explanation))
    if cut:
        more = f" (the first {SHOWN_CUT} are shown)" if cut > SHOWN_CUT else ""
        yield f"cut: {cut} tokens beyond the limit of {explanation.limit}{more}; no vector has them"
    remarks = {
        "max": "max*: not linear; the share of dimensions that the token wins",
        "pooler": "pooler*: not linear; tanh(W h + b) of this token",
    }
    yield from (text for name, text in remarks.items() if name in explanation.weights)


def explanation_json(explanation: Explanation) -> dict[str, Any]:
    """Return an explanation as ``--json`` writes it."""
    return figures(
        model=explanation.model,
        layer=explanation.layer,
        head=explanation.head,
        limit=explanation.limit,
        n_tokens=len(explanation.tokens),
        cut=len(_cut(explanation)),
        strategies={name: {"linear": explanation.linear(name)} for name in explanation.weights},
        tokens=[_token_json(explanation, token) for token in explanation.tokens],
    )


def _token_json(explanation: Explanation, token: Token) -> dict[str, Any]:
    return figures(
        position=token.position,
        token=token.text,
        id=token.id,
        special=token.special,
        pooled=token.pooled,
        cut=token.cut,
        # Nine digits give a float32 back.
        weights={n: float(f"{w[token.position]:.9g}") for n, w in explanation.weights.items()},
    )


def figures(**named: Any) -> dict[str, Any]:
    """Round floats for JSON to 6 significant digits, and leave out what is None."""
    return {
        name: float(f"{value:.6g}") if isinstance(value, float) else value
        for name, value in named.items()
        if value is not None
    }


GEOMETRY = {
    "anisotropy": "mean cosine of two texts",
    "uniformity": "log Gaussian potential",
    "effective_rank": "directions in use",
    "hubness": "skew of 10-occurrence",
    "norm_spread": "std / mean of lengths",
}


def show_comparison(found: Comparison, *, json: bool) -> None:
    """Show a row for each strategy: pairs, geometry, agreement; then the advice."""
    if json:
        show_json(comparison_json(found))
        return
    if found.main is not None:
        _show_pairs(found)
    _show_geometry(found)
    if len(found.contenders) > 1:
        _show_agreement(found)
    if found.special_share is not None:
        show_line(f"special tokens have {found.special_share:.0%} of the weight in attention")
    show_line(f"advice: {advise(found)}", "bold green")
    for sentence in warn(found):
        show_line(f"beware: {sentence}", "yellow")


def _show_pairs(found: Comparison) -> None:
    names = [n for n in STATISTICS if any(n in _figures(c) for c in found.contenders.values())]
    means = ["similar", "dissimilar"] if "gap" in names else []
    kind = f"{int((found.labels == 1).sum())} similar" if means else "scored"
    title = f"{found.model}: {len(found.labels)} pairs, {kind}; cosines, with 95% intervals"
    titles = [STATISTICS[name].title for name in names]
    assert found.main is not None
    behind = f"{STATISTICS[found.main].title} behind {found.best}"
    rows = [_pair_row(found, name, one) for name, one in found.contenders.items()]
    show_table(title, ["strategy", *means, *titles, behind, "difference"], rows)


def _figures(one: Contender) -> dict[str, Estimate]:
    return {} if one.separation is None else dict(one.separation.figures)


def _pair_row(found: Comparison, name: str, one: Contender) -> list[Cell]:
    assert one.separation is not None
    separation, best = one.separation, name == found.best
    means = [value for value in (separation.similar, separation.dissimilar) if value is not None]
    cells = [f"{value:.3f}" for value in means]
    cells += [_interval(figure) for figure in separation.figures.values()]
    cells += ["", "best"] if best else [_interval(separation.behind), _verdict(separation.behind)]
    style = "bold green" if best else ""
    return [Cell(_named(name, one), style), *(Cell(text, style) for text in cells)]


def _named(name: str, one: Contender) -> str:
    return f"{name} (declared)" if one.declared else name


def _interval(figure: Estimate) -> str:
    low, high = (f"{end:.3f}".replace("0.", ".", 1) for end in (figure.low, figure.high))
    return f"{figure.value:.3f} [{low},{high}]"


def _verdict(behind: Estimate) -> str:
    return "real" if behind.excludes_zero else "unclear"


def _show_geometry(found: Comparison) -> None:
    title = f"{found.model}: how the vectors of {found.texts:,} texts lie"
    rows = [
        [Cell(_named(name, one)), *(Cell(_short(v)) for v in asdict(one.geometry).values())]
        for name, one in found.contenders.items()
    ]
    show_table(title, ["strategy", *(name.replace("_", " ") for name in GEOMETRY)], rows)


def _short(value: float) -> str:
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.3f}"


def _show_agreement(found: Comparison) -> None:
    names = list(found.contenders)
    rows = [
        [Cell(name), *(Cell(f"{share:.2f}", _heat(float(share))) for share in row)]
        for name, row in zip(names, found.agreement, strict=True)
    ]
    show_table("share of the 10 nearest neighbours in common", ["strategy", *names], rows)


def _heat(share: float) -> str:
    return "bold" if share >= 0.75 else GREY if share < 0.5 else ""


def comparison_json(found: Comparison) -> dict[str, Any]:
    """Return a comparison as ``--json`` writes it."""
    return figures(
        model=found.model,
        texts=found.texts,
        pairs=len(found.labels) or None,
        ranked_by=found.main,
        declared=found.declared,
        best=found.best,
        special_share=found.special_share,
        strategies={name: _contender_json(one) for name, one in found.contenders.items()},
        agreement={
            name: dict(zip(found.contenders, [round(float(v), 6) for v in row], strict=True))
            for name, row in zip(found.contenders, found.agreement, strict=True)
        },
        advice=advise(found),
        warnings=list(warn(found)),
    )


def _contender_json(one: Contender) -> dict[str, Any]:
    own = {"strategy": one.strategy, "layer": one.layer, "declared": one.declared}
    geometry = figures(**asdict(one.geometry))
    if one.separation is None:
        return own | geometry
    separation = one.separation
    return (
        own
        | figures(
            similar=separation.similar,
            dissimilar=separation.dissimilar,
            **{name: figures(**asdict(figure)) for name, figure in separation.figures.items()},
            behind_best=figures(**asdict(separation.behind)),
            clearly_behind=separation.clearly_behind,
        )
        | geometry
    )
