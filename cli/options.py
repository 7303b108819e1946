"""The options, each defined once; all of them also read ``BERTPOOL_<OPTION>``."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer
from bertpool.pooling.strategies import AUTO, STRATEGIES


def _option(*names: str, help: str, panel: str, **more: Any) -> Any:
    """Make an option with its environment variable, in a panel of the help."""
    name = next(name for name in names if name.startswith("--")).split("/")[0]
    envvar = "BERTPOOL_" + name.removeprefix("--").replace("-", "_").upper()
    return typer.Option(
        *names, help=help, rich_help_panel=panel, envvar=envvar, show_envvar=False, **more
    )


def _complete_strategy(incomplete: str) -> list[tuple[str, str]]:
    rows = [(AUTO, "what the checkpoint declares, else mean")]
    rows += [(name, strategy.definition) for name, strategy in STRATEGIES.items()]
    return [row for row in rows if row[0].startswith(incomplete)]


_MODEL = "Model"
_VECTORS = "Vectors"
_COMPUTE = "Compute"
_INPUT = "Input"
_OUTPUT = "Output"

Inputs = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="INPUT...", help="Files of one text a line; - is stdin.", show_default=False
    ),
]
Encoding = Annotated[
    str, _option("--encoding", help="Encoding of the inputs; never guessed.", panel=_INPUT)
]
Blank = Annotated[
    Literal["keep", "skip", "error"],
    _option(
        "--blank", help="Blank texts: keep a row, skip it, or stop at the first.", panel=_INPUT
    ),
]
Model = Annotated[
    str | None,
    _option(
        "--model", "-m",
        help="Directory or hub id.",
        panel=_MODEL,
        show_default="sentence-transformers/all-MiniLM-L6-v2",
    ),
]  # fmt: skip
Revision = Annotated[
    str | None, _option("--revision", help="Branch, tag or commit of a hub model.", panel=_MODEL)
]
Offline = Annotated[bool, _option("--offline", help="Never reach for the network.", panel=_MODEL)]
Strategy = Annotated[
    list[str],
    _option(
        "--strategy", "-s",
        help=f"How token vectors become one: {', '.join((AUTO, *STRATEGIES))}. auto does what the "
        "checkpoint declares; the others give the raw pooled vector. Several (cls,mean) give a "
        "column each.",
        panel=_MODEL,
        autocompletion=_complete_strategy,
        metavar="NAME",
    ),
]  # fmt: skip
Layer = Annotated[
    list[str],
    _option(
        "--layer",
        help="Whose token vectors: 0 the embeddings, 1, 2, ... or -1 the last, -2, ...; the "
        "averages first-last, last-4. Several (-1,-2) give a column each.",
        panel=_MODEL,
        metavar="K",
    ),
]
ExcludeSpecial = Annotated[
    bool,
    _option("--exclude-special", help="Pool without [CLS], [SEP] and their like.", panel=_MODEL),
]
MaxLength = Annotated[
    int | None,
    _option(
        "--max-length",
        help="Tokens kept of a text, specials included.",
        panel=_MODEL,
        show_default="the model's limit",
    ),
]
Prompt = Annotated[
    str | None,
    _option(
        "--prompt",
        help="Text put before every text.",
        panel=_MODEL,
        show_default="the declared one under auto",
    ),
]
Normalize = Annotated[
    bool | None,
    _option(
        "--normalize/--no-normalize",
        help="Scale vectors to unit length.",
        panel=_VECTORS,
        show_default="as declared under auto, else no",
    ),
]
Dimensions = Annotated[
    int | None,
    _option(
        "--dimensions", help="Keep the first N, before normalizing.", panel=_VECTORS, metavar="N"
    ),
]
OutputDtype = Annotated[
    Literal["float32", "float16"],
    _option("--output-dtype", help="Of the vectors in the file.", panel=_VECTORS),
]
Device = Annotated[
    str,
    _option("--device", help="auto, cpu, cuda or cuda:N.", panel=_COMPUTE, metavar="NAME"),
]
Dtype = Annotated[
    Literal["float32", "bfloat16", "float16"],
    _option("--dtype", help="Of weights and hidden states; float16 needs CUDA.", panel=_COMPUTE),
]
Threads = Annotated[
    int | None,
    _option(
        "--threads",
        help="CPU threads.",
        panel=_COMPUTE,
        show_default="OMP_NUM_THREADS, else the cores this process may use",
    ),
]
BatchTokens = Annotated[
    int | None,
    _option(
        "--batch-tokens", help="Token slots in a batch.", panel=_COMPUTE,
        show_default="what runs best",
    ),
]  # fmt: skip
Output = Annotated[
    str | None,
    _option(
        "--output", "-o",
        help="File to write, .parquet or .npy.",
        panel=_OUTPUT,
        show_default="the input's name with .parquet",
    ),
]  # fmt: skip
Force = Annotated[bool, _option("--force", help="Replace an existing output.", panel=_OUTPUT)]
Text = Annotated[
    bool, _option("--text/--no-text", help="Keep the texts in the Parquet file.", panel=_OUTPUT)
]
ReportFile = Annotated[
    str | None,
    _option(
        "--report", help="Write counts and timings as JSON; - is stdout.", panel=_OUTPUT,
        metavar="FILE",
    ),
]  # fmt: skip
Quiet = Annotated[bool, _option("--quiet", "-q", help="Show errors only.", panel=_OUTPUT)]
Verbose = Annotated[
    bool, _option("--verbose", "-v", help="Show warnings of the libraries, too.", panel=_OUTPUT)
]
