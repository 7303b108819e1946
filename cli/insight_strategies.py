"""The commands that show strategies at work: explain, compare, plot."""

from __future__ import annotations

from typing import Annotated

import typer
from bertpool.cli import options
from bertpool.cli.messages import start_logging
from bertpool.cli.options import _option

_LOOK = "What to look at"
_RESULT = "Result"

ExplainedText = Annotated[
    str | None,
    typer.Argument(
        metavar="[TEXT]", help="The text; - reads lines from stdin.", show_default=False
    ),
]
InputFile = Annotated[
    str | None,
    _option("--input", help="Take the text from a file, see --row.", panel=_LOOK, metavar="FILE"),
]
Row = Annotated[
    int, _option("--row", help="Which text of the input, from 0.", panel=_LOOK, metavar="N", min=0)
]
ExplainedStrategies = Annotated[
    list[str],
    _option(
        "--strategy", "-s",
        help="One or several (cls,mean); auto is what the checkpoint declares.",
        panel=_LOOK,
        metavar="NAME",
        autocompletion=options._complete_strategy,
        show_default="cls,mean,max,attention",
    ),
]  # fmt: skip
OneLayer = Annotated[
    str,
    _option(
        "--layer", help="Whose token vectors: 0 the embeddings, 1, ... or -1 the last; last-4.",
        panel=_LOOK, metavar="K",
    ),
]  # fmt: skip
Head = Annotated[
    int | None,
    _option(
        "--head", help="Of attention, from 0.", panel=_LOOK, metavar="N",
        show_default="the average of all",
    ),
]  # fmt: skip
Json = Annotated[bool, _option("--json", help="Write JSON.", panel=_RESULT)]
Quiet = Annotated[bool, _option("--quiet", "-q", help="Show no notes.", panel=_RESULT)]


def explain(
    text: ExplainedText = None,
    input: InputFile = None,
    row: Row = 0,
    input_format: options.InputFormat = "auto",
    text_column: options.TextColumn = "text",
    encoding: options.Encoding = "utf-8",
    model: options.Model = None,
    revision: options.Revision = None,
    offline: options.Offline = False,
    strategy: ExplainedStrategies = [],  # noqa: B006 - Typer reads it, nobody changes it
    layer: OneLayer = "-1",
    head: Head = None,
    exclude_special: options.ExcludeSpecial = False,
    max_length: options.MaxLength = None,
    prompt: options.Prompt = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Show the weight of each token of a text in each strategy's vector."""
    start_logging(quiet=quiet, verbose=False)
    from bertpool.cli.charts import show_json
    from bertpool.cli.insight_views import explanation_json, show_explanation
    from bertpool.corpus import CorpusOptions
    from bertpool.insight.explain import explain as weigh
    from bertpool.insight.texts import find_text
    from bertpool.model import load

    reading = CorpusOptions(input_format, text_column, encoding=encoding)
    chosen = find_text(text, input, row, reading)
    explanation = weigh(
        load(model, revision=revision, offline=offline),
        chosen,
        strategy=strategy or None,
        layer=layer,
        head=head,
        exclude_special=exclude_special,
        max_length=max_length,
        prompt=prompt,
    )
    if json:
        show_json(explanation_json(explanation))
    else:
        show_explanation(explanation)
