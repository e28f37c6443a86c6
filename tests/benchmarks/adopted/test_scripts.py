"""Scripts as people write them, timed on two checkouts: what is found, what the script gets, what goes wrong."""

from __future__ import annotations

import json
import statistics
import time

import pytest

from tests.kit import mostly_nightly

pytestmark = pytest.mark.slow  # each times two sides: 2 to 5 s of CPU

ALL_TIMERS = """
import itertools, sys
import torch, mylib
import torch.utils.benchmark as tb
import triton
from triton.testing import do_bench

sys.path.insert(0, __file__.rpartition("/")[0])
from test_common import perftest, run_perftest

calls = []

def bench(M, dtype, provider):
    x = torch.randn(M, 64).to(dtype)
    fn = {"mine": mylib.double, "torch": torch.relu}[provider]
    return do_bench(lambda: fn(x), quantiles=[0.5, 0.2, 0.8])

for M, dtype in itertools.product([32, 64], [torch.float32]):
    for provider in ["mine", "torch"]:
        mid, low, high = bench(M, dtype, provider)
        print(f"row {M} {provider} {0 < low <= mid <= high < 1000}")

x = torch.ones(16)
print("all", len(triton.testing.do_bench(lambda: mylib.double(x), return_mode="all")))
m = tb.Timer("mylib.double(x)", setup="import mylib", globals={"x": x}, label="twice", description="lib").timeit(100)
print("timeit", 0 < m.median < 1, m.number_per_run)
print("block", 0 < tb.Timer("y = x + x", globals={"x": x}, sub_label="add").blocked_autorange().median < 1)

@perftest(num_iters=5)
def run_mine(y):
    return mylib.double(y)

(out, us) = run_mine(x)
print("perftest", bool((out == 2).all()), 0 < us < 1e6)
out, us = run_perftest(torch.add, x, x, alpha=3, num_warmup=1)
print("run", bool((out == 4).all()), 0 < us < 1e6)
if us > 0:
    sys.exit()
"""

TEST_COMMON = """
def perftest(num_iters=101, num_warmup=2):
    return lambda function: run_perftest

def run_perftest(func, *args, num_iters=101, num_warmup=2, **kwargs):
    raise AssertionError("the timer of the repository must not be called")
"""


def test_a_script_with_many_timers_gets_what_it_expects_and_is_timed_on_both_sides(adopt):
    helper = {"bench/test_common.py": TEST_COMMON}
    found = adopt(ALL_TIMERS, "--trials", "2", base=helper, head=helper)
    assert found.code == 0, found.said
    arms = found.arms(1)
    names = {key.partition("/")[2] for key in arms}
    assert names == {
        *(f"{provider}/bench:M={M},dtype=fp32" for M in (32, 64) for provider in ("mine", "torch")),
        *("script/call", "lib/label=twice", "script/sub_label=add", "run_mine/call", "add/call"),
    }
    assert all(arm["status"] == "ok" and len(arm["seconds"]) == 8 for arm in arms.values())
    assert {line["trial"] for line in found.lines} == {0, 1}
    printed = found.printed()
    assert printed.count("True") == 4 + 1 + 1 + 2 + 2
    assert "False" not in printed
    assert "all 8" in printed
    assert "timeit True 100" in printed


def test_a_slower_side_is_seen_and_equal_outputs_agree(adopt):
    """The oracle: head does the same work many times over."""
    slow = "def double(x):\n    for _ in range(400):\n        y = x * 2\n    return y\n"
    script = "import torch, mylib\nfrom triton.testing import do_bench\nx = torch.randn(256, 256)\n"
    found = adopt(script + "print(do_bench(lambda: mylib.double(x)))\n", head={"mylib/__init__.py": slow})
    arms = found.arms()
    base, head = (statistics.median(arms[f"{role}/script/call"]["seconds"]) for role in ("base", "head"))
    assert head / base > 4
    assert not [one for one in found.warnings() if "differ" in one]


