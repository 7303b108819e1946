from __future__ import annotations

import bz2
import contextlib
import gzip
import hashlib
import io
import logging
import lzma
import os
import pty
import re
import shutil
import tempfile
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bertpool.corpus.inputs import check_inputs, open_input, printable_name
from bertpool.errors import CorpusError

NOBODY = 65534


@contextlib.contextmanager
def without_privilege() -> Iterator[None]:
    """Run a block as a user whom file permissions bind; root may read and write everything."""
    if os.geteuid() != 0:
        yield
        return
    os.setresuid(NOBODY, NOBODY, 0)
    try:
        yield
    finally:
        os.setresuid(0, 0, 0)


@contextlib.contextmanager
def stdin_of(descriptor: int) -> Iterator[None]:
    """Put a descriptor in stdin's place, and close it at the end."""
    before = os.dup(0)
    os.dup2(descriptor, 0)
    try:
        yield
    finally:
        os.dup2(before, 0)
        os.close(before)
        os.close(descriptor)


@contextlib.contextmanager
def written_beside(descriptor: int, *pieces: bytes, delay: float = 0.0) -> Iterator[None]:
    """Write pieces to a descriptor, and close it, while a block runs."""
    pause = threading.Event()

    def write() -> None:
        for piece in pieces:
            pause.wait(delay)
            os.write(descriptor, piece)
        os.close(descriptor)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        thread.join()


