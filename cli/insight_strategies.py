"""The commands that show strategies at work: explain, compare, plot."""

from __future__ import annotations

from typing import Annotated, Literal

import typer
from bertpool.cli import options
from bertpool.cli.messages import show, start_logging
from bertpool.cli.options import option

_LOOK = "What to look at"
_RESULT = "Output"

ExplainedText = Annotated[
    str | None,
    typer.Argument(
        metavar="[TEXT]", help="The text; - reads lines from stdin.", show_default=False
    ),
]
InputFile = Annotated[
    str | None,
    option(
        "--input",
        help="Take the text from a file, see --row.",
        panel=_LOOK,
        metavar="FILE",
        variable=False,
    ),
]
Row = Annotated[
    int, option("--row", help="Which text of the input, from 0.", panel=_LOOK, metavar="N", min=0)
]
ExplainedStrategies = Annotated[
    list[str],
    option(
        "--strategy", "-s",
        help="One or several (cls,mean); auto is what the checkpoint declares.",
        panel=_LOOK,
        metavar="NAME",
        autocompletion=options.complete_strategy,
        variable=False,
        show_default="cls,mean,max,attention",
    ),
]  # fmt: skip
OneLayer = Annotated[
    str,
    option(
        "--layer", help="Whose token vectors: 0 the embeddings, 1, ... or -1 the last; last-4.",
        panel=_LOOK, metavar="K", variable=False,
    ),
]  # fmt: skip
Head = Annotated[
    int | None,
    option(
        "--head", help="Of attention, from 0.", panel=_LOOK, metavar="N",
        show_default="the average of all",
    ),
]  # fmt: skip
ComparedInput = Annotated[
    str,
    typer.Argument(
        metavar="FILE", help="Texts, or labelled pairs of texts; - is stdin.", show_default=False
    ),
]
LabelColumn = Annotated[
    str | None,
    option(
        "--label-column", help="Of pairs: 1 similar, 0 not, or a score.", panel=_LOOK,
        metavar="NAME", show_default="label, score and the like, beside two texts",
    ),
]  # fmt: skip
ComparedStrategies = Annotated[
    list[str],
    option(
        "--strategy", "-s",
        help="Several (cls,mean).",
        panel=_LOOK,
        metavar="NAME",
        autocompletion=options.complete_strategy,
        variable=False,
        show_default="cls,mean,max,mean_sqrt_len,attention,pooler, as far as there",
    ),
]  # fmt: skip
Layers = Annotated[
    list[str],
    option(
        "--layer", help="One or several (-1,-2,last-4).", panel=_LOOK, metavar="K", variable=False
    ),
]
ComparisonPicture = Annotated[
    str | None,
    option(
        "--plot", help="Draw cosines and agreement, .png or .html.", panel=_RESULT, metavar="FILE"
    ),
]
Color = Annotated[
    str | None,
    option("--color", help="Column that colours the points.", panel=_LOOK, metavar="COLUMN"),
]
Method = Annotated[
    Literal["pca", "umap"],
    option("--method", help="How many dimensions become two; umap is an extra.", panel=_LOOK),
]
Picture = Annotated[
    str | None,
    option(
        "--output", "-o", help="Picture to write, .png or .html.", panel=_RESULT, variable=False,
        show_default="the file's name with .png",
    ),
]  # fmt: skip
Sample = Annotated[
    int,
    option(
        "--sample", help="Texts or rows at most, drawn evenly.", panel=_LOOK, min=3, variable=False
    ),
]


# What a command hands on to the library as it was given.
HOW_TO_EXPLAIN = ("layer", "head", "exclude_special", "max_length", "prompt")
HOW_TO_COMPARE = ("layer", "exclude_special", "max_length", "prompt", "sample")


def explain(
    context: typer.Context,
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
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Show the weight of each token of a text in each strategy's vector."""
    start_logging(quiet=quiet, verbose=False)
    from bertpool.cli.tables import check_stdout
    from bertpool.corpus.options import CorpusOptions
    from bertpool.insight.texts import find_text

    check_stdout()
    reading = CorpusOptions(input_format, text_column, encoding=encoding)
    chosen = find_text(text, input, row, reading)
    # Not before: these take seconds, and what is wrong with the text needs none of them.
    from bertpool.cli.insight_views import show_explanation
    from bertpool.insight.explain import explain as weigh
    from bertpool.model import load

    loaded = load(model, revision=revision, offline=offline)
    how = {name: context.params[name] for name in HOW_TO_EXPLAIN}
    show_explanation(weigh(loaded, chosen, strategy=strategy or None, **how), json=json)


def compare(
    context: typer.Context,
    file: ComparedInput,
    text_column: options.TextColumn = "text",
    pair_column: options.PairColumn = None,
    label_column: LabelColumn = None,
    input_format: options.InputFormat = "auto",
    encoding: options.Encoding = "utf-8",
    sample: Sample = 2000,
    model: options.Model = None,
    revision: options.Revision = None,
    offline: options.Offline = False,
    strategy: ComparedStrategies = [],  # noqa: B006
    layer: Layers = ["-1"],  # noqa: B006
    exclude_special: options.ExcludeSpecial = False,
    max_length: options.MaxLength = None,
    prompt: options.Prompt = None,
    plot: ComparisonPicture = None,
    force: options.Force = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Compare strategies on your own texts or labelled pairs, and say which to take.

    With pairs, a difference to the best is called real where its 95% interval excludes 0. These
    intervals hold for all differences of two strategies at once: of strategies that are all alike,
    some 5% of samples of pairs show a real difference.
    """
    start_logging(quiet=quiet, verbose=False)
    from bertpool.cli.tables import check_stdout
    from bertpool.corpus.options import CorpusOptions
    from bertpool.insight.picture_path import check_comparison_plot
    from bertpool.insight.texts import read_material

    check_stdout()
    check_comparison_plot(plot, [file], force=force)
    reading = CorpusOptions(input_format, text_column, pair_column, encoding=encoding)
    material = read_material(file, reading, label_column, sample)
    from bertpool.cli.insight_views import show_comparison
    from bertpool.insight.compare import compare as measure
    from bertpool.insight.plot import plot_comparison
    from bertpool.model import load

    loaded = load(model, revision=revision, offline=offline)
    how = {name: context.params[name] for name in HOW_TO_COMPARE}
    found = measure(loaded, material, strategy=strategy or None, **how)
    show_comparison(found, json=json)
    plot_comparison(found, plot)


def plot(
    file: options.VectorFile,
    color: Color = None,
    column: options.Column = None,
    method: Method = "pca",
    sample: Sample = 20_000,
    output: Picture = None,
    force: options.Force = False,
    quiet: options.Quiet = False,
) -> None:
    """Draw a map of a vector file: its texts as points in the plane."""
    start_logging(quiet=quiet, verbose=False)
    from bertpool.insight.picture_path import check_picture, picture_of
    from bertpool.output.vector_format import check_vector_files

    check_vector_files([file])
    check_picture(picture_of(file, output), [file], force=force)
    from bertpool.insight.plot import plot as draw

    path = draw(
        file, output=output, color=color, column=column, method=method, sample=sample, force=force
    )
    if not quiet:
        show(f"{path}: ", "bold", "drawn")
