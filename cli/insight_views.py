"""What explain and compare show: their results as tables, and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bertpool.cli.charts import Cell, figures, show_line, show_table
from bertpool.insight.explain import Explanation, Token

# Okabe and Ito 2008: told apart by colour-blind eyes, too.
COLOURS = ("#56B4E9", "#E69F00", "#009E73", "#CC79A7", "#F0E442", "#D55E00", "#0072B2", "#999999")
SHOWN_CUT = 12  # tokens beyond the limit that are listed
GREY = "bright_black"


def show_explanation(explanation: Explanation) -> None:
    """Show a row for each token, with its weight in each strategy's vector."""
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
