from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from bertpool.errors import BertpoolError
from bertpool.options import Options
from bertpool.plan import Plan, make_plan
from bertpool.sharding import Shard

Tiny = Callable[[str], Path]
Planned = Callable[..., Plan]


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    path = tmp_path / "notes.txt"
    path.write_text("hello\n")
    return path


@pytest.fixture
def planned(tiny: Tiny, notes: Path) -> Planned:
    """Plan a run of one small file on a tiny model."""

    def plan(**options: Any) -> Plan:
        defaults = {"inputs": [str(notes)], "model": str(tiny("tiny-bert"))}
        return make_plan(Options(**{**defaults, **options}))

    return plan


@pytest.fixture
def refusal(planned: Planned) -> Callable[..., str]:
    """Give the line that says why options can't be planned with."""

    def refuse(**options: Any) -> str:
        with pytest.raises(BertpoolError) as caught:
            planned(**options)
        assert caught.value.exit_code == 2
        assert "\n" not in str(caught.value)
        return str(caught.value)

    return refuse


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"resume": True, "force": True}, ["--resume", "--force"]),
        ({"stride": 4}, ["--stride", "--on-truncate window"]),
        ({"stride": 0, "on_truncate": "error"}, ["--stride"]),
        (
            {"on_truncate": "window", "pair_column": "b", "input_format": "jsonl"},
            ["--on-truncate window", "pair"],
        ),
        ({"workers": 2}, ["--workers", "--engine ray"]),
        ({"engine": "ray", "shard": "1/2"}, ["--engine ray", "--shard"]),
        ({"engine": "ray", "output": "-"}, ["--engine ray", "--output"]),
        ({"shard": "1/2", "output": "-"}, ["--shard", "--output"]),
        ({"inputs": ["-"], "shard": "1/2", "output": "v.parquet"}, ["stdin"]),
        ({"inputs": ["-"], "engine": "ray", "output": "v.parquet"}, ["stdin"]),
        ({"resume": True, "output": "-"}, ["--resume", "stdout"]),
        ({"on_error": "reject", "output": "-"}, ["--on-error reject"]),
        ({"on_error": "reject", "output": "v.npy"}, ["--on-error reject", ".parquet"]),
    ],
    ids=str,
)
def test_options_that_contradict_one_another_are_refused_by_name(
    refusal: Callable[..., str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, Any],
    named: list[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    message = refusal(**options)
    assert all(name in message for name in named), message


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"threads": 0}, "--threads 0"),
        ({"threads": -1}, "--threads -1"),
        ({"threads": 10**9}, "--threads"),
        ({"batch_tokens": 0}, "--batch-tokens 0"),
        ({"engine": "ray", "workers": 0}, "--workers 0"),
        ({"engine": "ray", "workers": 10**6}, "--workers"),
        ({"on_truncate": "window", "stride": -1}, "--stride -1"),
        ({"encoding": "none"}, "--encoding none"),
        ({"encoding": "base64"}, "--encoding base64"),
        ({"encoding": "a\0b"}, "--encoding"),
        ({"strategy": "typo"}, "--strategy typo"),
        ({"strategy": "auto,cls"}, "auto"),
        ({"device": "gpu"}, "gpu"),
        ({"shard": "4/3"}, "--shard 4/3"),
        ({"max_length": 0}, "--max-length"),
        ({"max_length": 65}, "--max-length"),
        ({"dimensions": 33}, "--dimensions"),
        ({"dimensions": 0}, "--dimensions"),
        ({"layer": "3"}, "--layer"),
        ({"output": "v.bin"}, ".parquet"),
    ],
    ids=str,
)
def test_a_value_that_cannot_be_is_refused_by_name(
    refusal: Callable[..., str], options: dict[str, Any], named: str
) -> None:
    assert named in refusal(**options)


@pytest.mark.parametrize(
    "name", ["source", "line", "text", "pair", "n_tokens", "truncated", "id", "embedding"]
)
def test_a_column_of_the_outputs_own_cannot_be_kept(
    refusal: Callable[..., str], tmp_path: Path, name: str
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"text": "hello", name: "hello"}) + "\n")
    assert f"--keep {name}" in refusal(inputs=[str(path)], keep=[name])


def test_a_vector_column_cannot_be_kept(refusal: Callable[..., str], tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "hello", "cls": 1}\n')
    assert "--keep cls" in refusal(inputs=[str(path)], keep=["cls"], strategy="cls,mean")


