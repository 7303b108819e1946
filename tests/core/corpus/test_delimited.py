from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from bertpool.corpus import lines as lines_module
from bertpool.corpus.delimited import read_csv, read_tsv
from bertpool.corpus.options import CorpusOptions
from bertpool.corpus.records import ColumnTypes, Flaw, Record
from bertpool.corpus.streams import open_input
from bertpool.errors import CorpusError


def items_of(
    path: Path, content: str | bytes, *, read: Any = read_csv, **options: Any
) -> list[Record | Flaw]:
    path = path / "data.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with open_input(str(path)) as opened:
        items = list(read(opened, CorpusOptions(**options)))
    return [item for item in items if not isinstance(item, ColumnTypes)]


def texts_of(path: Path, content: str | bytes, **options: Any) -> list[str]:
    items = items_of(path, content, **options)
    assert all(isinstance(item, Record) for item in items), items
    return [item.text for item in items if isinstance(item, Record)]


def usage_error(path: Path, content: str, **options: Any) -> str:
    with pytest.raises(CorpusError) as caught:
        items_of(path, content, **options)
    assert caught.value.exit_code == 2
    return str(caught.value)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_quotes_keep_commas_quotes_and_newlines(tmp_path: Path, end: str) -> None:
    content = f'id,text{end}1,"x, ""y""{end}z"{end}2,w{end}'
    assert items_of(tmp_path, content) == [Record(f'x, "y"{end}z', 2), Record("w", 4)]


def test_a_last_row_needs_no_line_end(tmp_path: Path) -> None:
    assert texts_of(tmp_path, "text\na\nb") == ["a", "b"]


def test_cells_stay_as_typed(tmp_path: Path) -> None:
    cells = ["NA", "007", " a ", "", "1e5", "null", "TRUE", 'in"ner']
    content = "n,text\n" + "".join(f"1,{cell}\n" for cell in cells)
    assert texts_of(tmp_path, content) == cells


def test_a_bom_before_the_header_goes(tmp_path: Path) -> None:
    assert texts_of(tmp_path, b"\xef\xbb\xbftext\nhello\n") == ["hello"]
    assert texts_of(tmp_path, b'\xef\xbb\xbf"text"\nhello\n') == ["hello"]


def test_columns_are_found_by_name(tmp_path: Path) -> None:
    content = "a,b,c,d\n1,2,3,4\n"
    options = {"text_column": "d", "pair_column": "c", "id_column": "a", "keep": ("d", "b")}
    assert items_of(tmp_path, content, **options) == [Record("4", 2, "3", "1", ("4", "2"))]


def test_tabs_separate_the_cells_of_tsv(tmp_path: Path) -> None:
    content = 'text\tn\na, b\t1\n"c\td\ne"\t2\n'
    assert texts_of(tmp_path, content, read=read_tsv) == ["a, b", "c\td\ne"]


def test_a_nul_in_a_cell_is_kept(tmp_path: Path) -> None:
    assert texts_of(tmp_path, 'text\n"ab\0cd"\nef\n') == ["ab\0cd", "ef"]


def test_a_cell_of_megabytes_is_read(tmp_path: Path) -> None:
    cell = "x" * 3_000_000
    assert texts_of(tmp_path, f"text\n{cell}\n") == [cell]


def test_empty_lines_are_passed_over_where_there_are_several_columns(tmp_path: Path) -> None:
    items = items_of(tmp_path, "\ntext,n\n\na,1\n\n\nb,2\n\n")
    assert items == [Record("a", 4), Record("b", 7)]


def test_an_empty_line_is_an_empty_cell_where_there_is_one_column(tmp_path: Path) -> None:
    assert texts_of(tmp_path, "text\na\n\nb\n") == ["a", "", "b"]


@pytest.mark.parametrize("content", ["", "\n", "text\n", "text"])
def test_a_file_without_a_row_below_the_header_is_empty(tmp_path: Path, content: str) -> None:
    assert items_of(tmp_path, content) == []


