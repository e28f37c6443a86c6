"""Typing the wrong thing: every verb answers with a documented exit code and a sentence, and loses nothing.

In this process, so only what is refused before a process is started; `tests.ci.kills` starts them all.
"""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import subprocess
import sys

import pytest

from ci.__main__ import DOCUMENTED, USAGE, VERBS
from tests.ci.kills import scenes
from tests.kit import ridgeline

COMMITS = ("nope", "HEAD~99", "HEAD:toy", "f" * 39 + "e", "é")
NUMBERS = ("0", "-1", "nan", "inf", "x", "9" * 20)
LONGEST = 12
"""Lines of a message, with click's usage and hint."""


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A repository with records, and files that are none of what a verb wants."""
    folder = tmp_path_factory.mktemp("wrong") / "project"
    folder.mkdir()
    scenes.build(folder)
    (folder / "empty").touch()
    (folder / "binary").write_bytes(bytes(range(256)) * 40)
    (folder / "text").write_text("hello\nworld\n")
    (folder / "deep").write_text("[" * 100_000)
    (folder / "folder").mkdir()
    return folder


@pytest.fixture
def project(made, monkeypatch):
    monkeypatch.chdir(made)
    return made


def refused(folder, *words, names=""):
    """What a command says that leaves with 3, after the checks that hold for all of them."""
    done, before = said(folder, *words)
    assert done.exit_code == USAGE, done.output
    assert names in done.output, done.output
    now = scenes.files(folder)
    assert {name: now.get(name) for name in before} == before, "something is lost"
    return done.output


def said(folder, *words):
    """A command, and the files before it.  Its code is documented, and it says something that is no traceback."""
    before = scenes.files(folder)
    done = ridgeline(*words)
    assert done.exit_code in DOCUMENTED, done.output
    assert done.output.strip(), "nothing is said"
    assert not {"Traceback", "defect"} & set(done.output.split()), done.output
    assert len(done.output.splitlines()) <= LONGEST, done.output
    return done, before


LOCAL = (
    "ab {}",
    "ab HEAD {}",
    "check --base {}",
    "gate {} HEAD",
    "gate HEAD {}",
    "isa {}",
    "isa HEAD {}",
    "isa --range {}..",
)
FOREIGN = ("start {}", "run --commit {} --out new.jsonl")
"""Of these a full hash is one: only GitHub, or who gave it, can know it."""


@pytest.mark.parametrize(
    ("words", "commit"),
    [(LOCAL[0], commit) for commit in COMMITS]
    + [(words, COMMITS[0]) for words in LOCAL[1:]]
    + [(words, commit) for words in FOREIGN for commit in (COMMITS[0], COMMITS[-1])],
)
def test_a_commit_that_is_none(project, words, commit):
    refused(project, *words.format(commit).split(" "), names=commit)


FILES = ("nope", "folder", "binary", "text", "deep", "empty", "/proc/self/mem")
READERS = ("ab --replay {}", "report {}", "table {}", "site --report {}", "gate --trials {}")


@pytest.mark.parametrize(
    ("words", "file"),
    [("detect {}", file) for file in FILES] + [(words, file) for words in READERS for file in ("folder", "binary")],
)
def test_a_file_that_is_none_of_what_is_wanted(project, words, file):
    refused(project, *words.format(file).split())


@pytest.mark.parametrize("file", ["nope", "folder", "binary", "text", "deep", "/proc/self/mem"])
def test_a_trial_file_without_a_trial(project, file):
    assert "left out" in refused(project, "record", file, names=file)


BOUNDED = ("run --trials {}", "run --deadline {}", "run --burst {} --regime sustained", "site --serve {}")
BOUNDED += ("submit --timeout {} -- events", "submit --array {} -- run", "runner --interval {}")


@pytest.mark.parametrize(
    ("words", "number"),
    [(words, number) for words in (BOUNDED[0], BOUNDED[1]) for number in NUMBERS]
    + [(words, number) for words in BOUNDED[2:] for number in NUMBERS[:2]],
)
def test_a_number_that_is_out_of_range(project, words, number):
    refused(project, *words.format(number).split())


@pytest.mark.parametrize(
    "words",
    ["jobs nope", "cancel nope", "submit --resume nope", "submit", "submit -- nope", "submit --executor slurm -- run"]
    + ["submit --status nope", "submit --timeout", "ack nope --owner me --reason x", "accept nope --reason x"]
    + ["plot nope --out a.png", "study nope", "pools --show nope", "events --results nope"]
    + ["gate HEAD^ HEAD --results folder", "sweep", "tune", "sift made.jsonl"]
    + ["site --results text", "record made.jsonl --results text", "run --tree nope --out a.jsonl", "nope", "--nope"]
    + ["run --out folder", "export --out made.jsonl/x", "events --triage binary", "ab HEAD^ --policy binary"]
    + ["sweep steady --knob tile", "push", "wait --job x", "ab HEAD^ --set nope", "runner --site nope"]
    + ["import steps.csv --format nope", "submit --gpus 99 -- run --out a.jsonl"],
)
def test_a_name_that_is_none(project, words):
    refused(project, *words.split())


@pytest.mark.parametrize(
    "words", ["run", "ab HEAD", "check --base HEAD", "gate HEAD^ HEAD", "isa HEAD", "isa --range .."]
)
def test_a_folder_without_git(tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    (tmp_path / "kernels").mkdir()
    refused(tmp_path, *words.split(), names="git repository")


# ---- what lies there is damaged, or cannot be written ----------------------------------------------------------------


@pytest.fixture
def copied(made, tmp_path, monkeypatch):
    folder = tmp_path / "project"
    shutil.copytree(made, folder)
    monkeypatch.chdir(folder)
    return folder


@contextlib.contextmanager
def no_room():
    """As on a full disk: nothing can be written to a file (setrlimit(2), RLIMIT_FSIZE)."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("words", ["record more.jsonl", "export --out new", "ack {} --owner me --reason x"])
