"""The commands: each translates its options into a call of the library."""

from __future__ import annotations

from typing import Annotated

import typer
from bertpool.cli import insight_files, insight_strategies, options
from bertpool.cli.messages import show, show_summary, start_logging, stderr

REJECTED = 3  # the exit code of a run that is whole but for what it rejected
ONLY_IN_THE_COMMAND = ("report", "dry_run", "quiet", "verbose")
EPILOG = "Every option also reads BERTPOOL_<OPTION> from the environment."
EPILOG_OF_OTHERS = "Options that mean the same in every command also read BERTPOOL_<OPTION>."

app = typer.Typer(
    name="bertpool",
    help="Sentence vectors from BERT-family encoders, pooled with correct masks.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"bertpool {version('bertpool')}")
        raise typer.Exit


@app.callback()
def bertpool(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Hold the options that go before a command."""


@app.command(epilog=EPILOG)
def embed(
    context: typer.Context,
    inputs: options.Inputs = None,
    input_format: options.InputFormat = "auto",
    text_column: options.TextColumn = "text",
    pair_column: options.PairColumn = None,
    id_column: options.IdColumn = None,
    keep: options.Keep = [],  # noqa: B006 - Typer reads it, nobody changes it
    encoding: options.Encoding = "utf-8",
    blank: options.Blank = "keep",
    on_error: options.OnError = "stop",
    model: options.Model = None,
    revision: options.Revision = None,
    offline: options.Offline = False,
    strategy: options.Strategy = ["auto"],  # noqa: B006
    layer: options.Layer = ["-1"],  # noqa: B006
    exclude_special: options.ExcludeSpecial = False,
    max_length: options.MaxLength = None,
    on_truncate: options.OnTruncate = "keep",
    stride: options.Stride = None,
    prompt: options.Prompt = None,
    normalize: options.Normalize = None,
    dimensions: options.Dimensions = None,
    output_dtype: options.OutputDtype = "float32",
    device: options.Device = "auto",
    dtype: options.Dtype = "float32",
    threads: options.Threads = None,
    batch_tokens: options.BatchTokens = None,
    engine: options.Engine = "local",
    workers: options.Workers = None,
    shard: options.ShardOption = None,
    output: options.Output = None,
    output_format: options.OutputFormat = None,
    force: options.Force = False,
    resume: options.Resume = False,
    text: options.Text = True,
    report: options.ReportFile = None,
    dry_run: options.DryRun = False,
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
) -> None:
    """Embed texts: one vector a text, written to Parquet, .npy, Arrow or JSON lines."""
    start_logging(quiet=quiet, verbose=verbose)
    # Here, not at the top: --help and usage errors need none of it.
    from bertpool.cli.progress import shown_progress
    from bertpool.cli.reports import check_report, write_report
    from bertpool.options import Options
    from bertpool.pipeline import run
    from bertpool.plan import make_plan

    asked = {k: v for k, v in context.params.items() if k not in ONLY_IN_THE_COMMAND}
    plan = make_plan(Options(**asked | {"inputs": inputs or []}))
    check_report(report, plan)
    if dry_run:
        from bertpool.cli.forecasts import show_forecast

        write_report(report, show_forecast(plan, quiet=quiet))
        return
    with shown_progress(stderr, quiet=quiet) as on_progress:
        result = run(plan, on_progress)
    if not quiet:
        show_summary(result)
    write_report(report, result)
    if result.rejected:
        raise typer.Exit(REJECTED)


@app.command(epilog=EPILOG_OF_OTHERS)
def merge(
    parts: options.Parts,
    output: options.MergedOutput,
    force: options.Force = False,
    quiet: options.Quiet = False,
) -> None:
    """Join the files of embed --shard to the file that one run would have written."""
    start_logging(quiet=quiet, verbose=False)
    from bertpool.output.vector_format import check_vector_files

    check_vector_files(parts)
    from bertpool.merge import merge as join

    rows = join(parts, output=output, force=force)
    if not quiet:
        show(f"{output}: ", "bold", f"{rows:,} rows of {len(parts)} shards")


for command in (
    insight_strategies.explain,
    insight_strategies.compare,
    insight_files.inspect,
    insight_files.verify,
    insight_files.search,
    insight_strategies.plot,
):
    app.command(epilog=EPILOG_OF_OTHERS)(command)
