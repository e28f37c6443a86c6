"""Whatever a kernel does costs that kernel: it gets a status and a sentence, and the healthy one beside it is measured.

Each is the only backend of an operator of its own, which doubles a vector, beside a healthy operator in the same tree.
None may harm the machine: nothing here signals a foreign process, fills a disk or starts more than a few processes.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import textwrap
from typing import Any

import pytest

from benchmarks.coordinator import ranks
from benchmarks.coordinator.checkouts import Checkout
from benchmarks.coordinator.trial import measure
from benchmarks.plan import Protocol, Selection
from benchmarks.program import Tally
from tests.benchmarks.conftest import TOY, lines_of, processes_with, program
from tests.kit import mostly_nightly

HEALTHY = "steady"
"""The operator of the toy tree that has no fault."""

LONG = "'\\x1b[2J\\x07' + 'x' * 300_000 + '\\u202e'"
"""An expression: a text that clears the screen, rings, and is too long to read."""

OPERATOR = """\
import ctypes, faulthandler, gc, json, marshal, os, pathlib, pickle, resource, shutil, signal, socket, subprocess, sys
import threading, time
import torch
from kernels.spec import Case, Cost, Kernel, Tolerance, Unsupported

operator = Kernel("NAME", tolerance=Tolerance(1e-6, 1e-6), cases=[Case("one", tier="pr", n=64, dtype="fp32")])

@operator.inputs
def inputs(case, seed):
    x = torch.randn(case.n)
    IN_INPUTS
    return {"x": x}

@operator.cost
def cost(case):
    return Cost(flops=case.n, hbm_bytes=8 * case.n)

@operator.reference
def reference(case, inputs):
    IN_REFERENCE
    return inputs["x"] * 2

def config(case, arch):
    IN_CONFIG
    return {}

@operator.backend("hostile", config=config)
def hostile(case, inputs, **knobs):
    out = torch.empty_like(inputs["x"])
    calls = 0
    AT_SET_UP
    def call():
        nonlocal calls
        calls += 1
        torch.mul(inputs["x"], 2, out=out)
        IN_CALL
        return out
    return call

