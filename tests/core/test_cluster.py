"""Workers of Ray, in commands of their own: Ray is never started in the tests' process."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bertpool.cluster import _join as join
from bertpool.corpus import count_rows
from bertpool.options import Options
from bertpool.pipeline import run
from bertpool.plan import Plan, make_plan
from bertpool.report import joined_report
from safetensors.torch import load_file, save_file

Tiny = Callable[[str], Path]
Shell = Callable[..., subprocess.CompletedProcess[str]]

BERTPOOL = str(Path(sys.executable).with_name("bertpool"))
RAY = str(Path(sys.executable).with_name("ray"))
ROWS = 40_000
PATIENCE = 120  # seconds

pytest.importorskip("ray", reason="needs the extra ray")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ray")
    texts = [f"the cat {'runs ' * (i % 7)}by the river {i % 100}" for i in range(ROWS)]
    (folder / "notes.txt").write_text("\n".join(texts))
    (folder / "few.txt").write_text("\n".join(texts[:50]))
    return folder


@contextlib.contextmanager
def running(*arguments: object, cwd: Path, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """Run `bertpool embed` in a process group of its own, and end it in any case."""
    process = subprocess.Popen(
        [BERTPOOL, "embed", *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def workers_of(parent: int) -> list[int]:
    """List the descendants of a process that run a shard."""
    found = []
    for child in (int(pid) for pid in _pgrep("-P", str(parent))):
        found += [child] if str(child) in _pgrep("-f", "ray::ShardWorker") else workers_of(child)
    return found


def _pgrep(*arguments: str) -> list[str]:
    found = subprocess.run(["pgrep", *arguments], capture_output=True, text=True, check=False)
    return found.stdout.split()


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def wait_for(happened: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + PATIENCE
    while not (result := happened()):
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.05)
    return result


def answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def whole(shell: Shell, folder: Path, model: Path, source: str, output: str) -> bytes:
    """Return the bytes that one run writes."""
    finished = shell(f"bertpool embed {source} -m {model} -o {output} --force -q", cwd=folder)
    assert finished.returncode == 0, finished.stderr
    return (folder / output).read_bytes()


def test_workers_write_the_bytes_of_one_run_though_one_is_killed(
    shell: Shell, tiny: Tiny, folder: Path
) -> None:
    model = tiny("tiny-bert")
    arguments = ("notes.txt", "-m", model, "-o", "r.parquet", "--engine", "ray", "--workers", 2)
    with running(*arguments, cwd=folder) as process:
        wait_for(lambda: list(folder.glob("r.part-*-of-8.parquet*")))
        os.kill(wait_for(lambda: workers_of(process.pid))[0], signal.SIGKILL)
        _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    assert "\x1b" not in err
    assert "r.parquet: 40,000 rows" in err
    expected = whole(shell, folder, model, "notes.txt", "w.parquet")
    assert (folder / "r.parquet").read_bytes() == expected
    assert [path.name for path in folder.glob("r.*")] == ["r.parquet"]


def test_workers_write_several_columns_as_files_of_npy(
    shell: Shell, tiny: Tiny, folder: Path
) -> None:
    model, options = tiny("tiny-bert"), "-s cls,mean --exclude-special"
    ray = shell(
        f"bertpool embed few.txt -m {model} -o n.npy {options} --engine ray --workers 2",
        cwd=folder,
    )
    assert ray.returncode == 0, ray.stderr
    assert ray.stderr.count("--exclude-special has no effect on cls") == 1
    one = shell(f"bertpool embed few.txt -m {model} -o m.npy {options}", cwd=folder)
    assert one.returncode == 0, one.stderr
    for column in ("cls", "mean"):
        for suffix in (".npy", ".npy.json"):
            same = (folder / f"n.{column}{suffix}").read_bytes()
            assert same == (folder / f"m.{column}{suffix}").read_bytes()
    assert len(list(folder.glob("n.*"))) == 4


def test_a_worker_that_fails_ends_the_run_with_its_message_and_keeps_finished_shards(
    shell: Shell, tiny: Tiny, folder: Path, tmp_path: Path
) -> None:
    model = tmp_path / "nan"
    model.mkdir()
    for file in tiny("tiny-bert").iterdir():
        (model / file.name).write_bytes(file.read_bytes())
    weights = load_file(model / "model.safetensors")
    weights["embeddings.position_embeddings.weight"][40] = float("nan")  # fails in long texts only
    save_file(weights, model / "model.safetensors", {"format": "pt"})
    texts = ["hi"] * 40
    texts[-1] = "cat " * 60
    (tmp_path / "t.txt").write_text("\n".join(texts))
    command = f"bertpool embed t.txt -m {model} -o f.parquet --engine ray --workers 1"
    failed = shell(command, cwd=tmp_path)
    assert failed.returncode == 1
    assert "row 39 (" in failed.stderr
    assert "isn't finite" in failed.stderr
    assert "Traceback" not in failed.stderr
    assert not (tmp_path / "f.parquet").exists()
    assert (tmp_path / "f.part-1-of-4.parquet").exists()
    assert "30 rows are kept in f.part-*-of-4.parquet*; to go on: bertpool" in failed.stderr
    again = shell(command, cwd=tmp_path)
    assert again.returncode == 2
    assert "--resume" in again.stderr
    again = shell(command.replace("--workers 1", "--workers 2"), cwd=tmp_path)
    assert again.returncode == 2  # also where the shards would be others
    forced = shell(f"{command} --force", cwd=tmp_path)
    assert forced.returncode == 1


def interrupt(process: subprocess.Popen[str], number: int, shards: Callable[[], Any]) -> str:
    """Interrupt a run once it has shards, and return what it said; no worker is left."""
    wait_for(shards)
    workers = wait_for(lambda: workers_of(process.pid))
    os.kill(process.pid, number)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 128 + number, err
    wait_for(lambda: not any(map(is_alive, workers)))
    assert "rows are kept in i.part-*-of-8.npy*; to go on: bertpool embed notes.txt" in err
    assert err.rstrip().endswith("--resume")
    assert "Traceback" not in err
    assert "Stack" not in err
    return err


def test_an_interrupted_run_says_how_to_go_on_and_any_number_of_workers_does(
    shell: Shell, tiny: Tiny, folder: Path
) -> None:
    model = tiny("tiny-bert")
    arguments = ("notes.txt", "-m", model, "-o", "i.npy", "--engine", "ray", "--workers")
    with running(*arguments, 2, cwd=folder) as process:
        interrupt(process, signal.SIGTERM, lambda: list(folder.glob("i.part-*-of-8.npy")))
    assert not (folder / "i.npy").exists()
    done = {path: path.stat().st_mtime_ns for path in folder.glob("i.part-*-of-8.npy")}
    with running(*arguments, 1, "--resume", cwd=folder) as process:
        more = lambda: len(list(folder.glob("i.part-*-of-8.npy"))) > len(done)  # noqa: E731
        err = interrupt(process, signal.SIGINT, more)
    assert "interrupted by SIGINT" in err
    assert all(path.stat().st_mtime_ns == time_ for path, time_ in done.items())
    with running(*arguments, 3, "--resume", cwd=folder) as process:
        _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    expected = whole(shell, folder, model, "notes.txt", "w.npy")
    assert (folder / "i.npy").read_bytes() == expected
    assert sorted(path.name for path in folder.glob("i.*")) == ["i.npy", "i.npy.json"]


def test_a_cluster_is_found_by_its_address(shell: Shell, tiny: Tiny, folder: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    start = [RAY, "start", "--head", "--port", str(port), "--num-cpus", "2", "--block"]
    with subprocess.Popen(
        [*start, "--include-dashboard", "false", "--node-ip-address", "127.0.0.1"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        env={**os.environ, "RAY_AUTH_MODE": "disabled"},
    ) as cluster:  # fmt: skip
        try:
            wait_for(lambda: answers(port))
            with running(
                "few.txt", "-m", tiny("tiny-bert"), "-o", "a.parquet", "--engine", "ray",
                cwd=folder, RAY_ADDRESS=f"127.0.0.1:{port}", RAY_AUTH_MODE="disabled",
            ) as process:  # fmt: skip
                _, err = process.communicate(timeout=PATIENCE)
        finally:
            os.killpg(cluster.pid, signal.SIGKILL)
    assert process.returncode == 0, err
    expected = whole(shell, folder, tiny("tiny-bert"), "few.txt", "w.parquet")
    assert (folder / "a.parquet").read_bytes() == expected


def test_an_address_where_no_cluster_is_ends_the_run_with_one_line(
    shell: Shell, tiny: Tiny, folder: Path
) -> None:
    command = f"bertpool embed few.txt -m {tiny('tiny-bert')} -o x.parquet --engine ray"
    finished = shell(command, cwd=folder, RAY_ADDRESS="127.0.0.1:1")
    assert finished.returncode == 1
    assert "can't reach Ray at 127.0.0.1:1" in finished.stderr
    assert "Traceback" not in finished.stderr
    assert list(folder.glob("x.*")) == []


def planned(tiny: Tiny, folder: Path, **options: Any) -> Plan:
    (folder / "few.txt").write_text("a cat\na dog\na river\n")
    return make_plan(
        Options([str(folder / "few.txt")], model=str(tiny("tiny-bert")), device="cpu",
                output=str(folder / "p.parquet"), **options)
    )  # fmt: skip


def no_ray(*_: object) -> Any:
    raise RuntimeError("Ray was started")


def test_a_finished_output_is_found_before_ray_starts_and_shards_left_of_it_are_removed(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(planned(tiny, tmp_path))
    (tmp_path / "p.part-1-of-4.parquet").write_text("left by a run that was killed at its end")
    (tmp_path / "p.parquet.partial").mkdir()
    (tmp_path / "p.parquet.partial" / "shards.json").write_text('{"count": 4}')
    monkeypatch.setattr("bertpool.cluster._connected", no_ray)
    report = run(planned(tiny, tmp_path, engine="ray", resume=True))
    assert (report.rows, report.distinct) == (3, 0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["few.txt", "p.parquet"]


def test_an_error_of_any_kind_leaves_no_empty_folder(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bertpool.cluster._connected", no_ray)
    with pytest.raises(RuntimeError, match="started"):
        run(planned(tiny, tmp_path, engine="ray"))
    assert [path.name for path in tmp_path.iterdir()] == ["few.txt"]


def test_a_shard_whose_rows_were_counted_counts_none(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(planned(tiny, tmp_path, shard="1/3"))
    alone = (tmp_path / "p.part-1-of-3.parquet").read_bytes()
    plan = planned(tiny, tmp_path, shard="1/3", force=True)
    counted = count_rows(plan.options.inputs, plan.options.corpus)
    monkeypatch.setattr("bertpool.pipeline.count_rows", no_ray)
    run(plan, counted=counted)
    assert (tmp_path / "p.part-1-of-3.parquet").read_bytes() == alone


def test_the_rates_of_joined_reports_are_of_what_was_embedded_by_the_run_s_seconds(
    tiny: Tiny, tmp_path: Path
) -> None:
    made = run(planned(tiny, tmp_path))
    made = replace(made, seconds={**made.seconds, "encode": 2.0}, gflop_per_second=8.0)
    found = replace(made, seconds={**made.seconds, "encode": 0.0}, gflop_per_second=0.0)
    joined = joined_report([made, found, made], outputs=(), rejects=None, seconds=4.0)
    assert joined.rows == 9
    assert joined.rows_per_second == 6 / 4
    assert joined.tokens_per_second == 2 * made.tokens / 4
    assert joined.gflop_per_second == 2 * 8 * 2 / 4


def test_the_join_of_a_resumed_run_replaces_what_stands_there(tiny: Tiny, tmp_path: Path) -> None:
    run(planned(tiny, tmp_path))
    alone = (tmp_path / "p.parquet").read_bytes()
    shards = [planned(tiny, tmp_path, shard=f"{index}/2") for index in (1, 2)]
    for shard in shards:
        run(shard)
    (tmp_path / "p.parquet").write_text("put there by a run that was killed")
    join(planned(tiny, tmp_path, engine="ray", resume=True), [one.destination for one in shards])
    assert (tmp_path / "p.parquet").read_bytes() == alone