def test_a_wrong_output_of_head_is_wrong_and_base_is_the_reference(adopt):
    script = """
import torch, mylib
from triton.testing import do_bench
x = torch.randn(64)
for shift in (0, 1):
    do_bench(lambda: mylib.double(x + shift))
"""
    wrong = "def double(x):\n    return x * 2 if float(x.mean()) < 0.5 else x * 2.1\n"
    found = adopt(script, head={"mylib/__init__.py": wrong})
    arms = found.arms()
    assert found.code == 1
    assert arms["head/script/shift=1"]["status"] == "wrong"
    assert "differs from base" in arms["head/script/shift=1"]["why"]
    assert arms["base/script/shift=1"]["status"] == arms["head/script/shift=0"]["status"] == "ok"


TRAPS = '''
import torch, mylib
from torch.utils.benchmark import Timer
from triton.testing import do_bench

tuned = {}

def autotuned(x):
    """Tries configurations at its first call, by the same timer."""
    if x.shape not in tuned:
        tuned[x.shape] = min((Timer("x * 2", globals={"x": x}).timeit(3).median, name) for name in ("a", "b"))[1]
    return mylib.double(x)

x = torch.randn(64)
do_bench(lambda: autotuned(x))

scale = 3                                   # a host scalar that changes between closures
for scale in (3.0, 5.0):
    do_bench(lambda: x * scale)

grow = torch.ones(64)
do_bench(lambda: grow.mul_(2))              # changes its input with every call

out = torch.empty(64)
def into():
    torch.mul(x, 2, out=out)
do_bench(into)                              # returns nothing, writes a buffer

do_bench(lambda: None)                      # nothing to compare
do_bench(lambda: torch.rand(8))             # random, equal on both sides

w = torch.randn(8, requires_grad=True)
y = (w * 2).sum()
do_bench(lambda: y.backward(retain_graph=True), grad_to_none=[w])

def broken():
    raise ValueError("no such layout")
print("nan", do_bench(broken))
assert torch.isfinite(grow).all()
do_bench(lambda: x + 1)                     # after the one that raises
'''


@pytest.mark.nightly
def test_closures_with_traps(adopt):
    found = adopt(TRAPS)
    arms, warnings = found.arms(), "\n".join(found.warnings())
    status = {key.removeprefix("head/"): arm["status"] for key, arm in arms.items() if key.startswith("head/")}
    assert status.pop("broken/call") == "error"
    assert set(status.values()) == {"ok"}
    assert {"script/scale=3", "script/scale=5", "into/call", "script/call", "script/call#2"} <= set(status)
    assert warnings.count("it changes its inputs with every call") == 2  # one closure, both sides
    assert warnings.count("returns no tensors") >= 1
    assert "random" not in warnings
    assert "nan nan" in found.printed()
    assert "no such layout" in arms["head/broken/call"]["why"]
    assert found.code == 1


def test_a_side_that_dies_on_its_way_costs_itself(adopt):
    script = """
import torch, mylib
from triton.testing import do_bench
for size in (1, 2, 3):
    x = torch.randn(64)
    do_bench(lambda: x * size)
    mylib.after(size)
"""
    once = """
import os, pathlib
def after(size):
    seen = pathlib.Path(__file__).with_name("seen")   # dies in the first trial, not in the survey
    if size == 2:
        if seen.exists():
            os._exit(7)
        seen.touch()
"""
    found = adopt(script, base={"mylib/__init__.py": "def after(size): pass\n"}, head={"mylib/__init__.py": once})
    arms = found.arms()
    assert arms["head/script/size=1"]["status"] == arms["head/script/size=2"]["status"] == "ok"
    assert arms["head/script/size=3"]["status"] == "crash"
    assert "exit code 7" in arms["head/script/size=3"]["why"]
    assert arms["base/script/size=3"]["status"] == "ok"


