from __future__ import annotations

from pathlib import Path

import pytest
from bertpool.corpus import lines as lines_module
from bertpool.corpus.document import read_document
from bertpool.corpus.options import CorpusOptions
from bertpool.corpus.records import Flaw, Record
from bertpool.corpus.streams import open_input
from bertpool.errors import CorpusError


def item_of(path: Path, content: bytes, encoding: str = "utf-8") -> Record | Flaw:
    path = path / "notes.txt"
    path.write_bytes(content)
    with open_input(str(path)) as opened:
        (item,) = read_document(opened, CorpusOptions(encoding=encoding))
    return item


@pytest.mark.parametrize("text", ["", "a", "a\r\nb\n\n", "ab\0cd", "é\u2028"])
def test_a_whole_file_is_one_text(tmp_path: Path, text: str) -> None:
    assert item_of(tmp_path, text.encode()) == Record(text, 1)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-16-le"])
def test_a_leading_bom_goes(tmp_path: Path, encoding: str) -> None:
    assert item_of(tmp_path, "\ufeffé\n".encode(encoding), encoding) == Record("é\n", 1)


@pytest.mark.parametrize(
    ("content", "encoding", "reason"),
    [
        (b"a\nb\xff", "utf-8", "not UTF-8 at byte 4 (0xff)"),
        (b"a\xff", "ascii", "not ascii: ordinal not in range(128)"),
        ("hello\n".encode("utf-16"), "utf-8", "looks like UTF-16, not UTF-8"),
    ],
)
def test_a_file_that_is_not_in_the_encoding_is_a_flaw_with_its_bytes(
    tmp_path: Path, content: bytes, encoding: str, reason: str
) -> None:
    item = item_of(tmp_path, content, encoding)
    assert isinstance(item, Flaw)
    assert (item.line, item.reason, item.data) == (1, reason, content)


def test_a_file_over_the_limit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines_module, "MAX_LINE_BYTES", 1 << 20)
    with pytest.raises(CorpusError, match="over 1 MiB, too large for one text"):
        item_of(tmp_path, b"x" * (1 << 20))
