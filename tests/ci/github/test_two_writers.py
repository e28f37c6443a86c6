"""Pools that end at once write one comment: whatever the order of their calls, it ends as one, with every section.

The order of calls is hypothesis's; each writer runs in a thread of its own and makes its next call when it is its turn.
The one thing that is taken for granted is what SETTLE_S is for: that a writer who has read has written before another
one, who began to wait after that reading, has waited long enough.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Sequence

from hypothesis import example, given, settings
from hypothesis import strategies as st

from ci.github.client import GitHubError
from ci.github.comment import BOT, Comments, Section, parsed
from ci.report.markdown import MARKER

SHA = "0123456789abcdef0123456789abcdef01234567"


@dataclasses.dataclass
class Turns:
    """Whose call is next.  waiting: writer -> since which call it waits.  reading: writer -> since which call."""

    order: list[int]
    alive: set[int]
    waiting: dict[int, int | None] = dataclasses.field(default_factory=dict)
    reading: dict[int, int] = dataclasses.field(default_factory=dict)
    calls: int = 0
    turn: int | None = None
    changed: threading.Condition = dataclasses.field(default_factory=threading.Condition)

    def take(self, who: int, passes_time: bool = False) -> None:
        """Wait for one's turn."""
        with self.changed:
            self.waiting[who] = self.calls if passes_time else None
            self._next()
            self.changed.wait_for(lambda: self.turn == who)
            self.turn = None
            del self.waiting[who]
            self.calls += 1

    def leave(self, who: int) -> None:
        """The writer has ended."""
        with self.changed:
            self.alive.discard(who)
            self.reading.pop(who, None)
            self._next()

    def _next(self) -> None:
        if self.turn is None and self.alive and self.alive == set(self.waiting):
            able = sorted(who for who in self.alive if self._able(who))
            self.turn = able[self.order.pop() % len(able) if self.order else 0]
            self.changed.notify_all()

    def _able(self, who: int) -> bool:
        since = self.waiting[who]
        return since is None or not any(began < since for other, began in self.reading.items() if other != who)


@dataclasses.dataclass
class OneComment:
    """The comments of one pull request, as one writer's client sees them."""

    who: int
    turns: Turns
    comments: dict[int, str]

    def graphql(self, query: str) -> dict:
        return {"viewer": {"login": BOT}}

    def patiently(self, what: str, step: Callable[[], bool]) -> bool:
        return step()

    def pause(self, seconds: float) -> None:
        self.turns.take(self.who, passes_time=True)

    def items(self, path: str) -> list[dict]:
        self.turns.take(self.who)
        self.turns.reading[self.who] = self.turns.calls
        return [self._one(number) for number in self.comments]

    def get(self, path: str, none_for: tuple[int, ...]) -> dict | None:
        number = int(path.rpartition("/")[2])
        return self._one(number) if number in self.comments else None

    def attempt(self, method: str, path: str, value: dict) -> dict:
        self.turns.take(self.who)
        self.turns.reading.pop(self.who, None)
        number = int(path.rpartition("/")[2]) if method == "PATCH" else self.turns.calls + 1
        if method == "PATCH" and number not in self.comments:
            raise GitHubError("gone", 404)
        self.comments[number] = value["body"]
        return self._one(number)

    def delete(self, path: str) -> None:
        self.turns.take(self.who)
        self.comments.pop(int(path.rpartition("/")[2]), None)

    def _one(self, number: int) -> dict:
        return {"id": number, "body": self.comments[number], "user": {"login": BOT}}


def written(order: Sequence[int], pools: int) -> dict[int, str]:
    """The comments after every pool has written its section, its calls in this order."""
    comments: dict[int, str] = {}
    turns = Turns(list(order), set(range(pools)))

    def write(who: int) -> None:
        try:
            github = OneComment(who, turns, comments)
            Comments(github).keep_section(7, MARKER, Section(f"pool-{who}", SHA, f"of {who}"))  # type: ignore[arg-type]
        finally:
            turns.leave(who)

    threads = [threading.Thread(target=write, args=(who,), daemon=True) for who in range(pools)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert not any(thread.is_alive() for thread in threads)
    return comments


@settings(max_examples=150, deadline=None)
@given(st.lists(st.integers(0, 2), max_size=60))
@example([])
@example([0, 1, 2] * 20)
def test_every_section_of_three_pools_is_in_the_one_comment(order: list[int]) -> None:
    (body,) = written(order, pools=3).values()
    assert {name: one.text for name, one in parsed(body).items()} == {f"pool-{who}": f"of {who}" for who in range(3)}


def test_eight_pools_in_step() -> None:
    (body,) = written(list(range(8)) * 40, pools=8).values()
    assert sorted(parsed(body)) == [f"pool-{who}" for who in range(8)]
