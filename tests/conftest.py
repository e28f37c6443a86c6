"""What all tests share: signals, seconds of CPU time, golden files.

`golden(name, text)` compares with tests/golden/NAME; `pytest --update-golden` writes them anew.  A test that takes more
than CPU_LIMIT_S and is not marked `slow` fails under CI.  `pytest --cpu 20` lists the 20 longest.
"""

from __future__ import annotations

import difflib
import gc
import os
import shutil
import signal
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from tests import reached
from tests.standins.slurm import cluster_of_all, own_cluster, slurm_cluster

__all__ = ["cluster_of_all", "own_cluster", "slurm_cluster"]
"""Fixtures of every folder: one cluster for all tests of a process, wherever they are."""

if any(path for name in ("kfd", "nvidia[0-9]*") for path in Path("/dev").glob(name)):
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")  # the tests time CPU backends; a hidden GPU is no fault
    os.environ.setdefault("HIP_VISIBLE_DEVICES", "")

# Several processes share the cores.  A thread that finds none free spins while it waits for the others, which costs up
# to six times the seconds of the work itself (libgomp); set before anything imports torch or numpy.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# How long an example takes says how busy the machine is.
settings.register_profile("tests", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tests")

# A test that measures waits for nobody: each process of the tests has a machine of its own.
LOCKS = os.environ["RIDGELINE_LOCKS"] = tempfile.mkdtemp(prefix="ridgeline-locks-")

# Compiled code names lines of its source: what another clone left in the cache of this user names lines of that clone.
os.environ["TRITON_CACHE_DIR"] = str(Path(__file__).parents[1] / ".pytest_cache" / "triton")

# A terminal's width would change every table that a test reads.
os.environ.pop("COLUMNS", None)

# Options for these tests are none for tests that they start.
os.environ.pop("PYTEST_ADDOPTS", None)

# Started by a shell's `&` they are ignored, by us and by all that we start.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)

CPU_LIMIT_S = 5.0
"""Seconds of CPU time of a test of the fast set, its processes and what it is the first to import or to set up."""

SYSTEMS = {"tab", "slurm_cluster", "own_cluster", "expressions"}
"""Fixtures that start a browser, a cluster or `npm ci`: tests that use them are slow."""

LONGEST = ("hostile_kernels", "own_kernels", "installed", "image_setups", "jobs", "compiled")
"""Tests that take a minute or more: begun last, one worker would be at work while the others have ended."""

CPU_S = "cpu_s"
SPENT = pytest.StashKey[float]()

GOLDEN = Path(__file__).parent / "golden"


ROOM = 1 << 30
"""Bytes that a run of the tests may need at once for its temporary files: wheels, clones, environments."""


def pytest_configure(config):
    """A disk that is nearly full is told once, and not by every test that it keeps from writing."""
    folder = tempfile.gettempdir()
    free = shutil.disk_usage(folder).free
    if free < ROOM and not hasattr(config, "workerinput"):
        said = f"{folder} has {free >> 20} MB left, and the tests write up to {ROOM >> 20}"
        pytest.exit(f"{said}: make room, or set TMPDIR to a folder that has it", returncode=3)


def pytest_addoption(parser):
    parser.addoption("--update-golden", action="store_true", help="write tests/golden anew; then read the diff")
    parser.addoption("--since", metavar="COMMIT", help="only tests that a change of files since then can reach")
    parser.addoption("--cpu", type=int, default=0, metavar="N", help="the N tests that take the most CPU time")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """The slow tests of a file share what they set up: one worker runs them (`--dist loadgroup`), the longest first.

    The fast ones come last, of which every worker takes some while another ends.
    """
    for item in items:
        if not SYSTEMS.isdisjoint(item.fixturenames):
            item.add_marker(pytest.mark.slow)
        if {"slurm_cluster", "own_cluster"} & set(item.fixturenames):
            item.add_marker(pytest.mark.xdist_group("slurm_cluster"))
        elif not_fast(item) and not item.get_closest_marker("xdist_group"):
            item.add_marker(pytest.mark.xdist_group(item.nodeid.split("::")[0]))
    commit = config.getoption("--since")
    if commit:
        kept = reached.left(items, commit)
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = kept
    items.sort(key=lambda item: (item.path.stem.removeprefix("test_") not in LONGEST, not not_fast(item)))


def pytest_collection_finish():
    """What was loaded to collect the tests stays to the end: the garbage collector, which would spend half a second on
    it again and again, passes it by from now on."""
    gc.collect()
    gc.freeze()


def not_fast(item):
    """Whether a test is of the slow set, or of the nightly one."""
    return any(item.get_closest_marker(name) for name in ("slow", "nightly"))


def cpu_s(process="self"):
    """Seconds of CPU time of a process, of all that it waited for, and of what it started and has not waited for.

    A fork server imports torch for every test that comes later: its own seconds are nobody's.
    """
    try:
        shared = b"fork_server.py" in Path(f"/proc/{process}/cmdline").read_bytes()
        of_each = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:15]
        below = [one for file in Path(f"/proc/{process}/task").glob("*/children") for one in file.read_text().split()]
    except OSError:  # it has just ended, or there is no /proc
        return 0.0
    own = 0.0 if shared else sum(map(int, of_each)) / os.sysconf("SC_CLK_TCK")
    return own + sum(map(cpu_s, below))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item):
    item.stash[SPENT] = cpu_s()
    yield


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item):
    yield
    spent = cpu_s() - item.stash[SPENT]
    item.user_properties.append((CPU_S, spent))
    if spent > CPU_LIMIT_S and os.environ.get("CI") and not not_fast(item):
        pytest.fail(f"{spent:.1f} s of CPU time: make it faster, or mark it `slow` (limit {CPU_LIMIT_S:g} s)", False)


