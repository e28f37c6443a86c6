"""What code a closure runs: kernels whose configuration is chosen by times, and what torch.compile generated."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch

from benchmarks.worker import code_hash
from benchmarks.worker.scripts import executed, running

KERNELS = """
import triton
import triton.language as tl
import {other} as other
STEPS = tl.constexpr(2)

@triton.jit
def inner(x):
    return x * STEPS

@triton.autotune([triton.Config({{"BLOCK": one}}) for one in (16, 32)], key=["n"])
@triton.jit
def outer(x, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(x + at, other.more(inner(tl.load(x + at))))
"""

OTHER = "import triton\n@triton.jit\ndef more(x):\n    return x + 1\n"


@pytest.fixture
def load(tmp_path, monkeypatch):
    """The autotuned kernel of the module above, with texts of it and of the module that it uses."""
    monkeypatch.syspath_prepend(tmp_path)
    made = []

    def loaded(text, other):
        name = f"kernels_{len(made)}_of_test_executed"
        made.append(name)
        (tmp_path / f"{name}_other.py").write_text(other)
        file = tmp_path / f"{name}.py"
        file.write_text(text.format(other=f"{name}_other"))
        spec = importlib.util.spec_from_file_location("kernels", file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module.outer

    return loaded


@pytest.mark.slow  # imports Triton
def test_a_graph_that_was_captured_before_cannot_be_seen(monkeypatch):
    """What it launches is not called in the closure: equal code there says nothing."""
    import torch

    from benchmarks.worker import code_hash
    from benchmarks.worker.scripts.executed import parts

    monkeypatch.setattr(code_hash, "LAUNCHERS", ())  # another test may have imported one of them

    def replays():
        with contextlib.suppress(TypeError):  # without a GPU it fails where it enters torch's C++
            torch.cuda.CUDAGraph.replay(SimpleNamespace(_tracker=None))  # type: ignore[arg-type]

    assert parts(replays, lambda file: False, "/nowhere", "", []) == ({}, "a captured graph")


@pytest.mark.slow  # imports Triton
def test_what_is_written_counts_and_not_where(load):
    from benchmarks.worker.scripts.executed import written

    moved = ("\n# moved" + KERNELS.replace("    at =", "    # a remark\n    at ="), "# moved\n" + OTHER)
    assert written(load(KERNELS, OTHER)) == written(load(*moved))


@pytest.mark.slow  # imports Triton
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("constexpr(2)", "constexpr(3)"),
        ("x * STEPS", "STEPS * x"),
        ("x + at,", "x + 1 * at,"),
        ("BLOCK: tl", "n_BLOCK: tl"),
    ],
)
def test_a_change_to_what_is_called_or_named_counts(load, old, new):
    from benchmarks.worker.scripts.executed import written

    assert written(load(KERNELS, OTHER)) != written(load(KERNELS.replace(old, new), OTHER))
    assert written(load(KERNELS, OTHER)) != written(load(KERNELS, OTHER.replace("x + 1", "x + 2")))


@pytest.mark.slow  # imports Triton
def test_the_configuration_that_won_does_not_count(load, monkeypatch):
    from triton.runtime.autotuner import Autotuner

    from benchmarks.worker import code_hash
    from benchmarks.worker.scripts import executed

    def launched(won, configs):
        trace = code_hash.Trace()
        monkeypatch.setattr(Autotuner, "run", lambda self, *_, **__: trace.events.append([f"code {won}", [won]]))
        outer = load(KERNELS, OTHER)
        outer.configs = outer.configs[:configs]
        with executed._tuned(trace) as names:
            outer.run(SimpleNamespace(), 5, grid=(1,))
        return trace.events, names

    assert launched(0, 2) == launched(1, 2)
    assert launched(0, 2)[1] == ["outer"]
    assert launched(0, 1) == ([["code 0", [0]]], [])
    assert launched(1, 1) != launched(0, 1)


# Closures of torch.compile: what inductor generated counts, and not where the user's lines are.


CONSTANT = torch.tensor([1.0, 2.0])

GENERATED = '''
# AOT ID: ['0_inference']
kernel = ("""
# Topologically Sorted Source Nodes: [x], /home/a/library.py:12
@triton_heuristics.pointwise(size_hints={'x': 64}, filename=__file__)
def triton_poi(x): return x + 1
""", """
#include "/tmp/torchinductor_a/sk/csk.h"
void kernel(float* x) { *x = *x + 1; }  // /home/a/library.py:12
""")
def call(args):
    return args
'''


@pytest.fixture
def load_generated(tmp_path, monkeypatch):
    """`call` of a module as inductor would have generated it, with what it holds beside its text."""
    monkeypatch.setattr(code_hash, "LAUNCHERS", ())  # another test may have imported one of them
    monkeypatch.setenv(executed.GENERATED, str(tmp_path / "torchinductor_a"))

    def loaded(text, name="torchinductor_a/xo.py", **held):
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
        exec(compile(text, str(file), "exec"), held)
        return held["call"]

    return loaded


def ran(call, given=None, results="bits"):
    what = call if given is None else lambda: call(given)
    return executed.parts(what, lambda file: False, "/nowhere", results, [])


def test_lines_and_folders_of_generated_code_do_not_count(load_generated):
    base, unseen = ran(load_generated(GENERATED), [torch.ones(4)])
    moved = GENERATED.replace("library.py:12", "library.py:14").replace("/tmp/", "/home/b/").replace("0_inf", "3_inf")
    assert not unseen
    assert (base, "") == ran(load_generated(moved), [torch.ones(4)])


def test_kernels_options_constants_and_arguments_of_generated_code_count(load_generated):
    one, changed = [torch.ones(4)], [("x + 1\n", "x + 2\n"), ("*x + 1", "*x + 2"), ("return args", "return args[:]")]
    base, _ = ran(load_generated(GENERATED, constant0=CONSTANT), one)
    for old, new in (*changed, ("'x': 64", "'x': 32")):
        assert base != ran(load_generated(GENERATED.replace(old, new), constant0=CONSTANT), one)[0], old
    assert base != ran(load_generated(GENERATED, constant0=CONSTANT), [torch.ones(5)])[0]
    assert base != ran(load_generated(GENERATED, constant0=CONSTANT + 1), one)[0]


def test_a_graph_that_nobody_wrote_as_text_cannot_be_seen(load_generated):
    other = load_generated(
        "def call(args): return args", name="torchinductor_b.py"
    )  # compiled, but nothing that was generated
    assert ran(lambda: other([1])) == ({}, "a compiled graph")


def test_a_method_of_torch_that_a_class_of_python_inherits_is_torchs():
    class Scaled(torch.Tensor):
        __module__ = "library"

    x = torch.ones(3, 3).as_subclass(Scaled)
    with executed.watched(lambda file: False) as watch, torch._C.DisableTorchFunctionSubclass():
        x.t()
    assert not watch.unseen


@pytest.mark.slow  # imports torch's compiler
def test_a_graph_that_torch_interprets_is_a_function(monkeypatch):
    monkeypatch.setattr(code_hash, "LAUNCHERS", ())

    def interpreted(value, count):
        def scaled(x):
            return x * value

        torch._dynamo.reset()
        call = torch.compile(scaled, backend="eager", fullgraph=True)
        for _ in range(count):  # each graph of a process has another number
            call(torch.ones(4))
            torch._dynamo.reset()
        call(torch.ones(4))
        return ran(lambda: call(torch.ones(4)))

    base, unseen = interpreted(2, 0)
    assert not unseen
    assert (base, "") == interpreted(2, 3)
    assert base["function forward (<eval_with_key>)"] != interpreted(3, 0)[0]["function forward (<eval_with_key>)"]


def test_beside_generated_code_results_stand_for_the_operations(load_generated):
    """torch.compile compiles anew where operations are recorded, so there they are not."""
    call = load_generated(GENERATED)
    assert ran(lambda: call([1]), results="") == ({}, "a compiled graph whose results do not repeat")
    assert "operation TensorBase.add" not in ran(lambda: call([1]) and torch.ones(4).add(1))[0]


def test_names_that_are_counted_in_a_process_do_not_count():
    names = ["__compiled_fn_1_00e3b7f1_913b_4ef3", "f.torch_dynamo_resume_in_g_at_10", "__resume_at_80_5", "_at_10"]
    assert [*map(executed._name, names)] == ["__compiled_fn", "f.torch_dynamo_resume_in_g_at", "__resume_at", "_at_10"]


LIBRARY = """
import torch
@torch.compile
def f(x):
    y = x.sin() * 3
    print(end="")
    return y.cos()
"""


@pytest.fixture
def compiled(tmp_path, monkeypatch):
    """Digests of a call of the library above, by its text."""
    monkeypatch.setattr(code_hash, "LAUNCHERS", ())

    def loaded(name, text):
        file = tmp_path / name / "library.py"
        file.parent.mkdir()
        file.write_text(text)
        spec = importlib.util.spec_from_file_location("library", file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        x = torch.ones(64)
        with executed.watched(lambda one: one == str(file)) as first:
            module.f(x)
        return executed.parts(lambda: module.f(x), lambda one: one == str(file), "/nowhere", "bits", [], first)

    yield loaded
    torch._dynamo.reset()


@pytest.mark.nightly  # inductor compiles C++
def test_equal_functions_of_torch_compile_run_equal_code(compiled):
    base, unseen = compiled("base", LIBRARY)
    assert not unseen
    assert "function torch_dynamo_resume_in_f_at (library.py)" in base
    assert compiled("moved", "# a comment\n\n" + LIBRARY) == (base, "")
    other = compiled("other", LIBRARY.replace("* 3", "* 4"))[0]
    assert base["code of inductor"] != other["code of inductor"]


def test_which_ptxas_is_torchs_is_said_as_inductor_is_imported():
    said = []
    module = ModuleType("torch._inductor.runtime.compile_tasks")
    running.of_compile_tasks(module)  # another torch, which has no such function
    module._set_triton_ptxas_path = lambda: said.append(True)  # type: ignore[attr-defined]
    running.of_compile_tasks(module)
    assert said == [True]


@pytest.mark.slow
def test_what_compiles_is_not_watched():
    compiled = torch.compile(lambda x: x + 1, backend="eager")
    with executed.watched(lambda file: file.endswith("symbolic_convert.py")) as watch:
        before = sys.getprofile()
        assert torch.equal(compiled(torch.ones(3)), torch.full((3,), 2.0))
        assert sys.getprofile() is before is watch
    assert watch.compiled
    assert [name for name, _ in watch.functions()] == ["function forward (<eval_with_key>)"]
