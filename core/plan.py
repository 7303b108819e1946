"""A run, decided and checked before anything is loaded."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from bertpool.corpus.inputs import STDIN, check_inputs
from bertpool.encoder.checkpoint import Checkpoint, find_checkpoint
from bertpool.encoder.device import check_device_name
from bertpool.encoder.limits import LengthLimit, length_limit
from bertpool.encoder.recipe import (
    SINGLE_COLUMN,
    Reading,
    Recipe,
    check_strategies,
    make_recipe,
    split_names,
)
from bertpool.encoder.threads import MAX_THREADS, default_threads
from bertpool.errors import BertpoolError, CorpusError, OutputError, PoolingError
from bertpool.options import Options
from bertpool.output.destination import STDOUT, Destination, find_destination
from bertpool.output.formats import FORMATS, OutputFormatName, format_of
from bertpool.output.provenance import Settings
from bertpool.output.rows import OWN_COLUMNS, Layout
from bertpool.sharding import Shard, parse_shard

if TYPE_CHECKING:
    import pyarrow as pa

MAX_WORKERS = 4096
# Tokens that neighbouring windows of a long text share where --stride doesn't say: an eighth.
STRIDE_SHARE = 8


@dataclass(frozen=True)
class Plan:
    """What the options come to."""

    options: Options
    destination: Destination
    checkpoint: Checkpoint
    recipe: Recipe
    reading: Reading
    limit: LengthLimit
    shard: Shard | None
    threads: int
    stride: int | None

    def layout(self, extra: pa.Schema | None, *, several: bool) -> Layout:
        """Describe the output's columns; lines are one where row numbers don't give them.

        Args:
            extra: columns from the input, see :class:`Layout`.
            several: whether there is more than one source.
        """
        options = self.options
        return Layout(
            columns=tuple(self.recipe.columns),
            width=self.recipe.width,
            dtype=options.output_dtype,
            text=options.text,
            source=several,
            line=several or options.blank == "skip",
            pair=options.pair_column is not None,
            extra=extra,
            tokens=self.recipe.tokens is not None,
        )

    def settings(self) -> Settings:
        """Collect what goes into the output's provenance; the model's files are hashed for it."""
        checkpoint, recipe, options = self.checkpoint, self.recipe, self.options
        return Settings(
            bertpool_version=metadata.version("bertpool"),
            model=checkpoint.name,
            revision=checkpoint.revision,
            config_sha256=checkpoint.config_sha256(),
            weights_sha256=checkpoint.weights_sha256(),
            tokenizer_sha256=checkpoint.tokenizer_sha256(),
            modules_sha256=checkpoint.modules_sha256(recipe.folders),
            strategies=recipe.strategies,
            layers=recipe.layers,
            columns=tuple(recipe.columns),
            stages=tuple(map(str, recipe.stages)),
            exclude_special=self.reading.exclude_special,
            max_length=self.limit.tokens,
            on_truncate=options.on_truncate,
            stride=self.stride,
            prompt=self.reading.prompt,
            include_prompt=self.reading.include_prompt,
            lower_case=self.reading.lower_case,
            normalize=recipe.normalize,
            dimensions=recipe.width,
            dtype=options.dtype,
            output_dtype=options.output_dtype,
            input_format=options.input_format,
            text_column=options.text_column,
            pair_column=options.pair_column,
            id_column=options.id_column,
            keep=tuple(options.keep),
            text=options.text,
            encoding=options.encoding,
            blank=options.blank,
            on_error=options.on_error,
        )


def make_plan(options: Options) -> Plan:
    """Check the options, and decide what they leave open.

    Raises:
        BertpoolError: something is wrong that can be known before anything is loaded.
    """
    _check_values(options)
    check_strategies(options.strategy)
    check_device_name(options.device)
    check_inputs(options.inputs, options.corpus)
    shard = None if options.shard is None else parse_shard(options.shard)
    _check_together(options, shard)
    if not _may_be_several_files(options):
        # Before the model is looked for, which may take a download.
        _find_destination(options, shard, (SINGLE_COLUMN,))
    checkpoint = find_checkpoint(options.model, revision=options.revision, offline=options.offline)
    recipe, reading = make_recipe(
        checkpoint,
        strategy=options.strategy,
        layer=options.layer,
        exclude_special=options.exclude_special,
        prompt=options.prompt,
        normalize=options.normalize,
        dimensions=options.dimensions,
    )
    _check_kept(options, recipe)
    _check_tokens(options, recipe)
    limit = length_limit(checkpoint, options.max_length)
    return Plan(
        options=options,
        destination=_find_destination(options, shard, tuple(recipe.columns)),
        checkpoint=checkpoint,
        recipe=recipe,
        reading=reading,
        limit=limit,
        shard=shard,
        threads=options.threads or default_threads(),
        stride=_stride(options, limit),
    )


def _may_be_several_files(options: Options) -> bool:
    """Tell whether the columns may be files of their own, whose names the model decides."""
    several = len(split_names(options.strategy)) * len(split_names(options.layer)) > 1
    return several and not FORMATS[_format_name(options) or "parquet"].rows


def _format_name(options: Options) -> OutputFormatName | None:
    return options.output_format or (format_of(Path(options.output)) if options.output else None)


def _find_destination(
    options: Options, shard: Shard | None, columns: tuple[str, ...]
) -> Destination:
    return find_destination(
        options.output,
        options.inputs,
        columns=columns,
        output_format=options.output_format,
        shard=shard,
        rejects=options.on_error == "reject",
        force=options.force,
        resume=options.resume,
    )


def _check_values(options: Options) -> None:
    for name in ("threads", "batch_tokens", "workers"):
        value = getattr(options, name)
        if value is not None and value < 1:
            option = name.replace("_", "-")
            raise BertpoolError(f"--{option} {value}: give 1 or more", usage=True)
    for name, value, most in (
        ("threads", options.threads, MAX_THREADS),
        ("workers", options.workers, MAX_WORKERS),
    ):
        if (value or 0) > most:
            raise BertpoolError(f"--{name}: give at most {most}", usage=True)
    if options.stride is not None and options.stride < 0:
        raise BertpoolError(f"--stride {options.stride}: give 0 or more", usage=True)
    try:
        "".encode(options.encoding)
    except (LookupError, ValueError) as error:
        message = f"--encoding {options.encoding}: no such text encoding"
        raise CorpusError(message, usage=True) from error


def _check_together(options: Options, shard: Shard | None) -> None:
    """Refuse options that contradict one another."""
    ray = options.engine == "ray"
    contradictions = (
        (options.resume and options.force, "--resume goes on, --force starts afresh: choose one"),
        (
            options.stride is not None and options.on_truncate != "window",
            "--stride: is of --on-truncate window",
        ),
        (
            options.on_truncate == "window" and options.pair_column is not None,
            "--on-truncate window: a pair can't be split; pass keep or error",
        ),
        (options.workers is not None and not ray, "--workers: is of --engine ray"),
        (ray and shard is not None, "--engine ray makes its own shards: leave out --shard"),
        (ray and options.output == STDOUT, "--engine ray: writes files; name one with --output"),
        (
            STDIN in options.inputs and (ray or shard is not None),
            "stdin (-) is read once, and shards read their inputs each: name files",
        ),
        (shard is not None and options.output == STDOUT, "--shard: name a file with --output"),
        (
            (ray or shard is not None) and _format_name(options) == "jsonl",
            "shards of .jsonl couldn't be merged; write .parquet, .arrow or .npy",
        ),
    )
    for contradicts, message in contradictions:
        if contradicts:
            raise BertpoolError(message, usage=True)


def _check_kept(options: Options, recipe: Recipe) -> None:
    """Refuse to keep a column under the name of one that bertpool writes."""
    taken = {*OWN_COLUMNS, *recipe.columns}
    if clashing := [name for name in options.keep if name in taken]:
        raise CorpusError(
            f"--keep {clashing[0]}: the output has a column of its own by that name", usage=True
        )


def _check_tokens(options: Options, recipe: Recipe) -> None:
    """Refuse what token vectors don't go with."""
    if recipe.tokens is None:
        return
    if options.on_truncate == "window":
        raise PoolingError(
            "--strategy tokens: windows aren't joined; pass keep or error", usage=True
        )
    name = _format_name(options)
    if name is not None and not FORMATS[name].rows:
        raise OutputError(
            "--strategy tokens: .npy holds one vector a row; write .parquet", usage=True
        )


def _stride(options: Options, limit: LengthLimit) -> int | None:
    if options.on_truncate != "window":
        return None
    return limit.tokens // STRIDE_SHARE if options.stride is None else options.stride
