"""The commands about vector files: inspect, verify, search."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer
from bertpool.cli import options
from bertpool.cli.messages import show, show_error, start_logging

if TYPE_CHECKING:
    from bertpool.insight.inspect import FileFacts, Inspection, TokenFacts, VectorFacts
    from bertpool.insight.search import Hit
    from bertpool.insight.verify import Verification

# Like every command: what is heavy is imported when it runs, not for --help.


def inspect(files: options.VectorFiles, json: options.Json = False) -> None:
    """Say what is in vector files; of several, whether their vectors may be compared."""
    start_logging(quiet=False, verbose=False)
    from bertpool.cli.tables import check_stdout, show_rows
    from bertpool.output.vector_format import check_vector_files

    check_stdout()
    check_vector_files(files)
    from bertpool.insight.inspect import inspect_files

    found = inspect_files(files)
    content = {**asdict(found), "comparable": found.comparable}
    show_rows(_facts_rows(found.files), json=[content] if json else None)
    show_rows(_difference_rows(found), json=[] if json else None)
    _show_findings(found)
    if not found.comparable:
        raise typer.Exit(1)


def verify(
    file: options.VectorFile,
    inputs: options.MadeFrom = [],  # noqa: B006 - Typer reads it, nobody changes it
    model: options.Maker = None,
    offline: options.Offline = False,
    sample: options.Sample = "64",
    seed: options.Seed = 0,
    tolerance: options.Tolerance = None,
    device: options.Device = "auto",
    threads: options.Threads = None,
    json: options.Json = False,
) -> None:
    """Encode a sample of the texts again, each alone, and compare with the file's vectors."""
    start_logging(quiet=False, verbose=False)
    from bertpool.cli.tables import check_stdout, show_rows
    from bertpool.insight.sample import parse_sample
    from bertpool.output.vector_format import check_vector_files

    check_stdout()
    check_vector_files([file])
    rows = parse_sample(sample)
    from bertpool.insight import verify as verifying

    found = verifying.verify(
        file, inputs=inputs, model=model, sample=rows, seed=seed,
        tolerance=tolerance, offline=offline, device=device, threads=threads,
    )  # fmt: skip
    content = {**asdict(found), "passed": found.passed}
    show_rows(list(_check_rows(found)), json=[content] if json else None)
    _show_verdict(found)
    if not found.passed:
        raise typer.Exit(1)


def search(
    file: options.VectorFile,
    query: options.Query,
    top: options.Top = 10,
    column: options.Column = None,
    model: options.Maker = None,
    prompt: options.QueryPrompt = None,
    offline: options.Offline = False,
    device: options.Device = "auto",
    threads: options.Threads = None,
    json: options.Json = False,
) -> None:
    """Find the rows nearest to a text, or to each line of stdin, by cosine."""
    start_logging(quiet=False, verbose=False)
    from bertpool.cli.tables import check_stdout, show_rows
    from bertpool.output.vector_format import check_vector_files

    check_stdout()
    check_vector_files([file])
    from bertpool.insight import search as searching

    queries = searching.read_queries(query)
    found = searching.search(
        file, queries, top=top, column=column, model=model, prompt=prompt, offline=offline,
        device=device, threads=threads,
    )  # fmt: skip
    content = _hits_json(queries, found) if json else None
    show_rows(list(_hit_rows(queries, found)), json=content, shorten=True)


def _facts_rows(files: Sequence[FileFacts]) -> list[dict[str, object]]:
    """Lay the facts out in a row each, with a column for each file."""
    columns = [dict(_facts(file)) for file in files]
    names = dict.fromkeys(name for column in columns for name in column)
    paths = _distinct([file.path for file in files])
    return [
        {"file": name} | {p: c.get(name) for p, c in zip(paths, columns, strict=True)}
        for name in names
    ]


def _distinct(names: Sequence[str]) -> list[str]:
    """Number what is named twice."""
    return [
        name if names.index(name) == index else f"{name} ({index + 1})"
        for index, name in enumerate(names)
    ]


