"""Several workers through Ray: each runs whole shards, which are then joined to one file.

A worker does what ``embed --shard I/N --resume`` does, so one that dies costs a window of work: Ray
starts it again, and it goes on from the finished windows. Workers on other machines need the
inputs, the model and the output's folder under the same paths.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import os
import re
import shutil
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bertpool.corpus import count_rows
from bertpool.encoder.threads import default_threads
from bertpool.errors import BertpoolError, DeviceError, Interrupted, Kept, OutputError
from bertpool.finished_run import find_finished
from bertpool.merge import merge
from bertpool.options import Options
from bertpool.output.atomic import mapped_errors, write_atomic
from bertpool.output.destination import Destination, find_destination
from bertpool.output.parts import ROWS_KEY, SHARDS, SUFFIX, PartedOutput, read_metadata
from bertpool.output.provenance import canonical_json
from bertpool.pipeline import Counted, Progress, finished_report, run
from bertpool.plan import Plan, make_plan
from bertpool.report import Report, joined_report
from bertpool.sharding import Shard

SHARDS_PER_WORKER = 4  # so that one slow worker doesn't hold up the others for long
REACH_SECONDS = 10
RESTARTS = 3  # of one worker that dies, before the run ends
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE)

_log = logging.getLogger("bertpool")


def run_on_ray(plan: Plan, on_progress: Callable[[Progress], None]) -> Report:
    """Run a plan's shards on Ray's workers, then join them.

    Raises:
        DeviceError: Ray isn't installed, or can't be reached.
        BertpoolError: what a worker raised, or that one died too often; finished shards are kept.
    """
    output = PartedOutput(plan.destination)  # for its lock: one run an output
    output.open(resume=plan.options.resume, force=plan.options.force)
    try:
        noted = _noted_shards(plan)
        _check_leftovers(plan, noted)
        report = _find_finished(plan, noted) or _embed_and_join(plan, noted, on_progress)
        for shard in _noted_shards(plan):
            _remove(_shard_destination(plan, shard))
    except BaseException as error:
        kept = _keep(plan, output)
        if isinstance(error, BertpoolError | Interrupted):
            error.kept = kept
        raise
    output.remove()
    return report


def _keep(plan: Plan, output: PartedOutput) -> Kept | None:
    """Leave what is finished for the next run, and say how many rows that is."""
    try:
        shards = _noted_shards(plan)
        destinations = [_shard_destination(plan, shard) for shard in shards]
    except OutputError:  # a broken note, which is left as it is
        return output.keep()
    if not any(map(_files_left, destinations)):
        (output.folder / SHARDS).unlink(missing_ok=True)
        return output.keep()
    output.keep()
    path = plan.destination.path
    of_all = path.with_name(f"{path.stem}.part-*-of-{len(shards)}{path.suffix}*")
    return Kept(sum(map(_rows_kept, destinations)), str(of_all))


def _rows_kept(destination: Destination) -> int:
    """Count the rows of a shard that are embedded: all of them, or those of finished windows."""
    from bertpool.output.vector_file import read_provenance

    with contextlib.suppress(OSError, ValueError, OutputError):
        provenance = read_provenance(destination.targets[0].path, destination.format_name)
        return int(provenance["rows"])
    with contextlib.suppress(OSError, OutputError):  # a worker may be about to remove it
        parts = destination.folder.glob(f"*{SUFFIX}")
        return sum(int(read_metadata(part)[ROWS_KEY]) for part in parts)
    return 0


def _files_left(destination: Destination) -> list[Path]:
    return [file for file in (*destination.files, destination.folder) if file.exists()]


def _noted_shards(plan: Plan) -> list[Shard]:
    """Return the shards that an unfinished run has noted; none where there was no such run.

    Raises:
        OutputError: the note is broken.
    """
    note = plan.destination.folder / SHARDS
    with mapped_errors(note):
        try:
            return _all_shards(int(json.loads(note.read_bytes())["count"]))
        except FileNotFoundError:
            return []
        except (ValueError, KeyError, TypeError) as error:
            if plan.options.force:
                return []
            raise OutputError(f"{note}: broken; pass --force to start afresh") from error


def _choose_shards(plan: Plan, workers: int) -> list[Shard]:
    """Choose as many shards as suit the workers, and note it for a run that goes on."""
    shards = _all_shards(workers * SHARDS_PER_WORKER)
    _check_leftovers(plan, shards)
    if plan.options.resume and not any(_files_left(_shard_destination(plan, s)) for s in shards):
        _log.warning("nothing to resume: starting from the first row")
    write_atomic(plan.destination.folder / SHARDS, canonical_json({"count": len(shards)}))
    return shards


def _find_finished(plan: Plan, noted: Sequence[Shard]) -> Report | None:
    """Report an output that is there, whole, under ``resume``."""
    if not plan.options.resume:
        return None
    settings = plan.settings()
    # What is at the path is such a run's own, or what it was told to replace.
    going_on = bool(noted)
    finished = find_finished(plan, settings, None, None, going_on=going_on, replaces=going_on)
    return None if finished is None else finished_report(plan, settings, finished)


def _embed_and_join(
    plan: Plan, noted: Sequence[Shard], on_progress: Callable[[Progress], None]
) -> Report:
    """Embed the shards that a run before has noted, or as many as suit the workers."""
    started = time.perf_counter()
    with _connected(plan.options) as ray:
        counted = count_rows(plan.options.inputs, plan.options.corpus)
        workers = plan.options.workers or _default_workers(ray, plan.options)
        shards = noted if noted and plan.options.resume else _choose_shards(plan, workers)
        options = [_shard_options(plan, shard) for shard in shards]
        reports = _run_all(ray, options, counted, workers, on_progress)
    _join(plan, [_shard_destination(plan, shard) for shard in shards])
    return joined_report(
        reports,
        outputs=tuple(str(target.path) for target in plan.destination.targets),
        rejects=plan.destination.rejects,
        seconds=time.perf_counter() - started,
    )


@contextlib.contextmanager
def _connected(options: Options) -> Iterator[Any]:
    """Connect to the cluster of ``RAY_ADDRESS``, or start Ray on this machine for the run."""
    os.environ.setdefault("RAY_COLOR_PREFIX", "0")  # its notes of dead workers stay plain text
    try:
        import ray
    except ImportError as error:
        message = "--engine ray: Ray isn't installed; pip install 'bertpool[ray]'"
        raise DeviceError(message, usage=True) from error
    address = os.environ.get("RAY_ADDRESS")
    if address:
        _check_reachable(address)
    # Its own report of what it does is not for this command's output.
    settings: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
    if not address:
        settings["num_cpus"] = max(options.workers or 1, default_threads())
        settings["include_dashboard"] = False
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        # "local" starts it afresh: without, Ray would look for a cluster that was here before.
        ray.init(address=address or "local", **settings)
        _set_handlers(handlers)  # Ray's own would end the process, its cleaning up left out
    except (ConnectionError, ValueError, RuntimeError) as error:
        reason = str(error).strip().split("\n")[0]
        raise DeviceError(
            f"--engine ray: can't reach Ray at {address}: {reason}; where the cluster asks for a "
            "token, set RAY_AUTH_MODE=token"
        ) from error
    try:
        yield ray
    finally:
        ray.shutdown()


def _set_handlers(handlers: Mapping[signal.Signals, Any]) -> None:
    if threading.current_thread() is not threading.main_thread():
        return
    for number, handler in handlers.items():
        if handler is not None:  # None: not set from Python
            signal.signal(number, handler)


def _check_reachable(address: str) -> None:
    """Try the port: Ray itself would try for minutes.

    Raises:
        DeviceError: nothing answers there.
    """
    match = re.fullmatch(r"(?:ray://)?([^/]+):([0-9]{1,5})", address)
    if match is None:
        return  # a name that Ray understands, such as auto
    try:
        with socket.create_connection((match[1], int(match[2])), timeout=REACH_SECONDS):
            return
    except (OSError, OverflowError) as error:
        raise DeviceError(f"--engine ray: can't reach Ray at {address}: {error}") from error


def _default_workers(ray: Any, options: Options) -> int:
    resources = ray.cluster_resources()
    gpus = int(resources.get("GPU", 0))
    if gpus and not options.device.startswith("cpu"):
        return gpus
    return max(1, int(resources.get("CPU", 1)) // (options.threads or 1))


def _all_shards(count: int) -> list[Shard]:
    return [Shard(index, count) for index in range(1, count + 1)]


def _shard_options(plan: Plan, shard: Shard) -> Options:
    """Return what a worker is asked to do for a shard."""
    options = plan.options
    return dataclasses.replace(
        options,
        inputs=[os.path.abspath(name) for name in options.inputs],
        output=os.path.abspath(plan.destination.path),
        output_format=plan.destination.format_name,
        model=_absolute(options.model),
        engine="local",
        workers=None,
        shard=str(shard),
        threads=options.threads or 1,
        force=False,
        resume=True,
    )


def _shard_destination(plan: Plan, shard: Shard) -> Destination:
    """Name a shard's files, without the notes that a plan of its own would repeat."""
    return find_destination(
        os.path.abspath(plan.destination.path),
        plan.options.inputs,
        columns=tuple(plan.recipe.columns),
        output_format=plan.destination.format_name,
        shard=shard,
        rejects=plan.destination.rejects is not None,
        resume=True,
    )