AT_IMPORT
"""


@dataclasses.dataclass(frozen=True)
class HostileKernel:
    """What it does, and the status and a part of the sentence that it must get.

    status: "broken" for a module that cannot be imported.  Only one of the places where it acts is given.
    """

    name: str
    status: str
    says: str = ""
    at_import: str = ""
    in_inputs: str = ""
    in_reference: str = ""
    in_config: str = ""
    at_set_up: str = ""
    in_call: str = ""

    def source(self):
        """Its module."""
        places = ("at_import", "in_inputs", "in_reference", "in_config", "at_set_up", "in_call")
        lines = OPERATOR.replace("NAME", self.name).splitlines()
        for place in places:
            index = next(number for number, line in enumerate(lines) if line.strip() == place.upper())
            margin = lines[index].removesuffix(place.upper())
            lines[index : index + 1] = textwrap.indent(textwrap.dedent(getattr(self, place)) or "pass", margin).split(
                "\n"
            )
        return "\n".join(lines) + "\n"


WRONG = "out.mul_(1.5)"
"""A result that the comparison must refuse."""

KERNELS = (
    # ---- the channel -------------------------------------------------------------------------------------------
    HostileKernel("patches_dumps", "ok", "", in_call="json.dumps = json.JSONEncoder.encode = lambda *a, **k: '{}'"),
    HostileKernel(
        "patches_write", "ok", "", in_call="os.write = os.read = lambda *a: 0; pickle.dumps = marshal.dumps = None"
    ),
    HostileKernel(
        "answers_itself",
        "wrong",
        "expected",
        at_set_up="""
        def forged(*a, **k):
            return '{"ok": true, "result": {"norm": 0.0, "peak": 0.0, "seconds": 1e-9}}'
        json.dumps = json.JSONEncoder.encode = json.encoder.JSONEncoder.iterencode = forged
        """,
        in_call=WRONG,
    ),
    HostileKernel(
        "writes_everywhere",
        "error",
        "channel",
        in_call="""
        for descriptor in os.listdir("/proc/self/fd"):
            try:
                os.write(int(descriptor), b'{"ok": true, "result": []}\\n' * 3)
            except OSError:
                pass
        """,
    ),
    HostileKernel("closes_everything", "crash", "", in_call="os.closerange(0, 65536)"),
    HostileKernel("prints_answers", "ok", in_call='print(\'{"ok": true, "result": {}}\'); sys.stdout.flush()'),
    # ---- the comparison ----------------------------------------------------------------------------------------
    HostileKernel(
        "patches_compare",
        "error",
        "replaces torch.",
        at_set_up="""
        always = lambda *a, **k: torch.zeros((), dtype=torch.float64)
        torch.linalg.vector_norm = torch.norm = torch.dist = always
        torch.equal = torch.allclose = torch.isclose = torch.testing.assert_close = lambda *a, **k: True
        torch.isfinite = lambda t: torch.ones(t.shape, dtype=torch.bool)
        torch.Tensor.abs = lambda t: torch.zeros_like(t)
        """,
        in_call=WRONG,
    ),
    HostileKernel(
        "patches_numerics",
        "error",
        "replaces",
        in_call="""
        for name, module in list(sys.modules.items()):
            if name.endswith("numerics"):
                module.compare = lambda *a: module.Comparison(True, 0.0, 0.0)
        out.mul_(1.5)
        """,
    ),
    HostileKernel(
        "patches_tensor_type",
        "error",
        "replaces torch.Tensor.__sub__",
        at_import="torch.Tensor.__sub__ = lambda a, b: torch.zeros(a.shape)",
        in_call=WRONG,
    ),
    HostileKernel(
        "finds_expected",
        "error",
        "in the memory of the reference",
        in_call="""
        for one in gc.get_objects():
            if type(one).__name__ == "CaseBench":
                one.expected = out
        out.mul_(1.5)
        """,
    ),
    HostileKernel(
        "replaces_subtraction",
        "error",
        "it changes what torch computes",
        at_set_up="""
        operator.library = torch.library.Library("aten", "IMPL")
        operator.library.impl("sub.Tensor", lambda a, b, *, alpha=1: torch.zeros_like(a), "CPU")
        """,
        in_call=WRONG,
    ),
    # ---- its end -----------------------------------------------------------------------------------------------
    HostileKernel("leaves_with_0", "crash", "exit code 0", in_call="os._exit(0)"),
    HostileKernel("exits_in_call", "error", "SystemExit", in_call="sys.exit(0)"),
    HostileKernel("falls", "crash", "SIGSEGV", in_call="ctypes.string_at(0)"),
    HostileKernel("aborts", "crash", "SIGABRT", in_call="os.abort()"),
    HostileKernel("stops_itself", "hang", "no answer within", in_call="os.kill(os.getpid(), signal.SIGSTOP)"),
    HostileKernel("kills_parent", "crash", "", in_call="os.kill(os.getppid(), signal.SIGKILL)"),
    HostileKernel("stops_parent", "crash", "", in_call="os.kill(os.getppid(), signal.SIGSTOP); os._exit(1)"),
    HostileKernel(
        "kills_siblings",
        "ok",
        in_call="""
        for entry in os.listdir("/proc") if calls == 1 else ():
            if entry.isdigit() and int(entry) != os.getpid():
                try:
                    stat = pathlib.Path("/proc", entry, "stat").read_text().rpartition(") ")[2].split()
                except OSError:
                    continue
                if int(stat[1]) == os.getppid():
                    os.kill(int(entry), signal.SIGKILL)
        """,
    ),
    HostileKernel(
        "outlives_parent",
        "hang",
        "no answer within",
        in_call="""
        ctypes.CDLL(None).prctl(1, 0, 0, 0, 0)
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(60)
        """,
    ),
    HostileKernel("hangs_at_exit", "ok", in_call="import atexit; calls > 1 or atexit.register(time.sleep, 3600)"),
    HostileKernel("recurses", "error", "RecursionError", in_call="f = lambda: f()\nf()"),
    HostileKernel(
        "overflows_stack",
        "crash",
        "SIGSEGV",
        in_call="""
        sys.setrecursionlimit(10**9)
        first, second = [], []
        for _ in range(200_000):
            first, second = [first], [second]
        first == second
        """,
    ),
    HostileKernel("hangs_in_set_up", "hang", "set-up", at_set_up="time.sleep(3600)"),
    HostileKernel("hangs_in_call", "hang", "first call", in_call="while True: pass"),
    HostileKernel("hangs_in_reference", "hang", "reference", in_reference="time.sleep(3600)"),
    HostileKernel("hangs_in_inputs", "hang", "inputs", in_inputs="time.sleep(3600)"),
    # ---- what it leaves behind ---------------------------------------------------------------------------------
    HostileKernel(
        "leaves_children",
        "ok",
        in_call="""
        if calls == 1:
            subprocess.Popen(["sleep", os.environ["TOY_SLEEP"]], start_new_session=True)
        """,
    ),
    HostileKernel(
        "leaves_daemons",
        "ok",
        in_call="""
        if calls == 1 and not os.fork():
            os.setsid()
            if os.fork():
                os._exit(0)
            open(os.environ["TOY_PIDS"], "a").write(f"{os.getpid()}\\n")
            time.sleep(60)
            os._exit(0)
        """,
    ),
    HostileKernel(
        "many_processes",
        "crash",
        "processes",
        in_call="""
        children = []
        while True:
            children.append(subprocess.Popen(["sleep", os.environ["TOY_SLEEP"]]) if len(children) < 90 else None)
            time.sleep(0.01)
        """,
    ),
    HostileKernel(
        "daemon_threads", "ok", in_call="threading.Thread(target=time.sleep, args=(9,), daemon=True).start()"
    ),
    HostileKernel("lasting_threads", "ok", in_call="threading.Thread(target=time.sleep, args=(60,)).start()"),
    HostileKernel(
        "spins_on",
        "ok",
        in_call="calls > 1 or threading.Thread(target=lambda: [0 for _ in iter(int, 1)], daemon=True).start()",
    ),
    HostileKernel(
        "hides_its_name",
        "ok",
        in_call="""
        if calls == 1:
            libc = ctypes.CDLL(None)
            libc.prctl(15, b") Z 1 1 1 (", 0, 0, 0)
            if not os.fork():
                time.sleep(60)
                os._exit(0)
        """,
    ),
    HostileKernel("empties_folder", "ok", in_call="shutil.rmtree('.', ignore_errors=True)"),
    HostileKernel(
        "empties_parent_folder",
        "ok",
        in_call="""
        for one in pathlib.Path("..").resolve().iterdir() if calls == 1 else ():
            shutil.rmtree(one, ignore_errors=True)
            one.unlink(missing_ok=True) if one.is_file() or one.is_symlink() else None
        """,
    ),
    # ---- its surroundings --------------------------------------------------------------------------------------
    HostileKernel("changes_folder", "ok", in_call="os.chdir('/'); os.umask(0o777)"),
    HostileKernel("changes_environment", "ok", in_call="os.environ.clear()"),
    HostileKernel(
        "changes_signals",
        "ok",
        in_call="""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGCHLD):
            signal.signal(number, signal.SIG_IGN)
        """,
    ),
    HostileKernel("lowers_limits", "ok", in_call="resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))"),
    HostileKernel(
        "lowers_more_limits",
        "ok",
        in_call="""
        for limit in (resource.RLIMIT_AS, resource.RLIMIT_DATA, resource.RLIMIT_STACK, resource.RLIMIT_NPROC):
            resource.setrlimit(limit, (1000, resource.getrlimit(limit)[1]))
        """,
    ),
    HostileKernel(
        "holds_its_parent_down",
        "ok",
        in_call="""
        os.sched_setaffinity(os.getppid(), {min(os.sched_getaffinity(0))})
        os.sched_setscheduler(os.getppid(), os.SCHED_BATCH, os.sched_param(0))
        resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE, (3, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        """,
    ),
    HostileKernel(
        "held_down",
        "ok",
        in_call="""
        assert os.sched_getscheduler(0) != os.SCHED_BATCH, "an earlier kernel decides how this one is scheduled"
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 3, "an earlier kernel lowered the limits of this one"
        """,
    ),
    HostileKernel(
        "closes_the_session",
        "ok",
        in_call="""
        for one in pathlib.Path("..").resolve().rglob("*") if calls == 1 else ():
            one.chmod(0) if not one.is_symlink() else None
        """,
    ),
    HostileKernel("no_files", "ok", in_call="resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))"),
    HostileKernel(
        "disk_full",
        "error",
        "No space left on device",
        in_call="raise OSError(28, os.strerror(28), '/dev/shm/scratch')",
    ),
    HostileKernel("no_memory", "error", "can't allocate memory", in_call="torch.empty(1 << 60, dtype=torch.uint8)"),
    HostileKernel(
        "changes_defaults",
        "error",
        "changes for the whole process torch.get_default_dtype()",
        in_call="""
        torch.set_default_dtype(torch.float64); torch.set_default_device("meta"); torch.set_grad_enabled(False)
        """,
    ),
    HostileKernel("clears_modules", "error", "", in_call="sys.modules.clear()"),
    HostileKernel("clears_path", "ok", in_call="sys.path.clear(); sys.meta_path.clear(); sys.path_hooks.clear()"),
    HostileKernel(
        "traces",
        "error",
        "changes for the whole process sys.gettrace()",
        in_call="sys.settrace(lambda *a: None); sys.setprofile(lambda *a: None)",
    ),
    HostileKernel("stops_faulthandler", "ok", in_call="faulthandler.cancel_dump_traceback_later()"),
    HostileKernel(
        "patches_builtins",
        "crash",
        "exit code 1",
        in_call="""
        import builtins
        builtins.len = builtins.isinstance = builtins.print = builtins.sorted = None
        """,
    ),
    # ---- what it says ------------------------------------------------------------------------------------------
    HostileKernel("long_text", "error", "RuntimeError", in_call=f"raise RuntimeError({LONG})"),
    HostileKernel(
        "endless_output", "crash", "printed", in_call="while True: os.write(1, b'y' * (1 << 20)); time.sleep(0.005)"
    ),
    HostileKernel(
        "speechless_error",
        "error",
        "Speechless",
        in_call="""
        class Speechless(BaseException):
            def __str__(self):
                raise self
            __repr__ = __str__
        raise Speechless
        """,
    ),
    HostileKernel(
        "odd_chain",
        "error",
        "ValueError",
        in_call="""
        first, second = ValueError("a"), ValueError("b")
        first.__cause__, second.__cause__ = second, first
        raise first
        """,
    ),
    HostileKernel(
        "huge_knobs",
        "error",
        "the text of its knobs",
        in_config="return {f'knob{n}': 'x' * 10_000 for n in range(1_000)}",
    ),
    HostileKernel(
        "odd_knobs", "error", "finite numbers", in_config="return {'a': {1: object()}, 'b': float('nan'), 'c': 10**400}"
    ),
    HostileKernel("returns_tree", "error", "must return", in_call="return {'x' * 10_000: [out] * 10_000}"),
    # ---- while it is imported ----------------------------------------------------------------------------------
    HostileKernel("import_exits", "broken", "SystemExit", at_import="sys.exit(0)"),
    HostileKernel("import_leaves", "broken", "exit code 0", at_import="os._exit(0)"),
    HostileKernel("import_hangs", "broken", "hung", at_import="time.sleep(3600)"),
    HostileKernel(
        "import_odd_error",
        "broken",
        "Odd: no message",
        at_import="""
        class Odd(ImportError):
            name = path = property(lambda self: 1 / 0)
        raise Odd
        """,
    ),
    HostileKernel("import_replaces_itself", "broken", "TypeError", at_import="sys.modules[__name__] = 3"),
    HostileKernel("import_clears_modules", "broken", "AttributeError", at_import="sys.modules.clear()"),
    HostileKernel(
        "import_patches_json",
        "broken",
        "TypeError",
        at_import="json.dumps = json.loads = json.JSONEncoder.encode = None",
    ),
    HostileKernel(
        "import_writes_everywhere",
        "broken",
        "channel",
        at_import="""
        for descriptor in os.listdir("/proc/self/fd"):
            try:
                os.write(int(descriptor), b"{}\\n")
            except OSError:
                pass
        """,
    ),
    HostileKernel("import_endless_text", "broken", "RuntimeError", at_import=f"raise RuntimeError({LONG})"),
    HostileKernel(
        "import_dies_later",
        "broken",
        "exit code 9",
        at_import="""
        def later():
            time.sleep(0.02)
            os._exit(9)
        threading.Thread(target=later, daemon=True).start()
        time.sleep(0.1)
        """,
    ),
    HostileKernel(
        "import_odd_kernel",
        "broken",
        "not JSON serializable",
        at_import="""
        operator.cases = [Case("one", n=object(), dtype="fp32")]
        """,
    ),
)

ORPHAN = HostileKernel(
    "leaves_an_orphan",
    "crash",
    "its parent was killed",
    in_call="""
        subprocess.Popen(["sleep", os.environ["TOY_SLEEP"]], start_new_session=True)
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(60)
        """,
)
"""Ends the process that would end what it leaves: for a whole program, which then does so itself."""

WRITERS = {
    "toy/steady.py": HostileKernel(
        "writes_into_the_tree",
        "ok",
        in_call="""
        with open(os.path.join(os.path.dirname(__file__), "steady.py"), "a") as file:
            file.write("# faster\\n")
        """,
    ),
    "usercustomize.py": HostileKernel(
        "writes_for_every_python",
        "ok",
        in_call="""
        import site
        folder = pathlib.Path(site.getusersitepackages())
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "usercustomize.py").write_text("print('here I am')\\n")
        """,
    ),
}
"""By the file that they write: what is measured after them is not what was asked for, so nothing is."""


# All of them are measured in one session, as in a run of all operators, so that what one does could reach every other.


pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("hostile")]

MARK = f"86400.{os.getpid():07d}"
"""Seconds of sleep, in the command line of every process that a hostile kernel of these tests starts."""

QUICK = Protocol(rounds=3, trials=1, deadline_s=6.0)
LONGEST_SENTENCE = 1000
SHORT = ("--rounds", 2, "--progress", "none")

REPRESENTATIVES = (
    *("patches_dumps", "answers_itself", "writes_everywhere", "patches_compare", "finds_expected", "leaves_with_0"),
    *("falls", "kills_parent", "outlives_parent", "hangs_in_call", "leaves_children", "changes_folder", "disk_full"),
    *("endless_output", "import_exits", "import_endless_text"),
)
"""One of each kind; all of them are of the nightly set."""

IMPORTED = [kernel for kernel in KERNELS if kernel.status != "broken"]
BROKEN = [kernel for kernel in KERNELS if kernel.status == "broken"]
MANY = pytest.mark.parametrize("run", mostly_nightly(["few", "all"], "few"), indirect=True)


def tree_of(folder, kernels):
    """The toy tree, with these kernels."""
    shutil.copytree(TOY, folder, ignore=shutil.ignore_patterns("__pycache__"))
    for kernel in kernels:
        (folder / "toy" / f"{kernel.name}.py").write_text(kernel.source())
    return folder


def measured(tree, names):
    """The lines of a run, by operator."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TOY_SLEEP", MARK)
        patch.setattr(ranks, "MOST_PROCESSES", 40)
        cases = Selection(cases=("small",) if names[0] == HEALTHY else ("one", "small"))
        lines = list(measure(names, [Checkout("head", tree)], QUICK, None, cases))
    json.dumps(lines, allow_nan=False)
    return {line["kernel"]: line for line in lines}


