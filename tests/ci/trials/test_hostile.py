"""A trial file from a stranger: nothing in it costs more than the limits allow."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from ci.trials import file
from tests.ci import made_trials as made


def why(path: Path) -> str:
    found = file.read_hostile(path)
    assert found.trials == ()
    return found.rejected[0].why


def test_a_sound_file_is_read(tmp_path: Path) -> None:
    found = file.read_hostile(made.write(tmp_path / "t.jsonl", made.trial(), made.trial(number=1)))
    assert (len(found.trials), found.rejected) == (2, ())


def test_a_compressed_file_is_not_unpacked(tmp_path: Path) -> None:
    bomb = tmp_path / "t.jsonl"
    bomb.write_bytes(gzip.compress(b"0" * 1_000_000))
    assert "compressed" in why(bomb)


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    target = made.write(tmp_path / "real.jsonl", made.trial())
    link = tmp_path / "t.jsonl"
    link.symlink_to(target)
    assert "cannot be read" in why(link)


def test_a_pipe_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "t.jsonl")
    assert "not a plain file" in why(tmp_path / "t.jsonl")


def test_a_folder_is_refused(tmp_path: Path) -> None:
    assert why(tmp_path)


def test_a_file_that_is_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file, "LARGEST_FILE", 1000)
    assert "larger than 1000 bytes" in why(made.write(tmp_path / "t.jsonl", made.trial()))


def test_too_many_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file, "MOST_LINES", 2)
    assert "more than 2 lines" in why(made.write(tmp_path / "t.jsonl", *(made.trial(number=n) for n in range(3))))


def test_a_long_line_takes_no_other_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file, "LARGEST_LINE", 5000)
    path = made.write(tmp_path / "t.jsonl", made.trial())
    path.write_bytes(b"[" * 6000 + b"\n" + path.read_bytes())
    found = file.read_hostile(path)
    assert len(found.trials) == 1
    assert [(one.number, one.why) for one in found.rejected] == [(1, "longer than 5000 bytes")]


def test_bad_lines_are_counted_beyond_some(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text("nonsense\n" * (file.MOST_REJECTED + 7))
    found = file.read_hostile(path)
    assert len(found.rejected) == file.MOST_REJECTED + 1
    assert found.rejected[-1].why == "7 further lines are not used"


def test_deep_nesting_and_large_numbers_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text("[" * 100_000 + "\n" + "1" * 10_000 + "\n" + '{"format": "ridgeline-trial", "version": 1e999}\n')
    found = file.read_hostile(path)
    assert found.trials == ()
    assert len(found.rejected) == 3
