"""What the gate says of recorded commits that ran in lock-step: the history asks it about the steps that it finds."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path

from ci.history.types import Direction
from ci.judging import policy, recorded
from ci.judging.policy import Policy, PolicyError
from ci.judging.types import Verdict
from ci.records.store import RecordError
from kernels import project
from kernels.project import ProjectError

SAID = {
    Verdict.SLOWER: str(Direction.SLOWER),
    Verdict.FASTER: str(Direction.FASTER),
    Verdict.SAME: "",
    Verdict.CANNOT_TELL: "",
}
"""What a verdict says of a case that has times on both sides."""


class PairedVerdicts:
    """The verdicts on the commits of one folder of records; problems: sentences on those that could not be read."""

    def __init__(self, results: Path) -> None:
        self.results, self.problems = results, list[str]()
        self._said: dict[tuple[str, str, str], Mapping[str, str]] = {}

    @functools.cached_property
    def policy(self) -> Policy:
        """Of the project that the records belong to."""
        return policy.load(project.around(self.results).policy or policy.DEFAULT_FILE)

    def __call__(self, machine: str, base: str, head: str) -> Mapping[str, str]:
        """See `ci.history.steps.finding.Paired`."""
        asked = machine, base, head
        if asked not in self._said:
            self._said[asked] = self._judged(*asked)
        return self._said[asked]

    def _judged(self, machine: str, base: str, head: str) -> Mapping[str, str]:
        try:
            cases = recorded.in_pairs(self.results, base, head, self.policy, machine)
        except (RecordError, PolicyError, ProjectError) as error:
            self.problems.append(f"{machine}: what was compared of {base[:8]} and {head[:8]} is not known: {error}")
            return {}
        return {one.case: SAID[one.verdict] for one in cases if one.verdict in SAID}
