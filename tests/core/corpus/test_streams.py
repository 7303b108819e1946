from __future__ import annotations

import gzip
import hashlib
import io
import logging
import os
import pty
import re
import threading
import zipfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bertpool.corpus.streams import open_input, printable_name
from bertpool.errors import CorpusError

StdinOf = Callable[[int], AbstractContextManager[None]]
WrittenBeside = Callable[..., AbstractContextManager[None]]


def content_of(name: str | Path) -> bytes:
    with open_input(str(name)) as opened:
        opened.refuse_binary()
        return io.BufferedReader(opened.content).read()


def refusal(name: str | Path) -> str:
    with pytest.raises(CorpusError) as caught:
        content_of(name)
    assert caught.value.exit_code == 1
    return str(caught.value)


def test_a_name_that_is_not_utf8_is_shown_with_its_bytes_escaped() -> None:
    assert printable_name(os.fsdecode(b"caf\xe9.txt")) == r"caf\xe9.txt"


def test_a_name_in_utf8_is_shown_as_it_is() -> None:
    assert printable_name("café 中.txt") == "café 中.txt"


def _zip(content: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("a.txt", content)
    return buffer.getvalue()


def _parquet(content: bytes) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(pa.table({"text": [content.decode()]}), buffer)
    return buffer.getvalue()


def _npy(content: bytes) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.frombuffer(content, dtype=np.uint8))
    return buffer.getvalue()


MADE = {"zip": _zip, "Parquet": _parquet, "npy": _npy}
HINTS = {"zip": "unpack", "Parquet": "--input-format parquet", "npy": "reads text"}


@pytest.mark.parametrize("kind", MADE)
def test_bytes_of_another_format_are_refused_by_name_whatever_the_suffix(
    tmp_path: Path, kind: str
) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(MADE[kind](b"hello word\n" * 20))
    message = refusal(path)
    assert re.match(rf"{path}: looks .*{kind}", message)
    assert HINTS[kind] in message


def test_bytes_compressed_twice_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(gzip.compress(gzip.compress(b"hello\n")))
    assert "gzip-compressed twice" in refusal(path)


def test_plain_text_named_gz_is_read(tmp_path: Path) -> None:
    path = tmp_path / "c.txt.gz"
    path.write_bytes(b"hello\n")
    assert content_of(path) == b"hello\n"


@pytest.mark.parametrize("content", [b"BZhang wrote this\n", b"PAR1 is a gene\n", b"PK\nBZ\n"])
def test_text_whose_first_letters_spell_a_signature_is_read(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    assert content_of(path) == content


def test_a_compressed_stdin_is_known_when_its_signature_comes_byte_by_byte(
    stdin_of: StdinOf, written_beside: WrittenBeside
) -> None:
    reader, writer = os.pipe()
    pieces = [bytes([byte]) for byte in gzip.compress(b"hello\n")]
    with stdin_of(reader), written_beside(writer, *pieces, delay=0.01):
        assert content_of("-") == b"hello\n"


@pytest.mark.parametrize("size", [0, 1, 1023, 1024, 1025, 3_000_000])
def test_all_bytes_are_read_counted_and_hashed(tmp_path: Path, size: int) -> None:
    content = b"hello word\n" * (size // 11 + 1)
    path = tmp_path / "notes.txt"
    path.write_bytes(content[:size])
    with open_input(str(path)) as opened:
        assert io.BufferedReader(opened.content).read() == content[:size]
        identity = opened.raw.identity("notes.txt")
    assert (identity.name, identity.bytes) == ("notes.txt", size)
    assert identity.sha256 == hashlib.sha256(content[:size]).hexdigest()


def test_a_fifo_is_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(b"hello\n" * 50_000,))
    writer.start()
    assert content_of(path) == b"hello\n" * 50_000
    writer.join()


def test_stdin_is_read_to_its_end_and_left_open(
    stdin_of: StdinOf, written_beside: WrittenBeside
) -> None:
    reader, writer = os.pipe()
    with stdin_of(reader), written_beside(writer, b"hello\n", b"word\n"):
        assert content_of("-") == b"hello\nword\n"
        os.fstat(0)


def test_a_stdin_that_does_not_block_is_still_read_to_its_end(
    stdin_of: StdinOf, written_beside: WrittenBeside
) -> None:
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    pieces = (b"hello\n" * 300, b"word\n")
    with stdin_of(reader), written_beside(writer, *pieces, delay=0.1):
        assert content_of("-") == b"".join(pieces)


def test_a_closed_stdin_is_refused() -> None:
    before = os.dup(0)
    os.close(0)
    try:
        message = refusal("-")
    finally:
        os.dup2(before, 0)
        os.close(before)
    assert message.startswith("-: ")


def test_a_terminal_as_stdin_gets_a_hint(
    caplog: pytest.LogCaptureFixture, stdin_of: StdinOf
) -> None:
    keyboard, terminal = pty.openpty()
    with stdin_of(terminal), caplog.at_level(logging.INFO, logger="bertpool"):
        os.write(keyboard, b"hello\n\x04\x04")
        assert content_of("-") == b"hello\n"
    os.close(keyboard)
    (hint,) = caplog.messages
    assert "terminal" in hint
    assert "Ctrl-D" in hint


def test_a_file_that_vanished_after_the_check_is_an_error_of_one_line(tmp_path: Path) -> None:
    assert refusal(tmp_path / "gone.txt") == f"{tmp_path}/gone.txt: no such file"
