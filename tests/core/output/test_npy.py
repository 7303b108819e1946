from __future__ import annotations

import io
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
import pytest
from bertpool.output.npy import NpyWriter
from bertpool.output.rows import Layout, Rows

Dtype = Literal["float32", "float16"]
Floats = npt.NDArray[np.floating]


def make_vectors(count: int, width: int, dtype: str) -> Floats:
    vectors = np.random.default_rng(0).standard_normal((count, width), dtype=np.float32)
    return vectors.astype(dtype)


def rows_of(vectors: Floats) -> Rows:
    count = len(vectors)
    numbers = np.arange(count, dtype=np.int64)
    return Rows(
        ids=numbers,
        texts=["hello"] * count,
        sources=["a.txt"] * count,
        lines=numbers,
        n_tokens=numbers.astype(np.int32),
        truncated=numbers < 0,
        vectors={"embedding": vectors},
    )


def write(path: Path, portions: list[Floats], width: int, dtype: Dtype = "float32") -> Path:
    layout = Layout(("embedding",), width, dtype, text=True, source=False, line=False)
    with path.open("wb") as stream:
        writer = NpyWriter(stream, layout)
        for vectors in portions:
            writer.write(rows_of(vectors))
        writer.close("{}")
    return path


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("width", [1, 32, 384])
@pytest.mark.parametrize("count", [0, 1, 9, 10, 12_345])
def test_the_bytes_are_those_that_numpy_writes(
    tmp_path: Path, count: int, width: int, dtype: Dtype
) -> None:
    vectors = make_vectors(count, width, dtype)
    by_numpy = io.BytesIO()
    np.save(by_numpy, vectors)
    path = write(tmp_path / "v.npy", [vectors], width, dtype)
    assert path.read_bytes() == by_numpy.getvalue()


@pytest.mark.parametrize("sizes", [[1] * 100, [99, 1], [0, 50, 0, 50]], ids=str)
def test_the_bytes_do_not_depend_on_how_the_rows_arrive(tmp_path: Path, sizes: list[int]) -> None:
    vectors = make_vectors(100, 32, "float32")
    whole = write(tmp_path / "whole.npy", [vectors], 32)
    portions = np.split(vectors, np.cumsum(sizes)[:-1])
    assert write(tmp_path / "v.npy", portions, 32).read_bytes() == whole.read_bytes()


@pytest.mark.parametrize("order", ["C", "F"])
def test_vectors_are_stored_in_c_order_whatever_their_own(
    tmp_path: Path, order: Literal["C", "F"]
) -> None:
    vectors = make_vectors(100, 32, "float32")
    path = write(tmp_path / "v.npy", [np.asarray(vectors, order=order)], 32)
    loaded = np.load(path, allow_pickle=False)
    np.testing.assert_array_equal(loaded, vectors)
    assert loaded.flags.c_contiguous


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("count", [1, 1000])
def test_the_file_opens_as_a_memory_map(tmp_path: Path, count: int, dtype: Dtype) -> None:
    vectors = make_vectors(count, 32, dtype)
    path = write(tmp_path / "v.npy", [vectors], 32, dtype)
    mapped = np.load(path, allow_pickle=False, mmap_mode="r")
    assert isinstance(mapped, np.memmap)
    assert mapped.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(mapped, vectors)


def test_an_empty_file_keeps_the_width(tmp_path: Path) -> None:
    loaded = np.load(write(tmp_path / "v.npy", [], 32), allow_pickle=False)
    assert loaded.shape == (0, 32)
    assert loaded.dtype == np.float32
