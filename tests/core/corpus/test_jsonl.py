from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from bertpool.corpus.jsonl import JsonText, Missing, read_jsonl
from bertpool.corpus.options import CorpusOptions
from bertpool.corpus.records import Flaw, Record
from bertpool.corpus.streams import open_input


def items_of(path: Path, content: str | bytes, **options: Any) -> list[Record | Flaw]:
    path = path / "data.jsonl"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with open_input(str(path)) as opened:
        return list(read_jsonl(opened, CorpusOptions(**options)))


def record_of(path: Path, content: str | bytes, **options: Any) -> Record:
    (item,) = items_of(path, content, **options)
    assert isinstance(item, Record)
    return item


def flaw_of(path: Path, content: str | bytes, **options: Any) -> Flaw:
    (item,) = items_of(path, content, **options)
    assert isinstance(item, Flaw)
    return item


def test_a_text_is_a_field_of_an_object(tmp_path: Path) -> None:
    assert items_of(tmp_path, '{"text": "a\\nb"}\n{"text": ""}\r\n{"x": 1, "text": "é"}') == [
        Record("a\nb", 1),
        Record("", 2),
        Record("é", 3),
    ]


def test_the_text_may_have_another_name(tmp_path: Path) -> None:
    assert record_of(tmp_path, '{"text": 1, "body": "a"}', text_column="body").text == "a"


def test_empty_lines_are_passed_over_and_lines_still_count(tmp_path: Path) -> None:
    items = items_of(tmp_path, '\n{"text": "a"}\n \t\r\n\n{"text": "b"}\n\n')
    assert [item.line for item in items] == [2, 5]


def test_a_bom_goes(tmp_path: Path) -> None:
    assert record_of(tmp_path, b'\xef\xbb\xbf{"text": "a"}\n').text == "a"


def test_an_escaped_nul_is_kept(tmp_path: Path) -> None:
    assert record_of(tmp_path, '{"text": "ab\\u0000cd"}\n').text == "ab\0cd"


def test_line_separators_within_a_string_do_not_split(tmp_path: Path) -> None:
    assert record_of(tmp_path, '{"text": "a\u2028b\x85c"}\n').text == "a\u2028b\x85c"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{}", 'no field "text"; there are: none'),
        ('{"a": 1, "b": 2}', 'no field "text"; there are: "a", "b"'),
        ('{"text": null}', 'field "text" is null, not a string'),
        ('{"text": 1.5}', 'field "text" is a number, not a string'),
        ('{"text": true}', 'field "text" is true or false, not a string'),
        ('{"text": ["a"]}', 'field "text" is a list, not a string'),
        ('{"text": "a"', "not JSON: Expecting ',' delimiter at column 13"),
        ('{"text": "a"} {"text": "b"}', "not JSON: Extra data at column 15"),
        ("hello", "not JSON: Expecting value at column 1"),
        ('["a"]', "a list, not an object"),
        ('"a"', "a string, not an object"),
        ("null", "null, not an object"),
        ('{"text": "\\ud83d"}', 'field "text" holds a lone surrogate, half a character'),
        ('{"text": "a", "n": ' + "1" * 5000 + "}", "a number of too many digits"),
        ("[" * 200_000, "JSON nested too deeply"),
    ],
    ids=lambda value: value[:30],
)
def test_what_is_no_object_with_a_string_is_a_flaw_with_its_line(
    tmp_path: Path, line: str, reason: str
) -> None:
    flaw = flaw_of(tmp_path, f"\n{line}\r\n")
    assert (flaw.line, flaw.reason, flaw.data) == (2, reason, line.encode())


def test_a_surrogate_pair_is_a_character(tmp_path: Path) -> None:
    assert record_of(tmp_path, '{"text": "\\ud83d\\ude00"}').text == "😀"


def test_a_line_that_is_not_utf8_is_a_flaw_and_the_next_is_read(tmp_path: Path) -> None:
    bad, good = items_of(tmp_path, b'{"text": "\xff"}\n{"text": "b"}\n')
    assert isinstance(bad, Flaw)
    assert bad.reason == "not UTF-8 at byte 11 of the line (0xff)"
    assert good == Record("b", 2)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "latin-1", "cp1252"])
def test_a_named_encoding_is_decoded(tmp_path: Path, encoding: str) -> None:
    content = '{"text": "déjà"}\r\n'.encode(encoding)
    assert record_of(tmp_path, content, encoding=encoding).text == "déjà"


def test_a_pair_is_a_second_string(tmp_path: Path) -> None:
    assert record_of(tmp_path, '{"text": "a", "q": "b"}', pair_column="q").pair == "b"
    assert "null" in flaw_of(tmp_path, '{"text": "a", "q": null}', pair_column="q").reason


@pytest.mark.parametrize("value", [7, -1, "x", "007", ""])
def test_an_id_is_an_integer_or_a_string(tmp_path: Path, value: int | str) -> None:
    line = json.dumps({"text": "a", "doc": value})
    assert record_of(tmp_path, line, id_column="doc").id == value


@pytest.mark.parametrize("value", [None, True, 1.5, [1], {}])
def test_nothing_else_is_an_id(tmp_path: Path, value: object) -> None:
    line = json.dumps({"text": "a", "doc": value})
    assert "not an id" in flaw_of(tmp_path, line, id_column="doc").reason


def test_kept_fields_come_in_the_order_asked_for(tmp_path: Path) -> None:
    line = '{"text": "a", "x": 1, "y": [1, "é"], "z": null}'
    record = record_of(tmp_path, line, keep=("z", "y", "x"))
    assert record.kept == (None, '[1, "é"]', 1)
    assert isinstance(record.kept[1], JsonText)


def test_a_missing_kept_field_knows_the_fields_there_are(tmp_path: Path) -> None:
    (value,) = record_of(tmp_path, '{"text": "a", "b": 1}', keep=("x",)).kept
    assert isinstance(value, Missing)
    assert value.fields == ["text", "b"]


@pytest.mark.parametrize("value", ['"\\udc00"', '["\\udc00"]'])
def test_a_lone_surrogate_in_a_kept_field_is_a_flaw(tmp_path: Path, value: str) -> None:
    line = f'{{"text": "a", "k": {value}}}'
    assert "lone surrogate" in flaw_of(tmp_path, line, keep=("k",)).reason
    assert record_of(tmp_path, line).text == "a"


def test_of_fields_of_one_name_the_last_holds(tmp_path: Path) -> None:
    assert record_of(tmp_path, '{"text": "a", "text": "b"}').text == "b"