def _facts(file: FileFacts) -> Iterator[tuple[str, str]]:
    made: dict[str, Any] = file.provenance
    yield "model", made["model"] + (f" ({made['revision']})" if made["revision"] else "")
    yield "made by", f"bertpool {made['bertpool_version']}, {made['dtype']}"
    yield "pooling", ", ".join(made["strategies"])
    yield "layers", ", ".join("+".join(map(str, one)) for one in made["layers"])
    yield "then", ", ".join(made["stages"]) or "nothing"
    if made["prompt"]:
        yield "prompt", repr(made["prompt"])
    yield "max length", f"{made['max_length']} tokens"
    yield "inputs", ", ".join(one["name"] for one in made["inputs"] or ()) or "not known"
    if shard := made.get("shard"):
        rows = f"rows {shard['first']:,} to {shard['stop'] - 1:,} of {shard['total']:,}"
        yield "shard", f"{shard['index']} of {shard['count']}: {rows}"
    yield "rows", f"{file.rows:,}"
    yield "columns", ", ".join(file.columns)
    for vectors in file.vectors:
        yield from _vector_facts(vectors)
    if file.tokens:
        yield from _token_facts(file.tokens, file.rows)


def _vector_facts(vectors: VectorFacts) -> Iterator[tuple[str, str]]:
    yield vectors.column, f"{vectors.dimensions} {vectors.dtype}"
    if vectors.norm_min is not None:
        norms = (vectors.norm_min, vectors.norm_mean, vectors.norm_max)
        yield "  length", "min {:.4g}, mean {:.4g}, max {:.4g}".format(*norms)
    yield "  zero", f"{vectors.zero:,}"
    yield "  not finite", f"{vectors.non_finite:,}"
    yield "  repeated", f"{vectors.duplicates:,}"


def _token_facts(tokens: TokenFacts, rows: int) -> Iterator[tuple[str, str]]:
    yield "tokens", f"min {tokens.fewest}, mean {tokens.mean:.1f}, max {tokens.most}"
    for upper, count in tokens.histogram.items():
        yield f"  to {upper}", f"{count:,} ({count / rows:.1%})"
    yield "truncated", f"{tokens.truncated:,} ({tokens.truncated / rows:.1%})"


def _difference_rows(found: Inspection) -> list[dict[str, object]]:
    return [
        {
            "differs": one.path,
            "in": one.field,
            "value": repr(one.value),
            f"of {one.first}": repr(one.first_value),
        }
        for one in found.differences
    ]


def _show_findings(found: Inspection) -> None:
    for file in found.files:
        for problem in file.problems:
            show("note: ", "yellow", f"{file.path}: {problem}")
    if not found.comparable:
        show_error("the vectors aren't to be compared: they were made in different ways")


def _check_rows(found: Verification) -> Iterator[dict[str, object]]:
    for check in found.columns:
        yield {
            "column": check.column,
            "worst difference": _scientific(check.difference),
            "in row": check.difference_row,
            "worst cosine": f"{check.cosine:.7f}",
            "at row": check.cosine_row,
            "wrong": f"{check.failed} of {found.sampled}",
        }


def _scientific(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.2e}"


def _show_verdict(found: Verification) -> None:
    for problem in found.problems:
        show_error(f"{found.path}: {problem}")
    if found.passed:
        rows = f"{found.sampled:,} of {found.rows:,} rows encoded again"
        show(f"{found.path}: ", "bold", f"right: {rows}, tolerance {found.tolerance:g}")


def _hit_rows(
    queries: Sequence[str], found: Sequence[Sequence[Hit]]
) -> Iterator[dict[str, object]]:
    """Lay hits out; the query stands before them where there are several."""
    for query, hits in zip(queries, found, strict=True):
        for hit in hits:
            yield {
                **({"query": query} if len(queries) > 1 else {}),
                "rank": hit.rank,
                "cosine": f"{hit.score:.4f}",
                **({} if "id" in hit.cells else {"row": hit.row}),
                **hit.cells,
            }


def _hits_json(
    queries: Sequence[str], found: Sequence[Sequence[Hit]]
) -> Iterator[dict[str, object]]:
    for query, hits in zip(queries, found, strict=True):
        for hit in hits:
            own = {"rank": hit.rank, "score": hit.score, "row": hit.row}
            yield {"query": query, **own, **hit.cells}
