"""What a script does so that its timers, or what they time, are not seen: never a pass for it."""

from __future__ import annotations

import pytest

from ci.judging import live, policy
from ci.judging.types import Verdict
from ci.trials.file import Followed
from tests.benchmarks.adopted.conftest import Adopt, Adopted

pytestmark = pytest.mark.slow  # each times two sides

ONE = "import torch, mylib\nfrom triton.testing import do_bench\nx = torch.ones(64)\ndo_bench(lambda: torch.relu(x))\n"

CHANGED = {"mylib/__init__.py": "def double(x):\n    return x + x\n"}


def verdict(found: Adopted) -> Verdict:
    """What the trials come to."""
    return live.judged(Followed(found.out).read().trials, policy.load(), "cpu").verdict


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
def test_what_is_not_seen_is_told_and_no_pass(adopt: Adopt, more: str, sentence: str) -> None:
    base = {"mylib/__init__.py": "def double(x):\n    return x * 2\n\ndef halve(x):\n    return x / 2\n"}
    found = adopt(ONE + MORE[more], base=base, head=CHANGED, every=False)
    assert verdict(found) is Verdict.CANNOT_TELL, found.said
    told = [arm.get("why", "") for arm in found.arms().values()]
    assert any(sentence in why for why in told), told


def test_what_the_first_call_alone_runs_is_code(adopt: Adopt) -> None:
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


def test_timers_in_threads_are_taken_one_at_a_time(adopt: Adopt) -> None:
    script = ONE + (
        "import threading\ndef bench(n):\n    do_bench(lambda: mylib.double(x[:n]))\n"
        "all = [threading.Thread(target=bench, args=(n,)) for n in (8, 16)]\n"
        "for one in all:\n    one.start()\nfor one in all:\n    one.join()\n"
    )
    found = adopt(script, head=CHANGED, every=False)
    assert {arm["status"] for arm in found.arms().values()} <= {"ok", "untimed", "error"}
    assert sum(arm["status"] == "ok" for arm in found.arms().values()) >= 2  # which comes first is chance


def test_what_tools_start_is_no_program_of_the_script(adopt: Adopt) -> None:
    script = ONE + "import subprocess, sys\nsubprocess.run([sys.executable, '-m', 'this'], stdout=subprocess.DEVNULL)\n"
    assert verdict(adopt(script, every=False)) is Verdict.SAME
