from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
import pytest
from bertpool.output.npy import NpyWriter
from bertpool.output.rows import Layout
from rows import make_rows, write_rows

Dtype = Literal["float32", "float16"]
Floats = npt.NDArray[np.floating]


def make_vectors(count: int, width: int, dtype: str) -> Floats:
    vectors = np.random.default_rng(0).standard_normal((count, width), dtype=np.float32)
    return vectors.astype(dtype)


def write(
    path: Path,
    vectors: Floats,
    width: int,
    dtype: Dtype = "float32",
    sizes: list[int] | None = None,
    column: str = "embedding",
) -> Path:
    layout = Layout((column,), width, dtype, text=True, source=False, line=False)
    rows = replace(make_rows(len(vectors)), vectors={"other": -vectors, column: vectors})
    return write_rows(path, NpyWriter, layout, rows, sizes)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("width", [1, 32, 384])
@pytest.mark.parametrize("count", [0, 1, 9, 10, 12_345])
def test_the_bytes_are_those_that_numpy_writes(
    tmp_path: Path, count: int, width: int, dtype: Dtype
) -> None:
    vectors = make_vectors(count, width, dtype)
    by_numpy = io.BytesIO()
    np.save(by_numpy, vectors)
    path = write(tmp_path / "v.npy", vectors, width, dtype)
    assert path.read_bytes() == by_numpy.getvalue()


@pytest.mark.parametrize("sizes", [[1] * 100, [99, 1], [0, 50, 0, 50]], ids=str)
def test_the_bytes_do_not_depend_on_how_the_rows_arrive(tmp_path: Path, sizes: list[int]) -> None:
    vectors = make_vectors(100, 32, "float32")
    whole = write(tmp_path / "whole.npy", vectors, 32)
    portioned = write(tmp_path / "v.npy", vectors, 32, sizes=sizes)
    assert portioned.read_bytes() == whole.read_bytes()


@pytest.mark.parametrize("order", ["C", "F"])
def test_vectors_are_stored_in_c_order_whatever_their_own(
    tmp_path: Path, order: Literal["C", "F"]
) -> None:
    vectors = make_vectors(100, 32, "float32")
    path = write(tmp_path / "v.npy", np.asarray(vectors, order=order), 32)
    loaded = np.load(path, allow_pickle=False)
    np.testing.assert_array_equal(loaded, vectors)
    assert loaded.flags.c_contiguous


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("count", [1, 1000])
def test_the_file_opens_as_a_memory_map(tmp_path: Path, count: int, dtype: Dtype) -> None:
    vectors = make_vectors(count, 32, dtype)
    path = write(tmp_path / "v.npy", vectors, 32, dtype)
    mapped = np.load(path, allow_pickle=False, mmap_mode="r")
    assert isinstance(mapped, np.memmap)
    assert mapped.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(mapped, vectors)


def test_an_empty_file_keeps_the_width(tmp_path: Path) -> None:
    path = write(tmp_path / "v.npy", make_vectors(0, 32, "float32"), 32, sizes=[])
    loaded = np.load(path, allow_pickle=False)
    assert loaded.shape == (0, 32)
    assert loaded.dtype == np.float32


def test_of_several_columns_the_layouts_one_is_written(tmp_path: Path) -> None:
    vectors = make_vectors(10, 32, "float32")
    path = write(tmp_path / "v.npy", vectors, 32, column="cls")
    np.testing.assert_array_equal(np.load(path), vectors)