@pytest.mark.nightly
def test_a_side_that_hangs_between_two_timers_is_ended(adopt):
    script = """
import torch, mylib
from triton.testing import do_bench
x = torch.randn(64)
do_bench(lambda: x + 1)
mylib.wait()
do_bench(lambda: x + 2)
"""
    hangs = "import pathlib, time\ndef wait():\n    seen = pathlib.Path(__file__).with_name('seen')\n"
    hangs += "    time.sleep(600 if seen.exists() else 0)\n    seen.touch()\n"
    found = adopt(
        script, "--deadline", "4", base={"mylib/__init__.py": "def wait(): pass\n"}, head={"mylib/__init__.py": hangs}
    )
    arms = found.arms()
    assert arms["head/script/call"]["status"] == arms["base/script/call#2"]["status"] == "ok"
    assert arms["head/script/call#2"]["status"] == "hang"


SLOW_START = """
import time, torch, mylib
from triton.testing import do_bench
time.sleep(4)
x = torch.randn(64)
for n in range(40):
    time.sleep(1)
    do_bench(lambda: mylib.double(x))
"""


@pytest.mark.nightly
def test_a_survey_ends_with_its_share_of_the_budget(adopt):
    found = adopt(SLOW_START, "--budget-s", "30", "--budget-trials", "1")
    assert found.code == 0, found.said
    assert 1 <= len(found.survey.sides["head"].closures) <= 20
    assert any("its survey was ended after" in one for one in found.lines[0]["warnings"])
    later = {key: arm for key, arm in found.arms().items() if key.endswith("script/what_comes_later")}
    assert {arm["status"] for arm in later.values()} == {"untimed"}
    assert len(later) == 2


def test_a_budget_that_does_not_reach_a_timer_is_one_sentence(adopt):
    found = adopt(SLOW_START, "--budget-s", "2")
    assert found.code == 3
    assert "came to no timer: its survey was ended after 2 s" in found.said


GETS_SLOWER = """
import os, time, torch, mylib
from triton.testing import do_bench
mark = __file__ + ".ran"
time.sleep(600 if os.path.exists(mark) else 0)
x = torch.randn(64)
do_bench(lambda: mylib.double(x))
open(mark, "w").close()
"""


@pytest.mark.nightly
def test_a_trial_that_takes_longer_than_the_survey_said_ends_with_the_budget(adopt):
    begin = time.monotonic()
    found = adopt(GETS_SLOWER, "--budget-s", "40", "--budget-trials", "1")
    assert time.monotonic() - begin < 300
    assert found.code == 0, found.said
    arms = found.arms()
    assert {arm["status"] for arm in arms.values()} == {"untimed"}
    assert all("the budget was spent" in arm["why"] for arm in arms.values())


NOT_COMPARED = [
    ("import nowhere_to_be_found\n", 3, "cannot be imported: ModuleNotFoundError: No module named 'nowhere_to_be"),
    ("import argparse\np = argparse.ArgumentParser()\np.add_argument('--size', required=True)\np.parse_args()\n", 3,
     "needs other arguments: script.py: error: the following arguments are required: --size; give them after --"),
    ("print('a table')\n", 2, "it times nothing, or in a way that is not known here"),
    ("import subprocess, sys\nsubprocess.run([sys.executable, 'other.py'])\n", 3,
     "starts what is not seen"),
    ("import os, torch\nrank = os.environ['LOCAL_RANK']\n", 3,
     "wants several ranks (KeyError: 'LOCAL_RANK' (script.py:2)); say how many: --ranks 2"),
    ("import sys\nprint('no GPU')\nsys.exit(4)\n", 3, "came to no timer: exit code 4; last it said: no GPU"),
    ("raise RuntimeError('0 active drivers ([]).')\n", 3, "wants a GPU, and none is here (RuntimeError: 0 active"),
    ("x = 1 / 0\n", 3, "came to no timer: ZeroDivisionError: division by zero (script.py:1)"),
    ("def broken(:\n", 3, "came to no timer: SyntaxError"),
]  # fmt: skip


