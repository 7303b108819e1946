from __future__ import annotations

import contextlib
import inspect
import itertools
import json
import logging
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq
import pytest
import tiny_models
import torch
from bertpool.cli import app
from bertpool.pooling.strategies import STRATEGIES
from safetensors.torch import load_file, save_file
from vectors import read_column, read_vectors

Tiny = Callable[[str], Path]
TEXTS = ["hello word", "", "the cat runs by the river", "dog"]
LONG = " ".join(["word"] * 100)
UNKNOWN = "\u02ac\u02ac\u02ac"


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

    @property
    def metadata(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads(pq.read_metadata(self.path).metadata[b"bertpool"])
        return content


Embed = Callable[..., Ran]
Give = Callable[[str, Any], list[str]]


@pytest.fixture
def embed(bertpool: Callable[..., Any], tiny: Tiny, tmp_path: Path) -> Embed:
    """Embed texts with a tiny model into a new file, with further arguments."""
    numbers = itertools.count()

    def run(
        *arguments: object,
        texts: list[str] | bytes = TEXTS,
        model: str | Path | None = "tiny-bert",
        output: bool = True,
    ) -> Ran:
        number = next(numbers)
        source, path = tmp_path / f"in{number}.txt", tmp_path / f"out{number}.parquet"
        source.write_bytes(texts if isinstance(texts, bytes) else "\n".join(texts).encode())
        options = ["-m", tiny(model) if isinstance(model, str) else model] if model else []
        options += ["-o", path] if output else []
        finished = bertpool("embed", source, *options, *arguments)
        return Ran(finished.code, finished.out, finished.err, path)

    return run


@pytest.fixture(params=["option", "variable"])
def give(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Give:
    """Give a parameter its value, by the option or by its environment variable."""

    def by_option(name: str, value: Any) -> list[str]:
        option = name.replace("_", "-")
        if isinstance(value, bool):
            return [f"--{option}" if value else f"--no-{option}"]
        return [f"--{option}", str(value)]

    def by_variable(name: str, value: Any) -> list[str]:
        text = str(int(value)) if isinstance(value, bool) else str(value)
        monkeypatch.setenv(f"BERTPOOL_{name.upper()}", text)
        return []

    return by_option if request.param == "option" else by_variable


@pytest.fixture
def threads_restored() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@contextlib.contextmanager
def stdin_of(content: bytes) -> Iterator[None]:
    """Put a pipe that holds some bytes in stdin's place."""
    reader, writer = os.pipe()
    os.write(writer, content)
    os.close(writer)
    before = os.dup(0)
    os.dup2(reader, 0)
    os.close(reader)
    try:
        yield
    finally:
        os.dup2(before, 0)
        os.close(before)


def reweighed(directory: Path, source: Path, **factors: float) -> Path:
    """Copy a checkpoint with the rows or weights that a name starts with multiplied."""
    shutil.copytree(source, directory)
    weights = load_file(directory / "model.safetensors")
    changed = {
        name: weight * next((f for start, f in factors.items() if name.startswith(start)), 1.0)
        for name, weight in weights.items()
    }
    save_file(changed, directory / "model.safetensors", {"format": "pt"})
    return directory


def with_nan_word(directory: Path, source: Path, word: str) -> Path:
    """Copy a checkpoint, with NaN as the embedding of one word."""
    shutil.copytree(source, directory)
    vocabulary = json.loads((directory / "tokenizer.json").read_text("utf-8"))["model"]["vocab"]
    weights = load_file(directory / "model.safetensors")
    weights["embeddings.word_embeddings.weight"][vocabulary[word]] = float("nan")
    save_file(weights, directory / "model.safetensors", {"format": "pt"})
    return directory


def hidden_files(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.name.startswith(".")]


# What each option does


def test_model_chooses_the_checkpoint(embed: Embed, give: Give, tiny: Tiny) -> None:
    ran = embed(*give("model", tiny("tiny-st-dense")), model=None)
    assert ran.code == 0
    assert ran.vectors.shape == (4, 8)


def test_revision_is_refused_with_a_directory(embed: Embed, give: Give) -> None:
    ran = embed(*give("revision", "main"))
    assert ran.code == 2
    assert "--revision" in ran.err


def test_offline_forbids_to_fetch_a_model(embed: Embed, give: Give) -> None:
    without = embed("-m", "no-such-owner/no-such-model", model=None)
    ran = embed("-m", "no-such-owner/no-such-model", *give("offline", True), model=None)
    assert (without.code, ran.code) == (1, 1)
    assert "--offline forbids" not in without.err
    assert "--offline forbids" in ran.err


@pytest.mark.parametrize("strategy", [name for name in STRATEGIES if name != "mean"])
def test_strategy_chooses_how_tokens_become_one_vector(
    embed: Embed, give: Give, strategy: str
) -> None:
    mean = embed("-s", "mean")
    ran = embed(*give("strategy", strategy))
    assert ran.code == 0
    assert ran.metadata["strategies"] == [strategy]
    assert np.abs(ran.vectors - mean.vectors).max() > 1e-3


def test_layer_chooses_whose_token_vectors_are_pooled(embed: Embed, give: Give) -> None:
    default = embed()
    ran = embed(*give("layer", "1"))
    assert ran.metadata["layers"] == [[1]]
    assert np.abs(ran.vectors - default.vectors).max() > 1e-3


def test_several_strategies_and_layers_give_a_column_each(embed: Embed) -> None:
    ran = embed("-s", "cls,mean", "--layer", "-1", "--layer", "first-last")
    names = ["cls_layer2", "mean_layer2", "cls_first_last", "mean_first_last"]
    assert ran.metadata["columns"] == names
    for name in names:
        assert len(read_column(ran.path, name)[0]) == 32


def test_exclude_special_pools_without_them(embed: Embed, give: Give) -> None:
    default = embed()
    ran = embed(*give("exclude_special", True))
    assert np.abs(ran.vectors[0] - default.vectors[0]).max() > 1e-3
    assert np.isfinite(ran.vectors).all()


def test_max_length_cuts_texts(embed: Embed, give: Give) -> None:
    ran = embed(*give("max_length", 4))
    assert read_column(ran.path, "truncated") == [False, False, True, False]
    assert read_column(ran.path, "n_tokens") == [4, 2, 8, 3]


def test_prompt_stands_before_every_text_and_not_in_the_text_column(
    embed: Embed, give: Give
) -> None:
    prompted = embed(texts=["the cat " + text for text in TEXTS])
    ran = embed(*give("prompt", "the cat "))
    np.testing.assert_array_equal(ran.vectors, prompted.vectors)
    assert read_column(ran.path, "text") == TEXTS


def test_normalize_scales_vectors_to_unit_length(embed: Embed, give: Give) -> None:
    ran = embed(*give("normalize", True))
    np.testing.assert_allclose(np.linalg.norm(ran.vectors, axis=1), 1, atol=1e-5)


def test_no_normalize_overrules_what_the_checkpoint_declares(embed: Embed, give: Give) -> None:
    ran = embed(*give("normalize", False), model="tiny-st-mean-normalize")
    assert np.abs(np.linalg.norm(ran.vectors, axis=1) - 1).min() > 0.1


def test_dimensions_keeps_the_first_ones(embed: Embed, give: Give) -> None:
    default = embed()
    ran = embed(*give("dimensions", 5))
    np.testing.assert_array_equal(ran.vectors, default.vectors[:, :5])


def test_dimensions_are_cut_before_normalizing(embed: Embed) -> None:
    ran = embed("--dimensions", 5, "--normalize")
    np.testing.assert_allclose(np.linalg.norm(ran.vectors, axis=1), 1, atol=1e-5)


def test_output_dtype_is_that_of_the_file(embed: Embed, give: Give) -> None:
    default = embed()
    ran = embed(*give("output_dtype", "float16"))
    assert default.vectors.dtype == np.float32
    np.testing.assert_array_equal(ran.vectors, default.vectors.astype(np.float16), strict=True)


def test_device_is_the_one_used_or_refused(embed: Embed, give: Give) -> None:
    ran = embed(*give("device", "cuda"), "--report", "-")
    if torch.cuda.is_available():
        assert json.loads(ran.out)["device"].startswith("cuda")
    else:
        assert ran.code == 2
        assert "--device cuda: not there; visible: cpu" in ran.err


def test_dtype_is_that_of_the_computation(embed: Embed, give: Give) -> None:
    default = embed()
    ran = embed(*give("dtype", "bfloat16"))
    gap = np.abs(ran.vectors - default.vectors).max()
    assert ran.vectors.dtype == np.float32
    assert 1e-4 < gap < 0.2


@pytest.mark.usefixtures("threads_restored")
@pytest.mark.parametrize("threads", [1, 2])
def test_threads_are_what_torch_uses(embed: Embed, give: Give, threads: int) -> None:
    ran = embed(*give("threads", threads), "--report", "-", model="tiny-bin")
    assert torch.get_num_threads() == threads
    assert json.loads(ran.out)["threads"] == threads


def test_batch_tokens_bounds_a_batch(embed: Embed, give: Give) -> None:
    default = embed("--report", "-", model="tiny-bin")
    ran = embed(*give("batch_tokens", 1), "--report", "-", model="tiny-bin")
    assert json.loads(default.out)["padding_share"] > 0
    assert json.loads(ran.out)["padding_share"] == 0
    np.testing.assert_allclose(ran.vectors, default.vectors, atol=1e-5)


def test_encoding_decodes_the_inputs(embed: Embed, give: Give) -> None:
    content = "caf\u00e9\nword".encode("latin-1")
    default = embed(texts=content)
    ran = embed(*give("encoding", "latin-1"), texts=content)
    assert default.code == 1
    assert read_column(ran.path, "text") == ["caf\u00e9", "word"]


def test_blank_skip_drops_rows_and_keeps_the_numbers_of_the_others(
    embed: Embed, give: Give
) -> None:
    ran = embed(*give("blank", "skip"))
    assert read_column(ran.path, "id") == [0, 2, 3]
    assert read_column(ran.path, "line") == [1, 3, 4]
    assert "1 blank" in ran.err


def test_blank_error_stops_at_the_first(embed: Embed, give: Give, tmp_path: Path) -> None:
    ran = embed(*give("blank", "error"))
    assert ran.code == 1
    assert f"{tmp_path}/in0.txt:2: blank text" in ran.err
    assert not ran.path.exists()


def test_input_format_says_how_an_input_is_read(embed: Embed, give: Give) -> None:
    content = b'{"text": "the cat"}\n{"text": "dog"}\n'
    default = embed(texts=content)
    ran = embed(*give("input_format", "jsonl"), texts=content)
    assert read_column(default.path, "text") == content.decode().splitlines()
    assert read_column(ran.path, "text") == ["the cat", "dog"]


def test_text_column_names_the_field_of_the_texts(embed: Embed, give: Give) -> None:
    dog = embed(texts=["dog"])
    content = b"text,b\ncat,dog\n"
    ran = embed("--input-format", "csv", *give("text_column", "b"), texts=content)
    assert read_column(ran.path, "text") == ["dog"]
    np.testing.assert_array_equal(ran.vectors, dog.vectors)


def test_pair_column_is_encoded_with_the_text(embed: Embed, give: Give) -> None:
    content = b"text,b\nthe cat,a dog runs\n"
    default = embed("--input-format", "csv", texts=content)
    ran = embed("--input-format", "csv", *give("pair_column", "b"), texts=content)
    assert read_column(ran.path, "pair") == ["a dog runs"]
    assert read_column(ran.path, "n_tokens") == [2 + 3 + 3]
    assert np.abs(ran.vectors - default.vectors).max() > 1e-3


def test_id_column_is_the_output_s_id(embed: Embed, give: Give) -> None:
    content = b'{"key": "x7", "text": "cat"}\n{"key": "x9", "text": "dog"}\n'
    ran = embed("--input-format", "jsonl", *give("id_column", "key"), texts=content)
    assert read_column(ran.path, "id") == ["x7", "x9"]


def test_keep_copies_columns_into_the_output(embed: Embed, give: Give) -> None:
    content = b"label,text\n007,cat\nNA,dog\n"
    ran = embed("--input-format", "csv", *give("keep", "label"), texts=content)
    assert read_column(ran.path, "label") == ["007", "NA"]
    assert read_column(ran.path, "id") == [0, 1]


def test_on_error_reject_goes_on_without_what_cannot_be_read(embed: Embed, give: Give) -> None:
    content = b"cat\nit\x96s\ndog\n"
    stopped = embed(texts=content)
    ran = embed(*give("on_error", "reject"), texts=content)
    assert (stopped.code, ran.code) == (1, 3)
    assert read_column(ran.path, "text") == ["cat", "dog"]
    assert f"1 rejected, see {ran.path}.rejects.jsonl" in ran.err


def test_on_truncate_error_stops_at_a_text_that_is_too_long(embed: Embed, give: Give) -> None:
    default = embed(texts=["cat", LONG])
    ran = embed(*give("on_truncate", "error"), texts=["cat", LONG])
    assert (default.code, ran.code) == (0, 1)
    assert "longer than 64 tokens: row 1 (" in ran.err
    assert not ran.path.exists()


def test_on_truncate_window_pools_over_the_whole_text(embed: Embed, give: Give) -> None:
    texts = [LONG + " cat", LONG + " dog"]
    default = embed(texts=texts)
    ran = embed(*give("on_truncate", "window"), texts=texts)
    np.testing.assert_array_equal(default.vectors[0], default.vectors[1])
    assert np.abs(ran.vectors[0] - ran.vectors[1]).max() > 1e-4
    assert read_column(ran.path, "truncated") == [False, False]


def test_stride_is_how_many_tokens_neighbouring_windows_share(embed: Embed, give: Give) -> None:
    texts = tiny_models.sentences(3, seed=5, longest=400)
    windows = ("--on-truncate", "window")
    default = embed(*windows, texts=texts)
    none, many = (
        embed(*windows, *give("stride", stride), "--report", "-", texts=texts) for stride in (0, 40)
    )
    assert default.metadata["stride"] == 8
    assert many.metadata["stride"] == 40
    assert np.abs(many.vectors - none.vectors).max() > 1e-4


def test_shard_embeds_its_part_of_the_rows(embed: Embed, give: Give, tmp_path: Path) -> None:
    whole = embed()
    ran = embed(*give("shard", "2/2"))
    part = tmp_path / "out1.part-2-of-2.parquet"
    assert ran.code == 0
    assert not ran.path.exists()
    assert read_column(part, "id") == [2, 3]
    np.testing.assert_array_equal(read_vectors(part), whole.vectors[2:])


def test_output_format_overrules_the_suffix(embed: Embed, give: Give, tmp_path: Path) -> None:
    default = embed()
    ran = embed("-o", tmp_path / "v.bin", *give("output_format", "npy"), output=False)
    assert ran.code == 0
    with (tmp_path / "v.bin").open("rb") as stream:
        np.testing.assert_array_equal(np.load(stream), default.vectors)


def test_resume_goes_on_with_an_unfinished_run(
    embed: Embed, give: Give, bertpool: Callable[..., Any], tiny: Tiny, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr("bertpool.corpus.corpus.WINDOW_ROWS", 2)
    unfinished = embed(texts=b"cat\ndog\nhello\nit\x96s\n")
    (tmp_path / "in0.txt").write_text("cat\ndog\nhello\nword\n")
    command = ("embed", tmp_path / "in0.txt", "-m", tiny("tiny-bert"), "-o", unfinished.path)
    refused = bertpool(*command)
    ran = bertpool(*command, *give("resume", True))
    assert (unfinished.code, refused.code, ran.code) == (1, 2, 0)
    assert read_column(unfinished.path, "text") == ["cat", "dog", "hello", "word"]


def test_output_is_the_file_written(embed: Embed, give: Give, tmp_path: Path) -> None:
    ran = embed(*give("output", tmp_path / "there.npy"), output=False)
    assert ran.code == 0
    assert np.load(tmp_path / "there.npy").shape == (4, 32)


def test_force_replaces_an_output(embed: Embed, give: Give, tmp_path: Path) -> None:
    path = tmp_path / "v.parquet"
    path.write_text("old")
    refused = embed("-o", path, output=False)
    ran = embed("-o", path, *give("force", True), output=False)
    assert (refused.code, ran.code) == (2, 0)
    assert len(read_vectors(path)) == 4


def test_no_text_leaves_the_texts_out(embed: Embed, give: Give) -> None:
    ran = embed(*give("text", False))
    assert "text" not in pq.read_schema(ran.path).names
    assert read_column(ran.path, "id") == [0, 1, 2, 3]


def test_report_writes_json_to_a_file(embed: Embed, give: Give, tmp_path: Path) -> None:
    ran = embed(*give("report", tmp_path / "r.json"))
    assert ran.out == ""
    assert json.loads((tmp_path / "r.json").read_text("utf-8"))["rows"] == 4


def test_report_to_stdout_is_json_alone(embed: Embed, give: Give) -> None:
    ran = embed(*give("report", "-"))
    assert json.loads(ran.out)["output"] == str(ran.path)


def test_dry_run_says_what_a_run_would_take_and_writes_nothing(
    embed: Embed, give: Give, tmp_path: Path
) -> None:
    ran = embed(*give("dry_run", True))
    assert ran.code == 0
    assert "rows: 4" in ran.err
    assert "tokens: " in ran.err
    assert os.listdir(tmp_path) == ["in0.txt"]


def test_a_dry_run_s_report_is_json_alone(embed: Embed) -> None:
    ran = embed("--dry-run", "--report", "-", "--quiet")
    assert json.loads(ran.out)["rows"] == 4
    assert ran.err == ""


def test_quiet_says_nothing_on_success(embed: Embed, give: Give) -> None:
    ran = embed(*give("quiet", True), texts=[LONG, UNKNOWN, ""])
    assert (ran.code, ran.out, ran.err) == (0, "", "")


def test_quiet_still_shows_an_error(embed: Embed, give: Give) -> None:
    ran = embed(*give("quiet", True), texts=b"a\n\xff\n")
    assert ran.code == 1
    assert ran.err.startswith("error: ")
    assert ran.err.count("\n") == 1


def test_verbose_shows_what_libraries_warn_of(
    embed: Embed, give: Give, capfd: pytest.CaptureFixture[str]
) -> None:
    library = logging.getLogger("some.library")
    embed()
    library.warning("unheard")
    assert capfd.readouterr().err == ""
    embed(*give("verbose", True))
    library.warning("odd")
    assert capfd.readouterr().err == "note: odd\n"


# Ray takes seconds to start: what its workers do is tested in test_ray.py.
OPTIONS = [
    name
    for name in inspect.signature(app.embed).parameters
    if name not in ("context", "inputs", "engine", "workers")
]


def _tests_of_effects() -> set[str]:
    """Return the options that the tests above, which take `give`, are named after."""
    found = set()
    for test, function in globals().items():
        if test.startswith("test_") and "give" in inspect.signature(function).parameters:
            words = f"{test.removeprefix('test_').removeprefix('no_')}_"
            found.add(max((o for o in OPTIONS if words.startswith(f"{o}_")), key=len))
    return found


def test_each_option_has_a_test_of_its_effect() -> None:
    assert _tests_of_effects() == set(OPTIONS)


# Output


def test_by_default_the_output_lies_beside_the_input(embed: Embed, tmp_path: Path) -> None:
    ran = embed(output=False)
    assert ran.code == 0
    assert ran.out == ""
    assert f"{tmp_path}/in0.parquet: 4 rows of 32 float32" in ran.err
    assert read_column(tmp_path / "in0.parquet", "text") == TEXTS


def test_one_input_gives_the_documented_columns(embed: Embed) -> None:
    ran = embed()
    names = pq.read_schema(ran.path).names
    assert names == ["id", "text", "n_tokens", "truncated", "embedding"]
    assert read_column(ran.path, "id") == [0, 1, 2, 3]


def test_several_inputs_give_source_and_line(
    bertpool: Callable[..., Any], tiny: Tiny, tmp_path: Path
) -> None:
    one, two, output = tmp_path / "1.txt", tmp_path / "2.txt", tmp_path / "v.parquet"
    one.write_text("hello\nword\n")
    two.write_text("cat\n")
    assert bertpool("embed", one, two, "-m", tiny("tiny-bert"), "-o", output).code == 0
    assert read_column(output, "source") == [str(one), str(one), str(two)]
    assert read_column(output, "line") == [1, 2, 1]
    assert read_column(output, "id") == [0, 1, 2]


def test_several_inputs_without_an_output_are_refused(
    bertpool: Callable[..., Any], tmp_path: Path
) -> None:
    for name in ("1.txt", "2.txt"):
        (tmp_path / name).write_text("hello\n")
    finished = bertpool("embed", tmp_path / "1.txt", tmp_path / "2.txt")
    assert finished.code == 2
    assert "--output" in finished.err


def test_stdin_is_read_when_it_is_named(
    bertpool: Callable[..., Any], tiny: Tiny, tmp_path: Path
) -> None:
    with stdin_of(b"hello\nword\n"):
        finished = bertpool("embed", "-", "-m", tiny("tiny-bert"), "-o", tmp_path / "v.npy")
    assert finished.code == 0
    assert np.load(tmp_path / "v.npy").shape == (2, 32)


def test_stdin_is_left_alone_when_a_file_is_named(embed: Embed) -> None:
    with stdin_of(b"from stdin\n"):
        ran = embed()
        assert os.read(0, 100) == b"from stdin\n"
    assert read_column(ran.path, "text") == TEXTS


@pytest.mark.parametrize("suffix", [".parquet", ".npy"])
def test_an_empty_input_gives_a_valid_empty_output_and_a_note(
    embed: Embed, tmp_path: Path, suffix: str
) -> None:
    path = tmp_path / f"v{suffix}"
    ran = embed("-o", path, output=False, texts=[])
    assert ran.code == 0
    assert read_vectors(path).shape == (0, 32)
    assert "the output is empty" in ran.err


@pytest.mark.parametrize("suffix", [".parquet", ".npy"])
def test_the_same_command_twice_gives_the_same_bytes(
    bertpool: Callable[..., Any], tiny: Tiny, tmp_path: Path, suffix: str
) -> None:
    source = tmp_path / "notes.txt"
    source.write_text("\n".join(tiny_models.sentences(500, seed=1, longest=50)))
    command = ("embed", source, "-m", tiny("tiny-bert"), "-o", tmp_path / f"v{suffix}", "--force")
    found = []
    for _ in range(2):
        assert bertpool(*command).code == 0
        found.append({path.name: path.read_bytes() for path in tmp_path.iterdir()})
    same = found[0] == found[1]
    assert same, "the bytes differ"


def test_npy_and_parquet_hold_the_same_vectors(embed: Embed, tmp_path: Path) -> None:
    ran = embed()
    assert embed("-o", tmp_path / "v.npy", output=False).code == 0
    np.testing.assert_array_equal(np.load(tmp_path / "v.npy"), ran.vectors)


@pytest.mark.parametrize("suffix", [".parquet", ".npy"])
def test_a_rerun_is_refused_and_the_old_output_left_alone(
    embed: Embed, tmp_path: Path, suffix: str
) -> None:
    path = tmp_path / f"v{suffix}"
    embed("-o", path, output=False)
    before = path.read_bytes()
    again = embed("-o", path, output=False, texts=["other"])
    assert again.code == 2
    assert "--force" in again.err
    assert path.read_bytes() == before


@pytest.mark.parametrize("suffix", [".parquet", ".npy"])
def test_a_forced_rerun_replaces_the_output_whole(
    embed: Embed, tmp_path: Path, suffix: str
) -> None:
    path, fresh = tmp_path / f"v{suffix}", tmp_path / f"fresh{suffix}"
    source = tmp_path / "same.txt"
    for texts in (["hello word"] * 1000, ["the cat"] * 10):
        source.write_text("\n".join(texts))
        embed("-o", path, "--force", output=False, texts=texts)
    embed("-o", fresh, output=False, texts=["the cat"] * 10)
    assert read_vectors(path).shape == (10, 32)
    assert path.stat().st_size == fresh.stat().st_size
    np.testing.assert_array_equal(read_vectors(path), read_vectors(fresh))


def test_a_forced_rerun_with_another_width_leaves_no_trace_of_the_first(
    embed: Embed, tmp_path: Path
) -> None:
    path = tmp_path / "v.npy"
    embed("-o", path, output=False)
    embed("-o", path, "--force", "--dimensions", 7, output=False)
    assert np.load(path).shape == (4, 7)
    assert json.loads((tmp_path / "v.npy.json").read_text("utf-8"))["dimensions"] == 7


def test_an_input_is_never_overwritten(
    bertpool: Callable[..., Any], tiny: Tiny, tmp_path: Path
) -> None:
    path = tmp_path / "data"
    path.write_text("hello\n")
    (tmp_path / "link.npy").symlink_to(path)
    finished = bertpool(
        "embed", path, "-m", tiny("tiny-bert"), "-o", tmp_path / "link.npy", "--force"
    )
    assert finished.code == 2
    assert path.read_text() == "hello\n"


# Counts


def test_truncated_rows_are_flagged_counted_and_said(embed: Embed) -> None:
    ran = embed("--report", "-", texts=[LONG + " cat", LONG + " dog", "hello"])
    assert read_column(ran.path, "truncated") == [True, True, False]
    assert read_column(ran.path, "n_tokens") == [103, 103, 3]
    assert json.loads(ran.out)["truncated"] == 2
    assert "2 of 3 rows truncated at 64 tokens" in ran.err


def test_rows_of_unknown_tokens_alone_are_counted_and_said(embed: Embed) -> None:
    ran = embed("--report", "-", texts=[UNKNOWN, f"{UNKNOWN} cat", "x" * 101, "x" * 100])
    assert json.loads(ran.out)["unknown_only"] == 2
    assert "nothing but unknown tokens: 2 of 4 rows" in ran.err


def test_zero_vectors_stay_zero_and_are_counted_and_said(embed: Embed) -> None:
    ran = embed("--normalize", "--report", "-", model="tiny-zero")
    assert not ran.vectors.any()
    assert json.loads(ran.out)["zero"] == 4
    assert "zero vectors: 4 of 4 rows" in ran.err


def test_blank_rows_are_finite_counted_and_said(embed: Embed) -> None:
    ran = embed("--report", "-", texts=["a", "", "   ", "\t", "\u3000", "\u200b", "b"])
    assert ran.vectors.shape == (7, 32)
    assert np.isfinite(ran.vectors).all()
    assert json.loads(ran.out)["blank"] == 5
    assert "5 blank" in ran.err


def test_a_report_is_true_to_the_output(embed: Embed) -> None:
    ran = embed("--report", "-")
    report = json.loads(ran.out)
    assert report["rows"] == 4
    assert report["dimensions"] == 32
    assert report["tokens"] == sum(read_column(ran.path, "n_tokens"))
    assert report["output_bytes"] == ran.path.stat().st_size
    assert report["fingerprint"] == ran.metadata["fingerprint"]
    assert report["model"] == "tiny-bert"
    assert report["max_length"] == 64
    assert report["peak_memory_bytes"] > 1 << 20


# Failures


def test_an_unknown_strategy_is_refused_and_the_known_ones_listed(embed: Embed) -> None:
    ran = embed("--strategy", "typo")
    assert ran.code == 2
    assert "typo" in ran.err
    assert all(name in ran.err for name in ("auto", *STRATEGIES))


@pytest.mark.parametrize(
    "arguments",
    [
        ["--strtegy", "mean"],
        ["--blank", "drop"],
        ["--encoding", "nope"],
        ["--encoding", "hex"],
        ["--max-length", "many"],
        ["--max-length", "0"],
        ["--max-length", "-1"],
        ["--max-length", "1"],
        ["--max-length", "2"],
        ["--max-length", "65"],
        ["--dimensions", "0"],
        ["--dimensions", "33"],
        ["--output-dtype", "float64"],
        ["--dtype", "float64"],
        ["--device", "gpu"],
        ["--device", "cuda:"],
        ["--device", "cuda:-1"],
        ["--device", "cuda:99"],
        ["--threads", "0"],
        ["--threads", "-2"],
        ["--batch-tokens", "0"],
        ["--model", "./modles/tiny-bert"],
        ["--model", "~/no/such/model"],
        ["--model", "a/b/c"],
        ["--output", "v.bin"],
        ["--output", "no/such/folder/v.npy"],
        ["--output", "-", "--resume"],
        ["--output", "-", "--on-error", "reject"],
        ["--output-format", "hdf5"],
        ["--input-format", "xml"],
        ["--text-column", "body"],
        ["--pair-column", "b"],
        ["--id-column", "key"],
        ["--keep", "label"],
        ["--keep", "id"],
        ["--on-error", "skip"],
        ["--on-truncate", "cut"],
        ["--on-truncate", "window", "--stride", "62"],
        ["--stride", "-1", "--on-truncate", "window"],
        ["--stride", "4"],
        ["--engine", "spark"],
        ["--engine", "ray", "--shard", "1/2"],
        ["--workers", "2"],
        ["--workers", "0", "--engine", "ray"],
        ["--shard", "0/2"],
        ["--shard", "3/2"],
        ["--shard", "1"],
        ["--shard", "auto"],
        ["--shard", "1/2", "--output", "-"],
        ["--resume", "--force"],
        ["--report", "no/such/folder/r.json"],
        ["--report", "."],
        ["no-such-input.txt"],
    ],
    ids=" ".join,
)
def test_a_usage_error_is_one_line_and_exit_code_2(
    embed: Embed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = embed(*arguments)
    assert ran.code == 2
    error = ran.err.splitlines()[-1]
    assert error.startswith("error: ")
    assert arguments[0] in error or arguments[1] in error
    assert ran.err.count("error: ") == 1
    assert os.listdir(tmp_path) == ["in0.txt"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="float16 is there with CUDA")
def test_float16_without_cuda_is_a_usage_error(embed: Embed) -> None:
    ran = embed("--dtype", "float16")
    assert ran.code == 2
    assert "float16" in ran.err


def test_no_input_is_a_usage_error(bertpool: Callable[..., Any]) -> None:
    finished = bertpool("embed")
    assert finished.code == 2
    assert finished.err == "error: no input: name files or directories, or - for stdin\n"


def test_bytes_that_are_not_utf8_end_the_run_and_leave_nothing(
    embed: Embed, tmp_path: Path
) -> None:
    ran = embed(texts=b"hello\n" * 1000 + b"it\x96s")
    assert ran.code == 1
    assert f"{tmp_path}/in0.txt:1001: not UTF-8 at byte 3" in ran.err
    assert os.listdir(tmp_path) == ["in0.txt"]


def test_bytes_that_are_not_utf8_past_the_first_window_leave_the_finished_windows_alone(
    embed: Embed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bertpool.corpus.corpus.WINDOW_ROWS", 500)
    ran = embed(texts=b"hi\n" * 2000 + b"\xff")
    assert ran.code == 1
    error, note = ran.err.splitlines()[-2:]
    assert error.startswith(f"error: {tmp_path}/in0.txt:2001: not UTF-8 at byte 1")
    assert note.startswith(f"note: 2,000 rows are kept in {ran.path}.partial; to go on: bertpool ")
    assert sorted(os.listdir(tmp_path)) == ["in0.txt", "out0.parquet.partial"]


def test_a_vector_that_is_not_finite_ends_the_run_with_its_row_file_and_line(
    bertpool: Callable[..., Any], tiny: Tiny, tmp_path: Path
) -> None:
    model = with_nan_word(tmp_path / "nan", tiny("tiny-bert"), "cat")
    one, two = tmp_path / "1.txt", tmp_path / "2.txt"
    one.write_text("hello\nword\n")
    two.write_text("hello\ndog\nthe cat\ncat\n")
    finished = bertpool("embed", one, two, "-m", model, "-o", tmp_path / "v.parquet")
    assert finished.code == 1
    assert f"row 4 ({two}:3): the vector isn't finite" in finished.err
    assert not (tmp_path / "v.parquet").exists()
    assert hidden_files(tmp_path) == []


def test_one_text_that_is_not_finite_does_not_touch_its_neighbours(
    embed: Embed, tiny: Tiny, tmp_path: Path
) -> None:
    model = with_nan_word(tmp_path / "nan", tiny("tiny-bert"), "cat")
    good = [text for text in TEXTS if "cat" not in text]
    np.testing.assert_array_equal(embed(texts=good, model=model).vectors, embed(texts=good).vectors)


def test_a_vector_too_large_for_the_output_dtype_is_never_written_as_infinity(
    embed: Embed, tiny: Tiny, tmp_path: Path
) -> None:
    model = reweighed(
        tmp_path / "huge", tiny("tiny-bert"), **{"encoder.layer.1.output.LayerNorm": 1e6}
    )
    ran = embed("--output-dtype", "float16", model=model)
    assert ran.code == 1
    assert "row 0 " in ran.err
    assert not ran.path.exists()


# Names


@pytest.mark.parametrize("name", ["a [b] [bold red]c.txt", "a :smile: b.txt", "caf\u00e9 日本.txt"])
def test_a_file_name_prints_literally(
    bertpool: Callable[..., Any], tiny: Tiny, tmp_path: Path, name: str
) -> None:
    path = tmp_path / name
    missing = bertpool("embed", path)
    assert f"error: {path}: no such file" in missing.err
    path.write_text("hello\n")
    finished = bertpool("embed", path, "-m", tiny("tiny-bert"))
    assert f"{path.with_suffix('.parquet')}: 1 row of" in finished.err
    assert path.with_suffix(".parquet").exists()


def test_markup_in_a_model_name_prints_literally(embed: Embed, tiny: Tiny, tmp_path: Path) -> None:
    model = tmp_path / "[red]tiny[bold]"
    shutil.copytree(tiny("tiny-bert"), model)
    assert "[red]tiny[bold]: mean pooling" in embed(model=model).err


@pytest.mark.parametrize("report", ["-", "r.json"])
def test_a_file_name_that_is_not_utf8_works_and_is_reported(
    shell: Callable[..., Any], tiny: Tiny, tmp_path: Path, report: str
) -> None:
    name = os.fsdecode(b"caf\xe9")
    (tmp_path / f"{name}.txt").write_text("hello\n")
    finished = shell(
        f"bertpool embed *.txt -m {tiny('tiny-bert')} --report {report}",
        cwd=tmp_path,
        PYTHONIOENCODING="utf-8:strict",  # as under every locale but C
    )
    assert finished.returncode == 0, finished.stderr
    with (tmp_path / f"{name}.parquet").open("rb") as stream:
        assert len(pq.read_table(stream)) == 1
    content = finished.stdout if report == "-" else (tmp_path / report).read_text("utf-8")
    assert json.loads(content)["rows"] == 1


def test_a_model_directory_whose_name_is_not_utf8_is_read_or_refused_in_one_line(
    embed: Embed, tiny: Tiny, tmp_path: Path
) -> None:
    model = tmp_path / os.fsdecode(b"mod\xe9l")
    shutil.copytree(tiny("tiny-bert"), model)
    ran = embed(model=model)
    assert ran.code == 0 or ran.err.count("error: ") == 1
    assert ran.path.exists() == (ran.code == 0)


def test_a_prompt_that_is_not_utf8_is_a_usage_error(embed: Embed) -> None:
    ran = embed("--prompt", os.fsdecode(b"caf\xe9 "))
    assert ran.code == 2
    assert "--prompt" in ran.err


# Where the report goes


def test_a_report_on_the_named_output_is_refused(embed: Embed, tmp_path: Path) -> None:
    ran = embed("--report", tmp_path / "out0.parquet")
    assert ran.code == 2
    assert "is the output" in ran.err
    assert not ran.path.exists()


def test_a_report_on_the_default_output_is_refused(embed: Embed, tmp_path: Path) -> None:
    ran = embed("--report", tmp_path / "in0.parquet", output=False)
    assert ran.code == 2
    assert os.listdir(tmp_path) == ["in0.txt"]


def test_a_report_on_the_sidecar_is_refused(embed: Embed, tmp_path: Path) -> None:
    ran = embed("-o", tmp_path / "v.npy", "--report", tmp_path / "v.npy.json", output=False)
    assert ran.code == 2
    assert os.listdir(tmp_path) == ["in0.txt"]


def test_a_report_on_an_input_is_refused(embed: Embed, tmp_path: Path) -> None:
    ran = embed("--report", tmp_path / "in0.txt")
    assert ran.code == 2
    assert (tmp_path / "in0.txt").read_text() == "\n".join(TEXTS)


def test_a_report_replaces_an_older_one(embed: Embed, tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text("old" * 10_000)
    assert embed("--report", tmp_path / "r.json").code == 0
    assert json.loads((tmp_path / "r.json").read_text("utf-8"))["rows"] == 4


# The machine


def test_the_locale_changes_nothing(
    shell: Callable[..., Any], embed: Embed, tiny: Tiny, tmp_path: Path
) -> None:
    texts = ["caf\u00e9 日本", "word"]
    expected = embed(texts=texts)
    (tmp_path / "caf\u00e9.txt").write_text("\n".join(texts), encoding="utf-8")
    finished = shell(
        f"bertpool embed caf\u00e9.txt -m {tiny('tiny-bert')} --prompt '' --report -",
        cwd=tmp_path,
        PYTHONUTF8="0",
        PYTHONCOERCECLOCALE="0",
        LC_ALL="C",
    )
    assert finished.returncode == 0, finished.stderr
    path = tmp_path / "caf\u00e9.parquet"
    assert read_column(path, "text") == texts
    np.testing.assert_allclose(read_vectors(path), expected.vectors, atol=1e-5)
    assert json.loads(pq.read_metadata(path).metadata[b"bertpool"])["inputs"][0]["name"] == (
        "caf\u00e9.txt"
    )
