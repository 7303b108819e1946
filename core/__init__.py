"""bertpool: sentence vectors from BERT-family encoders, pooled with correct masks.

``extract`` does what the command ``bertpool embed`` does. It is imported on first use, as are torch
and transformers behind it, so that ``import bertpool`` stays quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bertpool.errors import (
    BertpoolError,
    CorpusError,
    DeviceError,
    ModelError,
    OutputError,
    PoolingError,
)

if TYPE_CHECKING:
    from bertpool.extraction import extract as extract
    from bertpool.model import Model as Model
    from bertpool.model import load as load
    from bertpool.report import Report as Report

__all__ = [
    "BertpoolError",
    "CorpusError",
    "DeviceError",
    "ModelError",
    "OutputError",
    "PoolingError",
    "Model",
    "Report",
    "extract",
    "load",
]

_LAZY = {
    "Model": "bertpool.model",
    "load": "bertpool.model",
    "extract": "bertpool.extraction",
    "Report": "bertpool.report",
}


def __getattr__(name: str) -> object:
    import importlib

    if name == "__version__":
        from importlib.metadata import version

        return version("bertpool")
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'bertpool' has no attribute {name!r}")
