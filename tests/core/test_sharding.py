from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from bertpool.errors import BertpoolError
from bertpool.sharding import Shard, parse_shard
from hypothesis import given
from hypothesis import strategies as st

SLURM = {
    "SLURM_ARRAY_TASK_ID": "5",
    "SLURM_ARRAY_TASK_COUNT": "4",
    "SLURM_ARRAY_TASK_MIN": "3",
}
TORCHRUN = {"RANK": "0", "WORLD_SIZE": "4"}


def refusal(shard: str, environment: dict[str, str] | None = None) -> str:
    with pytest.raises(BertpoolError) as caught:
        parse_shard(shard, environment or {})
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "shard"), [("1/1", Shard(1, 1)), ("2/3", Shard(2, 3)), ("007/010", Shard(7, 10))]
)
def test_a_shard_is_its_number_and_that_of_all(text: str, shard: Shard) -> None:
    assert parse_shard(text, {}) == shard


def test_a_shard_reads_as_it_is_given() -> None:
    assert str(parse_shard("2/3", {})) == "2/3"


@pytest.mark.parametrize(
    "text",
    ["", "1", "1/", "/3", "0/3", "4/3", "-1/3", "1/0", "1/-3", "1.5/3", "1/3/5", " 1/3",
     "a/b", "Auto", "²/3", "1/1000001", "1/99999999"],
)  # fmt: skip
def test_anything_else_is_refused(text: str) -> None:
    assert refusal(text).startswith("--shard")


def test_auto_reads_slurms_array_from_its_first_task() -> None:
    assert parse_shard("auto", SLURM) == Shard(3, 4)


def test_auto_reads_rank_and_world_size() -> None:
    assert parse_shard("auto", TORCHRUN) == Shard(1, 4)


def test_slurm_comes_first() -> None:
    assert parse_shard("auto", {**TORCHRUN, **SLURM}) == Shard(3, 4)


@pytest.mark.parametrize("name", SLURM)
def test_half_set_slurm_variables_are_refused_and_the_missing_one_named(name: str) -> None:
    environment = {key: value for key, value in SLURM.items() if key != name}
    assert name in refusal("auto", {**environment, **TORCHRUN})


@pytest.mark.parametrize("name", TORCHRUN)
def test_half_set_ranks_are_refused_and_the_missing_one_named(name: str) -> None:
    assert f"{name} isn't set" in refusal(
        "auto", {key: value for key, value in TORCHRUN.items() if key != name}
    )


@pytest.mark.parametrize("value", ["", "x", "-1", "1.0", " 1", "9" * 20])
def test_a_variable_that_is_no_number_is_refused_by_name(value: str) -> None:
    assert "RANK is" in refusal("auto", {**TORCHRUN, "RANK": value})


def test_a_rank_beyond_the_world_is_refused() -> None:
    assert "RANK and WORLD_SIZE" in refusal("auto", {"RANK": "4", "WORLD_SIZE": "4"})


def test_an_array_with_gaps_is_refused() -> None:
    # --array=0-8:4 has 3 tasks, the last of which is 8.
    environment = {**SLURM, "SLURM_ARRAY_TASK_ID": "8", "SLURM_ARRAY_TASK_MIN": "0"}
    assert "SLURM" in refusal("auto", {**environment, "SLURM_ARRAY_TASK_COUNT": "3"})


def test_auto_without_any_variable_is_refused_and_all_named() -> None:
    message = refusal("auto")
    assert all(name in message for name in (*SLURM, *TORCHRUN))


def test_auto_reads_the_real_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SLURM:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert parse_shard("auto") == Shard(2, 2)


@given(total=st.integers(0, 10**12), count=st.integers(1, 50))
def test_shards_partition_the_rows_in_order(total: int, count: int) -> None:
    ranges = [Shard(index, count).rows(total) for index in range(1, count + 1)]
    assert ranges[0].start == 0
    assert ranges[-1].stop == total
    assert all(one.stop == two.start for one, two in itertools.pairwise(ranges))


@given(total=st.integers(0, 10**12), count=st.integers(1, 50))
def test_the_sizes_of_shards_differ_by_one_at_most(total: int, count: int) -> None:
    sizes = {len(Shard(index, count).rows(total)) for index in range(1, count + 1)}
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize(
    ("name", "named"),
    [
        ("x.parquet", "x.part-2-of-3.parquet"),
        ("d/a.b.npy", "d/a.b.part-2-of-3.npy"),
        ("x", "x.part-2-of-3"),
    ],
)
def test_a_shards_file_is_named_after_that_of_the_whole(name: str, named: str) -> None:
    assert Shard(2, 3).path(Path(name)) == Path(named)
