"""The history of a repository, from its folders."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from ci.git.repository import on_main
from ci.history import exact, triage
from ci.history.analysis import History, Paired, PairedStep, analyse
from ci.history.types import Cause, CommitFacts, Direction, HistoryEvent, read_commits
from ci.judging import policy, recorded
from ci.judging.policy import PolicyError
from ci.judging.types import CaseVerdict, Verdict
from ci.records import store
from ci.records.derived import derive
from ci.records.ledger import Explanation, RecordedCause, causes_in
from ci.records.store import RecordError
from kernels import project
from kernels.project import ProjectError, current_kernel


def history(results: Path, code: Path | None = None, decisions: triage.Triage | None = None) -> History:
    """All records of a folder, analysed.  code: folder of recorded machine code; decisions: what people decided.

    git is asked in the folder of the records: they lie in the repository whose commits they are of.
    """
    return of_frame(derive(store.load(results)), results, code, decisions)


def of_frame(
    frame: pd.DataFrame, results: Path, code: Path | None = None, decisions: triage.Triage | None = None
) -> History:
    """The same, of a derived frame that somebody has loaded already."""
    folder = next(parent for parent in (results.absolute(), *results.absolute().parents) if parent.is_dir())
    main = on_main(folder)
    measured = [str(commit) for commit in frame["commit"].dropna().unique()]
    compiled = exact.records(code, folder) if code else []
    causes, _ = causes_in(results)
    explained = [commit for cause in causes for commit in (cause.base, cause.head)]
    recorded_commits = (*measured, *(record.commit for record in compiled))
    known = read_commits(folder, [*recorded_commits, *explained])
    aside = set() if main is None else {one for one in recorded_commits if one in known and one not in main}
    compiled = [record for record in compiled if record.commit not in aside]
    problems = list[str]()
    decisions = under_current_names(decisions or triage.Triage(), project.around(results).renamed)
    found = analyse(frame, compiled, known, decisions, paired_verdicts(results, problems), aside)
    events = with_explanations(found.events, causes, known)
    notes = (*frame.attrs.get("problems", ()), *found.notes, *problems)
    return dataclasses.replace(found, events=events, notes=notes, unread=frame.attrs.get("unread", 0))


def under_current_names(decisions: triage.Triage, renamed: Mapping[str, str]) -> triage.Triage:
    """What people decided, of kernels by the names that they have now, as the records are read."""
    entries = {
        name: dataclasses.replace(one, kernel=current_kernel(one.kernel, renamed))
        for name, one in decisions.entries.items()
    }
    return dataclasses.replace(decisions, entries=entries)


# What experiments have shown about an event: recorded explanations of commits within the range of its step.


SHOWN = {"proven": "proven", "partly": "partly proven"}
"""By the state of an explanation, the kind of the cause that an event names for it."""


def with_explanations(
    events: Sequence[HistoryEvent], causes: Sequence[RecordedCause], known: Mapping[str, CommitFacts]
) -> tuple[HistoryEvent, ...]:
    """Events with what is recorded of why they are slower; what is shown comes before what merely changed, too.

    known: commits in the order of the history (`ci.history.types.read_commits`).
    """
    if not causes:
        return tuple(events)
    place = {commit: number for number, commit in enumerate(known)}
    return tuple(_with(event, [one.explanation for one in causes if _about(one, event, place)]) for event in events)


def _with(event: HistoryEvent, found: Sequence[Explanation]) -> HistoryEvent:
    shown = tuple(Cause(SHOWN[one.state], one.sentence) for one in found if one.state in SHOWN)
    return dataclasses.replace(event, causes=(*shown, *event.causes), explanations=tuple(found)) if found else event


def _about(one: RecordedCause, event: HistoryEvent, place: Mapping[str, int]) -> bool:
    """Whether both commits lie within the event's range, and a case of it was slower between them."""
    if one.machine != event.machine or event.direction is not Direction.SLOWER:
        return False
    moved = {step.key.name for step in event.moved}
    if moved.isdisjoint(one.explanation.cases):
        return False
    ends = (event.last_good.hash, event.first_bad.hash)
    if (one.base, one.head) == ends:
        return True
    if not {one.base, one.head, *ends} <= place.keys():
        return False
    good, base, head, bad = (place[commit] for commit in (ends[0], one.base, one.head, ends[1]))
    return good <= base < head <= bad


# What the gate says of recorded commits that ran in lock-step: the history asks it about the steps that it finds.


SAID = {
    Verdict.SLOWER: str(Direction.SLOWER),
    Verdict.FASTER: str(Direction.FASTER),
    Verdict.SAME: "",
    Verdict.CANNOT_TELL: "",
}
"""What a verdict says of a case that has times on both sides."""


def paired_verdicts(results: Path, problems: list[str]) -> Paired:
    """The verdicts on the commits of one folder of records.  problems: gets a sentence on those that cannot be read."""
    policy_of_project = functools.cache(lambda: policy.load(project.around(results).policy or policy.DEFAULT_FILE))

    @functools.cache
    def paired(machine: str, base: str, head: str) -> Mapping[str, PairedStep]:
        try:
            cases = recorded.in_pairs(results, base, head, policy_of_project(), machine)
        except (RecordError, PolicyError, ProjectError) as error:
            problems.append(f"{machine}: what was compared of {base[:8]} and {head[:8]} is not known: {error}")
            return {}
        return {case.case: _of_verdict(case) for case in cases if case.verdict in SAID}

    return paired


def _of_verdict(one: CaseVerdict) -> PairedStep:
    """Equal code has no times: nothing moved."""
    numbers = (one.ratio, one.ci_low, one.ci_high, one.p_value)
    return PairedStep(SAID[one.verdict], *(1.0 if number is None else number for number in numbers))
