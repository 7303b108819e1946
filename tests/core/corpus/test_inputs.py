from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from bertpool.corpus import Corpus
from bertpool.corpus.inputs import SHOWN_PROBLEMS, check_inputs
from bertpool.corpus.options import CorpusOptions
from bertpool.errors import CorpusError


def usage_error(*names: str | Path, **options: Any) -> str:
    with pytest.raises(CorpusError) as caught:
        check_inputs([str(name) for name in names], CorpusOptions(**options))
    assert caught.value.exit_code == 2
    message = str(caught.value)
    assert "\n" not in message
    return message


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
    message = usage_error(tmp_path / "no1", tmp_path / "good.txt", tmp_path / "no2")
    assert all(f"{tmp_path}/{name}: " in message for name in ("no1", "no2"))
    assert "good.txt" not in message


def test_a_dangling_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "link.txt").symlink_to("nowhere.txt")
    assert "link.txt: a link that leads nowhere" in usage_error(tmp_path / "link.txt")


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


def test_a_file_without_read_permission_is_refused(
    public_path: Path, without_privilege: Callable[[], AbstractContextManager[None]]
) -> None:
    path = public_path / "secret.txt"
    path.write_text("hello\n")
    path.chmod(0o200)
    with without_privilege():
        assert usage_error(path) == f"{path}: no permission to read it"


@pytest.mark.parametrize("suffix", [".npy", ".arrow", ".NPY", ".npy.gz"])
def test_files_of_vectors_are_refused_by_suffix(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"data{suffix}"
    path.write_text("hello\n")
    assert f"not {suffix.lower()[:4]}" in usage_error(path)


def test_a_suffix_does_not_matter_under_a_format_that_is_named(tmp_path: Path) -> None:
    path = tmp_path / "data.arrow"
    path.write_text("hello\n")
    check_inputs([str(path)], CorpusOptions(input_format="lines"))


def test_a_glob_that_the_shell_left_alone_is_no_such_file(tmp_path: Path) -> None:
    assert "*.txt: no such file" in usage_error(tmp_path / "*.txt")


def test_a_missing_file_whose_name_is_not_utf8_is_named(tmp_path: Path) -> None:
    name = os.path.join(os.fsencode(tmp_path), b"caf\xe9.txt")
    assert r"caf\xe9.txt: no such file" in usage_error(os.fsdecode(name))


TABLES = {
    "jsonl": b'{"text": "hello", "doc": 7}\n',
    "csv": b"text,doc\nhello,7\n",
    "tsv": b"text\tdoc\nhello\t7\n",
}


@pytest.fixture(params=["jsonl", "csv", "tsv", "parquet"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / f"data.{request.param}"
    if request.param == "parquet":
        pq.write_table(pa.table({"text": ["hello"], "doc": [7]}), path)
    else:
        path.write_bytes(TABLES[request.param])
    return path


def test_a_table_with_the_columns_asked_for_passes(table: Path) -> None:
    check_inputs([str(table)], CorpusOptions(id_column="doc", keep=("doc",)))


def test_a_column_that_is_not_there_is_refused_and_those_there_are_named(table: Path) -> None:
    message = usage_error(table, text_column="body")
    assert f"{table}: no " in message
    assert '"body"; there are: "text", "doc"' in message


@pytest.mark.parametrize("option", ["pair_column", "id_column"])
def test_every_column_asked_for_must_be_there(table: Path, option: str) -> None:
    assert '"other"' in usage_error(table, **{option: "other"})


def test_names_of_columns_leave_a_message_on_one_line(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    path.write_text(json.dumps({"a\nb": 1}) + "\n")
    assert r'"a\nb"' in usage_error(path)


def test_a_first_object_without_text_passes_where_records_may_be_rejected(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    path.write_text("{}\n")
    check_inputs([str(path)], CorpusOptions(on_error="reject"))


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"pair_column": "b"}, "--pair-column"),
        ({"id_column": "b"}, "--id-column"),
        ({"keep": ("b",)}, "--keep"),
        ({"text_column": "b"}, "--text-column"),
    ],
)
def test_options_about_columns_need_a_format_that_has_them(
    tmp_path: Path, options: dict[str, Any], name: str
) -> None:
    path = tmp_path / "a.txt"
    path.write_text("hello\n")
    for given in (path, "-", tmp_path):
        message = usage_error(given, **options)
        assert f"{given}" in message
        assert name in message
        assert "--input-format" in message


def test_a_text_column_beside_files_of_lines_passes_for_the_table(table: Path) -> None:
    (table.parent / "a.txt").write_text("hello\n")
    check_inputs([str(table), f"{table.parent}/a.txt"], CorpusOptions())


def test_a_column_kept_twice_is_refused(table: Path) -> None:
    assert "--keep doc is given twice" in usage_error(table, keep=("doc", "doc"))


def test_a_kept_id_is_refused_for_the_output_has_one(table: Path) -> None:
    assert "--id-column id" in usage_error(table, keep=("id",))


def test_kept_columns_of_parquet_and_other_files_do_not_mix(tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": ["hello"], "doc": [7]}), tmp_path / "a.parquet")
    (tmp_path / "b.csv").write_bytes(TABLES["csv"])
    names = (tmp_path / "a.parquet", tmp_path / "b.csv")
    check_inputs([str(name) for name in names])
    assert "not both" in usage_error(*names, keep=("doc",))


def test_many_problems_are_counted_beyond_the_first(tmp_path: Path) -> None:
    message = usage_error(*[tmp_path / f"no{i}" for i in range(SHOWN_PROBLEMS + 3)])
    assert message.endswith("; and 3 more")


def test_problems_in_a_directory_are_listed_before_anything_is_read(tmp_path: Path) -> None:
    (tmp_path / "good.txt").write_text("hello\n")
    (tmp_path / "bad.txt").symlink_to("nowhere.txt")
    os.mkfifo(tmp_path / "pipe")
    message = usage_error(tmp_path)
    assert "bad.txt: a link that leads nowhere" in message
    assert "pipe: not a regular file" in message
    assert "good.txt" not in message


def test_a_link_to_a_directory_is_noted_as_not_followed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "good.txt").write_text("hello\n")
    (tmp_path / "loop").symlink_to(".")
    with caplog.at_level(logging.WARNING, logger="bertpool"):
        check_inputs([str(tmp_path)])
    assert caplog.messages == [f"{tmp_path}/loop: a link to a directory, not followed"]


@pytest.mark.parametrize(
    ("head", "what"), [(b"a.txt".ljust(257, b"\0") + b"ustar\x0000", "tar"), (b"%PDF-1.7\n", "PDF")]
)
def test_an_archive_of_files_or_a_pdf_is_refused_by_name(
    tmp_path: Path, head: bytes, what: str
) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(head + b"\0" * 512)
    with pytest.raises(CorpusError, match=what):
        list(Corpus([str(path)], CorpusOptions()).windows())