def test_a_missing_input_is_refused_before_the_model_is_looked_for(
    refusal: Callable[..., str], tmp_path: Path
) -> None:
    assert "none.txt" in refusal(inputs=[str(tmp_path / "none.txt")], model="/no/such/model")


def test_no_input_is_refused(refusal: Callable[..., str]) -> None:
    refusal(inputs=[])


def test_an_existing_output_is_refused_before_anything_is_loaded(
    refusal: Callable[..., str], notes: Path
) -> None:
    notes.with_suffix(".parquet").touch()
    assert "--force" in refusal()


def test_planning_writes_nothing(planned: Planned, tmp_path: Path) -> None:
    planned()
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_shard_goes_into_the_outputs_name(planned: Planned, tmp_path: Path) -> None:
    plan = planned(shard="2/3")
    assert plan.shard == Shard(2, 3)
    assert plan.destination.path == tmp_path / "notes.part-2-of-3.parquet"


def test_an_auto_shard_is_read_from_the_environment(
    planned: Planned, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("SLURM_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert planned(shard="auto").shard == Shard(1, 2)


def test_windows_share_an_eighth_unless_told_otherwise(planned: Planned) -> None:
    assert planned(on_truncate="window", max_length=32).stride == 4
    assert planned(on_truncate="window", stride=0).stride == 0
    assert planned().stride is None


@pytest.mark.parametrize(
    ("options", "several", "names"),
    [
        ({}, False, "id text n_tokens truncated embedding"),
        ({}, True, "id source line text n_tokens truncated embedding"),
        ({"blank": "skip"}, False, "id line text n_tokens truncated embedding"),
        ({"text": False}, False, "id n_tokens truncated embedding"),
        ({"strategy": "mean,cls"}, False, "id text n_tokens truncated mean cls"),
        ({"strategy": "cls", "layer": "0,-1"}, False,
         "id text n_tokens truncated cls_layer0 cls_layer2"),
    ],
    ids=str,
)  # fmt: skip
def test_the_options_decide_the_columns(
    planned: Planned, options: dict[str, Any], several: bool, names: str
) -> None:
    from bertpool.output.table import output_schema

    layout = planned(**options).layout(None, several=several)
    assert output_schema(layout).names == names.split()


def test_columns_from_the_input_and_dtype_are_part_of_the_layout(planned: Planned) -> None:
    extra = pa.schema([("k", pa.int64())])
    layout = planned(output_dtype="float16", dimensions=5).layout(extra, several=False)
    assert layout.extra == extra
    assert (layout.dtype, layout.width) == ("float16", 5)


CHANGES: dict[str, tuple[dict[str, Any], set[str]]] = {
    "strategy": ({"strategy": "cls"}, {"strategies"}),
    "layer": ({"strategy": "mean", "layer": "1"}, {"layers"}),
    "special": ({"exclude_special": True}, {"exclude_special"}),
    "length": ({"max_length": 8}, {"max_length"}),
    "prompt": ({"prompt": "the "}, {"prompt"}),
    "normalize": ({"normalize": True}, {"normalize", "stages"}),
    "dimensions": ({"dimensions": 5}, {"dimensions", "stages"}),
    "dtype": ({"dtype": "bfloat16"}, {"dtype"}),
    "output dtype": ({"output_dtype": "float16"}, {"output_dtype"}),
    "window": ({"on_truncate": "window"}, {"on_truncate", "stride"}),
    "format": ({"input_format": "text"}, {"input_format"}),
    "no text": ({"text": False}, {"text"}),
    "encoding": ({"encoding": "latin-1"}, {"encoding"}),
    "blank": ({"blank": "skip"}, {"blank"}),
    "on error": ({"on_error": "reject"}, {"on_error"}),
}


@pytest.mark.parametrize("name", CHANGES)
def test_an_option_that_changes_the_rows_changes_its_setting_alone(
    planned: Planned, name: str
) -> None:
    options, expected = CHANGES[name]
    before, after = asdict(planned().settings()), asdict(planned(**options).settings())
    assert {key for key, value in after.items() if before[key] != value} == expected


@pytest.mark.parametrize(
    "options",
    [{"threads": 1}, {"batch_tokens": 64}, {"force": True}, {"resume": True}, {"shard": "1/2"},
     {"output": "v.npy"}, {"device": "cpu"}, {"offline": True}],
    ids=str,
)  # fmt: skip
def test_an_option_that_leaves_the_rows_as_they_are_changes_no_setting(
    planned: Planned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert planned(**options).settings() == planned().settings()
