"""ci/runners.toml into :class:`Pools`: everything is checked here, so that nothing later has to be."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.shapes import MISSING, Unfit, anything, flag, form, items, one_of, record, table, whole, with_tuples
from ci.pools import types
from ci.pools.types import NO_GPU, Container, Isolation, Pool, Pools, PoolsError, RunnerSettings, RunsOn, Site, User
from kernels import project
from kernels.hardware import DEVICES

FILE = Path(__file__).resolve().parents[1] / "runners.toml"
"""Our own pools."""


def default_file() -> Path:
    """The pools of the project around the current folder, or ours.  Raises ProjectError."""
    return project.around(Path.cwd()).runners or FILE


NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@/+-]{0,199}")
LABEL = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9 ._:@/+{}-]{0,98}[A-Za-z0-9._})-])?")
IMAGE = re.compile(r"[A-Za-z0-9/.][A-Za-z0-9._:@/+#-]{0,399}")
PATH = re.compile(r"/[A-Za-z0-9._@/+-]{0,399}")
COMMAND = re.compile(r"[^\x00-\x1f\x7f]{1,1000}")
MOUNT = re.compile(r"/[A-Za-z0-9._@/+-]{1,199}:/[A-Za-z0-9._@/+-]{1,199}(:ro)?")
PACKAGE = re.compile(r"[a-z0-9][a-z0-9.+-]{0,99}")
OPTION = re.compile(r"--[a-z][^\x00-\x1f\x7f]{1,399}")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
CONSTRAINT = re.compile(r"[A-Za-z0-9_.&|*()\[\]-]{1,200}")
TIME = re.compile(r"\d{1,6}(:\d\d){0,2}|\d{1,3}-\d{1,2}(:\d\d){0,2}")
REPOSITORY = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,38}/[A-Za-z0-9._-]{1,100}")
ORGANIZATION = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,38}")
WORKFLOW = re.compile(r"\.github/workflows/[A-Za-z0-9._-]{1,100}\.ya?ml")
REF = re.compile(r"refs/(heads|tags)/[A-Za-z0-9._/*-]{1,200}")

MOST_GPUS = 72
"""GPUs that one node can have: the largest systems that one operating system drives (2026-11)."""
LONGEST_MINUTES = 5 * 24 * 60
"""A job on a runner of one's own ends after 5 days (GitHub's usage limits, 2026-11)."""

_OPTIONS = items(form(OPTION, 'an option that starts with "--", with its value after "="'))
_RUNS_ON = record(
    {},
    {
        "labels": items(form(LABEL, "a label of a runner")),
        "group": form(LABEL, "the name of a runner group", empty=True),
    },
    closed=True,
)

POOL = record(
    {
        "gpu": one_of(NO_GPU, *(device.market_name for device in DEVICES)),
        "container": one_of(*Container),
        "isolation": one_of(*Isolation),
    },
    {
        "gpus": anything,  # _sizes
        "node_gpus": whole(0, MOST_GPUS),
        "runs_on": anything,  # _runs_on
        "image": form(IMAGE, "the name of an image, or the path of a .sif file", empty=True),
        "options": _OPTIONS,
        "mounts": items(form(MOUNT, "HOST:INSIDE or HOST:INSIDE:ro with absolute paths")),
        "user": one_of(*User),
        "packages": items(form(PACKAGE, "the name of a package")),
        "venv": form(PATH, "an absolute path inside the container", empty=True),
        "setup": form(COMMAND, 'a command in one line that makes an environment in "$VENV"', empty=True),
        "variables": items(form(VARIABLE, "the name of an environment variable")),
        "minutes": whole(1, LONGEST_MINUTES),
        "site": form(NAME, "the name of a [site.NAME]", empty=True),
        "partition": form(WORD, "the name of a Slurm partition", empty=True),
        "gres": form(WORD, "the type of a GRES, such as mi300x in gpu:mi300x:8", empty=True),
        "constraint": form(CONSTRAINT, "a constraint as sbatch takes it", empty=True),
        "exclusive": flag,
        "account": form(WORD, "the name of a Slurm account", empty=True),
        "time": form(TIME, "minutes, H:MM:SS or D-HH:MM:SS, as sbatch takes it", empty=True),
        "sbatch": _OPTIONS,
    },
    closed=True,
)

SOME = "a list, not an empty one: without it any job would be served"
_WORKFLOWS = form(WORKFLOW, "the path of a workflow file, .github/workflows/NAME.yml")
_REFS = form(REF, "a git ref, such as refs/heads/main")
RUNNER = record(
    {
        "program": form(PATH, "the absolute path of the runner's run.sh"),
        "repository": form(REPOSITORY, "OWNER/NAME"),
        "workflows": items(_WORKFLOWS, SOME),
        "refs": items(_REFS, SOME),
    },
    {
        "group": whole(1, 1 << 40),
        "jobs": whole(1, 1000),
        "reruns": whole(0, 20),
        "organization": form(ORGANIZATION, "the name of an organization", empty=True),
    },
    closed=True,
)

SITE = record(
    {},
    {
        "account": form(WORD, "the name of a Slurm account", empty=True),
        "shared": form(PATH, "the absolute path of a folder that all nodes see", empty=True),
        "sbatch": _OPTIONS,
        "login": anything,  # _runs_on
        "runner": RUNNER,
    },
    closed=True,
)

_NAMED = table(form(NAME, "1 to 40 of a-z, 0-9 and -"), anything)
FILE_OF_POOLS = record({}, {"site": _NAMED, "pool": _NAMED}, closed=True)


def load(path: Path | None = None) -> Pools:
    """The pools of a file (default: the project's, else ours).  Raises PoolsError."""
    path = path or default_file()
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise PoolsError(f"{path} cannot be read: {error.strerror}; name another file with --file") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise PoolsError(f"{path} is not TOML: {error}; correct it there") from error
    return parse(document)


def parse(document: Mapping[str, Any]) -> Pools:
    """The pools of what a TOML file holds.  Raises PoolsError."""
    try:
        FILE_OF_POOLS(document, "")
        sites = {name: _site(name, values) for name, values in document.get("site", {}).items()}
        pools = {name: _pool(name, values) for name, values in document.get("pool", {}).items()}
    except Unfit as error:
        raise PoolsError(f"{error}; correct it in ci/runners.toml") from None
    if not pools:
        raise PoolsError("ci/runners.toml describes no pool; add a table [pool.NAME]")
    found = Pools(pools, sites)
    for sentence in types.broken(found):
        raise PoolsError(sentence)
    return found


def _pool(name: str, values: Any) -> Pool:
    where = f"[pool.{name}]"
    POOL(values, where)
    found = with_tuples(values)
    found |= {key: kind(values[key]) for key, kind in KINDS.items() if key in values}
    if values["gpu"] == NO_GPU:
        found = {"gpus": [0], "node_gpus": 0, **found}
    found["gpus"] = _sizes(found.get("gpus", MISSING), 0 if values["gpu"] == NO_GPU else MOST_GPUS, f"{where}.gpus")
    return Pool(**found | {"name": name, "runs_on": _runs_on(values.get("runs_on", ""), f"{where}.runs_on")})


KINDS = {"container": Container, "isolation": Isolation, "user": User}


def _sizes(value: Any, most: int, where: str) -> tuple[int, ...]:
    sizes = value if isinstance(value, list | tuple) else ()
    fit = all(type(one) is int and min(1, most) <= one <= most for one in sizes)
    if not sizes or not fit or len(set(sizes)) < len(sizes):
        raise Unfit(where, value, f"a list of different numbers from {min(1, most)} to {most}, such as [1, 8]")
    return tuple(sorted(sizes))


def _runs_on(value: Any, where: str) -> RunsOn | None:
    """A label, a list of labels, or {group, labels}, as in a workflow."""
    if value == "":
        return None
    if not isinstance(value, dict):
        value = {"labels": [value] if isinstance(value, str) else value}
    _RUNS_ON(value, where)
    found = RunsOn(tuple(value.get("labels", ())), value.get("group", ""))
    if not found.labels and not found.group:
        raise Unfit(where, value, "a label, a list of labels, or {group, labels}")
    return found


def _site(name: str, values: Any) -> Site:
    where = f"[site.{name}]"
    SITE(values, where)
    runner = with_tuples(values.get("runner", {}))
    return Site(
        name,
        values.get("account", ""),
        values.get("shared", ""),
        tuple(values.get("sbatch", ())),
        _runs_on(values.get("login", ""), f"{where}.login"),
        RunnerSettings(**runner) if runner else None,
    )
