"""A pool, a Slurm site, and ci/runners.toml, which describes them: everything is checked here, so that nothing later
has to be."""

from __future__ import annotations

import dataclasses
import enum
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

from benchmarks.shapes import Into, Unfit, anything, built, form, items, one_of, record, table, that, whole
from kernels import project
from kernels.hardware import DEVICES, by_market_name

NO_GPU = "none"
"""The product of a pool that has no GPU."""

SIZE = "{gpus}"
"""In a runner's label, the number of GPUs of the job: projects name one label for each size."""

MOST_GPUS = 72
"""GPUs that one node can have: the largest systems that one operating system drives (2026-11)."""
LONGEST_MINUTES = 5 * 24 * 60
"""A job on a runner of one's own ends after 5 days (GitHub's usage limits, 2026-11)."""


class PoolsError(ValueError):
    """The file of pools, or what was asked of it, is wrong; the text says where, what is allowed, and what to do."""


# ---- what a value may be ---------------------------------------------------------------------------------------------

NAME = form(re.compile(r"[a-z0-9][a-z0-9-]{0,39}"), "1 to 40 of a-z, 0-9 and -")
Label = Annotated[
    str, form(re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9 ._:@/+{}-]{0,98}[A-Za-z0-9._})-])?"), "a label of a runner")
]
Line = Annotated[str, form(re.compile(r"[^\x00-\x1f\x7f]{0,1000}"), "a text in one line")]
"""Of a name that Slurm, a container's program or bash understands: it is quoted wherever it is written."""
Folder = Annotated[str, form(re.compile(r"/[A-Za-z0-9._@/+-]{0,399}"), "an absolute path", empty=True)]
Option = Annotated[
    str, form(re.compile(r"--[a-z][^\x00-\x1f\x7f]{1,399}"), 'an option that starts with "--", its value after "="')
]
Mount = Annotated[
    str,
    form(
        re.compile(r"/[A-Za-z0-9._@/+-]{1,199}:/[A-Za-z0-9._@/+-]{1,199}(:ro)?"),
        "HOST:INSIDE or HOST:INSIDE:ro with absolute paths",
    ),
]
Package = Annotated[str, form(re.compile(r"[a-z0-9][a-z0-9.+-]{0,99}"), "the name of a package")]
Variable = Annotated[str, form(re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}"), "the name of an environment variable")]
Sizes = Annotated[
    tuple[int, ...],
    that(
        lambda value: (
            isinstance(value, list)
            and bool(value)
            and all(type(size) is int and 0 <= size <= MOST_GPUS for size in value)
            and len(set(value)) == len(value)
        ),
        f"a list of different numbers from 1 to {MOST_GPUS}, such as [1, 8]",
    ),
    Into(lambda value: tuple(sorted(value))),
]

SOME = "a list, not an empty one: without it any job would be served"
Workflows = Annotated[
    tuple[str, ...],
    items(
        form(
            re.compile(r"\.github/workflows/[A-Za-z0-9._-]{1,100}\.ya?ml"),
            "the path of a workflow file, .github/workflows/NAME.yml",
        ),
        SOME,
    ),
    Into(tuple),
]
Refs = Annotated[
    tuple[str, ...],
    items(form(re.compile(r"refs/(heads|tags)/[A-Za-z0-9._/*-]{1,200}"), "a git ref, such as refs/heads/main"), SOME),
    Into(tuple),
]


class Container(enum.StrEnum):
    """What stands between the host and a job.  none: nothing, or the runner itself lives in the container."""

    NONE = "none"
    DOCKER = "docker"
    APPTAINER = "apptainer"
    PYXIS = "pyxis"


class Isolation(enum.StrEnum):
    """What says which of a node's GPUs a job may use.

    whole: nothing does, a job has all of them.  env-file, render-devices: files that a pod brings (see ENV_FILE and
    RENDER_DEVICES in ci.pools.command).  visible-devices: ROCR_VISIBLE_DEVICES (HIP_, CUDA_) of the runner.
    slurm: the allocation.
    """

    WHOLE = "whole"
    ENV_FILE = "env-file"
    RENDER_DEVICES = "render-devices"
    VISIBLE_DEVICES = "visible-devices"
    SLURM = "slurm"


class User(enum.StrEnum):
    """Who a command is inside a docker container: root, or the user of the runner."""

    ROOT = "root"
    RUNNER = "runner"


@dataclasses.dataclass(frozen=True)
class RunsOn:
    """Which of GitHub's runners take a pool's jobs: all of the labels, and a runner group if one is named."""

    labels: tuple[Label, ...] = ()
    group: Label = ""

    def sized(self, gpus: int) -> RunsOn:
        """Of a job with this many GPUs."""
        return RunsOn(tuple(label.replace(SIZE, str(gpus)) for label in self.labels), self.group)

    @property
    def value(self) -> list[str] | dict[str, str | list[str]]:
        """As a workflow's `runs-on`."""
        if not self.group:
            return list(self.labels)
        return {"group": self.group, **({"labels": list(self.labels)} if self.labels else {})}


def _runs_on(value: Any, where: str = "") -> RunsOn:
    """A label, a list of labels, or {group, labels}, as in a workflow."""
    fields = value if isinstance(value, dict) else {"labels": [value] if isinstance(value, str) else value}
    runs_on = built(RunsOn, fields, where, closed=True)
    if runs_on == RunsOn():
        raise Unfit(where, value, "a label, a list of labels, or {group, labels}")
    return runs_on


AnyRunsOn = Annotated[RunsOn | None, _runs_on, Into(_runs_on)]


@dataclasses.dataclass(frozen=True)
class Pool:
    """Machines of one kind that one label or one partition leads to.

    gpu: the product that the devices must report (kernels.hardware), NO_GPU for a pool of CPUs.
    gpus: how many GPUs a job may ask for; node_gpus: how many a node has.
    runs_on: None where no GitHub runner serves the pool.
    image, options, mounts ("HOST:INSIDE[:ro]"), user, packages (Debian's or Fedora's names, installed first): of the
    container.  venv: an environment inside it that has Ridgeline's dependencies; "" makes one in every job.
    setup: the command that makes it in "$VENV", run by bash in the checkout; "": `make setup` in a clone of Ridgeline,
    elsewhere an installation of the Ridgeline that submits.
    variables: names of further environment variables that may enter.  minutes: the longest a job may take.
    site, partition, gres (the type in gpu:TYPE:COUNT), constraint, exclusive, account, time, sbatch (further options):
    of Slurm; site is "" where no Slurm leads to the pool.
    """

    name: str
    gpu: Annotated[str, one_of(NO_GPU, *(device.market_name for device in DEVICES))]
    gpus: Sizes
    node_gpus: Annotated[int, whole(0, MOST_GPUS)] = 8
    runs_on: AnyRunsOn = None
    container: Container = Container.NONE
    image: Line = ""
    options: tuple[Option, ...] = ()
    mounts: tuple[Mount, ...] = ()
    user: User = User.ROOT
    isolation: Isolation = Isolation.WHOLE
    packages: tuple[Package, ...] = ()
    venv: Folder = ""
    setup: Line = ""
    variables: tuple[Variable, ...] = ()
    minutes: Annotated[int, whole(1, LONGEST_MINUTES)] = 60
    site: Line = ""
    partition: Line = ""
    gres: Line = ""
    constraint: Line = ""
    exclusive: bool = False
    account: Line = ""
    time: Line = ""
    sbatch: tuple[Option, ...] = ()

    @property
    def vendor(self) -> str:
        """ "amd", "nvidia", or "" without a GPU."""
        if self.gpu == NO_GPU:
            return ""
        return "nvidia" if by_market_name(self.gpu).arch.startswith("sm_") else "amd"

    @property
    def time_limit(self) -> str:
        """Slurm's --time: `time`, or the minutes."""
        return self.time or str(self.minutes)

    def size(self, gpus: int | None) -> int:
        """The number of GPUs of a job: as asked, or the most; PoolsError for one that the pool does not offer."""
        if gpus is None:
            return max(self.gpus)
        if gpus not in self.gpus:
            offered = ", ".join(map(str, self.gpus))
            raise PoolsError(
                f"pool {self.name!r} offers jobs of {offered} GPUs, not {gpus}; ask for one of these sizes"
            )
        return gpus

    def gres_of(self, gpus: int) -> str:
        """Slurm's --gres for so many GPUs, "" for none."""
        return ":".join(filter(None, ("gpu", self.gres, str(gpus)))) if gpus else ""

    def title(self, gpus: int) -> str:
        """ "8 x MI300X", for people."""
        return f"{gpus} x {self.gpu}" if gpus else "CPU only"


@dataclasses.dataclass(frozen=True)
class RunnerSettings:
    """How `ridgeline ci runner` serves GitHub from a Slurm site.

    program: path of the runner's run.sh on the nodes.  repository: OWNER/NAME, where the runners are registered.
    workflows: paths of the workflow files whose jobs are served; refs: the git refs that these must come from.
    jobs: most Slurm jobs at a time.
    """

    program: Folder
    repository: Annotated[str, form(re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,38}/[A-Za-z0-9._-]{1,100}"), "OWNER/NAME")]
    workflows: Workflows
    refs: Refs
    jobs: Annotated[int, whole(1, 1000)] = 4


@dataclasses.dataclass(frozen=True)
class Site:
    """One Slurm cluster.

    shared: a folder that every node sees; "" is the home folder.  account: of pools that name none.
    sbatch: options of every job.  runner: None where `ridgeline ci runner` does not serve it.
    """

    name: str
    account: Line = ""
    shared: Folder = ""
    sbatch: tuple[Option, ...] = ()
    runner: RunnerSettings | None = None


@dataclasses.dataclass(frozen=True)
class Pools:
    """All pools and sites of a file, by name."""

    pools: Mapping[str, Pool]
    sites: Mapping[str, Site]

    def pool(self, name: str) -> Pool:
        """The pool of that name; PoolsError names those there are."""
        if name not in self.pools:
            raise PoolsError(f"no pool {name!r}; ci/runners.toml has {', '.join(self.pools) or 'none'}")
        return self.pools[name]

    def on_slurm(self, name: str) -> tuple[Pool, Site]:
        """A pool that Slurm leads to, and its site; PoolsError for another one."""
        pool = self.pool(name)
        if not pool.site:
            reached = ", ".join(pool.name for pool in self.pools.values() if pool.site) or "none"
            raise PoolsError(f"pool {name!r} has no `site`: no Slurm leads to it; pools that have one: {reached}")
        return pool, self.sites[pool.site]


# ---- the file --------------------------------------------------------------------------------------------------------

FILE = Path(__file__).resolve().parents[1] / "runners.toml"
"""Our own pools."""

_NAMED = table(NAME, anything)
FILE_OF_POOLS = record({}, {"site": _NAMED, "pool": _NAMED}, closed=True)


def load(path: Path | None = None) -> Pools:
    """The pools of a file (default: of the project around the current folder, else ours).  PoolsError, ProjectError."""
    path = path or project.around(Path.cwd()).runners or FILE
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
        sites = {name: _built(Site, "site", name, values) for name, values in document.get("site", {}).items()}
        pools = {name: _built(Pool, "pool", name, values) for name, values in document.get("pool", {}).items()}
    except Unfit as error:
        raise PoolsError(f"{error}; correct it in ci/runners.toml") from None
    if not pools:
        raise PoolsError("ci/runners.toml describes no pool; add a table [pool.NAME]")
    described = Pools(pools, sites)
    for sentence in broken(described):
        raise PoolsError(sentence)
    return described


Made = TypeVar("Made")


def _built(kind: type[Made], table: str, name: str, values: Any) -> Made:
    """A pool or a site from its table."""
    no_gpus = {"gpus": [0], "node_gpus": 0} if isinstance(values, dict) and values.get("gpu") == NO_GPU else {}
    fields = {**no_gpus, **values, "name": name} if isinstance(values, dict) else values
    return built(kind, fields, f"[{table}.{name}]", closed=True)


# What the keys of a pool must be to each other.  Pure: each rule yields sentences, none for a sound pool.


OF_A_KEY = {
    "isolation": re.compile(r"--(?:device|gpus|privileged|runtime)\b"),
    "variables": re.compile(r"--(?:env|container-env|export)\b"),
    "mounts": re.compile(r"--(?:volumes?|mount|bind|container-mounts?)\b"),
}
"""Options that would give a container devices, variables or mounts; which it gets is for these keys to say."""
OURS = re.compile(r"--(export|comment|output|error|array|job-name|partition|gres|gpus|wait|requeue|no-requeue)\b")
"""Options of sbatch that ci.slurm.client.batch_script sets."""
OPEN = ("docker.sock", "podman.sock", "containerd.sock")
"""Sockets that make whoever reaches them root on the host."""
PRIVATE = ("/", "/root", "/etc", "/home", "/proc", "/sys", "/dev", "/var", "/run", "/boot")
"""Folders of the host that no job sees whole."""
SECRET = ("TOKEN", "SECRET", "PASSW", "CREDENTIAL", "PRIVATE", "JWT", "AUTH", "_KEY")
"""Words in the name of a variable that never enters, whatever else allows it."""
PLATFORM = ("GITHUB_", "ACTIONS_", "RUNNER_", "INPUT_")
"""Variables of GitHub's runner; tokens are among them."""


def broken(pools: Pools) -> Iterator[str]:
    """Every rule that the file breaks, in words."""
    for pool in pools.pools.values():
        for rule in (_container, _options, _user, _isolation, _fits_a_node, _variables):
            for sentence in rule(pool):
                yield f"[pool.{pool.name}] {sentence}"
        for sentence in _slurm(pool, pools):
            yield f"[pool.{pool.name}] {sentence}"


def _container(pool: Pool) -> Iterator[str]:
    if pool.container is Container.NONE:
        for key in ("image", "options", "mounts"):
            if getattr(pool, key):
                yield f'{key} = {_shown(getattr(pool, key))} needs a container, and container = "none"; remove it'
    elif not pool.image:
        yield f'container = "{pool.container}" needs the key image: what the container is made from; add it'
    if pool.container is Container.PYXIS and not pool.site:
        yield 'container = "pyxis" is Slurm\'s: it needs site and partition; add them, or write container = "docker"'


def _options(pool: Pool) -> Iterator[str]:
    for option in pool.options:
        instead = next((key for key, pattern in OF_A_KEY.items() if pattern.match(option)), None)
        if instead:
            yield f"options has {option!r}, which is what the key {instead} is for; remove it and use {instead}"
    for mount in pool.mounts:
        host = mount.split(":")[0].rstrip("/") or "/"
        if host in PRIVATE or any(name in host for name in OPEN) or ".." in host.split("/"):
            yield f"mounts has {mount!r}: {host} opens the host to the job; mount a folder of data only"


def _user(pool: Pool) -> Iterator[str]:
    if pool.packages and pool.container is Container.APPTAINER:
        yield "packages cannot be installed in an Apptainer image, which is read-only; build them into the image"
    if pool.packages and pool.container is Container.DOCKER and pool.user is User.RUNNER:
        yield 'packages need root, and user = "runner"; write user = "root", or build them into the image'
    if pool.user is User.RUNNER and pool.container is not Container.DOCKER:
        yield f'user = "runner" is for docker; with container = "{pool.container}" it is always so; remove it'


def _isolation(pool: Pool) -> Iterator[str]:
    amd_in_docker = pool.vendor == "amd" and pool.container is Container.DOCKER
    if pool.isolation is Isolation.RENDER_DEVICES and not amd_in_docker:
        yield 'isolation = "render-devices" is for AMD GPUs and docker; write "visible-devices", "env-file" or "slurm"'
    if pool.isolation is Isolation.SLURM and not pool.site:
        yield 'isolation = "slurm" needs site and partition: an allocation says which GPUs; add them'
    if pool.isolation is Isolation.WHOLE and pool.gpu != NO_GPU and pool.gpus != (pool.node_gpus,):
        less = ", ".join(str(size) for size in pool.gpus if size != pool.node_gpus)
        yield (
            f'isolation = "whole" gives a job all of /dev/dri, and a job may ask for {less} of {pool.node_gpus} GPUs; '
            'write isolation = "env-file", "render-devices", "visible-devices" or "slurm", or the right node_gpus'
        )


def _fits_a_node(pool: Pool) -> Iterator[str]:
    if (0 in pool.gpus) != (pool.gpu == NO_GPU):
        yield f"gpus = {list(pool.gpus)} does not fit gpu = {pool.gpu!r}; only a pool of CPUs has jobs without a GPU"
    if max(pool.gpus) > pool.node_gpus:
        yield f"gpus = {list(pool.gpus)} is more than node_gpus = {pool.node_gpus}; correct one of them"
    labels = pool.runs_on.labels if pool.runs_on else ()
    for label in labels:
        if re.search(r"[{}]", label.replace(SIZE, "")):
            yield f"runs_on has {label!r}: braces stand only for the number of GPUs, as {SIZE}; correct the label"


def _variables(pool: Pool) -> Iterator[str]:
    for name in pool.variables:
        if any(word in name.upper() for word in SECRET) or name.startswith(PLATFORM):
            yield f"variables has {name!r}, which may hold a secret: no secret enters a job; remove it"


def _slurm(pool: Pool, pools: Pools) -> Iterator[str]:
    if pool.site and pool.site not in pools.sites:
        yield f"site = {pool.site!r} is not described; add a table [site.{pool.site}]"
    if pool.site and not pool.partition:
        yield "site needs the key partition: jobs of one pool never move between partitions; add it"
    if "," in pool.partition:  # a task that is requeued must not come to another kind of machine
        yield f"partition = {pool.partition!r} is several; a job is measured in one: make a pool of each"
    for key in ("partition", "gres", "constraint", "exclusive", "account", "time", "sbatch"):
        if getattr(pool, key) and not pool.site:
            yield f"{key} = {_shown(getattr(pool, key))} is Slurm's and needs site; add it, or remove {key}"
    if not pool.site and pool.runs_on is None:
        yield "nothing leads to it: it has neither runs_on (GitHub) nor site (Slurm); add one of them"
    for option in pool.sbatch:
        if OURS.match(option):
            yield f"sbatch has {option!r}, which Ridgeline sets itself; remove it"


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(list(value) if isinstance(value, tuple) else value)