def _absolute(model: str | None) -> str | None:
    """Name a local model so that it is found from a worker's own directory."""
    return os.path.abspath(model) if model is not None and os.path.isdir(model) else model


def _check_leftovers(plan: Plan, shards: Sequence[Shard]) -> None:
    """Refuse to go on with another run's shards unasked, or remove them under ``force``."""
    for destination in (_shard_destination(plan, shard) for shard in shards):
        left = _files_left(destination)
        if left and plan.options.force:
            _remove(destination)
        elif left and not plan.options.resume:
            raise OutputError(
                f"{left[0]}: is of an unfinished run; pass --resume to go on, or --force to start "
                "afresh",
                usage=True,
            )


def _run_all(
    ray: Any,
    options: Sequence[Options],
    counted: Counted,
    workers: int,
    on_progress: Callable[[Progress], None],
) -> list[Report]:
    """Give each idle worker the next shard until all are done; return their reports in order."""
    gpus = 1 if ray.cluster_resources().get("GPU") and options[0].device != "cpu" else 0
    remote = ray.remote(
        num_cpus=options[0].threads, num_gpus=gpus, max_restarts=RESTARTS, max_task_retries=RESTARTS
    )(ShardWorker)
    idle = [remote.remote() for _ in range(min(workers, len(options)))]
    waiting = list(enumerate(options))
    running: dict[Any, tuple[int, Any]] = {}
    reports: dict[int, Report] = {}
    while waiting or running:
        while idle and waiting:
            worker, (index, one) = idle.pop(), waiting.pop(0)
            running[worker.run.remote(one, counted)] = index, worker
        done, _ = ray.wait(list(running), timeout=1.0)
        for reference in done:
            index, worker = running.pop(reference)
            reports[index] = _result(ray, reference, options[index])
            idle.append(worker)
        rows, tokens = (
            sum(getattr(r, name) for r in reports.values()) for name in ("rows", "tokens")
        )
        on_progress(Progress(rows, tokens, len(reports) / len(options)))
    return [reports[index] for index in range(len(options))]


