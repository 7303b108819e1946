"""Measure bertpool against its peers: ``python benchmarks/bench.py FILE...``.

Every engine runs the same texts in one process, interleaved, the best of three repeats of each; so
ratios hold where a machine's speed drifts. Writes ``benchmarks/RESULTS.md``.
"""

from __future__ import annotations

import functools
import json
import logging
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
import transformers
from bertpool.encoder.checkpoint import Checkpoint, find_checkpoint
from bertpool.encoder.threads import default_threads
from bertpool.encoder.tokenized import tokenize
from engines import ENGINES, Encode, load_bertpool

RESULTS = Path(__file__).parent / "RESULTS.md"
REPEATS = 3
SECONDS = 2.5  # about as long as one repeat of the slowest engine takes
PROBE_ROWS = 64
ACCURACY_ROWS = 200
FIVE = ("cls", "pooler", "mean", "max", "attention")

PLAIN_SCRIPT = """
import sys, numpy as np, torch
from transformers import AutoModel, AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
model = AutoModel.from_pretrained(sys.argv[1]).eval()
lines = open(sys.argv[2], encoding="utf-8").read().splitlines()
inputs = tokenizer(lines, padding=True, truncation=True, max_length=256, return_tensors="pt")
with torch.inference_mode():
    hidden = model(**inputs).last_hidden_state
mask = inputs["attention_mask"][..., None]
np.save(sys.argv[3], ((hidden * mask).sum(1) / mask.sum(1)).numpy())
"""


def main(files: Sequence[str]) -> None:
    """Measure every file and write the results."""
    threads = default_threads()
    checkpoint = find_checkpoint(None)
    lines = []
    for line in report(checkpoint, [Path(file) for file in files], threads):
        print(line, flush=True)
        lines.append(line)
    RESULTS.write_text("\n".join(lines) + "\n")


def report(checkpoint: Checkpoint, files: Sequence[Path], threads: int) -> Iterator[str]:
    """Yield the lines of RESULTS.md."""
    yield "# Results of `make bench`"
    yield ""
    yield (
        f"{processor()}, {threads} threads; torch {torch.__version__.split('+')[0]}, transformers "
        f"{transformers.__version__}; {checkpoint.name}, mean. Best of {REPEATS} interleaved "
        "repeats, tokenizing included. Machines differ: only the ratios within a table mean much."
    )
    # First, while this process is small: a child's peak memory counts what it was forked from.
    yield from process_table(checkpoint, files[0])
    for file in files:
        yield from engine_table(checkpoint, file, threads)
        yield from work_table(checkpoint, file, threads)


def engine_table(checkpoint: Checkpoint, file: Path, threads: int) -> Iterator[str]:
    """Compare the engines on one file."""
    texts = file.read_text(encoding="utf-8").split("\n")[:-1]
    engines, absent = load_engines(checkpoint.directory, texts[:PROBE_ROWS], threads)
    texts = enough(texts, engines["sentence-transformers float32"])
    tokens, flop = work(checkpoint, texts)
    exact = reference(checkpoint, texts[:ACCURACY_ROWS])
    seconds = interleaved({name: lambda e=e: e(texts) for name, e in engines.items()})
    gemm = {dtype: best_gemm(checkpoint, dtype, threads) for dtype in ("float32", "bfloat16")}
    yield ""
    yield f"## {file.stem}: {len(texts)} texts, {tokens / len(texts):.0f} tokens each"
    yield ""
    yield (
        f"Best GEMM in this run: float32 {gemm['float32']:.0f}, bfloat16 {gemm['bfloat16']:.0f} "
        "GFLOP/s."
    )
    yield ""
    yield "| engine | rows/s | tokens/s | GFLOP/s | share of GEMM | bertpool is | worst cosine |"
    yield "|---|---|---|---|---|---|---|"
    for name, spent in seconds.items():
        dtype = name.rsplit(" ", 1)[1]
        vectors = engines[name](texts[:ACCURACY_ROWS])
        yield (
            f"| {name} | {len(texts) / spent:,.0f} | {tokens / spent:,.0f} | {flop / spent:,.0f} "
            f"| {flop / spent / gemm[dtype]:.2f} | {spent / seconds[f'bertpool {dtype}']:.2f}x "
            f"| {worst_cosine(vectors, exact):.6f} |"
        )
    for name, reason in absent.items():
        yield f"| {name} | not run: {reason} | | | | | |"


