"""The bash text that runs a command in a pool's environment: for a GitHub job, an sbatch script and the runner alike;
and the legs of GitHub's workflows, one for each pool and size, with the text that each runs.

`wrapped` is a pure function of the pool and puts parts of ci/pools/shell together: only what this pool needs.  The
host needs bash and the container's program, no Python.  Exit code 3: the host or its settings are wrong, nothing ran.
Otherwise the code is the command's.  What enters is an allow-list of variables: no token of GitHub's is among them.
"""

from __future__ import annotations

import dataclasses
import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ci import INSTALLED, VERBS, origin
from ci.pools.file import NO_GPU, SECRET, Container, Isolation, Pool, Pools, PoolsError, User

PARTS = Path(__file__).resolve().parent / "shell"

ENV_FILE = "/etc/podinfo/gha-gpu-isolation-settings"
"""Where a pod of AMD's runners says which GPUs are its own, as NAME=VALUE lines (triton-lang/triton and ROCm/TheRock:
.github/workflows, 2026-11)."""

RENDER_DEVICES = "/etc/podinfo/gha-render-devices"
"""Where it lists them as docker's options: "--device /dev/dri/renderD129" (ROCm/aiter, ROCm/FlyDSL, 2026-11)."""

VISIBLE = {
    "amd": ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"),
    "nvidia": ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"),
}
"""Variables that name a job's GPUs; the first that is set counts.  Slurm sets ROCR_ or CUDA_ (gres.conf: *_gpu_env)."""

ALLOWED = (
    *("LANG", "LC_ALL", "TZ", "USER", "LOGNAME", "TMPDIR", "XDG_RUNTIME_DIR"),
    *("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL"),
    *("SLURM_JOB_ID", "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID", "SLURM_RESTART_COUNT", "SLURM_JOB_PARTITION"),
    *("SLURM_JOB_NAME", "SLURM_JOB_NODELIST", "SLURMD_NODENAME", "SLURM_CLUSTER_NAME"),
)
"""Variables of the host that enter, beside RIDGELINE_* and the pool's own; paths only where nothing changes root."""
OF_THE_HOST = ("TMPDIR", "XDG_RUNTIME_DIR")
"""Of these, folders that a container does not have."""
OF_THE_RUNNER = ("RUNNER_TRACKING_ID",)
"""Where the runner is the container, it ends what carries this mark (a random id) when the job ends."""

MAKE = 'make --silent setup VENV="$VENV"'
INSTALL = 'python3 -m venv --system-site-packages "$VENV" && "$VENV/bin/python" -m pip install --quiet {source}'
"""What makes an environment: in a clone of Ridgeline; and in any other repository, beside the torch of the image."""

VENV = "/tmp/ridgeline-venv.$$.$RANDOM"
"""Where a container without an environment of its own gets one; Apptainer shows the host's /tmp."""


def wrapped(
    pool: Pool,
    argv: Sequence[str],
    gpus: int | None = None,
    *,
    workspace: str = "",
    mounts: Sequence[str] = (),
    setup: bool = True,
    preflight: bool = False,
    root: str = "",
) -> str:
    """Bash text that runs `argv` on `gpus` GPUs of the pool (default: the most it offers), in the folder `workspace`.

    workspace: absolute, seen under the same path inside; "" is the folder in which the text is run.  In a checkout of
    Ridgeline `python -m ci VERB ...` is the way to call a verb, elsewhere `python -m ridgeline VERB ...`.  mounts: more
    than the pool's, "HOST:INSIDE[:ro]".  setup: make an environment where the pool has none (see `_setup`).
    preflight: look at the node first, and drain it from our jobs if it fails; the command runs all the same, since its
    trials carry the reason to the verdict.  root: stands for / in tests.
    Raises PoolsError for a size that the pool does not offer, and where no environment can be made.
    """
    size = pool.size(gpus)
    lines = [
        "#!/bin/bash",
        f"# {pool.title(size)} of pool {pool.name}: {_way(pool)}.  Written by `ridgeline ci pools`.",
        "set -uo pipefail",
        *_settings(dataclasses.replace(pool, mounts=(*pool.mounts, *mounts)), size, workspace, root),
        f"venv={_venv(pool)}",
        f"setup={shlex.quote(_setup(pool)) if setup and not pool.venv else ''} preflight={'yes' if preflight else ''}",
        f"command={_array(argv)}",
        "",
        *(_part(name, pool) for name in _parts(pool)),
        "clean",
        "allow",
        *(["choose_devices"] if _chooses(pool) else []),
        "enter",
        "code=$?",
        *(["(clean)"] if pool.venv or pool.container is Container.NONE else ['rm -rf -- "$venv"', "(clean)"]),
        'exit "$code"',
    ]
    return "\n".join(lines) + "\n"


