"""Closures that both sides run by the same code need no times; whatever can make them differ takes that away."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ci.judging import live, policy
from ci.judging.types import Verdict
from ci.trials.file import Followed

pytestmark = pytest.mark.slow  # each times two sides: 2 to 5 s of CPU

SCRIPT = """
import torch, mylib
from triton.testing import do_bench
for provider, call in (("mine", mylib.double), ("other", mylib.other)):
    for size in (8, 16):
        x = torch.ones(size)
        do_bench(lambda: call(x))
"""

LIBRARY = """
import torch
STEPS = 1
TABLE = {"block": (16, 2)}

def double(x):
    \"\"\"Twice x.\"\"\"
    for _ in range(STEPS):
        x = scaled(x, 2)
    return x

def scaled(x, by):
    return x * by

def other(x):
    return torch.relu(x)
"""


def verdict(found):
    """What the trials are judged to be."""
    return live.judged(Followed(found.out).read().trials, policy.load(), "cpu")


def statuses(found):
    """Of head, by closure."""
    return {key.removeprefix("head/"): one["status"] for key, one in found.arms().items() if key.startswith("head/")}


def test_equal_code_with_moved_lines_is_same_and_starts_no_trial(adopt):
    moved = LIBRARY.replace("import torch\n", "import torch  # a remark\n\n\n").replace("Twice x.", "x, twice.")
    found = adopt(SCRIPT, base={"mylib/__init__.py": LIBRARY}, head={"mylib/__init__.py": moved}, every=False)
    assert (found.code, found.printed()) == (0, ""), found.said
    assert set(statuses(found).values()) == {"untimed"}
    assert all("seconds" not in arm for arm in found.arms().values())
    judged = verdict(found)
    assert [one.verdict for one in (judged, *judged.cases)] == [Verdict.SAME] * 5
    assert all("same code" in case.evidence[0] for case in judged.cases)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("return x * by", "return by * x"),
        ("STEPS = 1", "STEPS = 2 - 1 + 0 * 3 or 2"),
        ("for _ in range(STEPS)", "for _ in range(STEPS + 0)"),
        ("scaled(x, 2)", "scaled(x, 2.0)"),
    ],
    ids=["called", "equal_value", "loop", "constant"],
)
def test_only_the_closures_whose_code_changed_are_timed(adopt, old, new):
    changed = {"mylib/__init__.py": LIBRARY.replace(old, new)}
    found = adopt(SCRIPT, base={"mylib/__init__.py": LIBRARY}, head=changed, every=False)
    assert found.code == 0, found.said
    by_provider = {key.partition("/")[0]: status for key, status in statuses(found).items()}
    assert by_provider == {"mine": "untimed" if old.startswith("STEPS") else "ok", "other": "untimed"}


SHORT = """
import torch
from pathlib import Path
at = Path(__file__).with_name("runs")
at.write_text(at.read_text() + "." if at.exists() else ".")

def double(x):
    if len(at.read_text()) == 1 and len(x) > 8:
        raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
    return x * 2