def load_engines(
    directory: Path, probe: Sequence[str], threads: int
) -> tuple[dict[str, Encode], dict[str, str]]:
    """Load every engine that can be, and say why the others can't."""
    engines, absent = {}, {}
    for name, load in ENGINES.items():
        try:
            engines[name] = load(directory, threads, probe)
            engines[name](probe)
        except Exception as error:
            absent[name] = f"{type(error).__name__}: {str(error).splitlines()[0][:80]}"
    return engines, absent


def enough(texts: list[str], slowest: Encode) -> list[str]:
    """Take as many texts as the slowest engine encodes in about ``SECONDS``."""
    sample = texts[:PROBE_ROWS]
    start = time.perf_counter()
    slowest(sample)
    return texts[: max(len(sample), int(len(sample) * SECONDS / (time.perf_counter() - start)))]


def interleaved(runs: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Run all in turn, several times; return the least seconds of each."""
    best = dict.fromkeys(runs, float("inf"))
    for _ in range(REPEATS):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def work(checkpoint: Checkpoint, texts: Sequence[str]) -> tuple[int, float]:
    """Count real tokens and GFLOP: ``L (24 H^2 + 4 T H)`` a token, T the text's own length."""
    layers, hidden = checkpoint.num_layers, checkpoint.config["hidden_size"]
    tokenizer = load_bertpool(
        checkpoint.directory, strategy="mean", dtype="float32", threads=1
    ).tokenizer
    lengths = np.array([len(one.input_ids) for one in tokenizer.encode(texts)], dtype=np.float64)
    flop = layers * (24 * hidden**2 + 4 * lengths * hidden) * lengths
    return int(lengths.sum()), float(flop.sum() / 1e9)


def best_gemm(checkpoint: Checkpoint, dtype: str, threads: int) -> float:
    """Return the most GFLOP/s of the layers' own products, oneDNN prepacked or ``F.linear``."""
    torch.set_num_threads(threads)
    hidden, rows, best = checkpoint.config["hidden_size"], 4096, 0.0
    kind = getattr(torch, dtype)
    for out_features, in_features in (
        (3 * hidden, hidden),
        (hidden, hidden),
        (4 * hidden, hidden),
        (hidden, 4 * hidden),
    ):
        x = torch.randn(rows, in_features).to(kind)
        weight, bias = torch.randn(out_features, in_features).to(kind), torch.zeros(out_features)
        packed = torch.ops.mkldnn._reorder_linear_weight(weight, rows)
        pointwise = torch.ops.mkldnn._linear_pointwise
        bias = bias.to(kind)
        runs = (
            functools.partial(pointwise, x, packed, bias, "none", [], ""),
            functools.partial(torch.nn.functional.linear, x, weight, bias),
        )
        for run in runs:
            for _ in range(10):
                start = time.perf_counter()
                run()
                spent = time.perf_counter() - start
                best = max(best, 2 * rows * out_features * in_features / spent / 1e9)
    return best


def reference(checkpoint: Checkpoint, texts: Sequence[str]) -> np.ndarray:
    """Encode by transformers in float32, one text at a time."""
    transformers.utils.logging.disable_progress_bar()
    tokenizer = transformers.AutoTokenizer.from_pretrained(checkpoint.directory)
    tokenizer.backend_tokenizer.no_padding()
    model = transformers.AutoModel.from_pretrained(checkpoint.directory, dtype=torch.float32).eval()
    rows = []
    for text in texts:
        inputs = tokenizer(text, truncation=True, max_length=256, return_tensors="pt")
        with torch.inference_mode():
            rows.append(model(**inputs).last_hidden_state[0].double().mean(0).numpy())
    return np.array(rows)


def worst_cosine(vectors: np.ndarray, exact: np.ndarray) -> float:
    """Return the smallest cosine between rows."""
    lengths = np.linalg.norm(vectors, axis=1) * np.linalg.norm(exact, axis=1)
    return float(((vectors * exact).sum(1) / lengths).min())


def work_table(checkpoint: Checkpoint, file: Path, threads: int) -> Iterator[str]:
    """Compare strategies, layers and repeats by their encoder time."""
    texts = file.read_text(encoding="utf-8").split("\n")[:-1]
    load = functools.partial(load_bertpool, checkpoint.directory, dtype="float32", threads=threads)
    embedders = {name: load(strategy=name) for name in ("mean", "cls", "max", "attention")}
    embedders["five strategies at once"] = load(strategy=FIVE)
    embedders["layer 3 of 6"] = load(strategy="mean", layer=3)
    mean = embedders["mean"]
    texts = enough(texts, lambda some: mean.embed(some).vectors["embedding"])
    repeated = [text for pair in zip(texts, texts, strict=True) for text in pair][: len(texts)]
    torch.set_num_threads(1)
    tokens = tokenize(mean.tokenizer, texts)
    runs = {n: lambda e=e: e.encode(tokens) for n, e in embedders.items()}
    half = tokenize(mean.tokenizer, repeated)
    runs["half of the texts repeats"] = lambda: mean.encode(half)
    seconds = interleaved(runs)
    yield ""
    yield f"Encoder time of other work on {len(texts)} texts, mean = 1 (float32):"
    yield ""
    yield "| " + " | ".join(seconds) + " |"
    yield "|" + "---|" * len(seconds)
    yield "| " + " | ".join(f"{spent / seconds['mean']:.2f}" for spent in seconds.values()) + " |"


def process_table(checkpoint: Checkpoint, file: Path) -> Iterator[str]:
    """Compare whole processes: start-up on ten lines, repeats, and the pipeline's own cost."""
    texts = file.read_text(encoding="utf-8").split("\n")[:-1]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "ten.txt").write_text("\n".join(texts[:10]) + "\n", encoding="utf-8")
        (folder / "plain.py").write_text(PLAIN_SCRIPT)
        model, ten, out = str(checkpoint.directory), str(folder / "ten.txt"), str(folder / "o.npy")
        command = [sys.executable, "-m", "bertpool", "embed", "-q", "--force", "-m", model]
        commands = {
            "bertpool embed": [*command, "-s", "mean", ten, "-o", out],
            "transformers script": [sys.executable, str(folder / "plain.py"), model, ten, out],
        }
        peak: dict[str, float] = {}
        seconds = interleaved(
            {name: lambda n=name, c=c: peak.__setitem__(n, run(c)) for name, c in commands.items()}
        )
        whole = [*command, "-s", "mean", str(file), "-o", out, "--report", str(folder / "r.json")]
        run(whole)
        timing = json.loads((folder / "r.json").read_text())["seconds"]
    yield ""
    yield (
        f"`bertpool embed {file.name}`, {len(texts)} lines: {timing['encode']:.1f} s of encoding, "
        f"{timing['wait']:.2f} s of waiting for other stages; reading, tokenizing, encoding and "
        f"writing together run at {timing['encode'] / (timing['total'] - timing['load']):.3f} of "
        "the encoder's own rate."
    )
    yield ""
    yield "## Ten lines, whole process"
    yield ""
    yield "| command | seconds | of the script's | peak memory |"
    yield "|---|---|---|---|"
    for name, spent in seconds.items():
        share = spent / seconds["transformers script"]
        yield f"| {name} | {spent:.2f} | {share:.2f} | {peak[name]:.0f} MiB |"


def run(command: Sequence[str]) -> float:
    """Run a process to its end; return its peak memory in MiB."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"failed: {' '.join(command)}")
    return usage.ru_maxrss / 1024


def processor() -> str:
    """Name the CPU's model and its cores, and nothing else of the machine."""
    info = Path("/proc/cpuinfo")
    models = [
        line.split(":", 1)[1].strip()
        for line in (info.read_text().splitlines() if info.is_file() else [])
        if line.startswith("model name")
    ]
    flags = " with AMX" if torch.cpu._is_amx_tile_supported() else ""
    return f"{models[0] if models else platform.machine()}{flags}, {os.cpu_count()} cores"


if __name__ == "__main__":
    logging.getLogger("bertpool").setLevel(logging.ERROR)
    main(sys.argv[1:])
