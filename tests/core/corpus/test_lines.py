from __future__ import annotations

import codecs
import gzip
from collections.abc import Callable
from pathlib import Path

import pytest
from bertpool.corpus import lines as lines_module
from bertpool.corpus.lines import read_lines
from bertpool.corpus.options import CorpusOptions
from bertpool.corpus.records import Flaw, Record
from bertpool.corpus.streams import open_input
from bertpool.errors import CorpusError

Read = Callable[..., list[str]]
CHUNK = 8192  # bytes that io.TextIOWrapper decodes at once


def text_of(item: Record | Flaw) -> str:
    """Return a record's text, or stop at a flaw as a corpus does."""
    if isinstance(item, Flaw):
        raise CorpusError(f"notes.txt:{item.line}: {item.reason}; {item.hint}")
    return item.text


@pytest.fixture
def read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Read:
    monkeypatch.chdir(tmp_path)

    def read_back(content: bytes, encoding: str = "utf-8") -> list[str]:
        Path("notes.txt").write_bytes(content)
        options = CorpusOptions(encoding=encoding)
        with open_input("notes.txt") as opened:
            return [text_of(item) for item in read_lines(opened, options)]

    return read_back


def refusal(read: Read, content: bytes, encoding: str = "utf-8") -> str:
    with pytest.raises(CorpusError) as caught:
        read(content, encoding)
    assert caught.value.exit_code == 1
    return str(caught.value)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"\n\n", ["", ""]),
        (b"a", ["a"]),
        (b"a\n", ["a"]),
        (b"a\nb", ["a", "b"]),
        (b"a\n\nb\n", ["a", "", "b"]),
        (b" a \n", [" a "]),
    ],
)
def test_a_line_ends_at_lf_and_a_final_lf_adds_no_row(
    read: Read, content: bytes, expected: list[str]
) -> None:
    assert read(content) == expected


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"a\r\nb\r\n", ["a", "b"]),
        (b"a\r\r\nb", ["a\r", "b"]),
        (b"a\rb\n", ["a\rb"]),
        (b"a\nb\r", ["a", "b\r"]),
        (b"\r\n", [""]),
        (b"a\n\rb\n", ["a", "\rb"]),
    ],
)
def test_one_cr_before_an_lf_goes_and_every_other_cr_stays(
    read: Read, content: bytes, expected: list[str], encoding: str
) -> None:
    assert read(content, encoding) == expected


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-16-le"])
@pytest.mark.parametrize(
    "character",
    ["\v", "\f", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029", "\x00", "\x1a"],
    ids=lambda character: f"U+{ord(character):04X}",
)
def test_nothing_but_lf_splits_and_nothing_is_dropped(
    read: Read, character: str, encoding: str
) -> None:
    texts = [f"hello{character}word", "the cat"]
    assert read("\n".join(texts).encode(encoding), encoding) == texts


@pytest.mark.parametrize("text", ["cafe\u0301", "caf\u00e9", "\ufb01sh", "\u1e9b\u0323"])
def test_text_is_not_normalised(read: Read, text: str) -> None:
    assert read(text.encode()) == [text]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "UTF8", "utf-16-le", "utf-16-be"])
def test_a_leading_bom_goes(read: Read, encoding: str) -> None:
    content = "\ufeffhello\nword\n".encode(encoding.replace("-sig", ""))
    assert read(content, encoding) == ["hello", "word"]


def test_only_the_first_bom_of_a_file_goes(read: Read) -> None:
    content = codecs.BOM_UTF8 * 2 + b"hello\n" + codecs.BOM_UTF8 + b"word\n"
    assert read(content) == ["\ufeffhello", "\ufeffword"]


def test_a_bom_before_an_lf_leaves_an_empty_first_line(read: Read) -> None:
    assert read(codecs.BOM_UTF8 + b"\nword\n") == ["", "word"]


@pytest.mark.parametrize(
    ("encoding", "bom"),
    [
        ("utf-8", codecs.BOM_UTF8),
        ("utf-16", codecs.BOM_UTF16_LE),
        ("utf-16-le", codecs.BOM_UTF16_LE),
    ],
)
def test_a_file_of_a_bom_alone_is_empty(read: Read, encoding: str, bom: bytes) -> None:
    assert read(bom, encoding) == []


@pytest.mark.parametrize(
    ("content", "where", "byte"),
    [
        (b"\xff\xfa\n", "notes.txt:1:", "byte 1 of the line (0xff)"),
        (b"good\n" * 1000 + b"it\x92s", "notes.txt:1001:", "byte 3 of the line (0x92)"),
        (b"a\nb\xc3\nc", "notes.txt:2:", "byte 2 of the line (0xc3)"),
        (b"a\nab\xed\xa0\x80\n", "notes.txt:2:", "byte 3 of the line (0xed)"),
        (b"a\n" + b"x" * 2_000_000 + b"\xc0\x80", "notes.txt:2:", "byte 2000001 of the line"),
    ],
    ids=["first", "line-1001", "cut-sequence", "surrogate", "far-in-a-long-line"],
)
def test_bytes_that_are_not_utf8_are_refused_with_line_and_byte(
    read: Read, content: bytes, where: str, byte: str
) -> None:
    message = refusal(read, content)
    assert message.startswith(where)
    assert "not UTF-8" in message
    assert byte in message
    assert "--encoding" in message


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("latin-1", "déjà vu"),
        ("cp1252", "it\u2019s 5 €"),
        ("utf-16", "déjà 中文 😀"),
        ("utf-16-le", "déjà 中文 😀"),
        ("utf-16-be", "déjà 中文 😀"),
        ("utf-32", "déjà 中文 😀"),
        ("shift_jis", "日本語"),
        ("gb18030", "中文 😀"),
        ("iso2022_jp", "日本語"),
    ],
)
def test_a_named_encoding_is_decoded(read: Read, encoding: str, text: str) -> None:
    texts = [text, "", "cat", text]
    assert read("\r\n".join([*texts, ""]).encode(encoding), encoding) == texts


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_an_lf_byte_inside_a_utf16_character_does_not_split(read: Read, encoding: str) -> None:
    texts = ["\u0a0a\u010a\u0a01", "b"]
    assert read("\n".join(texts).encode(encoding), encoding) == texts


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-16-be", "shift_jis"])
def test_a_line_longer_than_every_buffer_is_one_line(read: Read, encoding: str) -> None:
    texts = ["a" + "日本" * 600_000, "word"]
    assert read("\n".join(texts).encode(encoding), encoding) == texts


