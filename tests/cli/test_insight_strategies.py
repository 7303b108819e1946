from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Tiny = Callable[[str], Path]
Run = Callable[..., Any]
BOXES = "─│━┃╭╮█▌"


@pytest.fixture
def model(tiny: Tiny) -> list[str]:
    return ["-m", str(tiny("tiny-bert"))]


# explain


def test_explain_prints_a_row_for_each_token_in_plain_text(bertpool: Run, model: list[str]) -> None:
    finished = bertpool("explain", "cat two", "-s", "cls,mean", *model)
    assert finished.code == 0
    lines = [line.split() for line in finished.out.splitlines() if line]
    assert lines[1] == ["#", "token", "id", "cls", "mean"]
    assert [line[1] for line in lines[2:]] == ["[CLS]", "cat", "two", "[SEP]"]
    assert [line[-2:] for line in lines[2:4]] == [["1.000", "0.250"], ["0.000", "0.250"]]
    assert not set(BOXES) & set(finished.out)


def test_explain_writes_json(bertpool: Run, model: list[str]) -> None:
    finished = bertpool("explain", "cat two", "-s", "mean", "--json", *model)
    content = json.loads(finished.out)
    assert [token["weights"]["mean"] for token in content["tokens"]] == [0.25] * 4
    assert content["strategies"] == {"mean": {"linear": True}}


def test_explain_marks_what_was_cut(bertpool: Run, model: list[str]) -> None:
    finished = bertpool("explain", "cat one two", "--max-length", "3", *model)
    assert "cut: 2 tokens beyond the limit of 3" in finished.out
    assert sum(line.endswith("  cut") for line in finished.out.splitlines()) == 2


def test_explain_takes_a_row_of_a_file(bertpool: Run, model: list[str], tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('id,body\n1,cat\n2,"dog\nhouse"\n')
    options = ["--input", tmp_path / "a.csv", "--text-column", "body", "--row", "1", "--json"]
    tokens = json.loads(bertpool("explain", *options, *model).out)["tokens"]
    assert [token["token"] for token in tokens] == ["[CLS]", "dog", "house", "[SEP]"]


def test_explain_reads_stdin(shell: Run, model: list[str], tmp_path: Path) -> None:
    command = f"printf 'cat\\ndog\\n' | bertpool explain - --row 1 -s mean {' '.join(model)}"
    assert " dog " in shell(command, cwd=tmp_path).stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "give a text"),
        (["cat", "--input", "a.txt"], "one of the two"),
        (["cat", "-s", "typo"], "--strategy typo: unknown"),
        (["cat", "-s", "mean,tokens"], "--strategy tokens: pools nothing"),
        (["cat", "--layer", "9"], "--layer 9"),
        (["cat", "--head", "9"], "--head 9"),
        (["--input", "no-such.txt"], "no such file"),
    ],
)
def test_explain_refuses_what_it_cannot_do(
    bertpool: Run, model: list[str], arguments: list[str], said: str
) -> None:
    finished = bertpool("explain", *arguments, *model)
    assert finished.code == 2
    assert said in finished.err
    assert finished.out == ""


