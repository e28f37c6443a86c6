"""Events with what experiments have shown about them, and the words that every place has for them."""

from __future__ import annotations

import dataclasses
import datetime
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ci.history import triage, words
from ci.history.reading import with_explanations
from ci.history.triage import Triage, TriageEntry, TriageError
from ci.history.types import Cause, CommitFacts, Direction, EventKind, EventState, HistoryEvent, Moved, SeriesKey
from ci.records.ledger import Explanation, RecordedCause
from ci.stats import Step
from tests.kit import Repo

ROW = [f"{number:040x}" for number in range(6)]
KNOWN = {commit: CommitFacts(commit, number) for number, commit in enumerate(ROW)}
CASE = "gemm/triton/m64"
SHOWN = Explanation((CASE,), CASE, "proven", "knob a 1 → 2: proven")
MOVED = Moved(
    SeriesKey("m", "gemm", "triton", "m64"), Step(3, 1.0, 1.1, 1.1, 1.09, 1.11, 0.0), Direction.SLOWER, "ratio",
    ROW[4], ROW[1],
)  # fmt: skip
EVENT = HistoryEvent(
    "e", EventKind.KERNEL, Direction.SLOWER, "m", (MOVED,), KNOWN[ROW[4]], KNOWN[ROW[1]], 2, 1.1, 1.09, 1.11,
    0.0, (Cause("code", "vgpr 1 → 2"),),
)  # fmt: skip


def recorded(base, head, machine="m", **changes):
    return RecordedCause(machine, ROW[base], ROW[head], dataclasses.replace(SHOWN, **changes))  # type: ignore[arg-type]


@pytest.mark.parametrize("ends", [(1, 4), (2, 3), (1, 2), (3, 4)])
def test_what_was_shown_within_the_range_is_the_first_cause(ends):
    (found,) = with_explanations([EVENT], [recorded(*ends)], KNOWN)
    assert found.causes == (Cause("proven", SHOWN.sentence), *EVENT.causes)
    assert found.explanations == (SHOWN,)
    assert json.loads(json.dumps(found.as_json()))["explanations"][0]["state"] == "proven"


@pytest.mark.parametrize(
    "one",
    [
        recorded(0, 4),
        recorded(1, 5),
        recorded(3, 2),
        recorded(1, 4, machine="other"),
        recorded(1, 4, cases=("gemm/triton/m16",)),
    ],
)
def test_what_was_shown_elsewhere_says_nothing(one):
    assert with_explanations([EVENT], [one], KNOWN) == (EVENT,)


def test_what_was_not_found_is_no_cause_and_an_improvement_has_none():
    (found,) = with_explanations([EVENT], [recorded(1, 4, state="not found")], KNOWN)
    assert found.causes == EVENT.causes
    assert found.explanations
    faster = dataclasses.replace(EVENT, direction=Direction.FASTER)
    assert with_explanations([faster], [recorded(1, 4)], KNOWN) == (faster,)


# The words of an event.


def test_a_headline_says_what_moved_by_how_much_and_where():
    assert words.headline(EVENT) == "gemm, triton slower: +10.0 % [+9.0, +11.0], m64 on m"
    library = dataclasses.replace(EVENT, kind=EventKind.LIBRARY)
    assert words.headline(library) == "gemm: the library triton became slower: +10.0 % [+9.0, +11.0], m64 on m"


def test_who_and_what_may_be_to_blame():
    commit = CommitFacts("f" * 40, 0, "A. Author", "Faster tiles", 12)
    event = dataclasses.replace(EVENT, first_bad=commit)
    assert words.since(event) == "since ffffffff Faster tiles #12 (A. Author); or one of 2 before it"
    assert words.narrowing(event) == "", "two commits are no wide range"
    wide = dataclasses.replace(event, between=86)
    assert words.narrowing(wide) == "ridgeline run 00000000..ffffffff --kernel gemm --case m64"
    for ended in (EventState.ACCEPTED, EventState.BACK):
        assert words.narrowing(dataclasses.replace(wide, state=ended)) == ""


def test_what_became_of_it():
    assert words.standing(EVENT) == "open"
    assert words.standing(dataclasses.replace(EVENT, owner="Ada")) == "open, acknowledged by Ada"
    accepted = dataclasses.replace(EVENT, state=EventState.ACCEPTED, owner="Ada", reason="worth it")
    assert words.standing(accepted) == "accepted by Ada: worth it"
    back = dataclasses.replace(EVENT, state=EventState.BACK, ended_at=KNOWN[ROW[5]])
    assert words.standing(back) == "back at 00000000"