def among(kernels, which):
    """All of them, or the representatives ("few")."""
    return [kernel for kernel in kernels if which == "all" or kernel.name in REPRESENTATIVES]


@dataclasses.dataclass(frozen=True)
class HostileRun:
    """What came of kernels that can be imported, by operator, and of the healthy one beside modules that cannot."""

    called: list[HostileKernel]
    lines: dict[str, dict[str, Any]]
    broken: list[HostileKernel]
    described: dict[str, Any]


@pytest.fixture(scope="module")
def run(request, tmp_path_factory):
    """The healthy kernel comes last."""
    called, broken = among(IMPORTED, request.param), among(BROKEN, request.param)
    trees = [tree_of(tmp_path_factory.mktemp("hostile") / "tree", kernels) for kernels in (called, broken)]
    lines = measured(trees[0], [*(kernel.name for kernel in called), HEALTHY])
    beside = measured(trees[1], [HEALTHY, *(kernel.name for kernel in broken)])
    return HostileRun(called, lines, broken, beside[HEALTHY])


def fit_to_be_shown(sentence):
    return len(sentence) < LONGEST_SENTENCE and sentence.isprintable()


@MANY
def test_what_it_does_costs_itself(run):
    for kernel in run.called:
        line = run.lines[kernel.name]
        arm = line["cases"]["one"]["arms"]["head/hostile"]
        said = [arm.get("why", ""), *line["warnings"]]
        assert arm["status"] == kernel.status, (kernel.name, said)
        assert any(kernel.says in sentence for sentence in said), (kernel.name, said)
        assert all(map(fit_to_be_shown, said)), kernel.name
        assert ("seconds" in arm) == (kernel.status == "ok"), kernel.name


