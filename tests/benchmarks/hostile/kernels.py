"""Kernels that misbehave: where each does what, and what must become of it.

Each is the only backend of an operator of its own, which doubles a vector, beside one healthy operator in the same tree.
None may harm the machine: nothing here signals a foreign process, fills a disk or starts more than a few processes.
"""

from __future__ import annotations

import dataclasses
import textwrap

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

    def source(self) -> str:
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


def _named(name: str, status: str, says: str = "", **places: str) -> HostileKernel:
    return HostileKernel(name, status, says, **places)


WRONG = "out.mul_(1.5)"
"""A result that the comparison must refuse."""

KERNELS = (
    # ---- the channel -------------------------------------------------------------------------------------------
    _named("patches_dumps", "ok", in_call="json.dumps = json.JSONEncoder.encode = lambda *a, **k: '{}'"),
    _named("patches_write", "ok", in_call="os.write = os.read = lambda *a: 0; pickle.dumps = marshal.dumps = None"),
    _named(
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
    _named(
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
    _named("closes_everything", "crash", "", in_call="os.closerange(0, 65536)"),
    _named("prints_answers", "ok", in_call='print(\'{"ok": true, "result": {}}\'); sys.stdout.flush()'),
    # ---- the comparison ----------------------------------------------------------------------------------------
    _named(
        "patches_compare",
        "wrong",
        "expected",
        at_set_up="""
        always = lambda *a, **k: torch.zeros((), dtype=torch.float64)
        torch.linalg.vector_norm = torch.norm = torch.dist = always
        torch.equal = torch.allclose = torch.isclose = torch.testing.assert_close = lambda *a, **k: True
        torch.isfinite = lambda t: torch.ones(t.shape, dtype=torch.bool)
        torch.Tensor.abs = lambda t: torch.zeros_like(t)
        """,
        in_call=WRONG,
    ),
    _named(
        "patches_numerics",
        "wrong",
        "expected",
        in_call="""
        for name, module in list(sys.modules.items()):
            if name.endswith("numerics"):
                module.compare = lambda *a: module.Comparison(True, 0.0, 0.0)
        out.mul_(1.5)
        """,
    ),
    _named(
        "patches_tensor_type",
        "wrong",
        "expected",
        at_import="torch.Tensor.__sub__ = lambda a, b: torch.zeros(a.shape)",
        in_call=WRONG,
    ),
    _named(
        "finds_expected",
        "wrong",
        "expected",
        in_call="""
        for one in gc.get_objects():
            if type(one).__name__ == "CaseBench":
                one.expected = out
        out.mul_(1.5)
        """,
    ),
    # ---- its end -----------------------------------------------------------------------------------------------
    _named("leaves_with_0", "crash", "exit code 0", in_call="os._exit(0)"),
    _named("exits_in_call", "error", "SystemExit", in_call="sys.exit(0)"),
    _named("falls", "crash", "SIGSEGV", in_call="ctypes.string_at(0)"),
    _named("aborts", "crash", "SIGABRT", in_call="os.abort()"),
    _named("stops_itself", "hang", "no answer within", in_call="os.kill(os.getpid(), signal.SIGSTOP)"),
    _named("kills_parent", "crash", "", in_call="os.kill(os.getppid(), signal.SIGKILL)"),
    _named("stops_parent", "crash", "", in_call="os.kill(os.getppid(), signal.SIGSTOP); os._exit(1)"),
    _named("recurses", "error", "RecursionError", in_call="f = lambda: f()\nf()"),
    _named(
        "overflows_stack",
        "crash",
        "SIGSEGV",
        in_call="""
        sys.setrecursionlimit(10**9)
        nested = []
        for _ in range(10**6):
            nested = [nested]
        repr(nested)
        """,
    ),
    _named("hangs_in_set_up", "hang", "set-up", at_set_up="while True: pass"),
    _named("hangs_in_call", "hang", "first call", in_call="while True: pass"),
    _named("hangs_in_reference", "hang", "reference", in_reference="while True: pass"),
    _named("hangs_in_inputs", "hang", "inputs", in_inputs="while True: pass"),
    # ---- what it leaves behind ---------------------------------------------------------------------------------
    _named(
        "leaves_children",
        "ok",
        in_call="""
        if calls == 1:
            subprocess.Popen(["sleep", os.environ["TOY_SLEEP"]], start_new_session=True)
        """,
    ),
    _named(
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
    _named(
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
    _named("daemon_threads", "ok", in_call="threading.Thread(target=time.sleep, args=(60,), daemon=True).start()"),
    _named("lasting_threads", "ok", in_call="threading.Thread(target=time.sleep, args=(60,)).start()"),
    _named("empties_folder", "ok", in_call="shutil.rmtree('.', ignore_errors=True)"),
    _named(
        "empties_parent_folder",
        "ok",
        in_call="""
        for one in pathlib.Path("..").resolve().iterdir():
            shutil.rmtree(one, ignore_errors=True)
            one.unlink(missing_ok=True) if not one.is_dir() else None
        """,
    ),
    # ---- its surroundings --------------------------------------------------------------------------------------
    _named("changes_folder", "ok", in_call="os.chdir('/'); os.umask(0o777)"),
    _named("changes_environment", "ok", in_call="os.environ.clear()"),
    _named(
        "changes_signals",
        "ok",
        in_call="""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGCHLD):
            signal.signal(number, signal.SIG_IGN)
        """,
    ),
    _named("lowers_limits", "ok", in_call="resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))"),
    _named("no_files", "ok", in_call="resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))"),
    _named(
        "disk_full",
        "error",
        "No space left on device",
        in_call="raise OSError(28, os.strerror(28), '/dev/shm/scratch')",
    ),
    _named("no_memory", "error", "can't allocate memory", in_call="torch.empty(1 << 60, dtype=torch.uint8)"),
    _named(
        "changes_defaults",
        "ok",
        in_call="""
        torch.set_default_dtype(torch.float64); torch.set_default_device("meta"); torch.set_grad_enabled(False)
        """,
    ),
    _named("clears_modules", "ok", in_call="sys.modules.clear()"),
    _named("clears_path", "ok", in_call="sys.path.clear(); sys.meta_path.clear(); sys.path_hooks.clear()"),
    _named("traces", "ok", in_call="sys.settrace(lambda *a: None); sys.setprofile(lambda *a: None)"),
    _named("stops_faulthandler", "ok", in_call="faulthandler.cancel_dump_traceback_later(); faulthandler.disable()"),
    _named(
        "patches_builtins",
        "ok",
        in_call="""
        import builtins
        builtins.len = builtins.isinstance = builtins.print = builtins.sorted = None
        """,
    ),
    # ---- what it says ------------------------------------------------------------------------------------------
    _named(
        "long_text",
        "error",
        "RuntimeError",
        in_call="raise RuntimeError('\\x1b[2J\\x07\\r' + 'x' * 300_000 + '\\u202e')",
    ),
    _named(
        "endless_output", "crash", "printed", in_call="while True: os.write(1, b'y' * (1 << 20)); time.sleep(0.005)"
    ),
    _named(
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
    _named(
        "odd_chain",
        "error",
        "ValueError",
        in_call="""
        first, second = ValueError("a"), ValueError("b")
        first.__cause__, second.__cause__ = second, first
        raise first
        """,
    ),
    _named("huge_knobs", "ok", in_config="return {f'knob{n}': 'x' * 10_000 for n in range(1_000)}"),
    _named("odd_knobs", "ok", in_config="return {'a': {1: object()}, 'b': float('nan'), 'c': 10**400}"),
    _named("returns_tree", "error", "must return", in_call="return {'x' * 10_000: [out] * 10_000}"),
    # ---- while it is imported ----------------------------------------------------------------------------------
    _named("import_exits", "broken", "SystemExit", at_import="sys.exit(0)"),
    _named("import_leaves", "broken", "exit code 0", at_import="os._exit(0)"),
    _named("import_hangs", "broken", "hung", at_import="while True: pass"),
    _named(
        "import_odd_error",
        "broken",
        "ImportError",
        at_import="""
        class Odd(ImportError):
            name = path = property(lambda self: 1 / 0)
        raise Odd
        """,
    ),
    _named("import_replaces_itself", "broken", "", at_import="sys.modules[__name__] = 3"),
    _named("import_clears_modules", "ok", at_import="sys.modules.clear()"),
    _named("import_patches_json", "ok", at_import="json.dumps = json.loads = json.JSONEncoder.encode = None"),
    _named(
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
    _named("import_endless_text", "broken", "RuntimeError", at_import="raise RuntimeError('\\x1b[2J' + 'x' * 300_000)"),
    _named(
        "import_dies_later",
        "broken",
        "",
        at_import="""
        def later():
            time.sleep(0.02)
            os._exit(9)
        threading.Thread(target=later, daemon=True).start()
        """,
    ),
    _named(
        "import_odd_kernel",
        "broken",
        "",
        at_import="""
        operator.cases = [Case("one", n=object(), dtype="fp32")]
        """,
    ),
)
