"""What the keys of a pool must be to each other.  Pure: each rule yields sentences, none for a sound pool."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ci.pools.types import NO_GPU, SIZE, Container, Isolation, Pool, Pools, User

DEVICES = re.compile(r"--(?:device|gpus|privileged|runtime)\b")
"""Options that would give a container devices; which it gets is `isolation`'s."""
ENVIRONMENT = re.compile(r"--(?:env|container-env|export)\b")
"""Options that would carry variables into a container; which may enter is `variables`'."""
MOUNTS = re.compile(r"--(?:volumes?|mount|bind|container-mounts?)\b")
"""Options that would mount something; what is mounted is `mounts`'."""
OURS = re.compile(r"--(export|comment|output|error|array|job-name|partition|gres|gpus|wait|requeue|no-requeue)\b")
"""Options of sbatch that ci.slurm sets."""
OPEN = ("docker.sock", "podman.sock", "containerd.sock")
"""Sockets that make whoever reaches them root on the host."""
PRIVATE = ("/", "/root", "/etc", "/home", "/proc", "/sys", "/dev", "/var", "/run", "/boot")
"""Folders of the host that no job sees whole."""
SECRET = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|PRIVATE|_KEY\b|AUTH", re.IGNORECASE)
"""In the name of a variable: it does not enter a container.  command.py has the same words in bash."""
PLATFORM = ("GITHUB_", "ACTIONS_", "RUNNER_", "INPUT_")
"""Variables of GitHub's runner; tokens are among them."""


def broken(pools: Pools) -> Iterator[str]:
    """Every rule that the file breaks, in words."""
    for pool in pools.pools.values():
        for rule in (_container, _options, _user, _isolation, _sizes, _variables):
            for sentence in rule(pool):
                yield f"[pool.{pool.name}] {sentence}"
        for sentence in _slurm(pool, pools):
            yield f"[pool.{pool.name}] {sentence}"
    yield from _same_runners(pools)


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
        for pattern, instead in ((DEVICES, "isolation"), (ENVIRONMENT, "variables"), (MOUNTS, "mounts")):
            if pattern.match(option):
                yield f"options has {option!r}, which is what the key {instead} is for; remove it and use {instead}"
                break
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
    if pool.isolation is Isolation.RENDER_DEVICES and (
        pool.vendor != "amd" or pool.container not in (Container.DOCKER,)
    ):
        yield 'isolation = "render-devices" is for AMD GPUs and docker; write "visible-devices", "env-file" or "slurm"'
    if pool.isolation is Isolation.SLURM and not pool.site:
        yield 'isolation = "slurm" needs site and partition: an allocation says which GPUs; add them'
    if pool.isolation is Isolation.WHOLE and pool.gpu != NO_GPU and pool.gpus != (pool.node_gpus,):
        less = ", ".join(str(size) for size in pool.gpus if size != pool.node_gpus)
        yield (
            f'isolation = "whole" gives a job all of /dev/dri, and a job may ask for {less} of {pool.node_gpus} GPUs; '
            'write isolation = "env-file", "render-devices", "visible-devices" or "slurm", or the right node_gpus'
        )


def _sizes(pool: Pool) -> Iterator[str]:
    if max(pool.gpus) > pool.node_gpus:
        yield f"gpus = {list(pool.gpus)} is more than node_gpus = {pool.node_gpus}; correct one of them"
    labels = pool.runs_on.labels if pool.runs_on else ()
    for label in labels:
        if re.search(r"[{}]", label.replace(SIZE, "")):
            yield f"runs_on has {label!r}: braces stand only for the number of GPUs, as {SIZE}; correct the label"


def _variables(pool: Pool) -> Iterator[str]:
    for name in pool.variables:
        if SECRET.search(name) or name.startswith(PLATFORM):
            yield f"variables has {name!r}, which may hold a secret: no secret enters a job; remove it"


def _slurm(pool: Pool, pools: Pools) -> Iterator[str]:
    if pool.site and pool.site not in pools.sites:
        yield f"site = {pool.site!r} is not described; add a table [site.{pool.site}]"
    if pool.site and not pool.partition:
        yield "site needs the key partition: jobs of one pool never move between partitions; add it"
    for key in ("partition", "gres", "constraint", "exclusive", "account", "time", "sbatch"):
        if getattr(pool, key) and not pool.site:
            yield f"{key} = {_shown(getattr(pool, key))} is Slurm's and needs site; add it, or remove {key}"
    if not pool.site and pool.runs_on is None:
        yield "nothing leads to it: it has neither runs_on (GitHub) nor site (Slurm); add one of them"
    for option in pool.sbatch:
        if re.match(
            r"--(export|comment|output|error|array|job-name|partition|gres|gpus|wait|requeue|no-requeue)\b", option
        ):
            yield f"sbatch has {option!r}, which Ridgeline sets itself; remove it"


def _same_runners(pools: Pools) -> Iterator[str]:
    """Two pools that wait for the same runners cannot be told apart."""
    seen: dict[tuple[object, ...], str] = {}
    for pool in pools.pools.values():
        if pool.runs_on is None:
            continue
        for size in pool.gpus:
            wanted = pool.runs_on.sized(size)
            key = (wanted.group, frozenset(label.lower() for label in wanted.labels), size)
            if key in seen:
                yield f"[pool.{pool.name}] runs_on is that of pool {seen[key]!r} for {size} GPUs; make one pool of them"
            seen[key] = pool.name


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(list(value) if isinstance(value, tuple) else value)
