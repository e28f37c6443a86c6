"""What a script passes between the ranks that it would start itself: queues, and what a manager holds.

Every rank runs the script from its first line, and so has queues, dicts and lists of its own where the script thinks of
one.  What a rank puts into a queue is for all, in one order; what it adds to a dict or list, others have once all have
ended what the script started.
"""

from __future__ import annotations

import functools
import itertools
import pickle
import queue
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any


class Exchange:
    """store: of all ranks.  run_started: run what the script has started: whoever asks a queue waits for that."""

    def __init__(self, store: Callable[[], Any], run_started: Callable[[], None]) -> None:
        self.run_started, self._make_store, self._made = run_started, store, itertools.count()
        self._held: list[tuple[int, Any, Any]] = []
        self._settled = itertools.count()

    @functools.cached_property
    def store(self) -> Any:
        """The store of all ranks."""
        return self._make_store()

    def queue(self, *_: Any, **__: Any) -> SharedQueue:
        """In place of multiprocessing's Queue, of whatever kind."""
        return SharedQueue(self, next(self._made))

    def holding(self, held: Any) -> Any:
        """A dict or list whose additions of all ranks come together."""
        self._held.append((next(self._made), held, held.copy()))
        return held

    def settle(self, rank: int, world: int, meet: Callable[[], None]) -> None:
        """All ranks are through with what the script started: give each what the others added."""
        turn = next(self._settled)
        for number, held, before in self._held:
            self.store.set(f"{turn}/{number}/{rank}", pickle.dumps(_additions(held, before)))
        meet()
        for number, held, before in self._held:
            added = [pickle.loads(self.store.get(f"{turn}/{number}/{one}")) for one in range(world)]
            if isinstance(held, dict):
                held.update({key: one for part in added for key, one in part.items()})
                before.clear()
                before.update(held)
            else:
                held[len(before) :] = [one for part in added for one in part]
                before[:] = held


def _additions(held: Any, before: Any) -> Any:
    """What a dict or list holds that it did not hold before."""
    if isinstance(held, dict):
        return {key: one for key, one in held.items() if key not in before or before[key] is not one}
    return held[len(before) :]


class SharedQueue:
    """A queue into which every rank puts, and out of which each gets what all have put."""

    def __init__(self, exchange: Exchange, number: int) -> None:
        self._exchange, self._name, self._got = exchange, f"queue {number}", 0

    def put(self, item: Any, *_: Any, **__: Any) -> None:
        """For all ranks."""
        store = self._exchange.store
        at = store.add(self._name, 1)
        store.set(f"{self._name}/{at}", pickle.dumps(item))

    def get(self, *_: Any, **__: Any) -> Any:
        """The next, once it is there."""
        self._exchange.run_started()
        self._got += 1
        return pickle.loads(self._exchange.store.get(f"{self._name}/{self._got}"))

    def get_nowait(self) -> Any:
        """The next, or queue.Empty."""
        if self.empty():
            raise queue.Empty
        return self.get()

    def empty(self) -> bool:
        """Whether nothing is there that was not got."""
        return self.qsize() == 0

    def qsize(self) -> int:
        """How many are there that were not got."""
        self._exchange.run_started()
        return int(self._exchange.store.add(self._name, 0)) - self._got

    def close(self, *_: Any) -> None:
        """Nothing to end."""

    put_nowait, join_thread, cancel_join_thread, join, task_done = put, close, close, close, close


class SharedManager:
    """multiprocessing.Manager: its queues, dicts and lists; all else is of a manager of this rank's own."""

    def __init__(self, exchange: Exchange, real: Callable[[], Any]) -> None:
        self._exchange, self._real, self._own = exchange, real, None
        self.Queue = self.JoinableQueue = exchange.queue

    def dict(self, *args: Any, **kwargs: Any) -> Any:
        """A dict of all ranks."""
        return self._exchange.holding(dict(*args, **kwargs))

    def list(self, *args: Any) -> Any:
        """A list of all ranks."""
        return self._exchange.holding(list(*args))

    def __getattr__(self, name: str) -> Any:
        self._own = self._own or self._real()
        return getattr(self._own, name)

    def shutdown(self) -> None:
        """End the manager of its own, if there is one."""
        if self._own is not None:
            self._own.shutdown()

    def __enter__(self) -> SharedManager:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()


Calls = dict[int, Callable[[], Any]]


class SharedPool:
    """multiprocessing.Pool: of its calls each rank makes its own, and has the results of all.

    make: make this rank's of some calls as a process of its own, and write what they return into the results.
    """

    def __init__(
        self, exchange: Exchange, make: Callable[[int, Calls, dict[int, Any]], None], processes: int | None = None
    ) -> None:
        self._make, self._processes = make, processes
        self._asked: Calls = {}
        self.results: dict[int, Any] = exchange.holding({})
        self._made = 0

    def apply_async(
        self, func: Any, args: Sequence[Any] = (), kwds: Mapping[str, Any] | None = None, *_: Any, **__: Any
    ) -> SharedResult:
        """A call."""
        self._asked[len(self._asked)] = functools.partial(func, *args, **(kwds or {}))
        return SharedResult(self, [len(self._asked) - 1], single=True)

    def starmap_async(self, func: Any, iterable: Iterable[Sequence[Any]], *_: Any, **__: Any) -> SharedResult:
        """A call for each of several arguments."""
        several = [self.apply_async(func, args).numbers[0] for args in iterable]
        return SharedResult(self, several, single=False)

    def map_async(self, func: Any, iterable: Iterable[Any], *_: Any, **__: Any) -> SharedResult:
        """A call for each argument."""
        return self.starmap_async(func, ((one,) for one in iterable))

    def starmap(self, *args: Any, **kwargs: Any) -> Any:
        """What these calls return."""
        return self.starmap_async(*args, **kwargs).get()

    def map(self, *args: Any, **kwargs: Any) -> Any:
        """What these calls return."""
        return self.map_async(*args, **kwargs).get()

    def join(self) -> None:
        """Make the calls that were not made yet."""
        first, self._made = self._made, len(self._asked)
        if first < self._made:
            calls = {number: self._asked[number] for number in range(first, self._made)}
            self._make(self._processes or len(calls), calls, self.results)

    def close(self) -> None:
        """No process has begun."""

    terminate = close

    def __enter__(self) -> SharedPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.join()


class SharedResult:
    """Of calls by their numbers."""

    def __init__(self, pool: SharedPool, numbers: list[int], single: bool) -> None:
        self._pool, self.numbers, self._single = pool, numbers, single

    def get(self, *_: Any, **__: Any) -> Any:
        """What they return, once all are made."""
        self._pool.join()
        found = [self._pool.results[number] for number in self.numbers]
        return found[0] if self._single else found

    wait = get
