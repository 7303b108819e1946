"""What the command reads: formats, compression, channels, identities, and what can't be read."""

from __future__ import annotations

import bz2
import contextlib
import csv
import datetime
import gzip
import io
import itertools
import json
import lzma
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import oracle
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tiny_models
import torch
from vectors import read_column, read_vectors

Tiny = Callable[[str], Path]
Shell = Callable[..., Any]

SAMPLES = Path(__file__).parents[2] / "sample_data"
LONG = " ".join(["word"] * 100)


@dataclass(frozen=True)
class Ran:
    """A finished run of `bertpool embed` and where its output should be."""

    code: int
    out: str
    err: str
    path: Path

    @property
    def vectors(self) -> npt.NDArray[Any]:
        return read_vectors(self.path)

    def column(self, name: str) -> list[Any]:
        return read_column(self.path, name)


Embed = Callable[..., Ran]


@pytest.fixture
def embed(bertpool: Callable[..., Any], tiny: Tiny, tmp_path: Path) -> Embed:
    """Embed inputs with a tiny model into a new file, with further arguments."""
    numbers = itertools.count()

    def run(*arguments: object, model: str = "tiny-bert", suffix: str = ".parquet") -> Ran:
        path = tmp_path / f"out{next(numbers)}{suffix}"
        finished = bertpool("embed", *arguments, "-m", tiny(model), "-o", path)
        return Ran(finished.code, finished.out, finished.err, path)

    return run


@pytest.fixture
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a window of two rows."""
    monkeypatch.setattr("bertpool.corpus.corpus.WINDOW_ROWS", 2)


@contextlib.contextmanager
def as_stdin(content: bytes) -> Iterator[None]:
    """Put a pipe in stdin's place, and write some bytes to it."""
    reader, writer = os.pipe()
    before = os.dup(0)
    os.dup2(reader, 0)
    os.close(reader)
    thread = threading.Thread(target=_write_all, args=(writer, content))
    thread.start()
    try:
        yield
    finally:
        os.dup2(before, 0)
        os.close(before)
        thread.join()


def _write_all(descriptor: int, content: bytes) -> None:
    with contextlib.suppress(BrokenPipeError), open(descriptor, "wb") as stream:
        stream.write(content)


@contextlib.contextmanager
def as_fifo(path: Path, content: bytes) -> Iterator[None]:
    """Make a FIFO, and write some bytes to it once somebody reads."""
    os.mkfifo(path)
    thread = threading.Thread(target=path.write_bytes, args=(content,))
    thread.start()
    try:
        yield
    finally:
        thread.join()


# The same texts


def parquet_of_samples() -> bytes:
    with (SAMPLES / "corpus.csv").open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows), sink, row_group_size=64)
    return sink.getvalue().to_pybytes()


def tsv_of_samples() -> bytes:
    sink = io.StringIO()
    with (SAMPLES / "corpus.csv").open(encoding="utf-8", newline="") as stream:
        csv.writer(sink, delimiter="\t").writerows(csv.reader(stream))
    return sink.getvalue().encode()


CONTENTS: dict[str, Callable[[], bytes]] = {
    "txt": (SAMPLES / "corpus.txt").read_bytes,
    "jsonl": (SAMPLES / "corpus.jsonl").read_bytes,
    "csv": (SAMPLES / "corpus.csv").read_bytes,
    "tsv": tsv_of_samples,
    "parquet": parquet_of_samples,
}


def zstd(content: bytes) -> bytes:
    compressed: bytes = pa.compress(content, codec="zstd", asbytes=True)
    return compressed


COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "plain": bytes,
    "gzip": gzip.compress,
    "zstd": zstd,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
}


def sample_texts() -> list[str]:
    return (SAMPLES / "corpus.txt").read_bytes().decode().removesuffix("\n").split("\n")


@pytest.fixture(scope="module")
def expected(tiny: Tiny) -> npt.NDArray[np.float64]:
    """Give the samples' vectors as transformers makes them, one text at a time."""
    return oracle.reference_vectors(tiny("tiny-bert"), sample_texts(), "mean", max_length=64)