def test_explain_says_that_a_row_is_not_there(
    bertpool: Run, model: list[str], tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text("cat\n")
    finished = bertpool("explain", "--input", tmp_path / "a.txt", "--row", "1", *model)
    assert finished.code == 1
    assert "has no row 1" in finished.err


def test_a_token_that_looks_like_markup_is_shown_as_it_is(bertpool: Run, model: list[str]) -> None:
    assert "[CLS]" in bertpool("explain", "[bold]cat[/bold]", *model).out


# compare


@pytest.fixture
def labelled(tmp_path: Path) -> Path:
    path = tmp_path / "pairs.csv"
    lines = ["the cat runs,the cat runs fast,1", "red fish,green tree,0", "hot day,warm day,1"]
    lines += ["old man,new house,0", "I see,you see,1", "bread,moon,0"]
    path.write_text("text,pair,label\n" + "\n".join(lines) + "\n")
    return path


def test_compare_prints_a_row_for_each_strategy_and_an_advice(
    bertpool: Run, model: list[str], labelled: Path
) -> None:
    finished = bertpool("compare", labelled, "-s", "cls,mean,max", *model)
    assert finished.code == 0
    table = finished.out.split("\n\n")[0].splitlines()
    assert table[1].split()[:5] == ["strategy", "similar", "dissimilar", "gap", "AUC"]
    assert [line.split()[0] for line in table[2:]] == ["cls", "mean", "max"]
    assert sum(line.startswith("advice: ") for line in finished.out.splitlines()) == 1
    assert not set(BOXES) & set(finished.out)


def test_compare_writes_json(bertpool: Run, model: list[str], labelled: Path) -> None:
    content = json.loads(bertpool("compare", labelled, "--json", *model).out)
    mean = content["strategies"]["mean"]
    assert {"gap", "auc", "spearman", "behind_best", "anisotropy"} <= set(mean)
    assert mean["auc"]["low"] <= mean["auc"]["value"] <= mean["auc"]["high"]
    assert content["best"] in content["strategies"]
    assert content["advice"]


@pytest.mark.parametrize("labels", ["1,0,1,0,1,0", "1,2,3,4,5,6"])
def test_compare_writes_no_nan_where_cosines_are_constant(
    bertpool: Run, tiny: Tiny, labelled: Path, labels: str
) -> None:
    header, *lines = labelled.read_text().splitlines()
    rows = [line[:-1] + label for line, label in zip(lines, labels.split(","), strict=True)]
    labelled.write_text("\n".join([header, *rows]))
    options = ["--json", "-s", "cls,mean", "-m", tiny("tiny-zero")]
    finished = bertpool("compare", labelled, *options)
    assert finished.code == 0
    assert json.loads(finished.out)["strategies"]["mean"]
    assert "NaN" not in finished.out


def test_compare_takes_a_corpus_without_labels(
    bertpool: Run, model: list[str], tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text("cat\ndog\nhouse by the river\nold man\n")
    finished = bertpool("compare", tmp_path / "a.txt", "-s", "cls,mean", *model)
    assert "effective rank" in finished.out
    assert "nearest neighbours in common" in finished.out
    assert "AUC" not in finished.out


def test_compare_reads_stdin(shell: Run, model: list[str], tmp_path: Path) -> None:
    command = f"printf 'cat\\ndog\\nfish\\n' | bertpool compare - -s mean {' '.join(model)}"
    assert "of 3 texts" in shell(command, cwd=tmp_path).stdout


def test_compare_names_the_layers_of_several(
    bertpool: Run, model: list[str], labelled: Path
) -> None:
    finished = bertpool("compare", labelled, "-s", "mean", "--layer", "-1,-2", "--json", *model)
    assert list(json.loads(finished.out)["strategies"]) == ["mean_layer2", "mean_layer1"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["no-such.csv"], "no such file"),
        (["pairs.csv", "--label-column", "grade"], '"grade"'),
        (["pairs.csv", "-s", "typo"], "--strategy typo: unknown"),
        (["pairs.csv", "-s", "tokens,mean"], "--strategy tokens: pools nothing"),
        (["pairs.csv", "--layer", "9"], "--layer 9"),
    ],
)
def test_compare_refuses_what_it_cannot_do(
    bertpool: Run,
    model: list[str],
    labelled: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    said: str,
) -> None:
    monkeypatch.chdir(labelled.parent)
    finished = bertpool("compare", *arguments, *model)
    assert finished.code == 2
    assert said in finished.err
    assert finished.out == ""


def test_compare_draws_a_picture(bertpool: Run, model: list[str], labelled: Path) -> None:
    picture = labelled.with_suffix(".png")
    options = ["-s", "cls,mean", "--plot", picture, *model]
    assert bertpool("compare", labelled, *options).code == 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    refused = bertpool("compare", labelled, *options)
    assert refused.code == 2
    assert "exists; pass --force" in refused.err
    assert bertpool("compare", labelled, *options, "--force").code == 0


