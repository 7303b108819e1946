"""The commands: each translates its options into a call of the library."""

from __future__ import annotations

from typing import Annotated

import typer
from bertpool.cli import options
from bertpool.cli.messages import show_summary, start_logging, stderr

EPILOG = "Every option also reads BERTPOOL_<OPTION> from the environment."

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
    inputs: options.Inputs = None,
    encoding: options.Encoding = "utf-8",
    blank: options.Blank = "keep",
    model: options.Model = None,
    revision: options.Revision = None,
    offline: options.Offline = False,
    strategy: options.Strategy = ["auto"],  # noqa: B006 - Typer reads it, nobody changes it
    layer: options.Layer = ["-1"],  # noqa: B006
    exclude_special: options.ExcludeSpecial = False,
    max_length: options.MaxLength = None,
    prompt: options.Prompt = None,
    normalize: options.Normalize = None,
    dimensions: options.Dimensions = None,
    output_dtype: options.OutputDtype = "float32",
    device: options.Device = "auto",
    dtype: options.Dtype = "float32",
    threads: options.Threads = None,
    batch_tokens: options.BatchTokens = None,
    output: options.Output = None,
    force: options.Force = False,
    text: options.Text = True,
    report: options.ReportFile = None,
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
) -> None:
    """Embed texts: one vector a line, written to Parquet or .npy."""
    start_logging(quiet=quiet, verbose=verbose)
    # Here, not at the top: --help and usage errors need none of it.
    from bertpool.cli.progress import shown_progress
    from bertpool.cli.reports import check_report, write_report
    from bertpool.pipeline import extract

    check_report(report, inputs or [], output, force=force)
    with shown_progress(stderr, quiet=quiet) as on_progress:
        result = extract(
            inputs or [], encoding=encoding, blank=blank, model=model, revision=revision,
            offline=offline, strategy=strategy, layer=layer, exclude_special=exclude_special,
            max_length=max_length, prompt=prompt, normalize=normalize, dimensions=dimensions,
            output_dtype=output_dtype, device=device, dtype=dtype, threads=threads,
            batch_tokens=batch_tokens, output=output, force=force, text=text,
            on_progress=on_progress,
        )  # fmt: skip
    if not quiet:
        show_summary(result)
    write_report(report, result)