@pytest.mark.parametrize("channel", ["file", "stdin", "fifo"])
@pytest.mark.parametrize("compression", COMPRESS)
@pytest.mark.parametrize("suffix", CONTENTS)
def test_the_same_texts_give_the_same_vectors_however_they_come(
    embed: Embed, expected: npt.NDArray[np.float64], tmp_path: Path,
    suffix: str, compression: str, channel: str,
) -> None:  # fmt: skip
    content = COMPRESS[compression](CONTENTS[suffix]())
    path = tmp_path / f"in.{suffix}"
    named = () if suffix == "txt" else ("--input-format", suffix)
    if channel == "file":
        path.write_bytes(content)
        ran = embed(path)
    elif channel == "stdin":
        with as_stdin(content):
            ran = embed("-", *named)
    else:
        with as_fifo(path, content):
            ran = embed(path, *named)
    assert ran.code == 0, ran.err
    assert ran.column("text") == sample_texts()
    np.testing.assert_allclose(ran.vectors, expected, atol=1e-5)


def test_a_process_substitution_is_read_like_a_file(
    shell: Shell, tiny: Tiny, tmp_path: Path
) -> None:
    command = f"bertpool embed <(gzip -c {SAMPLES}/corpus.txt) -m {tiny('tiny-bert')} -o v.parquet"
    finished = shell(command, cwd=tmp_path)
    assert finished.returncode == 0, finished.stderr
    assert read_column(tmp_path / "v.parquet", "text") == sample_texts()


@pytest.mark.parametrize("name", ["in.txt.gz", "in.txt", "in"])
def test_compression_is_told_by_the_bytes_and_never_by_the_name(
    embed: Embed, tmp_path: Path, name: str
) -> None:
    (tmp_path / name).write_bytes(gzip.compress(b"hello\n") + gzip.compress(b"word\n"))
    (tmp_path / f"plain-{name}").write_bytes(b"hello\nword\n")
    assert embed(tmp_path / name).column("text") == ["hello", "word"]
    assert embed(tmp_path / f"plain-{name}").column("text") == ["hello", "word"]


def test_the_default_output_of_a_compressed_input_bears_its_name_without_the_suffixes(
    bertpool: Callable[..., Any], tiny: Tiny, tmp_path: Path
) -> None:
    (tmp_path / "notes.txt.gz").write_bytes(gzip.compress(b"hello\n"))
    assert bertpool("embed", tmp_path / "notes.txt.gz", "-m", tiny("tiny-bert")).code == 0
    assert sorted(os.listdir(tmp_path)) == ["notes.parquet", "notes.txt.gz"]