# Cosines of A with B, and of A with C, as published for bert-base-uncased.
PUBLISHED = {"cls": (0.9445, 0.8200), "mean": (0.8737, 0.5439), "max": (0.9312, 0.7955)}
A = "A dog is running through the park."
B = "A canine sprints across the garden."
C = "Stock prices fell sharply today."


@pytest.mark.network
@pytest.mark.skipif("BERTPOOL_TEST_NETWORK" not in os.environ, reason="BERTPOOL_TEST_NETWORK unset")
def test_compare_gives_the_published_cosines(shell: Run, tmp_path: Path) -> None:
    # Each pair both ways round: two of each label are the fewest that can be compared.
    rows = [f"{A},{B},1", f"{B},{A},1", f"{A},{C},0", f"{C},{A},0"]
    (tmp_path / "pairs.csv").write_text("\n".join(["text,pair,label", *rows]) + "\n")
    command = "bertpool compare pairs.csv -m bert-base-uncased -s cls,mean,max --json"
    finished = shell(command, cwd=tmp_path, timeout=600, HF_HUB_OFFLINE="0")
    strategies = json.loads(finished.stdout)["strategies"]
    for name, (similar, dissimilar) in PUBLISHED.items():
        assert strategies[name]["similar"] == pytest.approx(similar, abs=1e-4)
        assert strategies[name]["dissimilar"] == pytest.approx(dissimilar, abs=1e-4)


# plot


@pytest.fixture
def vectors(bertpool: Run, model: list[str], tmp_path: Path) -> Path:
    (tmp_path / "notes.txt").write_text("cat\ndog\nhouse by the river\nold man\n")
    assert bertpool("embed", tmp_path / "notes.txt", "-q", *model).code == 0
    return tmp_path / "notes.parquet"


def test_plot_draws_a_picture_and_says_where_it_is(bertpool: Run, vectors: Path) -> None:
    finished = bertpool("plot", vectors)
    assert finished.code == 0
    assert finished.out == ""
    assert finished.err == f"{vectors.with_suffix('.png')}: drawn\n"
    assert vectors.with_suffix(".png").is_file()


def test_plot_is_quiet_when_asked(bertpool: Run, vectors: Path) -> None:
    finished = bertpool("plot", vectors, "-q", "-o", vectors.with_suffix(".html"), "--method=pca")
    assert (finished.code, finished.out, finished.err) == (0, "", "")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["no-such.parquet"], "no-such.parquet"),
        (["notes.parquet", "--color", "topic"], "--color topic"),
        (["notes.parquet", "-o", "a.pdf"], "unknown suffix"),
        (["notes.parquet", "--method", "tsne"], "tsne"),
        (["notes.txt"], "unknown suffix"),
    ],
)
def test_plot_refuses_what_it_cannot_do(
    bertpool: Run,
    vectors: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    said: str,
) -> None:
    monkeypatch.chdir(vectors.parent)
    finished = bertpool("plot", *arguments)
    assert finished.code == 2
    assert said in finished.err


@pytest.mark.parametrize(
    "command",
    ["explain cat", "explain cat --json", "compare a", "inspect a", "verify a", "search a cat"],
)
def test_a_closed_stdout_is_refused(shell: Run, tmp_path: Path, command: str) -> None:
    finished = shell(f"bertpool {command} >&-", cwd=tmp_path)
    assert finished.returncode == 2
    assert finished.stderr == "error: stdout is closed\n"


@pytest.mark.parametrize("command", ["explain", "compare", "plot"])
def test_help_imports_nothing_heavy(shell: Run, tmp_path: Path, command: str) -> None:
    finished = shell(f"python -X importtime -m bertpool {command} --help", cwd=tmp_path)
    assert finished.returncode == 0
    heavy = ("torch", "numpy", "matplotlib", "scipy", "sklearn", "pyarrow", "transformers")
    assert not [name for name in heavy if f"| {name}\n" in finished.stderr]
