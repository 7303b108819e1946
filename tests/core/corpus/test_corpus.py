from __future__ import annotations

import codecs
import hashlib
import itertools
import os
from pathlib import Path

import pytest
from bertpool.corpus import Blank, Corpus, Text
from bertpool.corpus.corpus import WINDOW_CHARACTERS, WINDOW_ROWS, is_blank
from bertpool.errors import CorpusError

BLANK = ["", " ", "   ", "\t", "\r", "\v", "\u00a0", "\u3000", "\u200b", "\u2028", "\x00", "\u2060"]
NOT_BLANK = ["a", " a ", ".", "\u200ba", "😀", "中", "-", "\u0e33"]


def corpus(*paths: Path | str, blank: Blank = "keep", encoding: str = "utf-8") -> Corpus:
    return Corpus([str(path) for path in paths], encoding=encoding, blank=blank)


def texts_of(one: Corpus) -> list[Text]:
    return list(itertools.chain.from_iterable(window.texts for window in one.windows()))


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize("text", BLANK, ids=ascii)
def test_a_text_of_which_nothing_is_visible_is_blank(text: str) -> None:
    assert is_blank(text)


@pytest.mark.parametrize("text", NOT_BLANK, ids=ascii)
def test_a_text_of_which_something_is_visible_is_not_blank(text: str) -> None:
    assert not is_blank(text)


def test_each_text_has_its_row_from_0_and_its_line_from_1(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "hello\nword\n")
    assert texts_of(corpus(path)) == [
        Text(0, "hello", str(path), 1),
        Text(1, "word", str(path), 2),
    ]


def test_rows_count_on_over_the_inputs_and_lines_start_anew(tmp_path: Path) -> None:
    one, two = write(tmp_path / "1.txt", "a\nb"), write(tmp_path / "2.txt", "c\n")
    texts = texts_of(corpus(one, two))
    assert [(t.row, t.text, Path(t.source).name, t.line) for t in texts] == [
        (0, "a", "1.txt", 1),
        (1, "b", "1.txt", 2),
        (2, "c", "2.txt", 1),
    ]


def test_inputs_are_read_in_the_order_given(tmp_path: Path) -> None:
    ten, two = write(tmp_path / "10.txt", "ten\n"), write(tmp_path / "2.txt", "two\n")
    assert [text.text for text in texts_of(corpus(ten, two))] == ["ten", "two"]


def test_a_file_named_twice_gives_its_rows_twice(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "a\nb\n")
    one = corpus(path, path)
    assert [(t.row, t.text, t.line) for t in texts_of(one)] == [
        (0, "a", 1), (1, "b", 2), (2, "a", 1), (3, "b", 2),
    ]  # fmt: skip
    assert one.identities[0] == one.identities[1]


def test_the_bom_of_each_file_goes(tmp_path: Path) -> None:
    paths = [write(tmp_path / name, codecs.BOM_UTF8 + b"hello\n") for name in ("1.txt", "2.txt")]
    assert [text.text for text in texts_of(corpus(*paths))] == ["hello", "hello"]


def test_an_empty_file_between_others_gives_no_row(tmp_path: Path) -> None:
    paths = [write(tmp_path / f"{i}.txt", text) for i, text in enumerate(("a\n", "", "b\n"))]
    one = corpus(*paths)
    assert [(t.row, t.text) for t in texts_of(one)] == [(0, "a"), (1, "b")]
    assert [identity.bytes for identity in one.identities] == [2, 0, 2]


def test_an_empty_corpus_has_no_window(tmp_path: Path) -> None:
    assert list(corpus(write(tmp_path / "a.txt", "")).windows()) == []


MIXED = "a\n\n   \n\t\n\u3000\n\u200b\nb"


def test_blank_texts_are_kept_with_their_bytes_and_counted(tmp_path: Path) -> None:
    one = corpus(write(tmp_path / "a.txt", MIXED), blank="keep")
    assert [text.text for text in texts_of(one)] == MIXED.split("\n")
    assert one.blank == 5


def test_skipped_blank_texts_leave_rows_and_lines_of_the_others_alone(tmp_path: Path) -> None:
    one = corpus(write(tmp_path / "a.txt", MIXED), blank="skip")
    assert [(t.row, t.text, t.line) for t in texts_of(one)] == [(0, "a", 1), (6, "b", 7)]
    assert one.blank == 5


