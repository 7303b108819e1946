from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from bertpool.ahead import Ahead

PATIENCE = 30  # seconds until a thread that should have ended counts as stuck


class Counting:
    """Produces numbers up to ``count``, then fails if told to, and knows its thread."""

    def __init__(self, count: int, error: BaseException | None = None) -> None:
        self.count, self.error = count, error
        self.produced = 0
        self.started = threading.Event()
        self.thread: threading.Thread | None = None

    def __iter__(self) -> Iterator[int]:
        self.thread = threading.current_thread()
        self.started.set()
        for number in range(self.count):
            self.produced += 1
            yield number
        if self.error is not None:
            raise self.error

    def has_ended(self) -> bool:
        assert self.started.wait(PATIENCE)
        assert self.thread is not None
        self.thread.join(PATIENCE)
        return not self.thread.is_alive()


@pytest.mark.parametrize("count", [0, 1, 2, 100])
def test_items_come_in_order_and_all_of_them(count: int) -> None:
    producer = Counting(count)
    with Ahead(producer) as ahead:
        assert list(ahead) == list(range(count))
    assert producer.has_ended()


def test_items_are_produced_in_another_daemon_thread() -> None:
    producer = Counting(3)
    with Ahead(producer) as ahead:
        assert list(ahead) == [0, 1, 2]
    assert producer.thread is not threading.current_thread()
    assert producer.thread is not None
    assert producer.thread.daemon


def test_an_item_may_be_none_or_an_exception() -> None:
    items = [None, ValueError("an item"), None]
    with Ahead(items) as ahead:
        assert list(ahead) == items


@pytest.mark.parametrize("error", [ValueError("broken"), KeyboardInterrupt(), MemoryError()])
@pytest.mark.parametrize("before", [0, 1, 5])
def test_an_exception_of_the_producer_arrives_in_its_place(
    error: BaseException, before: int
) -> None:
    producer = Counting(before, error)
    with Ahead(producer) as ahead:
        items = iter(ahead)
        assert [next(items) for _ in range(before)] == list(range(before))
        with pytest.raises(type(error)) as raised:
            next(items)
    assert raised.value is error
    assert producer.has_ended()


@pytest.mark.parametrize("taken", [0, 1, 10])
def test_leaving_early_lets_the_thread_end(taken: int) -> None:
    producer = Counting(1_000_000)
    with Ahead(producer) as ahead:
        for _, item in zip(range(taken), ahead, strict=False):
            assert item < taken
    assert producer.has_ended()
    assert producer.produced <= taken + 5


def test_an_exception_of_the_consumer_passes_through_and_lets_the_thread_end() -> None:
    producer = Counting(1_000_000)

    def consume() -> None:
        with Ahead(producer) as ahead:
            raise ValueError(f"after item {next(iter(ahead))}")

    with pytest.raises(ValueError, match="after item 0"):
        consume()
    assert producer.has_ended()


def test_no_more_than_two_items_are_ahead() -> None:
    producer = Counting(50)
    with Ahead(producer) as ahead:
        for item in ahead:
            # Beside this one: one waits in the queue, and one in the thread.
            assert producer.produced <= item + 3