@pytest.mark.parametrize(("script", "code", "sentence"), mostly_nightly(NOT_COMPARED, *NOT_COMPARED[::4]))
def test_a_script_that_cannot_be_compared_is_one_sentence(adopt, script, code, sentence):
    found = adopt(script)
    assert found.code == code
    assert sentence in found.said, found.said
    assert found.lines == []
    assert "Traceback" not in found.said


@pytest.mark.nightly
def test_what_was_timed_before_a_script_ended_is_kept_and_said(adopt):
    script = """
import json, sys, torch
from triton.testing import do_bench
x = torch.randn(64)
print(json.dumps({"ms": do_bench(lambda: x * 2)}))
sys.exit("the second half needs 8 GPUs")
"""
    found = adopt(script)
    assert found.code == 0
    assert found.arms()["head/script/call"]["status"] == "ok"
    assert any(
        "ended early, after 1 closures: the second half needs 8 GPUs" in one for one in found.lines[0]["warnings"]
    )
    assert '{"ms":' in found.printed()


@pytest.mark.nightly
def test_arguments_variables_and_the_folder_are_the_scripts(adopt, tmp_path):
    script = """
import os, sys
os.environ["MKL_NUM_THREADS"] = "1"
assert "torch" not in sys.modules              # a variable that torch reads is set before torch is there
import benchmarks.mine, ci, kernels            # the repository's own packages of these names, not ours
import torch
from triton.testing import do_bench
assert os.path.exists("mylib/__init__.py") and sys.argv[1:] == ["--size", "8"]
x = torch.randn(int(sys.argv[2]))
do_bench(lambda: benchmarks.mine.op(x) * ci.ONE * kernels.ONE)
"""
    own = {"ci/__init__.py": "ONE = 1\n", "kernels/__init__.py": "ONE = 1\n", "benchmarks/__init__.py": ""}
    own |= {"benchmarks/mine.py": "def op(x):\n    return x + 1\n"}
    told = tmp_path / "told.json"  # a survey is enough: its processes import torch for themselves
    found = adopt(script, "--told", str(told), base=own, head=own, arguments=("--size", "8"))
    assert found.code == 0, found.said
    assert json.loads(told.read_text())["timed"] == ["script/call"]
    assert found.survey.sides["head"].closures[0].inputs == ("float32[8]",)
    assert {"benchmarks", "ci", "kernels"} <= set(found.survey.sides["head"].end.inside)


def test_one_library_on_both_sides_is_refused(adopt, tmp_path):
    """An editable install: the package is in the repository, and imports find it somewhere else."""
    installed = tmp_path / "site" / "mylib"
    installed.mkdir(parents=True)
    (installed / "__init__.py").write_text("def double(x):\n    return x * 2\n")
    script = f"import sys\nsys.path.insert(0, {str(installed.parent)!r})\n"
    script += (
        "import torch, mylib\nfrom triton.testing import do_bench\ndo_bench(lambda: mylib.double(torch.ones(4)))\n"
    )
    found = adopt(script)
    assert found.code == 3
    assert "both sides imported mylib from" in found.said


def test_what_else_a_folder_for_imports_holds_is_a_dependency_of_both(adopt, tmp_path):
    """A folder of PYTHONPATH: what the repository lacks comes from there, what it has from the checkout."""
    for name in ("mylib", "theirs"):
        (tmp_path / "site" / name).mkdir(parents=True)
        (tmp_path / "site" / name / "__init__.py").write_text("def double(x):\n    return x + x\n")
    script = "import torch, mylib, theirs\nfrom triton.testing import do_bench\nx = torch.ones(4)\n"
    script += "do_bench(lambda: mylib.double(x))\ndo_bench(lambda: theirs.double(x))\n"
    found = adopt(script, "--paths", str(tmp_path / "site"), every=False)
    assert found.code == 0, found.said
    assert {arm["status"] for arm in found.arms().values()} == {"untimed"}
    assert found.survey.sides["head"].end.inside == ("mylib",)