@MANY
def test_what_its_import_does_costs_its_module(run):
    reasons = {one["module"]: one["reason"] for one in run.described["trees"]["head"]["broken"]}
    for kernel in run.broken:
        assert kernel.says in reasons[f"toy.{kernel.name}"]
        assert fit_to_be_shown(reasons[f"toy.{kernel.name}"]), kernel.name


@MANY
def test_the_healthy_one_is_measured_and_right(run):
    for line in (run.lines[HEALTHY], run.described):
        arms = line["cases"]["small"]["arms"]
        for name in ("head/ours", "head/library"):
            assert arms[name]["status"] == "ok"
            assert arms[name]["error"] == {"norm": 0.0, "peak": 0.0}
            assert len(arms[name]["seconds"]) == QUICK.rounds
            assert all(0 < seconds < 0.1 for seconds in arms[name]["seconds"])


@MANY
def test_no_sound_module_is_taken_for_a_broken_one(run):
    found = {one["module"] for one in run.described["trees"]["head"]["broken"]}
    assert found == {f"toy.{one.name}" for one in run.broken}
    assert run.lines[HEALTHY]["trees"]["head"]["broken"] == []


@MANY
def test_the_run_ends_with_the_exit_code_of_a_fault(run):
    tally = Tally()
    for line in run.lines.values():
        tally.add_trial(line)
    assert tally.exit_code([]) == 1
    faults = {kernel.name for kernel in run.called if kernel.status not in ("ok", "unsupported")}
    assert {fault.kernel for fault in tally.faults.values()} == faults
    assert all(map(fit_to_be_shown, tally.not_measured()))


