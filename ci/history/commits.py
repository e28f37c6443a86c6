"""The commits of a history as a person knows them, from one call of git, and the order they stand in."""

from __future__ import annotations

import dataclasses
import functools
import heapq
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from ci.git.command import GitError, git
from ci.history.types import CommitFacts

LONGEST_TEXT = 300
"""Characters of an author or subject that are kept: git allows any length, a line of a page does not."""

_FIELDS = ("%H", "%ct", "%P", "%an", "%s")
_PULL_REQUEST = re.compile(r"\(#(\d{1,9})\)\s*$|^Merge pull request #(\d{1,9})\b")
"""How GitHub names the pull request of a squashed or merged commit in its subject."""


def read(folder: Path, hashes: Iterable[str] = ()) -> dict[str, CommitFacts]:
    """Every commit that HEAD or one of `hashes` comes from, parents before children; {} without git or a repository.

    Commits that git does not know (history was rewritten, or the clone is shallow) are left out.
    """
    wanted = [commit for commit in dict.fromkeys(hashes) if re.fullmatch(r"[0-9a-f]{40}", commit)]
    form = f"--format={'%x00'.join(_FIELDS)}"
    options = ("-z", "--date-order", "--reverse", "--ignore-missing", form, "--stdin")
    try:
        text = git(folder, "log", *options, stdin="\n".join(["HEAD", *wanted, ""]))
    except GitError:
        return {}
    parts = text.rstrip("\0").split("\0") if text else []
    parts += [""] * (-len(parts) % len(_FIELDS))  # the newest commit may have no subject
    facts = (_facts(*parts[start : start + len(_FIELDS)]) for start in range(0, len(parts), len(_FIELDS)))
    return {one.hash: one for one in facts}


def _facts(commit: str, date: str, parents: str, author: str, subject: str) -> CommitFacts:
    found = _PULL_REQUEST.search(subject)
    number = int(found[1] or found[2]) if found else None
    shown = (author[:LONGEST_TEXT], subject[:LONGEST_TEXT])
    return CommitFacts(commit, int(date) * 1000, *shown, number, tuple(parents.split()))


@dataclasses.dataclass(frozen=True, eq=False)
class CommitOrder:
    """Recorded commits in the order of history.  dates_ms: of the records; known: see :func:`read`."""

    dates_ms: Mapping[str, int]
    known: Mapping[str, CommitFacts]

    @functools.cached_property
    def names(self) -> tuple[str, ...]:
        """Recorded commits, oldest first: in git's order where git knows them, others among these by their date.

        A clock that was set back moves nothing that git knows: a commit counts as made no earlier than the one before.
        """
        ours = [commit for commit in self.known if commit in self.dates_ms]
        made = np.maximum.accumulate(np.array([self.known[commit].date_ms for commit in ours], np.int64))
        placed = [(int(date), 0, place, commit) for place, (date, commit) in enumerate(zip(made, ours, strict=True))]
        placed += [(date, 1, 0, commit) for commit, date in self.dates_ms.items() if commit not in self.known]
        return tuple(commit for *_, commit in sorted(placed))

    @functools.cached_property
    def place(self) -> Mapping[str, int]:
        """Index of each recorded commit in `names`."""
        return {commit: place for place, commit in enumerate(self.names)}

    @functools.cached_property
    def unknown(self) -> tuple[str, ...]:
        """Recorded commits that git does not know, though it knows others."""
        return tuple(name for name in self.names if name not in self.known) if self.known else ()

    def facts(self, commit: str) -> CommitFacts:
        """What is known of a commit: at least its hash and the date of its records."""
        return CommitFacts.of(commit, self.dates_ms.get(commit, 0), self.known)

    def between(self, good: str, bad: str) -> int:
        """Commits of good..bad (as git has it) apart from `bad`; recorded ones only where git does not know both."""
        if good not in self.known or bad not in self.known:
            return max(self.place.get(bad, 0) - self.place.get(good, 0) - 1, 0)
        return self._between(good, bad)

    def _between(self, good: str, bad: str) -> int:
        """The walk of `git rev-list --count good..bad`: newest first, until only history of `good` is left."""
        of_good = {bad: False, good: True}
        queue = [-self._git_place[commit] for commit in of_good]
        heapq.heapify(queue)
        count, open_ = 0, list(of_good.values()).count(False)
        while open_:
            commit = self._git_names[-heapq.heappop(queue)]
            count, open_ = count + (not of_good[commit]), open_ - (not of_good[commit])
            for parent in self.known[commit].parents:
                if parent in self.known and parent not in of_good:
                    of_good[parent] = of_good[commit]
                    open_ += not of_good[commit]
                    heapq.heappush(queue, -self._git_place[parent])
                elif parent in self.known and of_good[commit] and not of_good[parent]:
                    of_good[parent] = True
                    open_ -= 1
        return max(count - 1, 0)

    @functools.cached_property
    def _git_names(self) -> list[str]:
        return list(self.known)

    @functools.cached_property
    def _git_place(self) -> dict[str, int]:
        return {commit: place for place, commit in enumerate(self.known)}