def test_without_room_what_was_there_is_as_before(copied, words):
    with no_room():
        refused(copied, *words.format("nope").split())
    done = ridgeline("record", "more.jsonl")
    assert (done.exit_code, "recorded 3 new trials (15 known already)" in done.output) == (0, True), done.output


READ = ("events", "gate HEAD^ HEAD", "export --out new")
NOTES = "results/*/*.notes.jsonl*"


def tear(folder, pattern):
    """Files whose last third is lost."""
    torn = [one for one in folder.glob(pattern) if one.is_file()]
    assert torn, f"nothing is {pattern}: {sorted(scenes.files(folder))}"
    for path in torn:
        path.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3])
    return torn


@pytest.mark.parametrize("words", [*READ, "record more.jsonl"])
def test_torn_notes_are_named(copied, words):
    ridgeline("events")  # makes the cache
    torn = tear(copied, NOTES)
    done = ridgeline(*words.split())
    assert done.exit_code in DOCUMENTED, done.output
    assert not {"Traceback", "defect"} & set(done.output.split()), done.output
    assert any(path.name.partition(".")[0] in done.output for path in torn), done.output


# ---- how a command ends ----------------------------------------------------------------------------------------------


def test_the_code_of_a_child_that_was_killed_is_not_ours(monkeypatch):
    """`sys.exit(-15)` would be 241."""
    from ci.commands import pools as leg

    monkeypatch.setattr(leg, "run", lambda words: -15)
    assert ridgeline("night", "--out", "nightly.jsonl").exit_code == USAGE


@pytest.mark.slow
def test_a_reader_that_goes_early_is_told_of(project):
    argv = [sys.executable, "-m", "ci", "detect", "steps.csv", "--json"]
    env = {**os.environ, "PYTHONPATH": str(scenes.ROOT)}
    child = subprocess.Popen(
        argv, cwd=project, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=0
    )
    assert child.stdout
    assert child.stderr
    child.stdout.close()
    told = child.stderr.read()
    assert (child.wait(), "Traceback" in told, "output" in told) == (USAGE, False, True), told


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_every_verb_refuses_an_option_that_it_has_not(project, verb):
    refused(project, *verb.split(), "--no-such-option", names="--no-such-option")
