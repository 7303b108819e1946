"""``extract``: what ``bertpool embed`` does, as a function."""

from __future__ import annotations

from collections.abc import Sequence

from bertpool.corpus.options import Blank, InputFormat, OnError
from bertpool.encoder.device import Dtype
from bertpool.encoder.recipe import Named
from bertpool.options import Engine, OnTruncate, Options
from bertpool.output.formats import OutputFormatName
from bertpool.output.rows import OutputDtype
from bertpool.pipeline import OnProgress, ignore_progress, run
from bertpool.plan import make_plan
from bertpool.report import Report


def extract(
    inputs: Sequence[str],
    *,
    input_format: InputFormat = "auto",
    text_column: str = "text",
    pair_column: str | None = None,
    id_column: str | None = None,
    keep: Sequence[str] = (),
    encoding: str = "utf-8",
    blank: Blank = "keep",
    on_error: OnError = "stop",
    model: str | None = None,
    revision: str | None = None,
    offline: bool = False,
    strategy: Named = "auto",
    layer: Named = -1,
    exclude_special: bool = False,
    max_length: int | None = None,
    on_truncate: OnTruncate = "keep",
    stride: int | None = None,
    prompt: str | None = None,
    normalize: bool | None = None,
    dimensions: int | None = None,
    output_dtype: OutputDtype = "float32",
    device: str = "auto",
    dtype: Dtype = "float32",
    threads: int | None = None,
    batch_tokens: int | None = None,
    engine: Engine = "local",
    workers: int | None = None,
    shard: str | None = None,
    output: str | None = None,
    output_format: OutputFormatName | None = None,
    force: bool = False,
    resume: bool = False,
    text: bool = True,
    on_progress: OnProgress = ignore_progress,
) -> Report:
    """Read texts, embed them and write their vectors: what ``bertpool embed`` does.

    Args:
        inputs: files, directories, or ``-`` for stdin.
        input_format: what the inputs are; ``auto`` goes by the suffix, and takes the files of a
            directory for one text each.
        text_column: field or column of the texts, in jsonl, csv, tsv and parquet.
        pair_column: that of a second text: both are encoded together, as a pair.
        id_column: what identifies a row in the output, instead of its number.
        keep: columns to copy into the output.
        encoding: of the inputs.
        blank: what to do with blank texts.
        on_error: what to do with records that can't be read: stop at the first, or put them into
            ``OUT.rejects.jsonl``.
        model: directory or hub id; None is ``sentence-transformers/all-MiniLM-L6-v2``.
        revision: branch, tag or commit of a hub model.
        offline: never reach for the network.
        strategy: ``auto`` (what the checkpoint declares), or keys of ``STRATEGIES``.
        layer: of transformers' ``hidden_states``, 0 the embeddings and -1 the last; also
            ``first-last`` and ``last-N``, averages of layers. Several strategies or layers give
            a column each.
        exclude_special: pool without special tokens, except in texts that have no others.
        max_length: tokens kept of a text, specials included; None is the checkpoint's limit.
        on_truncate: what to do with longer texts: cut them, stop, or pool over windows of them.
        stride: tokens that neighbouring windows share; None is an eighth of ``max_length``.
        prompt: put before every text; None is the declared one under ``auto``, else none.
        normalize: scale vectors to unit length; None is what is declared under ``auto``, else no.
        dimensions: keep so many leading dimensions, before normalization.
        output_dtype: of the vectors in the file.
        device: ``auto``, ``cpu``, ``cuda`` or ``cuda:N``.
        dtype: of weights and hidden states; pooling sums in float32 whatever it is.
        threads: CPU threads; None is ``OMP_NUM_THREADS``, else the cores this process may use.
        batch_tokens: token slots in a batch; None is what was measured to run best.
        engine: ``local``, or ``ray`` for several workers on this machine or a cluster.
        workers: of ``ray``; None is one a CPU core, or GPU, that Ray has.
        shard: ``I/N``, a contiguous part of the rows; ``auto`` reads SLURM's variables.
        output: ``.parquet``, ``.npy``, ``.arrow`` or ``.jsonl``, or ``-`` for stdout; None is the
            input's name with ``.parquet``.
        output_format: overrules the suffix; on stdout None is ``jsonl``.
        force: replace an existing output, and start an unfinished run afresh.
        resume: go on from the finished windows of an unfinished run.
        text: keep the texts in the output.
        on_progress: called after each batch.

    Raises:
        BertpoolError: a subclass says what is wrong; nothing is left at the output path.
    """
    options = Options(
        inputs=inputs, input_format=input_format, text_column=text_column,
        pair_column=pair_column, id_column=id_column, keep=keep, encoding=encoding,
        blank=blank, on_error=on_error, model=model, revision=revision, offline=offline,
        strategy=strategy, layer=layer, exclude_special=exclude_special, max_length=max_length,
        on_truncate=on_truncate, stride=stride, prompt=prompt, normalize=normalize,
        dimensions=dimensions, output_dtype=output_dtype, device=device, dtype=dtype,
        threads=threads, batch_tokens=batch_tokens, engine=engine, workers=workers, shard=shard,
        output=output, output_format=output_format, force=force, resume=resume, text=text,
    )  # fmt: skip
    return run(make_plan(options), on_progress)
