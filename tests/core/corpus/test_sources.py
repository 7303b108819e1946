from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from bertpool.corpus.options import CorpusOptions
from bertpool.corpus.sources import find_input


def found(folder: Path | str, **options: str) -> list[str]:
    one = find_input(str(folder), CorpusOptions(**options))  # type: ignore[arg-type]
    assert one.problems == ()
    return [source.relative for source in one.sources]


def problems_of(folder: Path) -> str:
    return "; ".join(find_input(str(folder), CorpusOptions()).problems)


def make(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("hello\n")
    return folder


def test_a_directory_is_walked_in_an_order_of_names_alone(tmp_path: Path) -> None:
    names = ("z", "b/c", "b-/a", "10.txt", "2.txt", "x.txt/y", "a b é.txt", "B", "b/a/z")
    assert found(make(tmp_path, *names)) == [
        "10.txt", "2.txt", "B", "a b é.txt", "b/a/z", "b/c", "b-/a", "x.txt/y", "z",
    ]  # fmt: skip


def test_hidden_files_and_folders_are_passed_over(tmp_path: Path) -> None:
    assert found(make(tmp_path, "a", ".h.txt", ".git/x", "d/.h", "d/b")) == ["a", "d/b"]


def test_a_hidden_input_that_is_named_is_read(tmp_path: Path) -> None:
    make(tmp_path, ".cache/d/a", ".h.txt")
    assert found(tmp_path / ".cache" / "d") == ["a"]
    assert found(tmp_path / ".cache") == ["d/a"]
    assert len(find_input(f"{tmp_path}/.h.txt", CorpusOptions()).sources) == 1


def test_sources_are_shown_as_one_would_type_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path, "d/e/a")
    monkeypatch.chdir(tmp_path)
    shown = [find_input(name, CorpusOptions()).sources[0].shown for name in ("d", "d/", "./d", ".")]
    assert shown == ["d/e/a", "d/e/a", "./d/e/a", "./d/e/a"]


def test_a_directory_has_its_own_name_however_it_is_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(make(tmp_path / "d", "a"))
    names = [find_input(name, CorpusOptions()).base_name for name in (".", "../d", "../d/")]
    assert names == ["d", "d", "d"]


def test_a_link_to_a_file_is_read_and_one_to_a_directory_not(tmp_path: Path) -> None:
    make(tmp_path, "d/a")
    (tmp_path / "d" / "link").symlink_to("a")
    (tmp_path / "d" / "loop").symlink_to(".")
    assert found(tmp_path / "d") == ["a", "link"]
    one = find_input(str(tmp_path / "d"), CorpusOptions())
    assert one.links == (f"{tmp_path}/d/loop",)


def test_a_directory_that_a_link_names_is_walked(tmp_path: Path) -> None:
    make(tmp_path, "d/a")
    (tmp_path / "link").symlink_to("d")
    assert found(tmp_path / "link") == ["a"]


def test_what_is_no_readable_file_is_a_problem_by_name(tmp_path: Path) -> None:
    make(tmp_path, "good")
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "self").symlink_to("self")
    os.mkfifo(tmp_path / "pipe")
    problems = problems_of(tmp_path)
    assert "dangling: a link that leads nowhere" in problems
    assert "self: " in problems
    assert "pipe: not a regular file" in problems
    assert "good" not in problems


def test_a_folder_and_a_file_without_permission_are_problems_by_name(
    public_path: Path, without_privilege: Callable[[], AbstractContextManager[None]]
) -> None:
    make(public_path, "a", "closed/b")
    (public_path / "a").chmod(0o200)
    (public_path / "closed").chmod(0o000)
    with without_privilege():
        problems = problems_of(public_path)
    (public_path / "closed").chmod(0o700)
    assert f"{public_path}/a: no permission to read it" in problems
    assert f"{public_path}/closed: Permission denied" in problems


@pytest.mark.parametrize("names", [(), (".hidden",), (".git/x",)])
def test_a_directory_without_a_file_is_a_problem(tmp_path: Path, names: tuple[str, ...]) -> None:
    (tmp_path / "d" / "empty").mkdir(parents=True)
    make(tmp_path / "d", *names)
    assert problems_of(tmp_path / "d") == f"{tmp_path}/d: no file in it (hidden ones don't count)"


def test_files_of_vectors_in_a_directory_are_refused(tmp_path: Path) -> None:
    assert "a.npy: bertpool reads text" in problems_of(make(tmp_path, "a.npy", "b"))


def test_names_that_are_not_utf8_are_found_and_shown_escaped(tmp_path: Path) -> None:
    with open(os.path.join(os.fsencode(tmp_path), b"caf\xe9"), "wb"):
        pass
    (source,) = find_input(str(tmp_path), CorpusOptions()).sources
    assert source.shown == rf"{tmp_path}/caf\xe9"


def test_a_format_that_is_named_holds_for_every_file_of_a_directory(tmp_path: Path) -> None:
    make(tmp_path, "a.txt", "b.csv")
    one = find_input(str(tmp_path), CorpusOptions(input_format="jsonl"))
    assert {source.format for source in one.sources} == {"jsonl"}
