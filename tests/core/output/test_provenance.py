from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from bertpool.corpus.inputs import InputIdentity
from bertpool.extraction import extract
from bertpool.output.provenance import (
    RowRange,
    Settings,
    canonical_json,
    first_difference,
    provenance_json,
)
from rows import SETTINGS

KEYS = {
    "format_version", "fingerprint", "inputs", "rows", "bertpool_version", "model", "revision",
    "weights_sha256", "tokenizer_sha256", "strategies", "layers", "columns",
    "exclude_special", "max_length", "prompt", "include_prompt", "lower_case", "stages",
    "modules_sha256", "config_sha256", "normalize", "dimensions", "dtype",
    "output_dtype", "encoding", "blank", "on_truncate", "stride", "input_format", "text_column",
    "pair_column", "id_column", "keep", "text", "on_error",
}  # fmt: skip


def changed(value: Any) -> Any:
    """Return another value of the same type."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    return (*value, "x") if isinstance(value, tuple) else f"{value}x"


def provenance_of(path: Path) -> str:
    metadata: bytes = pq.read_metadata(path).metadata[b"bertpool"]
    return metadata.decode()


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    path = tmp_path / "notes.txt"
    path.write_bytes(b"hello word\n\nthe cat\n")
    return path


def test_equal_settings_have_one_fingerprint() -> None:
    assert SETTINGS.fingerprint() == dataclasses.replace(SETTINGS).fingerprint()


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(Settings)])
def test_every_setting_changes_the_fingerprint(name: str) -> None:
    values: dict[str, Any] = {name: changed(getattr(SETTINGS, name))}
    assert dataclasses.replace(SETTINGS, **values).fingerprint() != SETTINGS.fingerprint()


def test_provenance_has_every_documented_key() -> None:
    identity = InputIdentity("é.txt", 3, "3" * 64)
    content = json.loads(provenance_json(SETTINGS, [identity], 7))
    assert set(content) == KEYS
    assert content["inputs"] == [{"name": "é.txt", "bytes": 3, "sha256": "3" * 64}]
    assert content["rows"] == 7
    assert content["fingerprint"] == SETTINGS.fingerprint()


def test_the_fingerprint_is_of_the_settings_and_not_of_the_inputs() -> None:
    one = json.loads(provenance_json(SETTINGS, [InputIdentity("a", 1, "")], 1))
    two = json.loads(provenance_json(SETTINGS, [InputIdentity("b", 2, "")], 2))
    assert one["fingerprint"] == two["fingerprint"]


def test_a_file_says_what_made_it(notes: Path, tiny: Callable[[str], Path]) -> None:
    extract([str(notes)], model=str(tiny("tiny-bert")), strategy="cls", prompt="the ")
    content = json.loads(provenance_of(notes.with_suffix(".parquet")))
    weights = (tiny("tiny-bert") / "model.safetensors").read_bytes()
    assert set(content) == KEYS
    assert content["model"] == "tiny-bert"
    assert content["revision"] is None
    assert content["weights_sha256"] == hashlib.sha256(weights).hexdigest()
    assert content["strategies"] == ["cls"]
    assert content["prompt"] == "the "
    assert content["max_length"] == 64
    assert content["rows"] == 3
    assert content["inputs"] == [
        {
            "name": "notes.txt",
            "bytes": 20,
            "sha256": hashlib.sha256(notes.read_bytes()).hexdigest(),
        }
    ]


def test_a_file_holds_no_path(notes: Path, tiny: Callable[[str], Path], tmp_path: Path) -> None:
    output = tmp_path / "deep" / "v.parquet"
    output.parent.mkdir()
    model = tiny("tiny-bert")
    extract([str(notes), str(notes)], model=str(model), output=str(output))
    found = provenance_of(output)
    assert str(tmp_path) not in found
    assert str(model.parent) not in found
    assert "/" not in found


def test_folder_output_name_threads_and_batches_leave_no_trace_in_the_provenance(
    tmp_path: Path, tiny: Callable[[str], Path]
) -> None:
    found = []
    for name, threads in (("one", 1), ("two", 2)):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "notes.txt").write_text("hello\n")
        extract(
            [str(folder / "notes.txt")],
            model=str(tiny("tiny-bert")),
            output=str(folder / f"{name}.parquet"),
            threads=threads,
            batch_tokens=100 * threads,
        )
        found.append(provenance_of(folder / f"{name}.parquet"))
    assert found[0] == found[1]


def test_the_report_and_the_file_bear_one_fingerprint(
    notes: Path, tiny: Callable[[str], Path]
) -> None:
    report = extract([str(notes)], model=str(tiny("tiny-bert")))
    content = json.loads(provenance_of(notes.with_suffix(".parquet")))
    assert report.fingerprint == content["fingerprint"]


def test_auto_and_the_strategy_it_stands_for_bear_one_fingerprint(
    notes: Path, tiny: Callable[[str], Path]
) -> None:
    model = str(tiny("tiny-bert"))
    auto = extract([str(notes)], model=model)
    mean = extract([str(notes)], model=model, strategy="mean", force=True)
    assert auto.fingerprint == mean.fingerprint


def test_of_a_shard_the_provenance_says_which_rows_it_holds() -> None:
    content = json.loads(provenance_json(SETTINGS, [], 3, RowRange(2, 3, 3, 6, 10)))
    assert set(content) == KEYS | {"shard"}
    assert content["shard"] == {"index": 2, "count": 3, "first": 3, "stop": 6, "total": 10}


def test_on_stdout_neither_inputs_nor_rows_are_known() -> None:
    content = json.loads(provenance_json(SETTINGS, None, None))
    assert set(content) == KEYS
    assert content["inputs"] is None
    assert content["rows"] is None


def test_equal_content_gives_equal_json_whatever_the_order_of_its_keys() -> None:
    assert canonical_json({"b": 1, "a": "é"}) == canonical_json({"a": "é", "b": 1})


def test_of_equal_settings_none_differs() -> None:
    assert first_difference({"a": 1, "more": 2}, {"a": 1}) is None


def test_the_field_that_differs_is_named_with_both_values() -> None:
    made_with = {"fingerprint": "x", "dtype": "float32", "max_length": 64}
    settings = {"fingerprint": "y", "dtype": "float32", "max_length": 32}
    found = first_difference(made_with, settings)
    assert found == "max_length 64, and this run has 32"


def test_a_field_that_an_older_version_did_not_write_differs() -> None:
    assert first_difference({}, {"stride": 4}) == "stride null, and this run has 4"


def test_an_input_that_differs_is_said_without_its_hashes() -> None:
    found = first_difference({"inputs": [{"name": "a"}]}, {"inputs": [{"name": "b"}]})
    assert found == "another input, or one that has changed since"