def test_a_column_that_is_not_in_the_header_is_a_usage_error(tmp_path: Path) -> None:
    message = usage_error(tmp_path, "a,b c\n1,2\n")
    assert message.startswith(f'{tmp_path}/data.csv: no column "text"; there are: "a", "b c"; ')


def test_only_columns_that_are_used_must_have_names_of_their_own(tmp_path: Path) -> None:
    assert '2 columns are named "text"' in usage_error(tmp_path, "text,text\na,b\n")
    assert texts_of(tmp_path, "x,x,text\n1,2,a\n") == ["a"]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("a", "1 cell, where the header has 2"),
        ("a,b,c", "3 cells, where the header has 2"),
        ('"a"b,c', "not CSV: ',' expected after '\"'"),
        ("a\rb,c", "a CR that isn't in quotes and ends no line"),
    ],
)
def test_a_row_that_is_none_is_a_flaw_and_the_next_is_read(
    tmp_path: Path, row: str, reason: str
) -> None:
    flaw, record = items_of(tmp_path, f"text,n\n{row}\r\nb,2\n")
    assert flaw == Flaw(2, reason, row.encode())
    assert record == Record("b", 3)


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ('text,n\na,1\n"b,2\nc,3\n', 3),
        ('text,n\n"a\nb",1\n"c\nd","e\nf\n', 5),
        ('text,n\n"a ""\nb",1,"c\n\n', 3),
        ('text\n"', 2),
        ('text,n\r\n"a\r\nb","c"\r\n"d","e\r\nf\r\n', 4),
        ('n,text\r\n1,"a\r\nb""\r\n"\r\n2,"c\r\nd\r\n', 5),
        ('text,n\r\n"a\r\n","b\r\n', 3),
        ('text,n\n5" pipe,"x\ny\n', 2),
    ],
)
def test_an_unclosed_quote_is_named_with_the_line_it_opened_on(
    tmp_path: Path, content: str, line: int
) -> None:
    flaw = items_of(tmp_path, content)[-1]
    assert isinstance(flaw, Flaw)
    assert (flaw.line, flaw.reason) == (line, "the quote opened here is never closed")


def test_an_unclosed_quote_does_not_fill_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines_module, "MAX_LINE_BYTES", 1 << 20)
    content = 'text\na\n"b\n' + "c\n" * (1 << 20)
    with pytest.raises(CorpusError, match=r"data\.csv:3: a record of over 1 MiB; is a quote"):
        items_of(tmp_path, content)


def test_a_row_that_is_not_utf8_is_a_flaw_with_all_its_bytes(tmp_path: Path) -> None:
    content = b'text,n\na,1\n"b\n\xff",2\nc,3\n\xfe,4\n'
    assert items_of(tmp_path, content) == [
        Record("a", 2),
        Flaw(3, "not UTF-8 at byte 1 of line 4 (0xff)", b'"b\n\xff",2', HINT),
        Record("c", 5),
        Flaw(6, "not UTF-8 at byte 1 of the line (0xfe)", b"\xfe,4", HINT),
    ]


HINT = "name the file's encoding with --encoding, or pass --on-error reject"


def test_a_header_that_is_not_utf8_ends_the_run(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"data\.csv:1: the header is not UTF-8 at byte 6"):
        items_of(tmp_path, b"text,\xff\na,1\n", on_error="reject")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "latin-1", "cp1252"])
def test_a_named_encoding_is_decoded(tmp_path: Path, encoding: str) -> None:
    content = 'text,n\r\n"é\r\nà",1\r\n'.encode(encoding)
    assert texts_of(tmp_path, content, encoding=encoding) == ["é\r\nà"]


def test_bytes_outside_a_named_encoding_end_the_run_even_where_records_may_be_rejected(
    tmp_path: Path,
) -> None:
    with pytest.raises(CorpusError, match=r"data\.csv:3: not ascii"):
        items_of(tmp_path, b"text\na\n\xff\n", encoding="ascii", on_error="reject")


def test_utf16_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="looks like UTF-16"):
        items_of(tmp_path, "text\nhello\n".encode("utf-16"))