@pytest.mark.parametrize("compression", [name for name in COMPRESS if name != "plain"])
def test_a_truncated_archive_is_an_error_that_leaves_nothing(
    embed: Embed, tmp_path: Path, compression: str
) -> None:
    content = COMPRESS[compression](CONTENTS["txt"]())
    (tmp_path / "in.txt").write_bytes(content[: len(content) // 2])
    ran = embed(tmp_path / "in.txt")
    assert ran.code == 1
    assert f"{tmp_path}/in.txt: broken {compression} data" in ran.err
    assert os.listdir(tmp_path) == ["in.txt"]


@pytest.mark.usefixtures("small_windows")
def test_an_archive_cut_off_past_the_first_window_gives_no_file_either(
    embed: Embed, tmp_path: Path
) -> None:
    content = gzip.compress("\n".join(tiny_models.sentences(2000, seed=3, longest=9)).encode())
    (tmp_path / "in.txt.gz").write_bytes(content[:-9])
    ran = embed(tmp_path / "in.txt.gz")
    assert ran.code == 1
    assert sorted(os.listdir(tmp_path)) == ["in.txt.gz", "out0.parquet.partial"]


# Row i is text i


ODD = ["one", "", "two\u2028two \u0085\v\f", "a\0b", "", "mid\rdle", "last"]


@pytest.mark.parametrize("final", ["", "\n", "\r\n"])
@pytest.mark.parametrize("bom", [b"", b"\xef\xbb\xbf"])
def test_row_i_is_line_i_whatever_the_lines_hold(
    embed: Embed, tiny: Tiny, tmp_path: Path, bom: bytes, final: str
) -> None:
    (tmp_path / "in.txt").write_bytes(bom + ("\r\n".join(ODD[:3]) + "\n").encode())
    with (tmp_path / "in.txt").open("ab") as stream:
        stream.write(("\n".join(ODD[3:]) + final).encode())
    ran = embed(tmp_path / "in.txt")
    assert ran.column("text") == ODD
    assert ran.column("id") == list(range(len(ODD)))
    expected = oracle.reference_vectors(tiny("tiny-bert"), ODD, "mean", max_length=64)
    np.testing.assert_allclose(ran.vectors, expected, atol=1e-5)


def test_the_bom_of_every_file_goes(embed: Embed, tmp_path: Path) -> None:
    for name in ("1.txt", "2.txt"):
        (tmp_path / name).write_bytes(b"\xef\xbb\xbfhello\n")
    ran = embed(tmp_path / "1.txt", tmp_path / "2.txt")
    assert ran.column("text") == ["hello", "hello"]


def test_a_cell_keeps_its_newlines_quotes_and_commas(embed: Embed, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_bytes(b'id,text\r\n1,"x, ""y""\nz"\r\n2,w\r\n')
    ran = embed(tmp_path / "in.csv", "--blank", "skip")
    assert ran.column("text") == ['x, "y"\nz', "w"]
    assert ran.column("line") == [2, 4]


def test_a_very_long_cell_is_read(embed: Embed, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text(f'text\n"{"word " * 40_000}"\nhello\n')
    ran = embed(tmp_path / "in.csv")
    assert [len(text) for text in ran.column("text")] == [200_000, 5]
    assert ran.column("truncated") == [True, False]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b'text\na\n"b\nc\n', "in.csv:3: the quote opened here is never closed"),
        (b"text\na\nb,c\n", "in.csv:3: 2 cells, where the header has 1"),
        (b"text\na\n\xff\n", "in.csv:3: not UTF-8"),
    ],
)
def test_a_broken_table_ends_the_run_with_its_line(
    embed: Embed, tmp_path: Path, content: bytes, said: str
) -> None:
    (tmp_path / "in.csv").write_bytes(content)
    ran = embed(tmp_path / "in.csv")
    assert ran.code == 1
    assert said in ran.err
    assert os.listdir(tmp_path) == ["in.csv"]


@pytest.mark.parametrize("line", ["x" * 5_000_000, "word " * 1_000_000])
def test_a_line_of_five_megabytes_is_cut_and_its_neighbours_are_not_touched(
    embed: Embed, tmp_path: Path, line: str
) -> None:
    (tmp_path / "in.txt").write_text("ok\n" * 31 + line + "\n")
    (tmp_path / "start.txt").write_text(line[:70_000])
    (tmp_path / "ok.txt").write_text("ok\n" * 31)
    ran = embed(tmp_path / "in.txt")
    assert ran.code == 0
    assert ran.column("truncated") == [False] * 31 + ["w" in line]  # 5 MB of x is one [UNK]
    np.testing.assert_array_equal(ran.vectors[:31], embed(tmp_path / "ok.txt").vectors)
    np.testing.assert_array_equal(ran.vectors[31:], embed(tmp_path / "start.txt").vectors)


# Several inputs


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Make a directory of odd names."""
    folder = tmp_path / "texts"
    contents = {"10.txt": "a\ncat\n", "2.txt": "dog", ".h.txt": "no", "a b \u00e9.md": "hello"}
    for name, text in {**contents, "x.txt/y": "word", ".git/z.txt": "no"}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def test_each_file_of_a_directory_is_a_text_in_a_stable_order(embed: Embed, tree: Path) -> None:
    ran = embed(tree)
    names = ["10.txt", "2.txt", "a b \u00e9.md", "x.txt/y"]
    assert ran.column("source") == [f"{tree}/{name}" for name in names]
    assert ran.column("text") == ["a\ncat\n", "dog", "hello", "word"]


def test_a_directory_of_lines_gives_a_row_a_line(embed: Embed, tree: Path) -> None:
    ran = embed(tree, "--input-format", "lines")
    assert ran.column("text") == ["a", "cat", "dog", "hello", "word"]
    assert ran.column("line") == [1, 2, 1, 1, 1]


def test_the_default_output_of_a_directory_lies_beside_it(
    bertpool: Callable[..., Any], tiny: Tiny, tree: Path
) -> None:
    assert bertpool("embed", f"{tree}/", "-m", tiny("tiny-bert")).code == 0
    assert len(read_vectors(tree.with_name("texts.parquet"))) == 4


def test_all_that_cannot_be_read_is_said_before_anything_is_loaded(
    embed: Embed, tree: Path
) -> None:
    (tree / "broken").symlink_to("nowhere")
    (tree / "loop").symlink_to("loop")
    ran = embed(tree, tree / "no.txt")
    assert ran.code == 2
    assert len(ran.err.splitlines()) == 1
    assert all(name in ran.err for name in ("/broken: ", "/loop: ", "/no.txt: "))


def test_an_empty_directory_is_an_error_and_no_empty_success(embed: Embed, tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    ran = embed(tmp_path / "d")
    assert ran.code == 2
    assert not ran.path.exists()


def test_inputs_of_different_formats_follow_one_another(embed: Embed, tmp_path: Path) -> None:
    (tmp_path / "1.jsonl").write_text('{"text": "cat"}\n{"text": "dog"}\n')
    (tmp_path / "2.csv").write_text("n,text\n1,hello\n")
    (tmp_path / "3.txt").write_text("a word")
    with as_stdin(b"from stdin\n"):
        ran = embed(*(tmp_path / name for name in ("1.jsonl", "2.csv", "3.txt")), "-")
    assert ran.column("text") == ["cat", "dog", "hello", "a word", "from stdin"]
    names = [f"{tmp_path}/{name}" for name in ("1.jsonl", "1.jsonl", "2.csv", "3.txt")]
    assert ran.column("source") == [*names, "-"]
    assert ran.column("line") == [1, 2, 2, 1, 1]


def test_the_same_file_twice_is_read_twice(embed: Embed, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("cat\n")
    assert embed(tmp_path / "in.txt", tmp_path / "in.txt").column("id") == [0, 1]


def test_stdin_twice_is_refused(embed: Embed) -> None:
    ran = embed("-", "-")
    assert ran.code == 2
    assert "twice" in ran.err


# Pairs


def pair_vectors(
    directory: Path, pairs: Sequence[tuple[str, str]], *, max_length: int = 64
) -> npt.NDArray[np.float64]:
    """Encode pairs as transformers does, each alone, and average all tokens."""
    tokenizer, model = oracle.load(directory)
    rows = []
    for first, second in pairs:
        # In lists, as a lone empty second text is no pair to transformers.
        inputs = tokenizer(
            [first], [second], truncation=True, max_length=max_length, return_tensors="pt"
        )
        with torch.inference_mode():
            rows.append(model(**inputs).last_hidden_state[0].double().mean(dim=0).numpy())
    return np.array(rows)


def write_pairs(path: Path, pairs: Sequence[tuple[str, str]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as stream:
        csv.writer(stream).writerows([("text", "other"), *pairs])


PAIRS = [("the cat", "a dog runs"), ("the cat", ""), ("", "word"), ("hello", "hello"), ("", "")]


@pytest.mark.parametrize("model", ["tiny-bert", "tiny-roberta", "tiny-distil", "tiny-albert"])
def test_pairs_are_encoded_as_transformers_does(
    embed: Embed, tiny: Tiny, tmp_path: Path, model: str
) -> None:
    pairs = [*PAIRS, (LONG, "the cat"), ("the cat", LONG), (LONG, LONG + " dog")]
    write_pairs(tmp_path / "in.csv", pairs)
    ran = embed(tmp_path / "in.csv", "--pair-column", "other", model=model)
    assert ran.code == 0, ran.err
    np.testing.assert_allclose(ran.vectors, pair_vectors(tiny(model), pairs), atol=1e-5)
    assert ran.column("truncated") == [False] * 5 + [True] * 3
    assert list(zip(ran.column("text"), ran.column("pair"), strict=True)) == pairs


def test_the_sample_pairs_give_the_vectors_of_transformers(
    embed: Embed, tiny: Tiny, tmp_path: Path
) -> None:
    columns = ("--pair-column", "pair", "--keep", "label")
    ran = embed(SAMPLES / "pairs.csv", *columns)
    with (SAMPLES / "pairs.csv").open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    pairs = [(row["text"], row["pair"]) for row in rows]
    np.testing.assert_allclose(ran.vectors, pair_vectors(tiny("tiny-bert"), pairs), atol=1e-5)
    assert ran.column("label") == [row["label"] for row in rows]


def test_a_pair_is_blank_when_both_of_it_are(embed: Embed, tmp_path: Path) -> None:
    write_pairs(tmp_path / "in.csv", PAIRS)
    ran = embed(tmp_path / "in.csv", "--pair-column", "other", "--blank", "skip")
    assert ran.column("id") == [0, 1, 2, 3]


def test_pairs_cannot_be_read_from_lines(embed: Embed, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("cat\n")
    ran = embed(tmp_path / "in.txt", "--pair-column", "other")
    assert ran.code == 2
    assert "--pair-column needs columns" in ran.err


# Identities and kept columns


def test_kept_fields_of_json_read_back_with_their_types(embed: Embed, tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"text": "cat", "n": 1, "x": 0.5, "yes": True, "s": "caf\u00e9", "l": [1, "a"], "o": None},
        {"text": "dog", "n": 2**60, "x": 2, "yes": False, "s": "", "l": {"k": None}, "o": "late"},
        {"text": "a", "n": None},
    ]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / "in.jsonl").write_text(lines)
    keep = [word for name in ("n", "x", "yes", "s", "l", "o") for word in ("--keep", name)]
    ran = embed(tmp_path / "in.jsonl", *keep)
    table = pq.read_table(ran.path)
    types = {name: str(table.schema.field(name).type) for name in "n x yes s l o".split()}
    assert types == {
        "n": "int64", "x": "double", "yes": "bool", "s": "string", "l": "string", "o": "string",
    }  # fmt: skip
    assert ran.column("n") == [1, 2**60, None]
    assert ran.column("x") == [0.5, 2.0, None]
    assert ran.column("yes") == [True, False, None]
    assert ran.column("s") == ["caf\u00e9", "", None]
    assert ran.column("l") == ['[1, "a"]', '{"k": null}', None]
    assert ran.column("o") == [None, "late", None]


@pytest.mark.usefixtures("small_windows")
def test_kept_columns_of_parquet_read_back_as_they_were(embed: Embed, tmp_path: Path) -> None:
    days = [datetime.datetime(2024, 1, day) for day in range(1, 6)]
    columns = {
        "when": pa.array(days, pa.timestamp("us")),
        "tags": pa.array([["a"], [], None, ["b", "c"], ["d"]]),
        "kind": pa.array(["x", "y", "x", None, "x"]).dictionary_encode(),
        "small": pa.array([1, 2, 3, 4, 5], pa.int8()),
        "raw": pa.array([b"\xff", b"", None, b"a", b"b"]),
    }
    source = pa.table({"text": ["cat", "dog", "a", "hi", "ok"], "key": ["e", "d", "c", "b", "a"]})
    for name, column in columns.items():
        source = source.append_column(name, column)
    pq.write_table(source, tmp_path / "in.parquet")
    keep = [word for name in columns for word in ("--keep", name)]
    ran = embed(tmp_path / "in.parquet", "--id-column", "key", *keep)
    made = pq.read_table(ran.path)
    assert ran.column("id") == ["e", "d", "c", "b", "a"]
    for name, column in columns.items():
        # Categories are kept as their values.
        dictionary = pa.types.is_dictionary(column.type)
        assert made[name].type == (column.type.value_type if dictionary else column.type)
        assert made[name].to_pylist() == column.to_pylist()


def test_an_id_column_of_integers_stays_one(embed: Embed, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"id": 7, "text": "a"}\n{"id": -1, "text": "b"}\n')
    ran = embed(tmp_path / "in.jsonl", "--id-column", "id")
    assert ran.column("id") == [7, -1]
    assert pq.read_schema(ran.path).field("id").type == pa.int64()


def test_cells_stay_as_they_were_typed(embed: Embed, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("key,text,n\n007,NA,1e3\n008,null,\n")
    ran = embed(tmp_path / "in.csv", "--id-column", "key", "--keep", "n")
    assert ran.column("id") == ["007", "008"]
    assert ran.column("text") == ["NA", "null"]
    assert ran.column("n") == ["1e3", ""]


def test_a_column_that_is_not_there_is_refused_and_those_there_are_named(
    embed: Embed, tmp_path: Path
) -> None:
    (tmp_path / "in.csv").write_text("key,body\n1,cat\n")
    ran = embed(tmp_path / "in.csv")
    assert ran.code == 2
    assert 'no column "text"; there are: "key", "body"' in ran.err


@pytest.mark.parametrize("name", ["embedding", "n_tokens", "text", "source"])
def test_a_kept_column_under_a_name_of_the_output_is_refused(
    embed: Embed, tmp_path: Path, name: str
) -> None:
    (tmp_path / "in.csv").write_text(f"text,{name}\ncat,1\n" if name != "text" else "text\ncat\n")
    ran = embed(tmp_path / "in.csv", "--keep", name)
    assert ran.code == 2
    assert f"--keep {name}" in ran.err


# Rejects


def rejects_of(ran: Ran) -> list[dict[str, Any]]:
    lines = Path(f"{ran.path}.rejects.jsonl").read_text("utf-8").splitlines()
    return [json.loads(line) for line in lines]


BAD_JSON = b'{"text": "cat"}\nno json \\ \xff\n{"text": "dog"}\n{"text": 7}\n[1]\n{"text": "a"}\n'


@pytest.mark.parametrize("rows", [1, 2, 100])
def test_rejects_hold_row_source_line_reason_and_bytes_and_the_others_keep_their_ids(
    embed: Embed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    monkeypatch.setattr("bertpool.corpus.corpus.WINDOW_ROWS", rows)
    (tmp_path / "in.jsonl").write_bytes(BAD_JSON)
    ran = embed(tmp_path / "in.jsonl", "--on-error", "reject", "--report", "-")
    assert ran.code == 3
    assert ran.column("text") == ["cat", "dog", "a"]
    assert ran.column("id") == [0, 2, 5]
    rejects = rejects_of(ran)
    assert [one["row"] for one in rejects] == [1, 3, 4]
    assert [one["line"] for one in rejects] == [2, 4, 5]
    assert {one["source"] for one in rejects} == {f"{tmp_path}/in.jsonl"}
    assert [one["data"] for one in rejects] == [r"no json \\ \xff", '{"text": 7}', "[1]"]
    assert "not UTF-8 at byte 11" in rejects[0]["reason"]
    assert rejects[1]["reason"] == 'field "text" is a number, not a string'
    assert rejects[2]["reason"] == "a list, not an object"
    assert json.loads(ran.out)["rejected"] == 3
    assert "3 rejected, see " in ran.err


def test_lines_that_are_not_utf8_are_rejected_with_their_bytes(
    embed: Embed, tmp_path: Path
) -> None:
    (tmp_path / "in.txt").write_bytes(b"cat\nit\x96s\ncaf\xc3\xa9 \xe9\ndog\n")
    ran = embed(tmp_path / "in.txt", "--on-error", "reject")
    assert ran.code == 3
    assert ran.column("id") == [0, 3]
    assert [one["data"] for one in rejects_of(ran)] == [r"it\x96s", r"café \xe9"]


def test_a_run_that_rejects_nothing_leaves_no_file_of_rejects(embed: Embed, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("cat\n")
    ran = embed(tmp_path / "in.txt", "--on-error", "reject")
    assert ran.code == 0
    assert sorted(os.listdir(tmp_path)) == ["in.txt", "out0.parquet"]


def test_a_forced_rerun_that_rejects_nothing_removes_the_old_rejects(
    bertpool: Callable[..., Any], tiny: Tiny, tmp_path: Path
) -> None:
    source, path = tmp_path / "in.txt", tmp_path / "v.parquet"
    command = ("embed", source, "-m", tiny("tiny-bert"), "-o", path, "--on-error", "reject")
    source.write_bytes(b"cat\n\xff\n")
    assert bertpool(*command).code == 3
    source.write_bytes(b"cat\n")
    assert bertpool(*command).code == 2
    assert bertpool(*command, "--force").code == 0
    assert sorted(os.listdir(tmp_path)) == ["in.txt", "v.parquet"]


def test_nothing_but_rejects_gives_an_empty_output(embed: Embed, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_bytes(b"\xff\n\xfe\n")
    ran = embed(tmp_path / "in.txt", "--on-error", "reject")
    assert ran.code == 3
    assert ran.vectors.shape == (0, 32)
    assert len(rejects_of(ran)) == 2


def test_rejects_are_refused_with_npy_whose_rows_could_not_be_matched(
    embed: Embed, tmp_path: Path
) -> None:
    (tmp_path / "in.txt").write_bytes(b"cat\n\xff\n")
    ran = embed(tmp_path / "in.txt", "--on-error", "reject", suffix=".npy")
    assert ran.code == 2
    assert "--on-error reject" in ran.err
    assert os.listdir(tmp_path) == ["in.txt"]


def test_the_rejects_of_a_run_can_be_read_as_its_next_input(embed: Embed, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_bytes(b"cat\n\xff word\n")
    first = embed(tmp_path / "in.txt", "--on-error", "reject")
    again = embed(f"{first.path}.rejects.jsonl", "--text-column", "data")
    assert again.column("text") == [r"\xff word"]


# Texts that are too long


@pytest.mark.usefixtures("small_windows")
def test_texts_that_are_too_long_are_named_before_anything_is_encoded(
    embed: Embed, tmp_path: Path
) -> None:
    texts = ["a", "b", "cat", LONG, LONG, "dog", LONG, LONG]
    (tmp_path / "in.txt").write_text("\n".join(texts))
    ran = embed(tmp_path / "in.txt", "--on-truncate", "error")
    assert ran.code == 1
    assert f"row 3 ({tmp_path}/in.txt:4, 102 tokens)" in ran.err
    assert len(ran.err.splitlines()) == 1  # nothing was loaded
    assert os.listdir(tmp_path) == ["in.txt"]  # no window was finished


def test_many_rows_that_are_too_long_are_counted_out_to_three(embed: Embed, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("\n".join([LONG] * 5))
    ran = embed(tmp_path / "in.txt", "--on-truncate", "error")
    assert [f"row {i} " in ran.err for i in range(5)] == [True, True, True, False, False]
    assert "tokens), ...; pass" in ran.err


@pytest.mark.usefixtures("small_windows")
def test_of_a_pipe_texts_that_are_too_long_end_the_run_where_they_come(
    embed: Embed, tmp_path: Path
) -> None:
    with as_stdin("\n".join(["a", "b", "cat", LONG, "dog"]).encode()):
        ran = embed("-", "--on-truncate", "error")
    assert ran.code == 1
    assert "row 3 (-:4, 102 tokens)" in ran.err
    assert os.listdir(tmp_path) == ["out0.parquet.partial"]


def test_texts_that_fit_are_no_error(embed: Embed, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text(" ".join(["word"] * 62))
    assert embed(tmp_path / "in.txt", "--on-truncate", "error").column("n_tokens") == [64]


WINDOWS = ("--on-truncate", "window")


def test_windows_give_the_mean_over_all_tokens_of_a_text(
    embed: Embed, tiny: Tiny, tmp_path: Path
) -> None:
    words = (tiny_models.sentences(1, seed=11, longest=1) + tiny_models.WORDS * 2)[:124]
    (tmp_path / "in.txt").write_text(" ".join(words))
    ran = embed(tmp_path / "in.txt", *WINDOWS, "--stride", "0")
    halves = [" ".join(words[:62]), " ".join(words[62:])]
    first, second = (oracle.encode_alone(tiny("tiny-bert"), half, 64)[0][-1][0] for half in halves)
    # [CLS] counts once, in the first window, and [SEP] once, in the last.
    expected = np.concatenate([first[:-1], second[1:]]).mean(axis=0)
    np.testing.assert_allclose(ran.vectors, [expected], atol=1e-5)
    assert ran.column("n_tokens") == [126]


def test_a_text_that_fits_has_the_same_vector_in_windows(embed: Embed, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("\n".join(tiny_models.sentences(50, seed=2, longest=62)))
    np.testing.assert_array_equal(
        embed(tmp_path / "in.txt", *WINDOWS).vectors, embed(tmp_path / "in.txt").vectors
    )


def test_both_ends_of_a_long_text_count_in_windows(embed: Embed, tmp_path: Path) -> None:
    texts = [LONG, "cat " + LONG[5:], LONG[:-4] + "cat"]
    (tmp_path / "in.txt").write_text("\n".join(texts))
    whole, front, back = embed(tmp_path / "in.txt", *WINDOWS).vectors
    assert np.abs(whole - front).max() > 1e-4
    assert np.abs(whole - back).max() > 1e-4


def test_a_larger_stride_encodes_more_tokens(embed: Embed, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text(" ".join(["word"] * 500))
    tokens = [
        json.loads(embed(tmp_path / "in.txt", *WINDOWS, "--stride", n, "--report", "-").out)[
            "tokens"
        ]
        for n in (0, 30, 61)
    ]
    assert tokens == sorted(set(tokens))


def test_a_long_pair_cannot_be_windowed(embed: Embed, tmp_path: Path) -> None:
    write_pairs(tmp_path / "in.csv", PAIRS)
    ran = embed(tmp_path / "in.csv", *WINDOWS, "--pair-column", "other")
    assert ran.code == 2
    assert "a pair can't be split" in ran.err


# An output that is an input


@pytest.mark.parametrize(
    "output",
    ["in.npy", "./in.npy", "../d/in.npy", "sym.npy", "hard.npy", "to-parent/in.npy"],
)
def test_an_output_that_is_an_input_is_refused_under_any_name(
    bertpool: Callable[..., Any], tiny: Tiny, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, output: str,
) -> None:  # fmt: skip
    folder = tmp_path / "d"
    folder.mkdir()
    monkeypatch.chdir(folder)
    Path("in.npy").write_text("hello\n")
    Path("sym.npy").symlink_to("in.npy")
    Path("hard.npy").hardlink_to("in.npy")
    Path("to-parent").symlink_to(folder)
    (folder / "same.txt").symlink_to("in.npy")
    ran = bertpool(
        "embed", "same.txt", "-m", tiny("tiny-bert"), "-o", output, "--force", "--resume"
    )
    forced = bertpool("embed", "same.txt", "-m", tiny("tiny-bert"), "-o", output, "--force")
    assert (ran.code, forced.code) == (2, 2)
    assert "is an input" in forced.err
    assert Path("in.npy").read_text() == "hello\n"


@pytest.mark.parametrize(
    ("source", "output", "options"),
    [
        ("v.npy.json", "v.npy", ["--input-format", "lines"]),
        ("v.mean.npy", "v.npy", ["-s", "cls,mean", "--input-format", "lines"]),
        ("v.parquet.rejects.jsonl", "v.parquet", ["--on-error", "reject"]),
        ("v.txt", "v.txt", ["--output-format", "parquet"]),
    ],
)
def test_no_file_beside_the_output_may_be_an_input_either(
    bertpool: Callable[..., Any], tiny: Tiny, tmp_path: Path,
    source: str, output: str, options: list[str],
) -> None:  # fmt: skip
    (tmp_path / source).write_text('{"text": "hello"}\n')
    command = ("embed", tmp_path / source, "-m", tiny("tiny-bert"), "-o", tmp_path / output)
    ran = bertpool(*command, *options, "--force")
    assert ran.code == 2
    assert "is an input" in ran.err
    assert (tmp_path / source).read_text() == '{"text": "hello"}\n'


def test_an_output_inside_an_input_directory_is_refused(
    bertpool: Callable[..., Any], tiny: Tiny, tree: Path
) -> None:
    ran = bertpool("embed", tree, "-m", tiny("tiny-bert"), "-o", tree / "v.parquet")
    assert ran.code == 2
    assert "is inside the input" in ran.err
