"""ci/runners.toml into :class:`Pools`: everything is checked here, so that nothing later has to be."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

from ci.pools import rules
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

Kind = TypeVar("Kind", bound=str)


class Table:
    """One table of the file, read key by key; :meth:`end` refuses what nobody asked for."""

    def __init__(self, where: str, values: object) -> None:
        if not isinstance(values, dict):
            raise PoolsError(f"{where} is {values!r:.100}, not a table; write [{where}] and its keys below")
        self.where, self.values = where, dict(values)
        self.asked: list[str] = []

    def refuse(self, key: str, value: object, allowed: str) -> PoolsError:
        """The error for a value: where, what is allowed, what to do."""
        return PoolsError(f"[{self.where}] {key} = {value!r:.200} is not {allowed}; correct it in ci/runners.toml")

    def take(self, key: str, default: object) -> object:
        """The value of a key, or the default; a key without default must be there."""
        self.asked.append(key)
        if key not in self.values and default is None:
            raise PoolsError(f"[{self.where}] needs the key {key!r}; add it in ci/runners.toml")
        return self.values.get(key, default)

    def text(self, key: str, pattern: re.Pattern[str], allowed: str, default: str | None = "") -> str:
        """A text of this form; an empty one only as default."""
        value = self.take(key, default)
        if value != default and not (isinstance(value, str) and pattern.fullmatch(value)):
            raise self.refuse(key, value, allowed)
        return str(value)

    def texts(self, key: str, pattern: re.Pattern[str], allowed: str) -> tuple[str, ...]:
        """A list of different texts of this form; empty if it is absent."""
        value = self.take(key, [])
        if not isinstance(value, list):
            raise self.refuse(key, value, f"a list of {allowed}")
        for one in value:
            if not isinstance(one, str) or not pattern.fullmatch(one):
                raise self.refuse(key, one, allowed)
        return tuple(value)

    def number(self, key: str, least: int, most: int, default: int | None) -> int:
        """A whole number in these bounds."""
        value = self.take(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise self.refuse(key, value, f"a whole number from {least} to {most}")
        return value

    def flag(self, key: str) -> bool:
        """true or false; false if it is absent."""
        value = self.take(key, False)
        if not isinstance(value, bool):
            raise self.refuse(key, value, "true or false")
        return value

    def choice(self, key: str, kind: Callable[[str], Kind], allowed: list[str], default: str | None) -> Kind:
        """One of the values of an enumeration."""
        value = self.take(key, default)
        if value not in allowed:
            raise self.refuse(key, value, f"one of {', '.join(allowed)}")
        return kind(str(value))

    def end(self) -> None:
        """PoolsError for a key that nobody asked for: mostly a typing error."""
        for key in self.values:
            if key not in self.asked:
                raise PoolsError(f"[{self.where}] has no key {key!r}; known: {', '.join(self.asked)}; correct the name")


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


def parse(document: Mapping[str, object]) -> Pools:
    """The pools of what a TOML file holds.  Raises PoolsError."""
    top = Table("", dict(document))
    top.where = "ci/runners.toml"
    sites = {name: _site(name, values) for name, values in _named(top, "site")}
    pools = {name: _pool(name, values) for name, values in _named(top, "pool")}
    top.end()
    if not pools:
        raise PoolsError("ci/runners.toml describes no pool; add a table [pool.NAME]")
    found = Pools(pools, sites)
    for sentence in rules.broken(found):
        raise PoolsError(sentence)
    return found


def _named(top: Table, kind: str) -> Iterator[tuple[str, object]]:
    tables = Table(kind, top.take(kind, {})).values
    for name, values in tables.items():
        if not NAME.fullmatch(name):
            raise PoolsError(f"[{kind}.{name:.60}]: the name {name!r:.60} is not 1 to 40 of a-z, 0-9 and -; rename it")
        yield name, values


def _pool(name: str, values: object) -> Pool:
    table = Table(f"pool.{name}", values)
    products = [NO_GPU, *(device.market_name for device in DEVICES)]
    gpu = table.choice("gpu", str, products, None)
    gpus = _sizes(table, gpu)
    pool = Pool(
        name=name,
        gpu=gpu,
        gpus=gpus,
        node_gpus=table.number("node_gpus", 0, MOST_GPUS, 0 if gpu == NO_GPU else 8),
        runs_on=_runs_on(table),
        container=table.choice("container", Container, list(Container), None),
        image=table.text("image", IMAGE, "the name of an image, or the path of a .sif file"),
        options=table.texts("options", OPTION, 'an option that starts with "--", with its value after "="'),
        mounts=table.texts("mounts", MOUNT, "HOST:INSIDE or HOST:INSIDE:ro with absolute paths"),
        user=table.choice("user", User, list(User), User.ROOT),
        isolation=table.choice("isolation", Isolation, list(Isolation), None),
        packages=table.texts("packages", PACKAGE, "the name of a package"),
        venv=table.text("venv", PATH, "an absolute path inside the container"),
        setup=table.text("setup", COMMAND, 'a command in one line that makes an environment in "$VENV"'),
        variables=table.texts("variables", VARIABLE, "the name of an environment variable"),
        minutes=table.number("minutes", 1, LONGEST_MINUTES, 60),
        site=table.text("site", NAME, "the name of a [site.NAME]"),
        partition=table.text("partition", WORD, "the name of a Slurm partition"),
        gres=table.text("gres", WORD, "the type of a GRES, such as mi300x in gpu:mi300x:8"),
        constraint=table.text("constraint", CONSTRAINT, "a constraint as sbatch takes it"),
        exclusive=table.flag("exclusive"),
        account=table.text("account", WORD, "the name of a Slurm account"),
        time=table.text("time", TIME, "minutes, H:MM:SS or D-HH:MM:SS, as sbatch takes it"),
        sbatch=table.texts("sbatch", OPTION, 'a long option of sbatch, with its value after "="'),
    )
    table.end()
    return pool


def _sizes(table: Table, gpu: str) -> tuple[int, ...]:
    value = table.take("gpus", [0] if gpu == NO_GPU else None)
    least, most = (0, 0) if gpu == NO_GPU else (1, MOST_GPUS)
    numbers = [one for one in value if type(one) is int and least <= one <= most] if isinstance(value, list) else []
    if not isinstance(value, list) or not numbers or numbers != value or len(set(numbers)) < len(numbers):
        raise table.refuse("gpus", value, f"a list of different numbers from {least} to {most}, such as [1, 8]")
    return tuple(sorted(numbers))


def _runs_on(table: Table, key: str = "runs_on") -> RunsOn | None:
    """A label, a list of labels, or {group, labels}, as in a workflow."""
    value = table.take(key, "")
    if value == "":
        return None
    if not isinstance(value, dict):
        value = {"labels": [value] if isinstance(value, str) else value}
    inner = Table(f"{table.where}.{key}", value)
    found = RunsOn(
        inner.texts("labels", LABEL, "a label of a runner"), inner.text("group", LABEL, "the name of a runner group")
    )
    inner.end()
    if not found.labels and not found.group:
        raise table.refuse(key, table.values[key], "a label, a list of labels, or {group, labels}")
    return found


def _site(name: str, values: object) -> Site:
    table = Table(f"site.{name}", values)
    site = Site(
        name,
        table.text("account", WORD, "the name of a Slurm account"),
        table.text("shared", PATH, "the absolute path of a folder that all nodes see"),
        table.texts("sbatch", OPTION, 'a long option of sbatch, with its value after "="'),
        _runs_on(table, "login"),
        _runner(name, table.take("runner", {})),
    )
    table.end()
    return site


def _runner(site: str, values: object) -> RunnerSettings | None:
    if values == {}:
        return None
    table = Table(f"site.{site}.runner", values)
    settings = RunnerSettings(
        table.text("program", PATH, "the absolute path of the runner's run.sh", None),
        table.text("repository", REPOSITORY, "OWNER/NAME", None),
        table.texts("workflows", WORKFLOW, "the path of a workflow file, .github/workflows/NAME.yml"),
        table.texts("refs", REF, "a git ref, such as refs/heads/main"),
        table.number("group", 1, 1 << 40, 1),
        table.number("jobs", 1, 1000, 4),
        table.number("reruns", 0, 20, 2),
        table.text("organization", ORGANIZATION, "the name of an organization"),
    )
    table.end()
    for key in ("workflows", "refs"):
        if not getattr(settings, key):
            raise PoolsError(f"[{table.where}] needs a list {key!r}: without it any job would be served; add it")
    return settings