other = torch.relu
"""


@pytest.mark.nightly
def test_a_side_that_finds_no_memory_beside_the_other_is_looked_at_alone(adopt):
    enough = SHORT.replace("== 1", "== 0")
    found = adopt(SCRIPT, base={"mylib/__init__.py": SHORT}, head={"mylib/__init__.py": enough}, every=False)
    assert (found.out.parent / "base/mylib/runs").read_text()[:2] == ".."
    assert [one.status for side in found.survey.sides.values() for one in side.closures] == ["ok"] * 8
    assert verdict(found).verdict is not Verdict.NOT_COMPARABLE


def test_a_global_that_code_names_counts_by_its_value(adopt):
    library = LIBRARY.replace("def other(x):", "def other(x):\n    TABLE")
    changed = {"mylib/__init__.py": library.replace("(16, 2)", "(16, 3)")}
    found = adopt(SCRIPT, base={"mylib/__init__.py": library}, head=changed, every=False)
    assert {key.partition("/")[0]: status for key, status in statuses(found).items()} == {
        "mine": "untimed",
        "other": "ok",
    }


def test_a_sample_is_no_pass(adopt):
    """What differs and is not timed keeps the verdict open, and says what decides it."""
    slow = SCRIPT.replace("(8, 16)", "range(8, 20)").replace(
        "do_bench(lambda: call(x))", "do_bench(lambda: wait(call, x))"
    )
    slow = slow.replace(
        "for provider", "import time\ndef wait(call, x):\n    time.sleep(0.02)\n    return call(x)\nfor provider"
    )
    changed = {"mylib/__init__.py": LIBRARY.replace("x * by", "by * x")}
    found = adopt(
        slow, "--budget-s", "30", "--budget-trials", "6", base={"mylib/__init__.py": LIBRARY}, head=changed, every=False
    )
    assert found.code == 0, found.said
    judged = verdict(found)
    untimed = [one for one in judged.cases if "fit what is left of the budget" in one.evidence[0]]
    assert untimed
    assert {one.verdict for one in untimed} == {Verdict.CANNOT_TELL}
    assert {one.backend for one in untimed} == {"mine"}
    assert judged.verdict is Verdict.CANNOT_TELL


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["another_c_library", "compiled"])
def test_code_that_cannot_be_seen_is_timed(adopt, kind):
    by = {
        "another_c_library": "from markupsafe import _speedups as c\n"
        "def other(x):\n    c._escape_inner('a')\n    return x + 1\n",
        "compiled": "import torch\nown = lambda graph, given: lambda *x: (x[-1] + 1,)  # a backend of somebody's\n"
        "other = torch.compile(lambda x: x + 1, backend=own)\n",
    }[kind]
    library = {"mylib/__init__.py": LIBRARY.partition("def other")[0] + by}
    found = adopt(SCRIPT, base=library, head=library, every=False)
    assert found.code == 0, found.said
    assert {key.partition("/")[0]: status for key, status in statuses(found).items()} == {
        "mine": "untimed",
        "other": "ok",
    }


def test_a_shared_library_of_the_checkout_counts(tmp_path):
    from benchmarks.worker.scripts import executed

    assert executed.libraries(str(tmp_path)) == []
    torch_folder = str(Path(json.__file__).parents[1] / "lib-dynload")
    assert len(executed.libraries(torch_folder)) > 3


# What a script does so that its timers, or what they time, are not seen: never a pass for it.


ONE = "import torch, mylib\nfrom triton.testing import do_bench\nx = torch.ones(64)\ndo_bench(lambda: torch.relu(x))\n"

CHANGED = {"mylib/__init__.py": "def double(x):\n    return x + x\n"}


MORE = {
    "program": "import subprocess, sys\nsubprocess.run([sys.executable, '-c', '', 'other.py'])\n",
    "fork": "import os\nif not os.fork():\n    do_bench(lambda: x + 1)\nos.wait()\n",
    "spawn": "import multiprocessing\nmultiprocessing.get_context('spawn').Process(target=print).start()\n",
    "cached": "import functools\n@functools.cache\ndef once():\n    return mylib.double(x)\ndo_bench(lambda: once())\n",
    "fails": "try:\n    y = mylib.halve(x)\n    do_bench(lambda: y + 1)\nexcept AttributeError:\n    print('failed')\n",
}


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ("program", "other.py (script.py:"),
        ("fork", "a process (script.py:"),
        ("spawn", "a process (script.py:"),
        ("cached", "a call computes nothing"),
        ("fails", "only base times it"),
    ],
)
def test_what_is_not_seen_is_told_and_no_pass(adopt, more, sentence):
    base = {"mylib/__init__.py": "def double(x):\n    return x * 2\n\ndef halve(x):\n    return x / 2\n"}
    found = adopt(ONE + MORE[more], base=base, head=CHANGED, every=False)
    assert verdict(found).verdict is Verdict.CANNOT_TELL, found.said
    told = [arm.get("why", "") for arm in found.arms().values()]
    assert any(sentence in why for why in told), told


def test_what_the_first_call_alone_runs_is_code(adopt):
    """It may compute what later calls read."""
    script = ONE + "def f():\n    mylib.table(x)\n    return x + 1\ndo_bench(f)\n"
    library = (
        "held = {}\ndef table(x):\n    if not held:\n        held['y'] = made(x)\n\ndef made(x):\n    return x * 2\n"
    )
    changed = library.replace("x * 2", "x + x")
    found = adopt(script, base={"mylib/__init__.py": library}, head={"mylib/__init__.py": changed}, every=False)
    assert {key: arm["status"] for key, arm in found.arms().items() if key.startswith("head")} == {
        "head/script/call": "untimed",
        "head/script/call#2": "ok",
    }


def test_timers_in_threads_are_taken_one_at_a_time(adopt):
    script = ONE + (
        "import threading\ndef bench(n):\n    do_bench(lambda: mylib.double(x[:n]))\n"
        "all = [threading.Thread(target=bench, args=(n,)) for n in (8, 16)]\n"
        "for one in all:\n    one.start()\nfor one in all:\n    one.join()\n"
    )
    found = adopt(script, head=CHANGED, every=False)
    assert {arm["status"] for arm in found.arms().values()} <= {"ok", "untimed", "error"}
    assert sum(arm["status"] == "ok" for arm in found.arms().values()) >= 2  # which comes first is chance


def test_what_tools_start_is_no_program_of_the_script(adopt):
    script = ONE + "import subprocess, sys\nsubprocess.run([sys.executable, '-m', 'this'], stdout=subprocess.DEVNULL)\n"
    assert verdict(adopt(script, every=False)).verdict is Verdict.SAME
