from __future__ import annotations

import bz2
import gzip
import io
import lzma
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from bertpool.corpus.streams import open_input
from bertpool.errors import CorpusError

PLAIN = b"".join(b"line %d of many\n" % number for number in range(20_000))


def zstd(content: bytes) -> bytes:
    compressed: bytes = pa.compress(content, codec="zstd", asbytes=True)
    return compressed


COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "zstd": zstd,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
}
SKIPPABLE = b"\x50\x2a\x4d\x18\x04\x00\x00\x00abcd"  # a zstd frame that holds no content


def read_back(path: Path, content: bytes) -> bytes:
    path.write_bytes(content)
    with open_input(str(path)) as opened:
        return io.BufferedReader(opened.content).read()


def refusal(path: Path, content: bytes) -> str:
    with pytest.raises(CorpusError) as caught:
        read_back(path, content)
    assert caught.value.exit_code == 1
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("name", COMPRESS)
@pytest.mark.parametrize("content", [b"", b"a", PLAIN], ids=["empty", "byte", "long"])
def test_compressed_bytes_are_known_by_their_content(
    tmp_path: Path, name: str, content: bytes
) -> None:
    assert read_back(tmp_path / "c.txt", COMPRESS[name](content)) == content


@pytest.mark.parametrize("name", COMPRESS)
def test_all_members_are_read(tmp_path: Path, name: str) -> None:
    compress = COMPRESS[name]
    content = compress(PLAIN) + compress(b"") + compress(b"word\n")
    assert read_back(tmp_path / "c.txt", content) == PLAIN + b"word\n"


@pytest.mark.parametrize("name", COMPRESS)
def test_compressed_bytes_cut_anywhere_behind_their_signature_are_an_error(
    tmp_path: Path, name: str
) -> None:
    content = COMPRESS[name](b"hello word\n" * 3)
    for size in range(10, len(content)):
        message = refusal(tmp_path / "c.txt", content[:size])
        assert message.startswith(f"{tmp_path}/c.txt: broken {name} data")


@pytest.mark.parametrize("name", COMPRESS)
def test_a_long_member_cut_short_is_an_error(tmp_path: Path, name: str) -> None:
    assert f"broken {name}" in refusal(tmp_path / "c.txt", COMPRESS[name](PLAIN)[:-5])


@pytest.mark.parametrize("name", COMPRESS)
def test_a_second_member_cut_short_is_an_error(tmp_path: Path, name: str) -> None:
    content = COMPRESS[name](b"hello\n") + COMPRESS[name](PLAIN)[:-1]
    assert f"broken {name}" in refusal(tmp_path / "c.txt", content)


@pytest.mark.parametrize("name", COMPRESS)
@pytest.mark.parametrize("garbage", [b"x", b"hello word, this is no archive\n"])
def test_bytes_behind_the_last_member_are_an_error(
    tmp_path: Path, name: str, garbage: bytes
) -> None:
    assert f"broken {name}" in refusal(tmp_path / "c.txt", COMPRESS[name](b"hello\n") + garbage)


# zstd has a checksum where its writer asks for one; Arrow's doesn't.
@pytest.mark.parametrize("name", ["gzip", "bzip2", "xz"])
def test_a_damaged_byte_is_an_error(tmp_path: Path, name: str) -> None:
    content = bytearray(COMPRESS[name](PLAIN))
    content[len(content) // 2] ^= 0xFF
    assert f"broken {name}" in refusal(tmp_path / "c.txt", bytes(content))


@pytest.mark.parametrize("name", ["gzip", "xz"])
def test_padding_with_nuls_is_no_garbage(tmp_path: Path, name: str) -> None:
    content = COMPRESS[name](b"hello\n") + bytes(8)
    assert read_back(tmp_path / "c.txt", content) == b"hello\n"


def test_a_zstd_file_that_starts_with_a_skippable_frame_is_read(tmp_path: Path) -> None:
    assert read_back(tmp_path / "c.txt", SKIPPABLE + zstd(b"hello\n")) == b"hello\n"


@pytest.mark.parametrize(
    "content", [b"BZhang wrote this\n", b"P*M is text\n", b"(\xb5", b"\xfd7zX"]
)
def test_text_that_begins_like_a_signature_is_not_decompressed(
    tmp_path: Path, content: bytes
) -> None:
    assert read_back(tmp_path / "c.txt", content) == content


@pytest.mark.parametrize("suffix", [".gz", ".zst", ".bz2", ".xz"])
def test_plain_text_named_like_an_archive_is_read(tmp_path: Path, suffix: str) -> None:
    assert read_back(tmp_path / f"c.txt{suffix}", b"hello\n") == b"hello\n"


@pytest.mark.parametrize("name", COMPRESS)
def test_the_raw_stream_counts_every_compressed_byte(tmp_path: Path, name: str) -> None:
    content = COMPRESS[name](PLAIN) + COMPRESS[name](b"word\n")
    path = tmp_path / "c.txt"
    path.write_bytes(content)
    with open_input(str(path)) as opened:
        io.BufferedReader(opened.content).read()
        assert opened.raw.size == len(content)