@MANY
def test_nothing_is_left_running(run):
    assert processes_with(MARK) == []


STARTS = (("fork", ("long_text", "leaves_children")), ("spawn", ()))


@pytest.mark.parametrize(("start", "more"), mostly_nightly(STARTS, STARTS[0]))
def test_a_command_says_what_happened_and_prints_no_more_than_can_be_read(tmp_path, start, more):
    kernels = [ORPHAN, *(one for one in KERNELS if one.name in more)]
    names = [one.name for one in kernels]
    tree, out = tree_of(tmp_path / "tree", kernels), tmp_path / "trials.jsonl"
    asked = [word for name in (*names, HEALTHY) for word in ("--kernel", name)]
    what = (*SHORT, "--tree", f"head={tree}", "--out", out, "--trials", 1)
    ended = program("run", *what, *asked, RIDGELINE_START=start, TOY_SLEEP=MARK)
    assert ended.returncode == 1
    assert len(lines_of(out)) == len(names) + 1
    assert len(ended.stderr) < 5_000
    assert all(map(fit_to_be_shown, ended.stderr.splitlines()))
    assert "its parent was killed" in ended.stderr
    for name in (one for one in names if one != "long_text"):
        assert f"{name}: head: processes that a backend left running were ended: sleep" in ended.stderr
    assert processes_with(MARK) == []


