"""The file of decisions: what is written is read, damage is said, an id is found by its first digits."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ci.history import triage
from ci.history.triage import Triage, TriageEntry, TriageError
from tests.kit import Repo

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


def entry(name: str, **given: object) -> TriageEntry:
    return TriageEntry(name, "acknowledged", DAY, **given)


@pytest.mark.slow
@settings(deadline=None)
@given(st.lists(entries, max_size=4, unique_by=lambda one: one.id))
def test_what_is_written_is_read(tmp_path_factory: pytest.TempPathFactory, listed) -> None:
    path = tmp_path_factory.mktemp("t") / "events.toml"
    kept = Triage({one.id: one for one in listed})
    triage.save(kept, path)
    assert triage.load(path) == kept
    before = path.read_bytes()
    triage.save(triage.load(path), path)
    assert path.read_bytes() == before


def test_a_lone_half_of_a_character_stops_nothing(tmp_path: Path) -> None:
    triage.save(Triage({"0123456789": entry("0123456789", owner="a\udcff\x00\x7f")}), tmp_path / "e.toml")
    assert triage.load(tmp_path / "e.toml").entries["0123456789"].owner == "a?\x00\x7f"


def test_two_branches_merge(tmp_path: Path) -> None:
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
def test_damage_is_said(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "events.toml"
    file.write_text(text)
    with pytest.raises(TriageError, match="events.toml") as error:
        triage.load(file)
    assert said in str(error.value)


def test_an_id_by_its_first_digits() -> None:
    known = ["0123456789", "0123ffffff", "abcdefabcd"]
    assert triage.chosen("AB", known) == "abcdefabcd"
    assert triage.chosen("0123f", known) == "0123ffffff"
    with pytest.raises(TriageError, match="start of 2 events: 0123456789, 0123ffffff"):
        triage.chosen("0123", known)
    with pytest.raises(TriageError, match="no event has the id '0123456780'; the nearest: 0123456789"):
        triage.chosen("0123456780", known)
    with pytest.raises(TriageError, match="`ridgeline events` lists them"):
        triage.chosen("", [])
