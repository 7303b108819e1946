from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
from bertpool.output.formats import FORMATS, OutputFormatName, format_of
from rows import LAYOUT, make_rows

PIPED = [name for name, one in FORMATS.items() if one.streams]


class Pipe(io.BytesIO):
    """A stream that can't seek."""

    def seekable(self) -> bool:
        return False

    def seek(self, *_: Any) -> int:
        raise OSError("can't seek")


def test_every_name_has_a_row_of_the_table() -> None:
    assert tuple(FORMATS) == get_args(OutputFormatName)


@pytest.mark.parametrize("name", FORMATS)
def test_a_suffix_tells_its_format_whatever_its_case(name: str) -> None:
    assert format_of(Path(f"d.x/v.{name}")) == name
    assert format_of(Path(f"v.{name.upper()}")) == name


@pytest.mark.parametrize("name", ["v", "v.bin", "v.parquet.gz", ".npy", "parquet", "v.", "-"])
def test_any_other_name_tells_none(name: str) -> None:
    assert format_of(Path(name)) is None


@pytest.mark.parametrize("name", FORMATS)
def test_a_writer_of_every_format_takes_rows(name: OutputFormatName) -> None:
    stream = io.BytesIO()
    writer = FORMATS[name].open_writer(stream, LAYOUT, "{}")
    writer.write(make_rows(3))
    writer.close()
    writer.abort()
    assert stream.getvalue()


@pytest.mark.parametrize("name", PIPED)
def test_a_format_that_streams_never_seeks(name: OutputFormatName) -> None:
    stream = Pipe()
    writer = FORMATS[name].open_writer(stream, LAYOUT, "{}")
    writer.write(make_rows(3))
    writer.close()
    assert stream.getvalue()


@pytest.mark.parametrize("name", [name for name, one in FORMATS.items() if not one.binary])
def test_a_format_for_terminals_is_utf8(name: OutputFormatName) -> None:
    stream = io.BytesIO()
    rows = replace(make_rows(1), texts=["é\x1b[31m\x00"])
    writer = FORMATS[name].open_writer(stream, LAYOUT, "{}")
    writer.write(rows)
    writer.close()
    text = stream.getvalue().decode()
    assert text.replace("\n", "").isprintable()
