from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tiny_models
from changed_files import change_provenance, change_vectors

Tiny = Callable[[str], Path]
Bertpool = Callable[..., Any]
Shell = Callable[..., subprocess.CompletedProcess[str]]
Make = Callable[..., Path]
BERTPOOL = str(Path(sys.executable).with_name("bertpool"))
TEXTS = ["hello word", "", "the cat runs by the river", "dog"]


@pytest.fixture
def model(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make tiny-bert the model of every command."""
    monkeypatch.setenv("BERTPOOL_MODEL", str(tiny("tiny-bert")))
    return tiny("tiny-bert")


@pytest.fixture
def make(bertpool: Bertpool, model: Path, tmp_path: Path) -> Make:
    """Embed some texts with tiny-bert into a file of that name."""

    def run(name: str = "v.parquet", *arguments: str, texts: Sequence[str] = TEXTS) -> Path:
        source = tmp_path / "in.txt"
        source.write_text("\n".join(texts))
        options = ["-s", "mean", "-o", tmp_path / name, "--force", *arguments]
        assert bertpool("embed", source, *options).code == 0
        return tmp_path / name

    return run


def on_terminal(*arguments: object, columns: int = 60) -> list[str]:
    """Run `bertpool` with a pseudo-terminal as stdout, and return the lines shown."""
    screen, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    kept = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "CI")}
    process = subprocess.Popen(
        [BERTPOOL, *map(str, arguments)],
        env={**kept, "TERM": "xterm", "NO_COLOR": "1"},
        stdin=subprocess.DEVNULL,
        stdout=terminal,
        stderr=subprocess.DEVNULL,
    )
    os.close(terminal)
    shown = b""
    while piece := _read(screen):
        shown += piece
    os.close(screen)
    assert process.wait(timeout=60) == 0
    return shown.decode().replace("\x1b[1m", "").replace("\x1b[0m", "").splitlines()


def _read(screen: int) -> bytes:
    try:
        return os.read(screen, 4096)
    except OSError:  # the terminal's last user is gone
        return b""


@pytest.mark.parametrize("name", ["parquet", "arrow"])
def test_what_stdout_got_is_a_file_like_any(
    shell: Shell, bertpool: Bertpool, model: Path, tmp_path: Path, name: str
) -> None:
    (tmp_path / "in.txt").write_text("\n".join(TEXTS))
    path = tmp_path / f"v.{name}"
    command = f"bertpool embed in.txt -s mean -o - --output-format {name} > {path.name}"
    assert shell(command, cwd=tmp_path).returncode == 0
    commands = [
        ("inspect", path),
        ("verify", path),
        ("search", path, "dog"),
        ("plot", path, "-o", tmp_path / f"{name}.html"),
    ]
    for arguments in commands:
        finished = bertpool(*arguments)
        assert (finished.code, "error" in finished.err) == (0, False), arguments
    assert "4 of 4 rows" in bertpool("verify", path).err


OF_EMBED = {
    "OUTPUT": "v.npy", "SAMPLE": "x", "STRATEGY": "tokens", "LAYER": "-1,-2", "PROMPT": "a: ",
    "INPUT": "no-such.txt",
}  # fmt: skip


def test_variables_of_embed_leave_other_commands_alone(
    bertpool: Bertpool, make: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = make()
    found = bertpool("search", path, "dog", "--json").out
    for name, value in OF_EMBED.items():
        monkeypatch.setenv(f"BERTPOOL_{name}", value)
    assert bertpool("search", path, "dog", "--json").out == found
    commands = [
        ("verify", path),
        ("plot", path),
        ("explain", "dog"),
        ("compare", path.parent / "in.txt"),
    ]
    for arguments in commands:
        finished = bertpool(*arguments)
        assert (finished.code, "error" in finished.err) == (0, False), arguments
    assert (tmp_path / "v.png").is_file()
    shard = bertpool("merge", path)
    assert (shard.code, "--output" in shard.err) == (2, True)


# inspect


def test_inspect_shows_aligned_text_without_boxes(bertpool: Bertpool, make: Make) -> None:
    finished = bertpool("inspect", make())
    lines = finished.out.splitlines()
    assert finished.code == 0
    assert finished.err == ""
    assert finished.out.isascii()
    assert next(line for line in lines if line.startswith("rows")).split() == ["rows", "4"]
    starts = {
        line.index(value)
        for line in lines
        for value in ("tiny-bert", "32 float32")
        if value in line
    }
    assert len(starts) == 1


def test_inspect_prints_json(bertpool: Bertpool, make: Make) -> None:
    finished = bertpool("inspect", make(), "--json")
    content = json.loads(finished.out)
    (file,) = content["files"]
    assert (content["comparable"], content["differences"]) == (True, [])
    assert (file["rows"], file["vectors"][0]["dimensions"]) == (4, 32)
    assert file["tokens"]["histogram"] == {"2": 1, "4": 2, "8": 1}
    assert file["provenance"]["model"] == "tiny-bert"


def test_inspect_of_files_that_differ_shows_the_field_and_fails(
    bertpool: Bertpool, make: Make
) -> None:
    one, two = make("a.parquet"), make("b.npy", "--normalize")
    finished = bertpool("inspect", one, two)
    assert finished.code == 1
    assert f"{two}  normalize  True" in finished.out
    assert finished.err.splitlines()[-1].startswith("error: the vectors aren't to be compared")
    assert bertpool("inspect", one, one).code == 0
    machine = bertpool("inspect", one, two, "--json")
    assert machine.code == 1
    assert json.loads(machine.out)["differences"][-1]["value"] is True


@pytest.mark.parametrize(
    ("content", "name", "code"),
    [(b"text", "v.parquet", 1), (b"", "v.txt", 2), (None, "v.npy", 2), (b"\x93NUMPY", "v.npy", 1)],
    ids=str,
)
@pytest.mark.parametrize("command", [["inspect"], ["verify"], ["search", "dog"]], ids=str)
def test_a_file_that_cannot_be_read_is_one_line(
    bertpool: Bertpool, tmp_path: Path, command: list[str], content: bytes, name: str, code: int
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    finished = bertpool(command[0], tmp_path / name, *command[1:])
    assert (finished.code, finished.out) == (code, "")
    assert finished.err.startswith(f"error: {tmp_path / name}: ")
    assert len(finished.err.splitlines()) == 1


def test_parquet_of_others_is_refused(bertpool: Bertpool, tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": ["a"]}), tmp_path / "v.parquet")
    finished = bertpool("inspect", tmp_path / "v.parquet")
    assert (
        finished.err
        == f"error: {tmp_path}/v.parquet: no vectors of bertpool: it has no provenance\n"
    )


# verify


def test_verify_passes_a_good_file_and_says_so(bertpool: Bertpool, make: Make) -> None:
    path = make()
    finished = bertpool("verify", path)
    assert finished.code == 0
    assert finished.out.split()[-4:] == ["1", "0", "of", "4"] or "0 of 4" in finished.out
    assert finished.err == f"{path}: right: 4 of 4 rows encoded again, tolerance 1e-05\n"


def test_verify_fails_two_rows_swapped(bertpool: Bertpool, make: Make) -> None:
    path = make()
    change_vectors(path, lambda vectors: vectors.__setitem__([0, 2], vectors[[2, 0]]))
    finished = bertpool("verify", path, "--sample", "all", "--json")
    content = json.loads(finished.out)
    assert finished.code == 1
    assert content["passed"] is False
    assert content["columns"][0]["failed_rows"] == [0, 2]
    assert "embedding: not the vectors of their texts: row 0, 2 (2)" in finished.err


def test_verify_fails_a_changed_strategy(bertpool: Bertpool, make: Make) -> None:
    path = make()
    change_provenance(path, strategies=["cls"])
    finished = bertpool("verify", path)
    assert finished.code == 1
    assert "4 of 4" in finished.out
    assert "its provenance was changed after the file was written" in finished.err


def test_verify_fails_a_row_scaled_by_one_percent(bertpool: Bertpool, make: Make) -> None:
    path = make()
    change_vectors(path, lambda vectors: vectors.__setitem__(3, vectors[3] * 1.01))
    assert bertpool("verify", path, "--sample", "all").code == 1
    assert bertpool("verify", path, "--tolerance", "0.02").code == 0


def test_verify_takes_the_texts_from_the_input(bertpool: Bertpool, make: Make) -> None:
    path = make("v.npy")
    without = bertpool("verify", path)
    assert without.code == 1
    assert "name what it was made from with --input" in without.err
    assert bertpool("verify", path, "--input", path.with_name("in.txt")).code == 0


def test_verify_takes_the_sample_that_is_asked_for(bertpool: Bertpool, make: Make) -> None:
    path = make(texts=tiny_models.sentences(200, seed=1, longest=5))
    rows = [
        json.loads(bertpool("verify", path, "--json", *options).out)["sampled"]
        for options in ([], ["--sample", "5"], ["--sample", "all"])
    ]
    assert 64 <= rows[0] <= 67
    assert 5 <= rows[1] <= 8
    assert rows[2] == 200


def test_verify_samples_other_rows_with_another_seed(bertpool: Bertpool, make: Make) -> None:
    path = make(texts=tiny_models.sentences(100, seed=1, longest=5))
    change_vectors(path, lambda vectors: vectors * 2)

    def failed(seed: int) -> list[int]:
        finished = bertpool("verify", path, "--sample", "2", "--seed", seed, "--json")
        rows: list[int] = json.loads(finished.out)["columns"][0]["failed_rows"]
        return rows

    assert failed(0) == failed(0) != failed(1)


def test_verify_of_a_wrong_model_is_one_line(bertpool: Bertpool, make: Make, tiny: Tiny) -> None:
    finished = bertpool("verify", make(), "-m", tiny("tiny-roberta"))
    assert (finished.code, finished.out) == (1, "")
    assert (
        "error: tiny-roberta isn't the model that made the file: its config differs" in finished.err
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ["verify", "{}", "--sample", "0"],
        ["verify", "{}", "--sample", "some"],
        ["verify", "{}", "--tolerance", "2"],
        ["verify", "{}", "--threads", "0"],
        ["verify", "{}", "--device", "gpu"],
        ["verify", "{}", "--input", "no-such.txt"],
        ["search", "{}", "dog", "-k", "0"],
        ["search", "{}", "dog", "--threads", "0"],
        ["search", "{}", "dog", "--device", "gpu"],
        ["search", "{}", "dog", "--column", "cls"],
    ],
    ids=" ".join,
)
def test_a_usage_error_is_one_line_and_exit_code_2(
    bertpool: Bertpool, make: Make, arguments: list[str]
) -> None:
    path = make()
    finished = bertpool(*(path if one == "{}" else one for one in arguments))
    assert (finished.code, finished.out) == (2, "")
    assert finished.err.startswith("error: ")
    assert len(finished.err.splitlines()) == 1
    assert arguments[-1] in finished.err


def test_offline_forbids_to_fetch_the_model_of_a_file(
    bertpool: Bertpool, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make()
    change_provenance(path, model="no-such-owner/no-such-model", revision="main")
    monkeypatch.delenv("BERTPOOL_MODEL")
    for command in (["verify", path], ["search", path, "dog"]):
        assert "--offline forbids" not in bertpool(*command).err
        assert "--offline forbids" in bertpool(*command, "--offline").err


# search


def test_search_shows_rank_cosine_id_and_text_unshortened(bertpool: Bertpool, make: Make) -> None:
    long = "the cat " * 40 + "dog"
    path = make(texts=[*TEXTS, long])
    finished = bertpool("search", path, long, "-k", "2")
    lines = finished.out.splitlines()
    assert (finished.code, finished.err) == (0, "")
    assert lines[0].split() == ["rank", "cosine", "id", "text"]
    assert lines[1].split(maxsplit=3) == ["1", "1.0000", "4", long]
    assert len(lines) == 3


def test_search_prints_a_json_line_for_each_query_and_hit(
    bertpool: Bertpool, make: Make, shell: Shell
) -> None:
    path = make(texts=["hello", "", "caf\u00e9 日本"])
    finished = shell(
        f"printf 'hello\\n\\ncaf\u00e9 日本\\n' | bertpool search {path} - -k 2 --json",
        cwd=path.parent,
    )
    hits = [json.loads(line) for line in finished.stdout.splitlines()]
    assert finished.returncode == 0
    assert [(hit["query"], hit["rank"]) for hit in hits] == [
        ("hello", 1), ("hello", 2), ("caf\u00e9 日本", 1), ("caf\u00e9 日本", 2),
    ]  # fmt: skip
    assert (hits[0]["row"], hits[0]["id"], hits[0]["text"]) == (0, 0, "hello")
    assert hits[2]["text"] == "caf\u00e9 日本"
    assert hits[2]["score"] == pytest.approx(1)


def test_search_of_several_queries_shows_which_is_answered(make: Make, shell: Shell) -> None:
    path = make()
    finished = shell(
        f"printf 'dog\\nhello word\\n' | bertpool search {path} - -k 1", cwd=path.parent
    )
    lines = [line.split() for line in finished.stdout.splitlines()]
    assert lines[0] == ["query", "rank", "cosine", "id", "text"]
    assert lines[1] == ["dog", "1", "1.0000", "3", "dog"]


def test_search_of_npy_shows_row_numbers(bertpool: Bertpool, make: Make) -> None:
    path = make("v.npy")
    assert bertpool("search", path, "dog", "-k", "1").out.split() == [
        "rank", "cosine", "row", "1", "1.0000", "3",
    ]  # fmt: skip
    hit = json.loads(bertpool("search", path, "dog", "-k", "1", "--json").out)
    assert hit.keys() == {"query", "rank", "score", "row"}


def test_search_notes_the_prompt_on_stderr(bertpool: Bertpool, make: Make) -> None:
    path = make("v.parquet", "--prompt", "the cat ")
    finished = bertpool("search", path, "dog", "-k", "1", "--json")
    assert json.loads(finished.out)["text"] == "dog"
    assert "note: queries get the prompt of the file's texts: 'the cat '" in finished.err
    assert bertpool("search", path, "dog", "--prompt", "").err == ""


def test_search_takes_the_column_that_is_named(bertpool: Bertpool, make: Make) -> None:
    path = make("v.parquet", "-s", "mean,cls")
    found = bertpool("search", path, "dog", "--column", "cls", "--json")
    assert found.err == ""
    assert json.loads(found.out.splitlines()[0])["text"] == "dog"
    scores = [
        json.loads(bertpool("search", path, "dog", "--column", name, "--json").out.splitlines()[1])
        for name in ("cls", "mean")
    ]
    assert scores[0]["score"] != scores[1]["score"]


def test_control_characters_of_a_text_stay_on_their_line(bertpool: Bertpool, make: Make) -> None:
    path = make(texts=["a\x1b[31mb\rc", "dog"])
    lines = bertpool("search", path, "dog").out.splitlines()
    assert len(lines) == 3
    assert "a\\x1b[31mb\\rc" in lines[2]


def test_a_terminal_gets_a_table_with_texts_shortened_to_its_width(make: Make, model: Path) -> None:
    path = make(texts=["the cat " * 40, "dog [red]x[/red] 日本語"])
    lines = on_terminal("search", path, "dog", "-m", model)
    assert max(map(len, lines)) <= 60
    assert sum("\u2026" in line for line in lines) == 1
    assert any("\u2500" in line for line in lines)
    assert sum(bool(re.search(r" 0\.\d{4} ", line)) for line in lines) == 2
    assert sum(bool(line.strip()) for line in lines) == 4
    assert any("dog [red]x[/red] 日本語" in line for line in lines)


def test_a_terminal_gets_the_facts_whole(make: Make) -> None:
    lines = on_terminal("inspect", make("v.parquet", "--prompt", "a long prompt " * 10))
    assert "\u2026" not in "".join(lines)


def test_a_closed_pipe_ends_a_search_quietly(make: Make, shell: Shell) -> None:
    path = make(texts=tiny_models.sentences(3000, seed=1, longest=20))
    command = f"bertpool search {path} dog -k 3000 --json | head -n 1; echo ${{PIPESTATUS[0]}}"
    finished = shell(command, cwd=path.parent)
    assert finished.stdout.splitlines()[1] in ("141", "0")
    assert finished.stderr == ""


def test_a_search_of_100_000_vectors_finds_a_text_first_with_memory_flat(
    make: Make, model: Path, shell: Shell, tmp_path: Path
) -> None:
    text = "the cat runs by the river"
    peaks = []
    for rows in (10_000, 100_000):
        path = make(f"v{rows}.npy", texts=[text])
        noise = np.random.default_rng(0).normal(size=(rows, 32)).astype(np.float32)
        place = rows - 7
        noise[place] = np.load(path)[0]
        change_vectors(path, lambda _, changed=noise: changed)
        finished = shell(
            f"""python -c "
import resource, sys
from bertpool.cli.main import run
code = run(['search', '{path}', '{text}', '-k', '3', '--json'])
print(code, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
" """,
            cwd=tmp_path,
        )
        *hits, end = finished.stdout.splitlines()
        assert end.split()[0] == "0", finished.stderr
        assert json.loads(hits[0])["row"] == place
        peaks.append(int(end.split()[1]))
    assert peaks[1] <= 1.1 * peaks[0]


# The command line


@pytest.mark.parametrize("command", ["inspect", "verify", "search"])
def test_help_imports_nothing_heavy(shell: Shell, tmp_path: Path, command: str) -> None:
    finished = shell(f"python -X importtime -m bertpool {command} --help", cwd=tmp_path)
    assert finished.returncode == 0
    for heavy in ("torch", "transformers", "pyarrow", "numpy"):
        assert f"| {heavy}\n" not in finished.stderr
        assert f"| {heavy}." not in finished.stderr.replace("   ", " ")


@pytest.mark.parametrize(
    "command", ["verify v.parquet", "search v.parquet dog", "inspect v.parquet"]
)
def test_a_missing_file_is_said_without_loading_torch(
    shell: Shell, tmp_path: Path, command: str
) -> None:
    finished = shell(f"python -X importtime -m bertpool {command}", cwd=tmp_path)
    assert finished.returncode == 2
    names = {line.split("|")[-1].strip() for line in finished.stderr.splitlines()}
    assert "typer" in names
    assert not {"torch", "transformers", "pyarrow"} & names


def test_the_real_model_passes_verify_and_finds_a_text(
    bertpool: Bertpool, minilm: Path, tmp_path: Path
) -> None:
    source, path = tmp_path / "in.txt", tmp_path / "v.parquet"
    source.write_text("A dog is running.\nStock prices fell.\n")
    assert bertpool("embed", source, "-m", minilm).code == 0
    path = tmp_path / "in.parquet"
    assert bertpool("verify", path, "-m", minilm).code == 0
    hit = json.loads(
        bertpool("search", path, "Stock prices fell.", "-m", minilm, "-k", "1", "--json").out
    )
    assert hit["text"] == "Stock prices fell."
    assert hit["score"] == pytest.approx(1, abs=1e-6)
