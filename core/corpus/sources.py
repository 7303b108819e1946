"""Sources: the files that the inputs stand for, found before any is read."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass

from bertpool.corpus.formats import NOT_TEXT, format_of, suffix_of
from bertpool.corpus.options import CorpusOptions
from bertpool.corpus.streams import STDIN, printable_name, reason


@dataclass(frozen=True)
class Source:
    """A file, FIFO or stdin; ``relative`` is its path inside the directory that was named."""

    path: str
    format: str
    relative: str

    @property
    def shown(self) -> str:
        """How messages and the output call it."""
        return printable_name(self.path)

    @property
    def regular(self) -> bool:
        """Tell whether it can be read twice, and has a size."""
        return self.path != STDIN and os.path.isfile(self.path)


@dataclass(frozen=True)
class Input:
    """An input as the user named it, and what it stands for.

    ``problems`` say why some of it can't be read, ``links`` are directories that only a link leads
    to, which aren't followed: they may lead back.
    """

    name: str
    is_directory: bool
    sources: tuple[Source, ...] = ()
    problems: tuple[str, ...] = ()
    links: tuple[str, ...] = ()

    @property
    def base_name(self) -> str:
        """The input's name without its folder."""
        if self.name == STDIN:
            return STDIN
        name = os.path.abspath(self.name) if self.is_directory else self.name
        return printable_name(os.path.basename(name))


def find_input(name: str, options: CorpusOptions) -> Input:
    """Find the files that a named input stands for, a directory's in an order of its own names."""
    if name == STDIN:
        return Input(name, False, (Source(name, format_of(name, options, inside=False), ""),))
    if os.path.isdir(name):
        return _find_directory(name, options)
    problem = _problem(name, options)
    if problem:
        return Input(name, False, problems=(problem,))
    return Input(name, False, (Source(name, format_of(name, options, inside=False), ""),))


def _find_directory(folder: str, options: CorpusOptions) -> Input:
    """Walk a directory; what is hidden is passed over, whatever the directory's own name."""
    paths: list[str] = []
    links: list[str] = []
    failed: list[str] = []
    for parent, folders, files in os.walk(folder, onerror=lambda e: failed.append(_failure(e))):
        folders[:] = [name for name in folders if not name.startswith(".")]
        beside = [os.path.join(parent, name) for name in folders]
        links += [printable_name(path) for path in beside if os.path.islink(path)]
        paths += [os.path.join(parent, name) for name in files if not name.startswith(".")]
    if not paths and not failed:
        failed.append(f"{printable_name(folder)}: no file in it (hidden ones don't count)")
    sources = [
        Source(path, format_of(path, options, inside=True), os.path.relpath(path, folder))
        for path in paths
    ]
    sources.sort(key=lambda source: os.fsencode(source.relative).split(os.fsencode(os.sep)))
    problems = [_problem(source.path, options, inside=True) for source in sources]
    return Input(
        folder, True, tuple(sources), (*failed, *filter(None, problems)), tuple(sorted(links))
    )


def _failure(error: OSError) -> str:
    return f"{printable_name(str(error.filename))}: {reason(error)}"


def _problem(path: str, options: CorpusOptions, *, inside: bool = False) -> str | None:
    """Say why a file can't be read, or None."""
    shown = printable_name(path)
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError) as error:
        dangling = os.path.islink(path) and isinstance(error, FileNotFoundError)
        return f"{shown}: {'a link that leads nowhere' if dangling else reason(error)}"
    if inside and not stat.S_ISREG(mode):
        return f"{shown}: not a regular file"
    if not os.access(path, os.R_OK):
        return f"{shown}: no permission to read it"
    suffix = suffix_of(path)
    if options.input_format == "auto" and suffix in NOT_TEXT:
        return f"{shown}: bertpool reads text, not {suffix}"
    return None
