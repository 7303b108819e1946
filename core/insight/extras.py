"""Optional libraries: there, or one line that says what to install."""

from __future__ import annotations

import importlib.util

from bertpool.errors import BertpoolError


def check_extra(extra: str, *modules: str) -> None:
    """Check that the libraries of an extra are installed, without importing them.

    Raises:
        BertpoolError: one isn't.
    """
    for module in modules:
        if importlib.util.find_spec(module) is None:
            raise BertpoolError(
                f"{module} is not installed: pip install 'bertpool[{extra}]'", usage=True
            )