@pytest.fixture
def public_path() -> Iterator[Path]:
    """Give a folder that every user can reach (pytest's own are closed to others)."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def usage_error(*names: str | Path) -> str:
    with pytest.raises(CorpusError) as caught:
        check_inputs([str(name) for name in names])
    assert caught.value.exit_code == 2
    message = str(caught.value)
    assert "\n" not in message
    return message


def content_of(name: str | Path) -> bytes:
    with open_input(str(name)) as stream:
        return io.BufferedReader(stream).read()


def refusal(name: str | Path) -> str:
    with pytest.raises(CorpusError) as caught:
        content_of(name)
    assert caught.value.exit_code == 1
    return str(caught.value)


def test_no_input_at_all_is_a_usage_error_that_names_stdin() -> None:
    assert "- for stdin" in usage_error()


def test_stdin_named_twice_is_refused() -> None:
    assert "twice" in usage_error("-", "-")


def test_readable_files_and_stdin_pass(tmp_path: Path) -> None:
    names = [tmp_path / name for name in ("10.txt", "a b é.txt", ".hidden", "noext", "d[1].txt")]
    for name in names:
        name.write_text("hello\n")
    check_inputs([*map(str, names), "-"])


def test_a_name_given_twice_passes(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("hello\n")
    check_inputs([str(path), str(path)])


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "no.txt"
    assert usage_error(path) == f"{path}: no such file"


def test_every_input_that_fails_is_named_at_once(tmp_path: Path) -> None:
    (tmp_path / "good.txt").write_text("hello\n")
    message = usage_error(tmp_path / "no1", tmp_path / "good.txt", tmp_path / "no2", tmp_path)
    assert all(f"{tmp_path}/{name}: " in message for name in ("no1", "no2"))
    assert f"{tmp_path}: is a directory" in message
    assert "good.txt" not in message


def test_a_directory_named_like_a_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.txt").mkdir()
    assert "x.txt: is a directory" in usage_error(tmp_path / "x.txt")


def test_a_dangling_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "link.txt").symlink_to("nowhere.txt")
    assert "link.txt: no such file" in usage_error(tmp_path / "link.txt")


def test_a_link_loop_is_refused(tmp_path: Path) -> None:
    (tmp_path / "loop.txt").symlink_to("loop.txt")
    assert "loop.txt: " in usage_error(tmp_path / "loop.txt")


def test_a_name_too_long_for_the_file_system_is_refused() -> None:
    assert "too long" in usage_error("x" * 5000).lower()


def test_a_path_through_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("hello\n")
    assert "a.txt/b.txt: " in usage_error(tmp_path / "a.txt" / "b.txt")


def test_an_empty_name_is_refused() -> None:
    assert "no such file" in usage_error("")


def test_a_file_without_read_permission_is_refused(public_path: Path) -> None:
    path = public_path / "secret.txt"
    path.write_text("hello\n")
    path.chmod(0o200)
    with without_privilege():
        assert usage_error(path) == f"{path}: no permission to read it"


@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".tsv", ".parquet", ".npy", ".CSV"])
def test_formats_that_are_not_lines_are_refused_by_suffix(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"data{suffix}"
    path.write_text("hello\n")
    assert f"not {suffix.lower()}" in usage_error(path)


def test_a_glob_that_the_shell_left_alone_is_no_such_file(tmp_path: Path) -> None:
    assert "*.txt: no such file" in usage_error(tmp_path / "*.txt")


def test_a_name_that_is_not_utf8_is_shown_with_its_bytes_escaped() -> None:
    assert printable_name(os.fsdecode(b"caf\xe9.txt")) == r"caf\xe9.txt"


def test_a_name_in_utf8_is_shown_as_it_is() -> None:
    assert printable_name("café 中.txt") == "café 中.txt"


def test_a_missing_file_whose_name_is_not_utf8_is_named(tmp_path: Path) -> None:
    name = os.path.join(os.fsencode(tmp_path), b"caf\xe9.txt")
    assert r"caf\xe9.txt: no such file" in usage_error(os.fsdecode(name))


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


def _zstd(content: bytes) -> bytes:
    compressed: bytes = pa.compress(content, codec="zstd", asbytes=True)
    return compressed


MADE = {
    "gzip": gzip.compress,
    "zstd": _zstd,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "zip": _zip,
    "Parquet": _parquet,
    "npy": _npy,
}


@pytest.mark.parametrize("kind", MADE)
def test_bytes_of_another_format_are_refused_by_name_whatever_the_suffix(
    tmp_path: Path, kind: str
) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(MADE[kind](b"hello word\n" * 20))
    assert re.match(rf"{path}: looks .*{kind}", refusal(path))


@pytest.mark.parametrize("kind", ["gzip", "zstd", "bzip2", "xz"])
def test_the_refusal_of_compressed_bytes_says_how_to_pipe_them(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(MADE[kind](b"hello\n"))
    assert re.search(rf"{kind} -dc {path} \| bertpool embed - -o", refusal(path))


def test_plain_text_named_gz_is_read(tmp_path: Path) -> None:
    path = tmp_path / "c.txt.gz"
    path.write_bytes(b"hello\n")
    assert content_of(path) == b"hello\n"


@pytest.mark.parametrize("content", [b"BZhang wrote this\n", b"PAR1 is a gene\n", b"PK\nBZ\n"])
def test_text_whose_first_letters_spell_a_signature_is_read(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    assert content_of(path) == content


def test_a_compressed_stdin_is_refused_when_its_signature_comes_byte_by_byte() -> None:
    reader, writer = os.pipe()
    pieces = [bytes([byte]) for byte in gzip.compress(b"hello\n")[:4]]
    with stdin_of(reader), written_beside(writer, *pieces, delay=0.01):
        assert "gzip" in refusal("-")


@pytest.mark.parametrize("size", [0, 1, 1023, 1024, 1025, 3_000_000])
def test_all_bytes_are_read_counted_and_hashed(tmp_path: Path, size: int) -> None:
    content = b"hello word\n" * (size // 11 + 1)
    path = tmp_path / "notes.txt"
    path.write_bytes(content[:size])
    with open_input(str(path)) as stream:
        assert io.BufferedReader(stream).read() == content[:size]
        identity = stream.identity("notes.txt")
    assert (identity.name, identity.bytes) == ("notes.txt", size)
    assert identity.sha256 == hashlib.sha256(content[:size]).hexdigest()


def test_a_fifo_is_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    check_inputs([str(path)])
    writer = threading.Thread(target=path.write_bytes, args=(b"hello\n" * 50_000,))
    writer.start()
    assert content_of(path) == b"hello\n" * 50_000
    writer.join()


def test_stdin_is_read_to_its_end_and_left_open() -> None:
    reader, writer = os.pipe()
    with stdin_of(reader), written_beside(writer, b"hello\n", b"word\n"):
        assert content_of("-") == b"hello\nword\n"
        os.fstat(0)


def test_a_stdin_that_does_not_block_is_still_read_to_its_end() -> None:
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


def test_a_terminal_as_stdin_gets_a_hint(caplog: pytest.LogCaptureFixture) -> None:
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
