"""Work one item ahead in another thread."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Generic, TypeVar

T = TypeVar("T")


class Ahead(Generic[T]):
    """Iterates over items that another thread produces, at most two ahead.

    An exception of the producer is raised where its item would have come. The thread is a daemon:
    one that waits for a pipe that never ends doesn't keep an interrupted process alive.
    """

    def __init__(self, items: Iterable[T]) -> None:
        self._queue: queue.Queue[tuple[T] | BaseException | None] = queue.Queue(maxsize=1)
        self._stopped = False
        threading.Thread(target=self._fill, args=(items,), daemon=True).start()

    def __iter__(self) -> Iterator[T]:
        while (got := self._queue.get()) is not None:
            if isinstance(got, BaseException):
                raise got
            yield got[0]

    def __enter__(self) -> Ahead[T]:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Let the thread end: it may be waiting for room."""
        self._stopped = True
        while True:
            try:
                self._queue.get_nowait()
            except queue.Empty:
                return

    def _fill(self, items: Iterable[T]) -> None:
        try:
            for item in items:
                self._queue.put((item,))
                if self._stopped:
                    return
            self._queue.put(None)
        except BaseException as error:
            self._queue.put(error)
