"""Device names and number types: what is asked for is what is used, or an error."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

from bertpool.errors import DeviceError

if TYPE_CHECKING:
    import torch

Dtype = Literal["float32", "bfloat16", "float16"]


def check_device_name(name: str) -> None:
    """Check the form of a device name, without torch.

    Raises:
        DeviceError: it is none of ``auto``, ``cpu``, ``cuda``, ``cuda:N``.
    """
    if not re.fullmatch(r"auto|cpu|cuda(:(0|[1-9][0-9]{0,8}))?", name):
        raise DeviceError(f"--device {name}: give auto, cpu, cuda or cuda:N", usage=True)


def find_device(name: str, dtype: Dtype) -> torch.device:
    """Return the device, present and able to compute in ``dtype``; only ``auto`` chooses.

    Raises:
        DeviceError: the device isn't there, or can't compute in ``dtype``.
    """
    import torch

    check_device_name(name)
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if name == "auto":
        name = "cuda" if count else "cpu"
    # Compared as a number first: torch wraps an index of 128 around.
    if name.startswith("cuda") and int(name.partition(":")[2] or 0) >= count:
        visible = ", ".join(f"cuda:{i} ({torch.cuda.get_device_name(i)})" for i in range(count))
        raise DeviceError(
            f"--device {name}: not there; visible: cpu{', ' + visible if visible else ''}",
            usage=True,
        )
    device = torch.device(name)
    if device.type == "cpu" and dtype == "float16":
        message = "--dtype float16 needs a CUDA device; on a CPU use float32 or bfloat16"
        raise DeviceError(message, usage=True)
    return device