def test_a_blank_text_under_error_is_named_with_file_and_line(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "a\nb\n\u3000\n")
    with pytest.raises(CorpusError, match=r"a\.txt:3: blank text") as caught:
        texts_of(corpus(path, blank="error"))
    assert caught.value.exit_code == 1


def test_texts_without_a_blank_one_pass_under_error(tmp_path: Path) -> None:
    assert len(texts_of(corpus(write(tmp_path / "a.txt", "a\nb\n"), blank="error"))) == 2


def test_a_corpus_of_blank_texts_skipped_has_no_window(tmp_path: Path) -> None:
    assert list(corpus(write(tmp_path / "a.txt", "\n \n"), blank="skip").windows()) == []


def test_windows_hold_a_bounded_number_of_rows_in_order(tmp_path: Path) -> None:
    count = 2 * WINDOW_ROWS + 1
    path = write(tmp_path / "a.txt", "".join(f"{i}\n" for i in range(count)))
    windows = list(corpus(path).windows())
    assert [len(window.texts) for window in windows] == [WINDOW_ROWS, WINDOW_ROWS, 1]
    assert [text.text for window in windows for text in window.texts] == list(
        map(str, range(count))
    )


def test_windows_hold_a_bounded_number_of_characters(tmp_path: Path) -> None:
    line = "x" * (WINDOW_CHARACTERS // 4)
    path = write(tmp_path / "a.txt", f"{line}\n" * 9)
    windows = list(corpus(path).windows())
    assert [len(window.texts) for window in windows] == [4, 4, 1]


def test_one_text_longer_than_a_window_is_a_window_of_its_own(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "a\n" + "x" * (WINDOW_CHARACTERS + 1) + "\nb\n")
    assert [len(window.texts) for window in corpus(path).windows()] == [2, 1]


def test_the_bytes_read_grow_to_the_size_of_the_inputs(tmp_path: Path) -> None:
    paths = [write(tmp_path / f"{i}.txt", "hello\n" * WINDOW_ROWS) for i in range(2)]
    one = corpus(*paths)
    read = [window.bytes_read for window in one.windows()]
    assert read == sorted(read)
    assert read[-1] == one.size == 2 * 6 * WINDOW_ROWS


def test_the_size_is_unknown_when_an_input_is_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    path = write(tmp_path / "a.txt", "a\n")
    assert corpus(path).size == 2
    assert corpus(path, tmp_path / "pipe").size is None
    assert corpus(path, "-").size is None


def test_an_identity_has_the_base_name_the_bytes_and_the_hash_of_an_input(tmp_path: Path) -> None:
    content = codecs.BOM_UTF8 + b"a\r\n\nb"
    (tmp_path / "deep").mkdir()
    one = corpus(write(tmp_path / "deep" / "a.txt", content), blank="skip")
    texts_of(one)
    (identity,) = one.identities
    assert identity.name == "a.txt"
    assert identity.bytes == len(content)
    assert identity.sha256 == hashlib.sha256(content).hexdigest()


@pytest.mark.parametrize("encoding", ["utf-16", "shift_jis"])
def test_an_identity_is_of_the_bytes_before_decoding(tmp_path: Path, encoding: str) -> None:
    content = "日本\n語\n".encode(encoding)
    one = corpus(write(tmp_path / "a.txt", content), encoding=encoding)
    assert [text.text for text in texts_of(one)] == ["日本", "語"]
    assert one.identities[0].sha256 == hashlib.sha256(content).hexdigest()


def test_a_file_name_that_is_not_utf8_gives_a_source_that_is(tmp_path: Path) -> None:
    path = os.path.join(os.fsencode(tmp_path), b"caf\xe9.txt")
    Path(os.fsdecode(path)).write_bytes(b"a\n")
    one = corpus(os.fsdecode(path))
    (text,) = texts_of(one)
    assert text.source == rf"{tmp_path}/caf\xe9.txt"
    assert one.identities[0].name == r"caf\xe9.txt"


def test_undecodable_bytes_in_the_second_file_are_named_with_its_own_line(tmp_path: Path) -> None:
    good, bad = write(tmp_path / "1.txt", "a\nb\n"), write(tmp_path / "2.txt", b"c\n\xff\n")
    with pytest.raises(CorpusError, match=r"2\.txt:2: not UTF-8 at byte 1 "):
        texts_of(corpus(good, bad))