def pytest_unconfigure():
    gc.unfreeze()
    shutil.rmtree(LOCKS, ignore_errors=True)


STATES = {}
"""By module: its generators of random numbers, as its import left them."""


def generators(module):
    found = [value for value in vars(module).values() if isinstance(value, np.random.Generator)]
    return [(generator, generator.bit_generator.state) for generator in found]


@pytest.fixture(autouse=True)
def _drawn_alike(request):
    """A test draws the same whichever tests came before it: what fails once fails again."""
    module = request.module
    for generator, state in STATES.setdefault(module.__name__, generators(module)):
        generator.bit_generator.state = state


def pytest_terminal_summary(terminalreporter, config):
    """What is not tested here and why, a line for each reason; the tests by CPU time, those that were asked for."""
    why = Counter(report.longrepr[2].removeprefix("Skipped: ") for report in terminalreporter.stats.get("skipped", []))
    for reason, count in why.items():
        terminalreporter.write_line(f"SKIPPED {count}: {reason}")
    ended = [one for reports in terminalreporter.stats.values() for one in reports if hasattr(one, "user_properties")]
    spent = {one.nodeid: seconds for one in ended for name, seconds in one.user_properties if name == CPU_S}
    longest = sorted(spent, key=spent.__getitem__, reverse=True)[: config.getoption("--cpu")]
    if longest:
        terminalreporter.section(f"CPU time: {sum(spent.values()):.0f} s, the longest {len(longest)}")
    for name in longest:
        terminalreporter.write_line(f"{spent[name]:7.2f}s {name}")


@pytest.fixture
def golden(request):
    """Compare a text with its golden file; on a difference the message is the diff and the command to accept it."""
    update = request.config.getoption("--update-golden")

    def compare(name, text):
        path = GOLDEN / name
        if update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            return
        if not path.is_file():
            pytest.fail(f"{path} does not exist; `make golden` writes it")
        wanted = path.read_text(encoding="utf-8")
        if text != wanted:
            diff = difflib.unified_diff(wanted.splitlines(), text.splitlines(), "golden", "now", lineterm="")
            pytest.fail(f"{name} differs; if the change is meant, `make golden` accepts it:\n" + "\n".join(diff))

    return compare
