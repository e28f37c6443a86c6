"""The first week with Ridgeline in a repository of one's own: what changes of all kinds come to, command by command."""

from __future__ import annotations

import json

import pytest

from tests.kit import commit, mostly_nightly, repository, ridgeline, said

NAP = '''\
"""Twice a vector, after a nap."""
import time

import torch
import triton
import triton.language as tl
from ridgeline.spec import Case, Compilation, Cost, Kernel, Tolerance, Unsupported

nap = Kernel(
    "nap",
    cases=[Case("one", tier="pr", n=64, dtype="fp32"), Case("night", n=128, dtype="fp32")],
    tolerance=Tolerance(norm=1e-6, peak=1e-6),
)
nap.inputs(lambda case, seed: {"x": torch.randn(case.n)})
nap.cost(lambda case: Cost(flops=case.n, hbm_bytes=8 * case.n))
nap.reference(lambda case, inputs: inputs["x"] * 2)
SECONDS = 0.001


@nap.backend("ours")
def ours(case, inputs):
    out = torch.empty_like(inputs["x"])

    def call():
        time.sleep(SECONDS)
        return torch.mul(inputs["x"], 2, out=out)

    return call
'''
TRITON = """

@triton.jit
def double(x, out, n, B: tl.constexpr):
    at = tl.arange(0, B)
    inside = at < n
    tl.store(out + at, tl.load(x + at, inside) * 2.0, inside)


@nap.backend("triton")
def launched(case, inputs):
    if case.place.arch == "cpu":
        raise Unsupported("a GPU is needed")
    x, out = inputs["x"], torch.empty_like(inputs["x"])

    def call():
        double[(1,)](x, out, case.n, B=128)
        return out

    return call


@nap.isa("triton")
def compiled(case, arch):
    vector = ("*fp32", (case.n,))
    return [Compilation("double", double, {"x": vector, "out": vector, "n": case.n}, {"B": 128}, {}, grid=(1,))]
"""
SLOW = NAP.replace("SECONDS = 0.001", "SECONDS = 0.003")
SETTINGS = 'kernels = ["perf"]\n'

FEW = ("--rounds", "8", "--no-why")


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A repository with one operator, on its main branch."""
    files = {"ridgeline.toml": SETTINGS, "perf/__init__.py": "", "perf/nap.py": NAP, ".gitignore": ".ridgeline/\n"}
    folder = repository(tmp_path / "mine", **files)
    monkeypatch.chdir(folder)
    return folder


def ended(verb, *words, says=""):
    """The verdict of a comparison and its exit code."""
    done = ridgeline(verb, *words, *FEW, "--json")
    assert says in said(done), done.output
    return json.loads(done.stdout)["verdict"], done.exit_code


pytestmark = pytest.mark.slow


# ---- what base lacks, and what head gave up --------------------------------------------------------------------------


def test_a_name_that_head_gave_up_hides_nothing(root):
    head = SLOW.replace('"nap",\n', '"rest",\n').replace('"one"', '"first"').replace('"ours"', '"mine"')
    commit(root, **{"perf/nap.py": head})
    assert ended("ab", "HEAD^", "HEAD", says="head does not declare nap") == ("CANNOT TELL", 2)
    renamed = 'renamed = {"nap" = "rest", "rest/one" = "rest/first", "rest/ours" = "rest/mine"}\n'
    commit(root, **{"ridgeline.toml": SETTINGS + renamed})
    assert ended("ab", "HEAD~2", "HEAD", says="rest/mine/first") == ("SLOWER", 1)


# ---- what head broke, and what it says of itself ---------------------------------------------------------------------


CHANGES = {
    "syntax": ({"perf/nap.py": NAP.replace("SECONDS = 0.001", "SECONDS = = 1")}, ("BROKEN", 1)),
    "wrong": ({"perf/nap.py": NAP.replace('"x"], 2, out', '"x"], 3, out')}, ("BROKEN", 1)),
    "two of one name": ({"perf/again.py": NAP}, ("CANNOT TELL", 2)),
    "a new one that does not import": (
        {"perf/new.py": "import nowhere\n" + NAP.replace('"nap"', '"new"')},
        ("CANNOT TELL", 2),
    ),
    "prints": ({"perf/nap.py": f"print('a line', flush=True)\nimport os\nos.write(1, b'{{}}')\n{SLOW}"}, ("SLOWER", 1)),
    "comment": ({"perf/nap.py": NAP + "# a comment\n"}, ("SAME", 0)),
    "line ends": ({"perf/nap.py": NAP.replace("\n", "\r\n")}, ("SAME", 0)),
}


@pytest.mark.parametrize("change", mostly_nightly(CHANGES, "wrong", "prints", "comment"))
def test_a_change_of_head(root, change):
    head, verdict = CHANGES[change]
    for name, text in head.items():
        (root / name).write_bytes(text.encode())
    commit(root, "change")
    assert ended("ab", "HEAD^", "HEAD") == verdict


@pytest.mark.nightly
def test_a_base_that_hangs_at_its_import_is_no_pass(root):
    commit(root, **{"perf/nap.py": f"import time\ntime.sleep(1000)\n{NAP}"})
    commit(root, **{"perf/nap.py": SLOW})
    assert ended("ab", "HEAD^", "HEAD", "--deadline", "20", says="hung") == ("CANNOT TELL", 2)


# ---- an operator that is compiled ahead ------------------------------------------------------------------------------


@pytest.mark.nightly  # ci/isa/test_judge.py decides the same from made results
def test_the_clock_of_a_cpu_counts_beside_equal_machine_code(root):
    commit(root, **{"perf/nap.py": NAP + TRITON})
    commit(root, **{"perf/nap.py": SLOW + TRITON})
    assert ended("check", says="machine code") == ("SLOWER", 1)


@pytest.mark.nightly
def test_code_of_an_operator_with_a_name_of_ours_is_compared_and_executed_on_every_target(root):
    code = NAP.replace('"nap",\n', '"gemm",\n') + TRITON
    commit(root, **{"perf/nap.py": code})
    commit(root, **{"perf/nap.py": code.replace("* 2.0, inside", "* 2.0, at < n")})
    done = ridgeline("isa", "HEAD^", "HEAD", "--execute")
    assert (done.exit_code, "ISA: SAME 5 of 5 configurations" in said(done)) == (0, True), done.output
    assert "compiled for gfx942, gfx950, sm_90, as `check` does" in said(done)
