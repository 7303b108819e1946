from __future__ import annotations

import pytest
import torch
from bertpool.encoder.device import check_device_name, find_device
from bertpool.errors import DeviceError

BAD_NAMES = (
    "", "gpu", "CPU", "cpu:0", "cuda:", "cuda:-1", "cuda:x", "cuda:1.0", " cpu", "cpu\n", "mps",
    "auto:0", "cuda:0:1",
)  # fmt: skip
GPUS = torch.cuda.device_count() if torch.cuda.is_available() else 0

no_cuda = pytest.mark.skipif(GPUS > 0, reason="needs a machine without CUDA")
requires_cuda = pytest.mark.skipif(GPUS == 0, reason="needs a CUDA device")


@pytest.mark.parametrize("name", ["auto", "cpu", "cuda", "cuda:0", "cuda:7", "cuda:12"])
def test_a_well_formed_name_passes(name: str) -> None:
    check_device_name(name)


@pytest.mark.parametrize("name", BAD_NAMES)
def test_an_ill_formed_name_is_wrong_usage_that_lists_the_forms(name: str) -> None:
    with pytest.raises(DeviceError, match="auto, cpu, cuda or cuda:N") as refusal:
        check_device_name(name)
    assert refusal.value.exit_code == 2


@pytest.mark.parametrize("name", BAD_NAMES)
def test_an_ill_formed_name_finds_no_device(name: str) -> None:
    with pytest.raises(DeviceError):
        find_device(name, "float32")


@pytest.mark.parametrize("index", ["99", "127", "255", "65535"])
def test_a_device_beyond_those_there_are_is_refused_with_what_is_visible(index: str) -> None:
    with pytest.raises(DeviceError, match=rf"--device cuda:{index}: not there; visible: cpu") as e:
        find_device(f"cuda:{index}", "float32")
    assert e.value.exit_code == 2


# Torch takes 128 for a negative index, and can't read the others.
@pytest.mark.parametrize("index", ["128", "007", "99999999999", "\u0663"])
def test_a_device_whose_index_torch_misreads_is_refused(index: str) -> None:
    with pytest.raises(DeviceError) as refusal:
        find_device(f"cuda:{index}", "float32")
    assert refusal.value.exit_code == 2


@no_cuda
@pytest.mark.parametrize("name", ["cuda", "cuda:0"])
def test_cuda_where_there_is_none_is_refused_with_what_is_visible(name: str) -> None:
    with pytest.raises(DeviceError, match=f"--device {name}: not there; visible: cpu$"):
        find_device(name, "float32")


@no_cuda
def test_auto_chooses_the_cpu_where_there_is_no_cuda() -> None:
    assert find_device("auto", "float32") == torch.device("cpu")


@no_cuda
def test_auto_does_not_choose_another_number_type() -> None:
    with pytest.raises(DeviceError, match="float16 needs a CUDA device"):
        find_device("auto", "float16")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_cpu_computes_in_float32_and_bfloat16(dtype: str) -> None:
    assert find_device("cpu", dtype) == torch.device("cpu")  # type: ignore[arg-type]


def test_float16_on_the_cpu_is_refused_with_what_works_there() -> None:
    with pytest.raises(DeviceError, match="on a CPU use float32 or bfloat16") as refusal:
        find_device("cpu", "float16")
    assert refusal.value.exit_code == 2


@requires_cuda
@pytest.mark.requires_cuda
@pytest.mark.parametrize("name", ["auto", "cuda", "cuda:0"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_a_cuda_device_that_is_there_is_found(name: str, dtype: str) -> None:
    assert find_device(name, dtype).type == "cuda"  # type: ignore[arg-type]