def cleaning(pool: Pool, *, workspace: str = "", root: str = "") -> str:
    """Bash text to run before a checkout into a folder that outlives jobs: ends what a killed job left, takes back
    the files that its container wrote as root."""
    lines = ["#!/bin/bash", f"# What a killed job of pool {pool.name} may have left.", "set -uo pipefail"]
    parts = [_part(name, pool) for name in ("common", "clean", _cleaner(pool))]
    return "\n".join([*lines, *_settings(pool, max(pool.gpus), workspace, root), "", *parts, "clean"]) + "\n"


def _settings(pool: Pool, gpus: int, workspace: str, root: str) -> Iterator[str]:
    yield f"pool={shlex.quote(pool.name)} gpus={gpus} root={shlex.quote(root) if root else ''}"
    yield f"workspace={shlex.quote(workspace) if workspace else '$PWD'}"
    yield f"image={shlex.quote(pool.image) if pool.image else ''}"
    yield f"options={_array(pool.options)}"
    yield f"mounts={_array(pool.mounts)}"
    if pool.container is Container.DOCKER:
        as_runner = '("--user=$(id -u):$(id -g)" --env=HOME=/tmp)'
        yield f"user={as_runner if pool.user is User.RUNNER else '(--user=0:0)'}"
    yield f"packages={_array(pool.packages)}"


def _venv(pool: Pool) -> str:
    if pool.venv:
        return shlex.quote(pool.venv)
    return '"$workspace/.venv"' if pool.container is Container.NONE else VENV


def _setup(pool: Pool) -> str:
    """What makes the environment $VENV: the pool's own command, `make setup` in a clone of Ridgeline, elsewhere an
    installation of the very Ridgeline that runs here.  Raises PoolsError where it is not known how."""
    if pool.setup:
        return pool.setup
    if not INSTALLED:
        return MAKE
    if source := origin():
        torch = "[cpu]" if pool.gpu == NO_GPU else ""  # elsewhere that of the image stays
        return INSTALL.format(source=shlex.quote(f"ridgeline{torch} @ {source}"))
    raise PoolsError(
        f"pool {pool.name!r} has no `venv`, and where this Ridgeline came from is not known: give it `venv`, an "
        'environment of its image that has Ridgeline, or `setup`, a command that makes one in "$VENV"'
    )


def _array(words: Sequence[str]) -> str:
    return f"({' '.join(map(shlex.quote, words))})"


def _way(pool: Pool) -> str:
    """How the environment is entered, in words."""
    where = "the runner itself" if pool.container is Container.NONE else f"{pool.container} {pool.image}"
    return where if not pool.vendor else f"{where}, isolation {pool.isolation}"


# ---- parts -------------------------------------------------------------------------------------------------------


def _parts(pool: Pool) -> list[str]:
    return ["common", "clean", _cleaner(pool), *_device_parts(pool), f"enter_{pool.container}"]


def _cleaner(pool: Pool) -> str:
    return "clean_docker" if pool.container is Container.DOCKER else "clean_sudo"


def _chooses(pool: Pool) -> bool:
    """Whether something must be found out about GPUs first."""
    return bool(pool.vendor) and (pool.container is Container.DOCKER or pool.isolation is not Isolation.WHOLE)


