from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bertpool.extraction import extract
from bertpool.forecast import PADDED_BATCH, Forecast, forecast
from bertpool.options import Options
from bertpool.pipeline import run
from bertpool.plan import make_plan
from tiny_models import sentences

Tiny = Callable[[str], Path]

TEXTS = ["", "hi", *sentences(300, 3, 90)]


@pytest.fixture(autouse=True)
def short_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bertpool.forecast.PROBE_SECONDS", 0.05)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "notes.txt"
    path.write_text("\n".join(TEXTS))
    return path


def of(source: Path, model: Path, **options: Any) -> Forecast:
    return forecast(make_plan(Options(inputs=[str(source)], model=str(model), **options)))


def test_counts_are_those_of_the_run(tiny: Tiny, source: Path) -> None:
    said = of(source, tiny("tiny-bert"))
    done = extract([str(source)], model=str(tiny("tiny-bert")))
    assert (said.rows, said.sampled) == (len(TEXTS), len(TEXTS))
    assert (said.tokens, said.truncated) == (done.tokens, done.truncated)
    assert said.truncated_share == done.truncated / done.rows
    assert said.max_length == 64


def test_nothing_is_written(tiny: Tiny, source: Path) -> None:
    of(source, tiny("tiny-bert"))
    assert os.listdir(source.parent) == ["notes.txt"]


def test_every_row_is_in_one_bin(tiny: Tiny, source: Path) -> None:
    said = of(source, tiny("tiny-bert"))
    assert sum(one.rows for one in said.histogram) == len(TEXTS)
    assert said.histogram[-1].most is None
    assert said.histogram[-1].rows == said.truncated > 0
    for one, next_one in zip(said.histogram, said.histogram[1:], strict=False):
        assert one.most is not None
        assert next_one.least == one.most + 1


@pytest.mark.parametrize("suffix", [".parquet", ".npy", ".arrow", ".jsonl"])
@pytest.mark.parametrize("strategy", ["mean", "mean,cls"])
def test_the_outputs_size_is_near_the_real_one(
    tiny: Tiny, source: Path, suffix: str, strategy: str
) -> None:
    options: dict[str, Any] = {"output": str(source.with_suffix(suffix)), "strategy": strategy}
    said = of(source, tiny("tiny-bert"), **options)
    done = extract([str(source)], model=str(tiny("tiny-bert")), **options)
    real = sum(Path(output).stat().st_size for output in done.outputs)
    assert abs(said.output_bytes - real) < 0.15 * real + 3000


def test_padding_that_is_avoided_is_that_of_batches_in_the_inputs_order(
    tiny: Tiny, tmp_path: Path
) -> None:
    # One long text in each batch, the others of two tokens beside [CLS] and [SEP].
    texts = (["cat " * 30] + ["cat one"] * (PADDED_BATCH - 1)) * 3
    path = tmp_path / "t.txt"
    path.write_text("\n".join(texts))
    said = of(path, tiny("tiny-bert"))
    real = 32 + 4 * (PADDED_BATCH - 1)
    assert said.padding_avoided == pytest.approx(1 - real / (32 * PADDED_BATCH))


def test_of_a_long_input_a_sample_is_tokenized_and_scaled_up(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bertpool.corpus.corpus.WINDOW_ROWS", 200)
    texts = sentences(2000, 3, 20)
    path = tmp_path / "t.txt"
    path.write_text("\n".join(texts))
    said = of(path, tiny("tiny-bert"))
    done = extract([str(path)], model=str(tiny("tiny-bert")))
    assert said.rows == 2000
    assert said.sampled < 500
    assert said.tokens == pytest.approx(done.tokens, rel=0.1)


def test_windows_of_long_texts_are_counted_with_what_they_share(tiny: Tiny, source: Path) -> None:
    options: dict[str, Any] = {"on_truncate": "window", "stride": 8, "max_length": 32}
    said = of(source, tiny("tiny-bert"), **options)
    done = extract([str(source)], model=str(tiny("tiny-bert")), **options)
    assert said.truncated == 0
    assert said.tokens == pytest.approx(done.tokens, rel=0.2)


def test_an_empty_input_takes_nothing(tiny: Tiny, tmp_path: Path) -> None:
    path = tmp_path / "t.txt"
    path.touch()
    said = of(path, tiny("tiny-bert"))
    assert (said.rows, said.tokens, said.output_bytes) == (0, 0, 0)


def test_it_is_json_by_its_own_names(tiny: Tiny, source: Path) -> None:
    said = of(source, tiny("tiny-bert"))
    content = json.loads(said.to_json())
    assert content["rows"] == said.rows
    assert set(content) == set(Forecast.__dataclass_fields__)


def test_it_predicts_the_time_by_its_own_rate(tiny: Tiny, source: Path) -> None:
    said = of(source, tiny("tiny-bert"))
    assert said.seconds >= said.tokens / said.tokens_per_second
    assert np.isfinite(said.seconds)


def test_the_plan_that_was_tried_can_be_run(tiny: Tiny, source: Path) -> None:
    plan = make_plan(Options(inputs=[str(source)], model=str(tiny("tiny-bert"))))
    said = forecast(plan)
    assert run(plan).rows == said.rows