UTF16_BE = codecs.BOM_UTF16_BE + "hello\n".encode("utf-16-be") * 3000
UTF16_LE = codecs.BOM_UTF16_LE + "hello\n".encode("utf-16-le") * 3000


@pytest.mark.parametrize(
    ("encoding", "content", "line"),
    [
        ("shift_jis", b"a\nb\nc \x81\n", 3),
        ("shift_jis", b"a\n" * (2 * CHUNK) + b"\x81 \n", 2 * CHUNK + 1),
        ("ascii", b"a\n" * (CHUNK // 2) + b"\xe9\n", CHUNK // 2 + 1),
        ("ascii", b"x" * (3 * CHUNK) + b"\nb\n\xe9\n", 3),
        ("utf-16-le", "hello\n".encode("utf-16-le") * 3000 + b"\x00\xd8a\x00\n\x00", 3001),
        ("utf-16", UTF16_LE + b"\x00\xd8a\x00\n\x00", 3001),
        ("utf-16", UTF16_BE + b"\xd8\x00\x00a\x00\n", 3001),
        ("utf-16-le", "a\nb\n".encode("utf-16-le") + b"c", 3),
    ],
    ids=[
        "shift_jis", "shift_jis-third-chunk", "ascii-chunk-edge", "ascii-long-line", "utf-16-le",
        "utf-16-with-le-bom", "utf-16-with-be-bom", "utf-16-le-odd-byte",
    ],
)  # fmt: skip
def test_bytes_outside_a_named_encoding_are_refused_with_the_line(
    read: Read, encoding: str, content: bytes, line: int
) -> None:
    assert refusal(read, content, encoding).startswith(f"notes.txt:{line}: not {encoding}")


@pytest.mark.parametrize(
    ("encoding", "name"),
    [
        ("utf-16", "UTF-16"),
        ("utf-16-le", "UTF-16-LE"),
        ("utf-16-be", "UTF-16-BE"),
        ("utf-32", "UTF-32"),
        ("utf-32-le", "UTF-32"),
        ("utf-32-be", "UTF-32"),
    ],
)
def test_wide_encodings_are_refused_by_name_under_utf8(
    read: Read, encoding: str, name: str
) -> None:
    message = refusal(read, "hello word\nthe cat\n".encode(encoding))
    assert message.startswith("notes.txt: ")
    assert name in message
    assert f"--encoding {encoding[:6]}" in message


def test_a_big_endian_utf16_file_with_bom_is_refused_by_name(read: Read) -> None:
    assert "UTF-16" in refusal(read, codecs.BOM_UTF16_BE + "hello\n".encode("utf-16-be"))


@pytest.mark.parametrize(
    "content",
    [b"a\x00b\nhello\n", b"ab\x00cd\nef\n", b"\x00\nword\n", b"a\x00", b"word\n\x00\x00\x00\n"],
)
def test_a_nul_here_and_there_is_not_taken_for_utf16(read: Read, content: bytes) -> None:
    assert "\n".join(read(content)) == content.decode().removesuffix("\n")


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_a_line_over_the_limit_is_refused_and_not_cut_in_two(
    read: Read, monkeypatch: pytest.MonkeyPatch, encoding: str
) -> None:
    monkeypatch.setattr(lines_module, "MAX_LINE_BYTES", 1 << 20)
    message = refusal(read, b"ok\n" + b"x" * ((1 << 20) + 5) + b"\n", encoding)
    assert message.startswith("notes.txt:2: a line of over 1 MiB")


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_a_line_as_long_as_the_limit_is_read(
    read: Read, monkeypatch: pytest.MonkeyPatch, encoding: str
) -> None:
    monkeypatch.setattr(lines_module, "MAX_LINE_BYTES", 1000)
    assert read(b"x" * 999 + b"\nb\n", encoding) == ["x" * 999, "b"]


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1", "utf-16"])
def test_compressed_lines_are_read_in_every_encoding(read: Read, encoding: str) -> None:
    assert read(gzip.compress("é\nb\n".encode(encoding)), encoding) == ["é", "b"]


def test_a_bad_line_is_a_flaw_with_its_bytes_and_the_others_are_read(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(b"a\nb\xff\r\nc\n")
    with open_input(str(path)) as opened:
        items = list(read_lines(opened, CorpusOptions()))
    assert [type(item) for item in items] == [Record, Flaw, Record]
    assert isinstance(items[1], Flaw)
    assert (items[1].line, items[1].data) == (2, b"b\xff")
    assert "not UTF-8 at byte 2" in items[1].reason