def _device_parts(pool: Pool) -> list[str]:
    """What finds the GPUs of the job: `choose_devices` and what it needs."""
    if not _chooses(pool):
        return []
    if pool.isolation is Isolation.WHOLE:
        return ["gpus/kfd", "gpus/whole_amd"] if pool.vendor == "amd" else ["gpus/whole_nvidia"]
    if pool.isolation is Isolation.RENDER_DEVICES:
        return ["gpus/renumber", "gpus/render_devices"]
    source = "gpus/from_file" if pool.isolation is Isolation.ENV_FILE else "gpus/from_environment"
    if pool.container is not Container.DOCKER:
        return ["gpus/entries", source, "gpus/variable"]
    chosen = ["gpus/kfd", "gpus/renumber", "gpus/chosen_amd"] if pool.vendor == "amd" else ["gpus/chosen_nvidia"]
    return ["gpus/entries", source, *chosen]


def _part(name: str, pool: Pool) -> str:
    """A file of ci/pools/shell with its @NAMES@ filled in."""
    values = _values(pool)
    text = (PARTS / f"{name}.sh").read_text(encoding="utf-8")
    return re.sub(r"@([A-Z_]+)@", lambda match: values[match[1]], text)


def _values(pool: Pool) -> Mapping[str, str]:
    visible = VISIBLE.get(pool.vendor, ())
    allowed = [name for name in ALLOWED if pool.container is Container.NONE or name not in OF_THE_HOST]
    runner = OF_THE_RUNNER if pool.container is Container.NONE else ()
    return {
        "VERBS": " ".join(VERBS),
        "SECRET": " | ".join(f"*{word}*" for word in SECRET),
        "ALLOWED": " | ".join((*allowed, *runner, *pool.variables)),
        "VISIBLE": " ".join(visible),
        "VARIABLE": visible[0] if visible else "",
        "ENV_FILE": ENV_FILE,
        "RENDER_DEVICES": RENDER_DEVICES,
    }


# ---- the legs of the workflows -------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Leg:
    """One job of a workflow's matrix.

    name: unique, POOL-GPUS; of its status, its comment section and its artifact.  gpu, gpus: what its trials must be
    of.  runs_on: as a workflow takes it.  script: what it runs, with bash.  clean: what it runs before the checkout.
    """

    name: str
    pool: str
    gpu: str
    gpus: int
    runs_on: list[str] | dict[str, str | list[str]]
    minutes: int
    clean: str
    script: str


def legs(pools: Pools, argv: Sequence[str], only: Sequence[str] = (), gpus: int | None = None) -> list[Leg]:
    """Of all pools that GitHub's runners serve, or of those named; of all their sizes, or of one.

    Raises PoolsError for a pool that is unknown or has no runner, and where no pool offers the size.
    """
    chosen = [pools.pool(name) for name in only] or list(pools.pools.values())
    for pool in chosen:
        if only and pool.runs_on is None:
            raise PoolsError(f"pool {pool.name!r} has no runs_on: no GitHub runner serves it; add it, or use Slurm")
    served = [
        leg(pool, size, argv)
        for pool in chosen
        for size in pool.gpus
        if pool.runs_on and (gpus is None or size == gpus)
    ]
    if not served:
        offered = f"jobs of {gpus} GPUs" if gpus is not None else "runs_on"
        raise PoolsError(f"no pool of {', '.join(one.name for one in chosen)} offers {offered}; ask for other pools")
    return served


def leg(pool: Pool, gpus: int, argv: Sequence[str]) -> Leg:
    """One leg of a pool that a runner serves."""
    assert pool.runs_on is not None
    script, runs_on = wrapped(pool, argv, gpus, preflight=True), pool.runs_on.sized(gpus).value
    return Leg(f"{pool.name}-{gpus}", pool.name, pool.gpu, gpus, runs_on, pool.minutes, cleaning(pool), script)


def legs_json(listed: Sequence[Leg]) -> str:
    """One line, for `fromJSON` in a workflow."""
    return json.dumps([dataclasses.asdict(one) for one in listed])
