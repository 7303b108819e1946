"""The options, each defined once; most also read ``BERTPOOL_<OPTION>``."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer
from bertpool.pooling.strategies import AUTO, STRATEGIES


def option(*names: str, help: str, panel: str, variable: bool = True, **more: Any) -> Any:
    """Make an option with its environment variable, in a panel of the help.

    Without a ``variable`` are options that mean another thing than those of that name elsewhere:
    what is set for one command mustn't break another.
    """
    name = next(name for name in names if name.startswith("--")).split("/")[0]
    envvar = "BERTPOOL_" + name.removeprefix("--").replace("-", "_").upper() if variable else None
    return typer.Option(
        *names, help=help, rich_help_panel=panel, envvar=envvar, show_envvar=False, **more
    )


def complete_strategy(incomplete: str) -> list[tuple[str, str]]:
    """List the strategies that begin as what is typed, with what they are."""
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
    typer.Argument(metavar="INPUT...", help="Files, directories, - for stdin.", show_default=False),
]
InputFormat = Annotated[
    Literal["auto", "lines", "text", "jsonl", "csv", "tsv", "parquet"],
    option(
        "--input-format",
        help="auto: by suffix, else a text a line; a directory's files are a text each.",
        panel=_INPUT,
    ),
]
TextColumn = Annotated[
    str,
    option(
        "--text-column", help="Field of the texts in jsonl, csv, tsv, parquet.", panel=_INPUT,
        metavar="NAME",
    ),
]  # fmt: skip
PairColumn = Annotated[
    str | None,
    option(
        "--pair-column", help="Of a second text, encoded with the first.", panel=_INPUT,
        metavar="NAME",
    ),
]  # fmt: skip
IdColumn = Annotated[
    str | None,
    option(
        "--id-column", help="Of the output's id.", panel=_INPUT, metavar="NAME",
        show_default="the row's number",
    ),
]  # fmt: skip
Keep = Annotated[
    list[str],
    option(
        "--keep", help="Column to copy into the output; repeatable.", panel=_INPUT, metavar="NAME"
    ),
]
Encoding = Annotated[
    str, option("--encoding", help="Encoding of the inputs; never guessed.", panel=_INPUT)
]
Blank = Annotated[
    Literal["keep", "skip", "error"],
    option("--blank", help="Blank texts: keep a row, skip it, or stop at the first.", panel=_INPUT),
]
OnError = Annotated[
    Literal["stop", "reject"],
    option(
        "--on-error",
        help="Records that can't be read: stop, or put them into OUT.rejects.jsonl and exit 3.",
        panel=_INPUT,
    ),
]
Model = Annotated[
    str | None,
    option(
        "--model", "-m",
        help="Directory or hub id.",
        panel=_MODEL,
        show_default="sentence-transformers/all-MiniLM-L6-v2",
    ),
]  # fmt: skip
Revision = Annotated[
    str | None, option("--revision", help="Branch, tag or commit of a hub model.", panel=_MODEL)
]
Offline = Annotated[bool, option("--offline", help="Never reach for the network.", panel=_MODEL)]
Strategy = Annotated[
    list[str],
    option(
        "--strategy", "-s",
        help=f"How token vectors become one: {', '.join((AUTO, *STRATEGIES))}. auto does what the "
        "checkpoint declares; the others give the raw pooled vector. Several (cls,mean) give a "
        "column each; tokens gives every token's own vector.",
        panel=_MODEL,
        autocompletion=complete_strategy,
        metavar="NAME",
    ),
]  # fmt: skip
Layer = Annotated[
    list[str],
    option(
        "--layer",
        help="Whose token vectors: 0 the embeddings, 1, 2, ... or -1 the last, -2, ...; the "
        "averages first-last, last-4. Several (-1,-2) give a column each.",
        panel=_MODEL,
        metavar="K",
    ),
]
ExcludeSpecial = Annotated[
    bool,
    option("--exclude-special", help="Pool without [CLS], [SEP] and their like.", panel=_MODEL),
]
MaxLength = Annotated[
    int | None,
    option(
        "--max-length",
        help="Tokens kept of a text, specials included.",
        panel=_MODEL,
        show_default="the model's limit",
    ),
]
OnTruncate = Annotated[
    Literal["keep", "error", "window"],
    option(
        "--on-truncate",
        help="Longer texts: cut and count them, stop, or pool over windows of the whole text.",
        panel=_MODEL,
    ),
]
Stride = Annotated[
    int | None,
    option(
        "--stride", help="Tokens that neighbouring windows share.", panel=_MODEL, metavar="N",
        show_default="an eighth of the limit",
    ),
]  # fmt: skip
Prompt = Annotated[
    str | None,
    option(
        "--prompt",
        help="Text put before every text.",
        panel=_MODEL,
        show_default="the declared one under auto",
    ),
]
Normalize = Annotated[
    bool | None,
    option(
        "--normalize/--no-normalize",
        help="Scale vectors to unit length.",
        panel=_VECTORS,
        show_default="as declared under auto, else no",
    ),
]
Dimensions = Annotated[
    int | None,
    option(
        "--dimensions", help="Keep the first N, before normalizing.", panel=_VECTORS, metavar="N"
    ),
]
OutputDtype = Annotated[
    Literal["float32", "float16"],
    option("--output-dtype", help="Of the vectors in the file.", panel=_VECTORS),
]
Device = Annotated[
    str,
    option("--device", help="auto, cpu, cuda or cuda:N.", panel=_COMPUTE, metavar="NAME"),
]
Dtype = Annotated[
    Literal["float32", "bfloat16", "float16"],
    option("--dtype", help="Of weights and hidden states; float16 needs CUDA.", panel=_COMPUTE),
]
Threads = Annotated[
    int | None,
    option(
        "--threads",
        help="CPU threads.",
        panel=_COMPUTE,
        show_default="OMP_NUM_THREADS, else the cores this process may use",
    ),
]
BatchTokens = Annotated[
    int | None,
    option(
        "--batch-tokens", help="Token slots in a batch.", panel=_COMPUTE,
        show_default="what runs best",
    ),
]  # fmt: skip
Engine = Annotated[
    Literal["local", "ray"],
    option("--engine", help="This process, or workers of Ray (RAY_ADDRESS).", panel=_COMPUTE),
]
Workers = Annotated[
    int | None,
    option(
        "--workers", help="Of Ray.", panel=_COMPUTE, metavar="N",
        show_default="one a GPU, or one here",
    ),
]  # fmt: skip
ShardOption = Annotated[
    str | None,
    option(
        "--shard",
        help="Embed one of N parts of the rows, I from 1; auto reads SLURM's variables.",
        panel=_COMPUTE,
        metavar="I/N",
    ),
]
Output = Annotated[
    str | None,
    option(
        "--output", "-o",
        help="File to write, .parquet, .npy, .arrow or .jsonl; - is stdout.",
        panel=_OUTPUT,
        show_default="the input's name with .parquet",
    ),
]  # fmt: skip
Parts = Annotated[
    list[str], typer.Argument(metavar="PART...", help="All of the shards, in any order.")
]
MergedOutput = Annotated[
    str,
    option(
        "--output", "-o", help="File to write, of the shards' format.", panel=_OUTPUT,
        variable=False,
    ),
]  # fmt: skip
OutputFormat = Annotated[
    Literal["parquet", "npy", "arrow", "jsonl"] | None,
    option(
        "--output-format", help="Whatever the suffix.", panel=_OUTPUT,
        show_default="by suffix; jsonl on stdout",
    ),
]  # fmt: skip
Force = Annotated[
    bool,
    option("--force", help="Replace an output; start an unfinished run afresh.", panel=_OUTPUT),
]
Resume = Annotated[
    bool, option("--resume", help="Go on with an unfinished run's windows.", panel=_OUTPUT)
]
Text = Annotated[bool, option("--text/--no-text", help="Keep the texts.", panel=_OUTPUT)]
ReportFile = Annotated[
    str | None,
    option(
        "--report", help="Write counts and timings as JSON; - is stdout.", panel=_OUTPUT,
        metavar="FILE",
    ),
]  # fmt: skip
DryRun = Annotated[
    bool,
    option(
        "--dry-run", help="Say what a run would take, tried on a sample; write nothing.",
        panel=_OUTPUT,
    ),
]  # fmt: skip
Quiet = Annotated[bool, option("--quiet", "-q", help="Show errors only.", panel=_OUTPUT)]
Verbose = Annotated[
    bool, option("--verbose", "-v", help="Show warnings of the libraries, too.", panel=_OUTPUT)
]
_SEARCH = "Search"
_CHECK = "Check"

VectorFile = Annotated[
    str, typer.Argument(metavar="FILE", help="Vectors that embed wrote.", show_default=False)
]
VectorFiles = Annotated[list[str], typer.Argument(metavar="FILE...", help="Vectors of embed.")]
Query = Annotated[str, typer.Argument(metavar="QUERY", help="A text, or - for lines of stdin.")]
Json = Annotated[bool, option("--json", help="Print JSON, one object a line.", panel=_OUTPUT)]
Maker = Annotated[
    str | None,
    option(
        "--model", "-m", help="Directory or hub id of the model that made the file.",
        panel=_MODEL, show_default="the one that the file names",
    ),
]  # fmt: skip
MadeFrom = Annotated[
    list[str],
    option(
        "--input", help="What the file was made from, where it holds no texts; repeatable.",
        panel=_INPUT, metavar="INPUT", variable=False,
    ),
]  # fmt: skip
Sample = Annotated[
    str,
    option(
        "--sample", help="Rows to encode again, or all.", panel=_CHECK, metavar="N",
        variable=False,
    ),
]  # fmt: skip
Seed = Annotated[int, option("--seed", help="Of the choice of rows.", panel=_CHECK)]
Tolerance = Annotated[
    float | None,
    option(
        "--tolerance",
        help="How far off a value may be, as a share of its vector's length.",
        panel=_CHECK,
        show_default="by the dtype that computed it: float32 1e-5",
    ),
]
Top = Annotated[int, option("--top", "-k", help="Rows to find for each query.", panel=_SEARCH)]
Column = Annotated[
    str | None,
    option(
        "--column", help="Which vectors, where the file has several.", panel=_VECTORS,
        metavar="NAME", show_default="the first",
    ),
]  # fmt: skip
QueryPrompt = Annotated[
    str | None,
    option(
        "--prompt", help="Text put before every query.", panel=_SEARCH, variable=False,
        show_default="the one that the file's texts had",
    ),
]  # fmt: skip
