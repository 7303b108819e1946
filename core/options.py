"""What a run is asked to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from bertpool.corpus.options import Blank, CorpusOptions, InputFormat, OnError
from bertpool.encoder.device import Dtype
from bertpool.encoder.recipe import Named
from bertpool.output.formats import OutputFormatName
from bertpool.output.rows import OutputDtype

OnTruncate = Literal["keep", "error", "window"]
Engine = Literal["local", "ray"]


@dataclass(frozen=True)
class Options:
    """The parameters of :func:`bertpool.extract`, which says what they mean."""

    inputs: Sequence[str]
    input_format: InputFormat = "auto"
    text_column: str = "text"
    pair_column: str | None = None
    id_column: str | None = None
    keep: Sequence[str] = ()
    encoding: str = "utf-8"
    blank: Blank = "keep"
    on_error: OnError = "stop"
    model: str | None = None
    revision: str | None = None
    offline: bool = False
    strategy: Named = "auto"
    layer: Named = -1
    exclude_special: bool = False
    max_length: int | None = None
    on_truncate: OnTruncate = "keep"
    stride: int | None = None
    prompt: str | None = None
    normalize: bool | None = None
    dimensions: int | None = None
    output_dtype: OutputDtype = "float32"
    device: str = "auto"
    dtype: Dtype = "float32"
    threads: int | None = None
    batch_tokens: int | None = None
    engine: Engine = "local"
    workers: int | None = None
    shard: str | None = None
    output: str | None = None
    output_format: OutputFormatName | None = None
    force: bool = False
    resume: bool = False
    text: bool = True

    def __post_init__(self) -> None:
        if isinstance(self.inputs, str):
            raise TypeError(f"inputs: a list of names wanted, not {self.inputs!r}")
        # Lists, too, are taken; what is kept can't be changed.
        object.__setattr__(self, "inputs", tuple(self.inputs))
        object.__setattr__(self, "keep", tuple(self.keep))

    @property
    def corpus(self) -> CorpusOptions:
        """Select what concerns the reading of the inputs."""
        return CorpusOptions(
            input_format=self.input_format,
            text_column=self.text_column,
            pair_column=self.pair_column,
            id_column=self.id_column,
            keep=tuple(self.keep),
            encoding=self.encoding,
            blank=self.blank,
            on_error=self.on_error,
        )