def _result(ray: Any, reference: Any, options: Options) -> Report:
    """Take a shard's report, or raise what the worker did."""
    try:
        report: Report = ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, BertpoolError):
            raise error.cause from error
        raise
    except ray.exceptions.RayError as error:
        reason = str(error).strip().split("\n")[0]
        raise DeviceError(
            f"shard {options.shard}: its worker died {RESTARTS + 1} times: {reason}"
        ) from error
    return report


class ShardWorker:
    """A worker: runs shards, one after another, in a process of its own."""

    def run(self, options: Options, counted: Counted) -> Report:
        """Run one shard without notes, which the driver has shown when it planned the run."""
        _log.setLevel(logging.ERROR)
        return run(make_plan(options), counted=counted)


def _join(plan: Plan, destinations: Sequence[Destination]) -> None:
    """Join the shards' files to the output's."""
    # What stands there under resume is this run's own, put there before it was interrupted.
    replace = plan.options.force or plan.options.resume
    for number, target in enumerate(plan.destination.targets):
        parts = [str(destination.targets[number].path) for destination in destinations]
        merge(parts, output=str(target.path), force=replace)


def _remove(destination: Destination) -> None:
    for file in destination.files:
        file.unlink(missing_ok=True)
    shutil.rmtree(destination.folder, ignore_errors=True)