def test_the_order_of_need():
    faster = dataclasses.replace(EVENT, id="f", direction=Direction.FASTER, ratio=0.5)
    larger = dataclasses.replace(EVENT, id="l", ratio=1.2)
    done = dataclasses.replace(EVENT, id="d", state=EventState.BACK)
    ordered = words.in_order_of_need([done, faster, EVENT, larger])
    assert [event.id for event in ordered] == ["l", "e", "f", "d"]


# The file of decisions: what is written is read, damage is said, an id is found by its first digits.

DAY = datetime.date(2026, 11, 22)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
entries = st.builds(
    TriageEntry,
    st.from_regex(r"[0-9a-f]{10}", fullmatch=True),
    st.sampled_from(["open", "acknowledged", "accepted"]),
    st.just(DAY),
    machine=texts,
    kernel=texts,
    owner=texts,
    reason=texts,
    link=texts,
)


def entry(name, **given):
    return TriageEntry(name, "acknowledged", DAY, **given)


@pytest.mark.slow
@settings(deadline=None)
@given(st.lists(entries, max_size=4, unique_by=lambda one: one.id))
def test_what_is_written_is_read(tmp_path_factory, listed):
    path = tmp_path_factory.mktemp("t") / "events.toml"
    kept = Triage({one.id: one for one in listed})
    triage.save(kept, path)
    assert triage.load(path) == kept
    before = path.read_bytes()
    triage.save(triage.load(path), path)
    assert path.read_bytes() == before


def test_a_lone_half_of_a_character_stops_nothing(tmp_path):
    triage.save(Triage({"0123456789": entry("0123456789", owner="a\udcff\x00\x7f")}), tmp_path / "e.toml")
    assert triage.load(tmp_path / "e.toml").entries["0123456789"].owner == "a?\x00\x7f"


def test_two_branches_merge(tmp_path):
    git = Repo(tmp_path).git
    file = tmp_path / "events.toml"
    names = [digit * 10 for digit in "0369"]
    base = Triage({name: entry(name, owner="A. Author", reason="r", machine="m") for name in names})
    triage.save(base, file)
    git("add", ".")
    git("commit", "-qm", "base")
    git("checkout", "-qb", "side")
    triage.save(base.with_entry(entry("1" * 10, owner="B. Author")), file)
    git("commit", "-qam", "side")
    git("checkout", "-q", "main")
    triage.save(base.with_entry(entry("7" * 10, owner="C. Author")), file)
    git("commit", "-qam", "main")
    git("merge", "-q", "side")
    assert sorted(triage.load(file).entries) == sorted([*names, "1" * 10, "7" * 10])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[event.x]\nstate = 'open'\ndate = 2026-11-22", "10 hex digits; `ridgeline events` lists them"),
        ("[event.0123456789]\nstate = 'gone'\ndate = 2026-11-22", "allowed: open, acknowledged, accepted"),
        ("[event.0123456789]\nstate = 'open'", "event.0123456789.date is missing"),
        ("[event.0123456789]\nstate = 'open'\ndate = 2026-11-22\nwho = 'a'", "unknown key 'who'; known: "),
        ("<<<<<<< HEAD\n", "settle the merge conflict"),
        ("[event", "not TOML"),
    ],
)
def test_damage_is_said(tmp_path, text, said):
    file = tmp_path / "events.toml"
    file.write_text(text)
    with pytest.raises(TriageError, match="events.toml") as error:
        triage.load(file)
    assert said in str(error.value)


def test_an_id_by_its_first_digits():
    known = ["0123456789", "0123ffffff", "abcdefabcd"]
    assert triage.chosen("AB", known) == "abcdefabcd"
    assert triage.chosen("0123f", known) == "0123ffffff"
    with pytest.raises(TriageError, match="start of 2 events: 0123456789, 0123ffffff"):
        triage.chosen("0123", known)
    with pytest.raises(TriageError, match="no event has the id '0123456780'; the nearest: 0123456789"):
        triage.chosen("0123456780", known)
    with pytest.raises(TriageError, match="`ridgeline events` lists them"):
        triage.chosen("", [])
