"""The same texts in every format, compressed in every way, through every channel."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import lzma
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bertpool.corpus import Corpus, CorpusOptions, InputFormat

StdinOf = Callable[[int], AbstractContextManager[None]]
WrittenBeside = Callable[..., AbstractContextManager[None]]

TEXTS = [f'{i} "q", é\t中 😀\u2028{"x" * (i * 7 % 300)}' if i % 9 else "" for i in range(200)]


def as_lines(texts: Sequence[str]) -> bytes:
    return "".join(f"{text}\n" for text in texts).encode()


def as_jsonl(texts: Sequence[str]) -> bytes:
    rows = [{"text": text, "n": number} for number, text in enumerate(texts)]
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def as_table(texts: Sequence[str], delimiter: str) -> bytes:
    buffer = io.StringIO()
    writer = csv.writer(buffer, delimiter=delimiter)
    writer.writerows([("text", "n"), *((text, number) for number, text in enumerate(texts))])
    return buffer.getvalue().encode()


def as_parquet(texts: Sequence[str]) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(pa.table({"text": texts, "n": range(len(texts))}), buffer, row_group_size=30)
    return buffer.getvalue()


WRITE: dict[InputFormat, Callable[[Sequence[str]], bytes]] = {
    "lines": as_lines,
    "jsonl": as_jsonl,
    "csv": lambda texts: as_table(texts, ","),
    "tsv": lambda texts: as_table(texts, "\t"),
    "parquet": as_parquet,
}
SUFFIXES = {"lines": "txt"}


def zstd(content: bytes) -> bytes:
    compressed: bytes = pa.compress(content, codec="zstd", asbytes=True)
    return compressed


COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "plain": bytes,
    "gzip": gzip.compress,
    "zstd": zstd,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
}
every_format = pytest.mark.parametrize("name", WRITE)
every_compression = pytest.mark.parametrize("compression", COMPRESS)


def texts_of(source: str, input_format: InputFormat = "auto") -> list[str]:
    options = CorpusOptions(input_format=input_format)
    return [text for window in Corpus([source], options).windows() for text in window.texts]


@every_format
@every_compression
def test_a_file_gives_the_texts(tmp_path: Path, name: InputFormat, compression: str) -> None:
    path = tmp_path / f"data.{SUFFIXES.get(name, name)}"
    path.write_bytes(COMPRESS[compression](WRITE[name](TEXTS)))
    assert texts_of(str(path)) == TEXTS


@every_format
@every_compression
def test_stdin_gives_the_texts(
    name: InputFormat, compression: str, stdin_of: StdinOf, written_beside: WrittenBeside
) -> None:
    content = COMPRESS[compression](WRITE[name](TEXTS))
    reader, writer = os.pipe()
    with stdin_of(reader), written_beside(writer, content):
        assert texts_of("-", name) == TEXTS


@every_format
@every_compression
def test_a_fifo_gives_the_texts(tmp_path: Path, name: InputFormat, compression: str) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    content = COMPRESS[compression](WRITE[name](TEXTS))
    writer = threading.Thread(target=path.write_bytes, args=(content,))
    writer.start()
    assert texts_of(str(path), name) == TEXTS
    writer.join()


@every_format
@every_compression
def test_a_file_as_stdin_gives_the_texts(
    tmp_path: Path, name: InputFormat, compression: str, stdin_of: StdinOf
) -> None:
    path = tmp_path / "data"
    path.write_bytes(COMPRESS[compression](WRITE[name](TEXTS)))
    with stdin_of(os.open(path, os.O_RDONLY)):
        assert texts_of("-", name) == TEXTS


@every_format
def test_a_range_of_rows_is_a_slice_of_the_whole(tmp_path: Path, name: InputFormat) -> None:
    path = tmp_path / f"data.{SUFFIXES.get(name, name)}"
    path.write_bytes(WRITE[name](TEXTS))
    keep = () if name == "lines" else ("n",)
    options = CorpusOptions(keep=keep)
    (whole,) = Corpus([str(path)], options).windows()
    for rows in (range(0, 1), range(31, 97), range(150, 999)):
        (part,) = Corpus([str(path)], options, rows=rows).windows()
        assert part.texts == whole.texts[rows.start : rows.stop]
        assert part.lines == whole.lines[rows.start : rows.stop]
        assert part.rows == list(range(200))[rows.start : rows.stop]
        if whole.extra is not None:
            assert part.extra == whole.extra.slice(rows.start, len(part.rows))


@every_format
def test_reading_needs_no_arrow_but_for_parquet(tmp_path: Path, name: InputFormat) -> None:
    path = tmp_path / f"data.{SUFFIXES.get(name, name)}"
    path.write_bytes(WRITE[name](TEXTS))
    script = (
        "import sys; from bertpool.corpus import Corpus, CorpusOptions\n"
        "from bertpool.corpus.inputs import check_inputs\n"
        "check_inputs(sys.argv[1:], CorpusOptions())\n"
        "print(sum(len(w.texts) for w in Corpus(sys.argv[1:], CorpusOptions()).windows()))\n"
        "print('pyarrow' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["200", str(name == "parquet")]


@pytest.mark.parametrize("name", ["lines", "jsonl", "csv"])
def test_the_locale_changes_nothing(tmp_path: Path, name: InputFormat) -> None:
    content = WRITE[name](TEXTS)
    script = (
        "import sys; from bertpool.corpus import Corpus, CorpusOptions\n"
        f"one = Corpus(['-'], CorpusOptions(input_format={name!r}))\n"
        "print(ascii([text for window in one.windows() for text in window.texts]))"
    )
    locale = {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C"}
    done = subprocess.run(
        [sys.executable, "-c", script],
        input=content,
        capture_output=True,
        check=True,
        env={**os.environ, **locale},
    )
    assert done.stdout.decode().strip() == ascii(TEXTS)
