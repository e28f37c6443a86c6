"""What is killed: commands in a small repository of their own, what must come of them, and what must never be seen."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import shutil
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from ci.records import store
from ci.trials.file import read
from dashboards.files import MARKER, tree_digest
from tests.ci import made_trials
from tests.kit import ROOT, commit, git, repository

MEASURED = ("--kernel", "steady", "--case", "small", "--rounds", "3")
COMPILED = ("--arch", "gfx942", "--kernel", "sample_all_gather", "--kernel", "sample_wgrad")
STEPPED = "".join(f"{1.0 + 0.1 * (i > 30) + 0.001 * (i % 7)}\n" for i in range(60))


@dataclasses.dataclass(frozen=True)
class Scene:
    """A command, and what it leaves behind when nothing disturbs it.

    outcome: of (folder, exit code), the same however often it was killed before.
    """

    name: str
    arguments: tuple[str, ...]
    outcome: Callable[[Path, int], object]


# ---- the repository --------------------------------------------------------------------------------------------------


def build(folder):
    """Two commits of the toy kernels and of some that compile, measured trials, and records of made ones."""
    for tree, package in (("toytree", "toy"), ("isa/tree", "samples")):
        shutil.copytree(ROOT / "tests/benchmarks" / tree / package, folder / package, ignore=_NO_CACHES)
    (folder / "pyproject.toml").write_text('[tool.ridgeline]\nkernels = ["toy", "samples"]\n')
    (folder / ".gitignore").write_text(
        "__pycache__/\n.ridgeline/\nresults*/\nsite/\nmade.jsonl\nmore.jsonl\nsteps.csv\n"
    )
    repository(folder)
    for name in ("toy/steady.py", "samples/all_gather.py"):
        with (folder / name).open("a") as file:
            file.write("\n# a line more\n")
    commit(folder)
    (folder / "steps.csv").write_text(f"value\n{STEPPED}")
    commits = [f"{number:08x}" * 5 for number in range(1, 4)]
    commits += [*git(folder, "rev-list", "--reverse", "HEAD").split(), "f" * 40]
    lines = [_made(commit, number) for commit in commits for number in range(3)]
    made_trials.write(folder / "made.jsonl", *lines[:-3])
    made_trials.write(folder / "more.jsonl", *lines)
    store.record([folder / "made.jsonl"], folder / "results")


def _made(commit, number):
    return made_trials.trial(number=number, trees={"head": made_trials.tree(commit)})


_NO_CACHES = shutil.ignore_patterns("__pycache__")


# ---- what comes of a command -----------------------------------------------------------------------------------------


def files(folder):
    """Digest by path of all that a reader sees: hidden names are caches, locks and drafts."""
    found = (path for path in sorted(folder.rglob("*")) if path.is_file())
    named = {str(path.relative_to(folder)): path for path in found}
    seen = {name: path for name, path in named.items() if not any(part.startswith(".") for part in Path(name).parts)}
    return {name: hashlib.sha256(path.read_bytes()).hexdigest()[:12] for name, path in seen.items()}


def _tree(name, folder, code):
    return code, files(folder / name)


def _trials(folder, code):
    """Numbers and outcomes of the trials in a file, not their times, and whether they can be recorded."""
    found = read(folder / "new.jsonl").trials
    recordable = all(one.checkouts["head"].recordable for one in found)
    return code, recordable, sorted((one.operator, one.number, _statuses(one)) for one in found)


def _statuses(trial):
    cases = json.loads(trial.text)["cases"]  # type: ignore[attr-defined]
    return json.dumps({name: {key: arm["status"] for key, arm in case["arms"].items()} for name, case in cases.items()})


def _recorded(folder, code):
    """The records hold what was measured, and recording all trial files that lie about once more changes nothing."""
    lying = sorted((folder / ".ridgeline").rglob("*.jsonl"))
    lying = [path for path in lying if read(path).trials]
    store.record(lying, folder / "results")
    before = files(folder / "results")
    store.record(lying, folder / "results")
    notes = (read(path) for path in folder.glob("results/*/*.notes.jsonl*"))
    return (
        code,
        files(folder / "results") == before,
        any(one.operator == "steady" for file in notes for one in file.trials),
    )


def _swept(folder, code):
    """The points of a sweep, and whether one was measured twice."""
    found = [one.sweep for one in read(folder / "swept.jsonl").trials if one.sweep]
    counted = Counter((one.rung, point) for one in found for point in one.points)
    return code, sum(rung == 0 for rung, _ in counted), max(counted.values())


SCENES = (
    Scene("run --out", ("run", *MEASURED, "--trials", "3", "--out", "new.jsonl", "--resume"), _trials),
    Scene("run", ("run", *MEASURED, "--trials", "2"), _recorded),
    Scene("record", ("record", "more.jsonl"), functools.partial(_tree, "results")),
    Scene("site", ("site",), functools.partial(_tree, "site")),
    Scene("isa --range", ("isa", "--range", "..HEAD", *COMPILED), functools.partial(_tree, "results_isa")),
    Scene("sweep", ("sweep", "steady", "--knob", "tile=8,16,32", "--case", "small", "--out", "swept.jsonl"), _swept),
)
"""Verbs that leave something behind, one of each kind."""


def command(scene):
    """The argument list of a scene."""
    return [sys.executable, "-m", "ci", *scene.arguments]


# ---- what must never be seen -----------------------------------------------------------------------------------------


def unsound(folder, template):
    """What is lost of what the repository had, and what a reader would stumble over."""
    said = [f"{path} is torn" for path in sorted(folder.glob("results*/**/*.json")) if not _whole(path)]
    for path in folder.glob("*.jsonl"):
        before = template / path.name
        kept = set(path.read_bytes().splitlines())
        if before.exists() and not set(before.read_bytes().splitlines()) <= kept:
            said.append(f"{path} has lost lines")
        said += [f"{path} {one}" for one in read(path).problems()]
    frame = store.load(folder / "results")
    said += frame.attrs.get("problems", [])
    for notes in template.glob("results/*/*.notes.jsonl*"):
        if not _ids(notes) <= _ids(folder / notes.relative_to(template)):
            said.append(f"{notes.relative_to(template)} has lost trials")
    return [*said, *_site_faults(folder / "site")]


def _ids(notes):
    return {one.id for one in read(notes).trials} if notes.exists() else set()


def _whole(path):
    try:
        json.loads(path.read_text())
    except ValueError:
        return False
    return True


def _site_faults(site):
    """A site is there with every file as it was built, or not at all."""
    if not site.exists():
        return []
    if not (site / MARKER).exists():
        return [f"{site} has no {MARKER}"]
    made = json.loads((site / MARKER).read_text())["files"]
    return [] if made == tree_digest(site) else [f"{site} is not as built"]