@pytest.mark.nightly
def test_a_side_that_kills_the_parent_of_both_costs_the_other_side_nothing(tmp_path):
    killer = HostileKernel("twice", "crash", "its parent was killed", at_set_up="os.kill(os.getppid(), signal.SIGKILL)")
    sides = {"base": HostileKernel("twice", "ok"), "head": killer}
    trees = [Checkout(role, tree_of(tmp_path / role, [kernel])) for role, kernel in sides.items()]
    [line] = measure(["twice"], trees, QUICK)
    arms = line["cases"]["one"]["arms"]
    assert arms["base/hostile"]["status"] == "ok", arms["base/hostile"]["why"]
    assert len(arms["base/hostile"]["seconds"]) == QUICK.rounds
    assert arms["head/hostile"]["status"] == "crash"
    assert killer.says in arms["head/hostile"]["why"]


@pytest.mark.parametrize("written", WRITERS)
def test_nothing_is_measured_after_a_kernel_that_changes_what_later_processes_read(tmp_path, written):
    tree, out = tree_of(tmp_path / "tree", [WRITERS[written]]), tmp_path / "trials.jsonl"
    asked = [word for name in (HEALTHY, WRITERS[written].name) for word in ("--kernel", name)]
    cases = ("--case", "small", "--case", "one", "--trials", 2)
    ended = program("run", *SHORT, "--tree", f"head={tree}", "--out", out, *asked, *cases, HOME=str(tmp_path / "home"))
    assert ended.returncode == 3
    [said] = ended.stderr.splitlines()
    assert f"{written} changed while {WRITERS[written].name} was measured: by a kernel, or by somebody" in said
    assert [line["kernel"] for line in lines_of(out)] == [HEALTHY]