def test_a_gpu_script_on_the_cpu(adopt):
    script = """
import torch, mylib
from triton.testing import do_bench
assert torch.cuda.is_available()
torch.set_default_device("cuda")
x = torch.randn(64, device="cuda", dtype=torch.float16)
w = torch.nn.Linear(64, 8).to("cuda").half().cuda()
start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
start.record(); y = torch.ones(4).cuda(); end.record(); torch.cuda.synchronize()
assert start.elapsed_time(end) > 0 and y.device.type == "cpu"
print(do_bench(lambda: w(x)))
"""
    found = adopt(script, "--device", "cpu")
    assert found.code == 0, found.said
    assert found.lines[0]["machine"]["kind"] == "cpu"
    assert found.arms()["head/script/call"]["status"] == "ok"


def test_a_script_that_launches_a_triton_kernel_before_its_timers_on_the_cpu(adopt):
    """As Triton's first tutorial does: the launch is interpreted, and never timed."""
    script = """
import torch, triton
import triton.language as tl

DEVICE = triton.runtime.driver.active.get_active_torch_device()
assert triton.runtime.driver.active.get_current_target().backend not in ("cuda", "hip")

@triton.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, at < n) + tl.load(y + at, at < n), at < n)

def add(x, y):
    out = torch.empty_like(x)
    add_kernel[(triton.cdiv(x.numel(), 64),)](x, y, out, x.numel(), BLOCK=64)
    return out

x, y = torch.rand(100, device=DEVICE), torch.rand(100, device="cuda")
assert torch.equal(add(x, y), x + y)
for provider, call in {"torch": lambda: x + y, "triton": lambda: add(x, y)}.items():
    triton.testing.do_bench(call)
"""
    found = adopt(script, "--device", "cpu")
    arms = found.arms()
    assert arms["head/torch/call"]["status"] == "ok", found.said
    assert arms["head/triton/call"]["status"] == "error"
    assert "a Triton kernel needs a GPU" in arms["head/triton/call"]["why"]


@pytest.mark.nightly
def test_pytest_runs_a_file_of_tests(adopt):
    script = """
import pytest, torch
from triton.testing import do_bench

@pytest.mark.parametrize("size", [8, 16])
def test_speed(size):
    x = torch.randn(size)
    assert do_bench(lambda: x * 2) > 0
"""
    found = adopt(script, name="bench/test_speed.py")
    assert found.code == 0, found.said
    assert set(found.arms()) >= {"head/test_speed/size=8", "head/test_speed/size=16"}


OWN_LOOP = """
import time, torch, mylib
def bench(fn, x, iters=20, warmup=3):
    for _ in range(warmup):
        fn(x)
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(iters):
        fn(x)
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / iters
begin = time.time()
for size in (8, 16):
    x = torch.ones(size, device="cuda")
    for provider, fn in (("mine", mylib.double), ("torch", torch.neg)):
        print(provider, size, bench(fn, x) < 1e3)
print("took", time.time() - begin)
"""


def test_a_loop_with_its_own_clock_is_compared(adopt):
    library = "def double(x):\n    return x * 2\n"
    changed = {"mylib/__init__.py": library.replace("x * 2", "x * 3")}
    found = adopt(OWN_LOOP, "--device", "cpu", base={"mylib/__init__.py": library}, head=changed, every=False)
    assert found.code == 1, found.said
    status = {key: arm["status"] for key, arm in found.arms().items()}
    assert set(status) == {
        f"{role}/{provider}/bench.{fn}:size={size},fn={fn}"
        for role in ("base", "head")
        for provider, fn in (("mine", "double"), ("torch", "neg"))
        for size in (8, 16)
    }
    assert {key.split("/")[1]: one for key, one in status.items() if key.startswith("head")} == {
        "mine": "wrong",
        "torch": "untimed",
    }
    assert found.printed().count("torch 8 False") == 1  # not called, for it is not timed: nan
