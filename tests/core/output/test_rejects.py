from __future__ import annotations

import json
from pathlib import Path

import pytest
from bertpool.corpus.records import Reject
from bertpool.errors import OutputError
from bertpool.output.rejects import RejectsFile, escaped_bytes
from faults import files_limited_to
from hypothesis import given
from hypothesis import strategies as st
from rows import content

NAME = "v.parquet.rejects.jsonl"
REJECT = Reject(3, "a b é.txt", 4, "not UTF-8 at byte 1", b"x\xff")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Give the folder in which a rejects file grows."""
    path = tmp_path / "parts"
    path.mkdir()
    return path


def test_each_reject_is_a_line_that_says_where_and_why(tmp_path: Path, folder: Path) -> None:
    file = RejectsFile(tmp_path / NAME, replace=False, folder=folder)
    file.add([REJECT])
    file.add([REJECT, Reject(9, "b", 1, "why", b"")])
    assert file.count == 3
    file.commit()
    lines = (tmp_path / NAME).read_text(encoding="utf-8").splitlines()
    assert json.loads(lines[0]) == {
        "row": 3,
        "source": "a b é.txt",
        "line": 4,
        "reason": "not UTF-8 at byte 1",
        "data": r"x\xff",
    }
    assert [json.loads(line)["row"] for line in lines] == [3, 3, 9]


def test_nothing_stands_at_the_path_before_the_commit(tmp_path: Path, folder: Path) -> None:
    file = RejectsFile(tmp_path / NAME, replace=False, folder=folder)
    file.add([REJECT])
    assert not (tmp_path / NAME).exists()
    file.discard()
    assert content(tmp_path) == {}


def test_without_rejects_there_is_no_file(tmp_path: Path, folder: Path) -> None:
    file = RejectsFile(tmp_path / NAME, replace=False, folder=folder)
    file.add([])
    file.commit()
    file.discard()
    assert content(tmp_path) == {}


@pytest.mark.parametrize("replace", [True, False])
def test_without_rejects_those_of_a_run_that_is_replaced_go(
    tmp_path: Path, folder: Path, replace: bool
) -> None:
    (tmp_path / NAME).write_text("old")
    RejectsFile(tmp_path / NAME, replace=replace, folder=folder).commit()
    assert (tmp_path / NAME).exists() is not replace


def test_a_full_disk_is_an_error_of_one_line(tmp_path: Path, folder: Path) -> None:
    file = RejectsFile(tmp_path / NAME, replace=False, folder=folder)
    with files_limited_to(10), pytest.raises(OutputError) as caught:
        file.add([Reject(0, "a", 1, "why", b"x" * 1_000_000)])
    assert str(caught.value) == f"{tmp_path / NAME}: File too large"
    file.discard()
    assert content(tmp_path) == {}


@given(data=st.binary())
def test_escaped_bytes_give_the_bytes_back(data: bytes) -> None:
    back, position, text = bytearray(), 0, escaped_bytes(data)
    while position < len(text):
        if text[position] != "\\":
            back += text[position].encode()
            position += 1
        elif text[position + 1] == "\\":
            back += b"\\"
            position += 2
        else:
            assert text[position + 1] == "x"
            back.append(int(text[position + 2 : position + 4], 16))
            position += 4
    assert bytes(back) == data
