from __future__ import annotations

import codecs
import gzip
import hashlib
import json
import os
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from bertpool.corpus import Corpus, CorpusOptions, count_rows
from bertpool.corpus.corpus import WINDOW_CHARACTERS, WINDOW_ROWS, is_blank
from bertpool.errors import CorpusError

BLANK = ["", " ", "   ", "\t", "\r", "\v", "\u00a0", "\u3000", "\u200b", "\u2028", "\x00", "\u2060"]
NOT_BLANK = ["a", " a ", ".", "\u200ba", "😀", "中", "-", "\u0e33"]


class Text(NamedTuple):
    """One row of a window."""

    row: int
    text: str
    source: str
    line: int


def corpus(*paths: Path | str, rows: range | None = None, **options: Any) -> Corpus:
    return Corpus([str(path) for path in paths], CorpusOptions(**options), rows=rows)


def texts_of(one: Corpus) -> list[Text]:
    return [
        Text(*row)
        for window in one.windows()
        for row in zip(window.rows, window.texts, window.sources, window.lines, strict=True)
    ]


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
    texts = [text for window in windows for text in window.texts]
    assert texts == list(map(str, range(count)))


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


BAD = b"a\nb\xff\r\nc\n\xfe\n"


def test_a_bad_record_stops_the_run_with_what_to_do_about_it(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", BAD)
    with pytest.raises(CorpusError, match=r"a\.txt:2: not UTF-8 at byte 2 .*--on-error") as caught:
        texts_of(corpus(path))
    assert caught.value.exit_code == 1


def test_a_rejected_record_uses_up_its_row_and_comes_with_its_bytes(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", BAD)
    one = corpus(path, on_error="reject")
    (window,) = one.windows()
    assert (window.rows, window.texts, window.lines) == ([0, 2], ["a", "c"], [1, 3])
    assert [(r.row, r.source, r.line, r.data) for r in window.rejects] == [
        (1, str(path), 2, b"b\xff"),
        (3, str(path), 4, b"\xfe"),
    ]
    assert window.rejects[0].reason == "not UTF-8 at byte 2 of the line (0xff)"
    assert one.rejected == 2


def test_a_corpus_of_rejects_alone_has_a_window_without_texts(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", "{}\n[]\n")
    (window,) = corpus(path, on_error="reject", keep=("k",)).windows()
    assert (window.texts, len(window.rejects)) == ([], 2)
    assert window.extra is not None
    assert window.extra.num_rows == 0


def test_rejects_count_towards_their_window(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", b"\xff\n" * (WINDOW_ROWS + 1))
    windows = list(corpus(path, on_error="reject").windows())
    assert [len(window.rejects) for window in windows] == [WINDOW_ROWS, 1]


def test_a_pair_is_blank_when_both_of_its_texts_are(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "text,b\n ,\na,\n,b\n")
    one = corpus(path, blank="skip", pair_column="b")
    (window,) = one.windows()
    assert (window.rows, window.texts, window.pairs) == ([1, 2], ["a", ""], ["", "b"])
    assert one.blank == 1


def test_windows_without_a_pair_column_have_no_pairs_and_no_extra(tmp_path: Path) -> None:
    one = corpus(write(tmp_path / "a.txt", "a\n"))
    (window,) = one.windows()
    assert window.pairs is None
    assert window.extra is None
    assert one.extra_schema() is None


def test_kept_values_count_towards_the_characters_of_their_window(tmp_path: Path) -> None:
    row = json.dumps({"text": "a", "k": "x" * (WINDOW_CHARACTERS // 2)})
    path = write(tmp_path / "a.jsonl", f"{row}\n" * 5)
    assert [len(w.texts) for w in corpus(path, keep=("k",)).windows()] == [2, 2, 1]


def test_extra_columns_stay_beside_their_texts_when_blank_ones_are_skipped(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "text,n\na,1\n,2\nb,3\n")
    (window,) = corpus(path, blank="skip", id_column="n", keep=("n",)).windows()
    assert window.extra is not None
    assert window.extra.to_pydict() == {"id": ["1", "3"], "n": ["1", "3"]}


def test_types_are_inferred_over_the_first_inputs_together(tmp_path: Path) -> None:
    one = write(tmp_path / "1.jsonl", '{"text": "a", "n": 1}\n')
    two = write(tmp_path / "2.jsonl", '{"text": "b", "n": 0.5}\n')
    (window,) = corpus(one, two, keep=("n",)).windows()
    assert window.extra is not None
    assert window.extra.column("n").to_pylist() == [1.0, 0.5]


@pytest.mark.parametrize(
    ("name", "content"), [("a.jsonl", ""), ("a.csv", ""), ("a.csv", "text,doc,k\n")]
)
def test_an_empty_corpus_has_extra_columns_of_strings(
    tmp_path: Path, name: str, content: str
) -> None:
    one = corpus(write(tmp_path / name, content), id_column="doc", keep=("k",))
    assert list(one.windows()) == []
    assert one.extra_schema() == pa.schema([("id", pa.string()), ("k", pa.string())])


def test_a_later_value_that_does_not_fit_is_an_error_of_its_record(tmp_path: Path) -> None:
    rows = ['{"text": "a", "k": 1}\n'] * WINDOW_ROWS + ['{"text": "b", "k": "x"}\n']
    path = write(tmp_path / "a.jsonl", "".join(rows))
    with pytest.raises(CorpusError, match=rf":{WINDOW_ROWS + 1}: field .k. doesn't fit"):
        texts_of(corpus(path, keep=("k",)))
    windows = list(corpus(path, keep=("k",), on_error="reject").windows())
    (reject,) = windows[-1].rejects
    assert (reject.row, reject.data) == (WINDOW_ROWS, b'{"text": "b", "k": "x"}')


def test_ranges_are_slices_of_the_whole_with_its_row_numbers(tmp_path: Path) -> None:
    paths = [write(tmp_path / f"{i}.txt", "a\n\nb\xff\nc\n") for i in range(2)]
    whole = texts_of(corpus(*paths, blank="skip"))
    for rows in (range(0, 3), range(3, 5), range(5, 99), range(2, 2), range(0, 0)):
        part = texts_of(corpus(*paths, blank="skip", rows=rows))
        assert part == [text for text in whole if text.row in rows]


def test_reading_stops_behind_a_range(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", b"a\nb\n\xff\n")
    assert [text.text for text in texts_of(corpus(path, rows=range(2)))] == ["a", "b"]


def test_what_is_wrong_before_a_range_is_left_to_who_reads_that_range(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", b"\xff\n\nb\n")
    one = corpus(path, rows=range(2, 3), blank="error")
    assert [text.text for text in texts_of(one)] == ["b"]
    assert (one.blank, one.rejected) == (0, 0)


def test_columns_have_the_same_types_in_every_range_even_an_empty_one(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", '{"text": "a", "k": 1}\n{"text": "b", "k": 0.5}\n')
    for rows in (range(0, 1), range(1, 2), range(2, 2), range(0, 0)):
        one = corpus(path, keep=("k",), rows=rows)
        texts_of(one)
        assert one.extra_schema() == pa.schema([("k", pa.float64())])


def test_rows_are_counted_with_the_identities_of_their_inputs(tmp_path: Path) -> None:
    paths = [write(tmp_path / "1.txt", b"a\n\n\xff\n"), write(tmp_path / "2.csv", "text\nb\n")]
    names = [str(path) for path in paths]
    rows, identities = count_rows(names, CorpusOptions(blank="skip", on_error="reject"))
    one = corpus(*paths, on_error="reject")
    texts_of(one)
    assert (rows, identities) == (4, one.identities)


def test_rows_of_a_pipe_cannot_be_counted(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name in ("-", str(tmp_path / "pipe")):
        with pytest.raises(CorpusError, match="read once") as caught:
            count_rows([name], CorpusOptions())
        assert caught.value.exit_code == 2


def test_a_directory_gives_a_text_for_each_file_and_the_path_one_would_type(tmp_path: Path) -> None:
    (tmp_path / "d" / "x.txt").mkdir(parents=True)
    write(tmp_path / "d" / "x.txt" / "a", "a\nb\n")
    write(tmp_path / "d" / "y.csv", "text\n")
    one = corpus(f"{tmp_path}/d")
    assert texts_of(one) == [
        Text(0, "a\nb\n", f"{tmp_path}/d/x.txt/a", 1),
        Text(1, "text\n", f"{tmp_path}/d/y.csv", 1),
    ]
    assert one.several


def test_one_file_is_one_source(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "a\n")
    assert not corpus(path).several
    assert corpus(path, path).several


def test_a_directory_has_one_identity_of_its_names_and_contents(tmp_path: Path) -> None:
    folders = [tmp_path / name / "d" for name in ("1", "2", "3")]
    for folder, name in zip(folders, ("a", "a", "b"), strict=True):
        folder.mkdir(parents=True)
        write(folder / name, "hello\n")
        write(folder / "z", "word\n")
    identities = []
    for folder in folders:
        one = corpus(f"{folder}/")
        texts_of(one)
        (identity,) = one.identities
        assert (identity.name, identity.bytes, one.size) == ("d", 11, 11)
        identities.append(identity)
    assert identities[0] == identities[1]
    assert identities[0] != identities[2]


def test_an_identity_is_of_the_bytes_before_decompression(tmp_path: Path) -> None:
    content = gzip.compress(b"hello\n" * 1000)
    one = corpus(write(tmp_path / "a.txt", content))
    (window,) = one.windows()
    assert one.identities[0].sha256 == hashlib.sha256(content).hexdigest()
    assert one.size == window.bytes_read == len(content)
