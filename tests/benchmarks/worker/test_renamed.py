"""A declaration goes by the names that head gives it; the project's functions see those that it was written with."""

from __future__ import annotations

import types

import pytest

from benchmarks.worker import declare, requests
from benchmarks.worker.renamed import under_current_names
from kernels import spec
from kernels.spec import Case, Cost, Kernel, Tolerance

RENAMED = {"old": "new", "new/m8": "new/decode_m8", "new/hip": "new/rocm", "new/gone": "", "new/away": "other/away"}


def declared(kernel: str = "old", case: str = "m8", backend: str = "hip") -> Kernel:
    made = Kernel(kernel, cases=[Case(case, M=8), Case("gone", M=1), Case("away", M=2)], tolerance=Tolerance())
    made.inputs(_inputs), made.cost(lambda case: Cost(flops=len(case.name))), made.reference(_inputs)
    made.backend(backend)(lambda case, inputs: lambda: None)
    made.isa(backend)(lambda case, arch: [])
    return made


def _inputs(case, seed):
    return {}


def test_the_harness_has_the_new_names_and_the_project_its_own():
    kernel = declared()
    assert under_current_names(kernel, RENAMED) == {"m8": "decode_m8", "gone": "gone", "away": "away"}
    assert (kernel.name, list(kernel.backends), list(kernel.compilations)) == ("new", ["rocm"], ["rocm"])
    assert kernel.backends["rocm"].name == "rocm"
    assert kernel.case("decode_m8").name == "m8", "a table of tuned knobs may be looked up by it"
    assert under_current_names(kernel, RENAMED)["m8"] == "decode_m8", "twice is once"
    with pytest.raises(KeyError):
        kernel.case("m9")


def test_its_declaration_is_that_of_head_to_the_digest():
    old, new = declared(), declared("new", "decode_m8", "rocm")
    found = [
        declare._declaration(kernel, under_current_names(kernel, renamed), spec, {}, {})
        for kernel, renamed in ((old, RENAMED), (new, {}))
    ]
    assert found[0]["case_yardsticks"] == found[1]["case_yardsticks"]
    assert [one["cases"] for one in found[:1]] == [one["cases"] for one in found[1:]]
    assert found[0]["costs"]["decode_m8"]["flops"] == 2, "by the name that base declares"


def test_it_is_found_by_its_new_name():
    module = types.SimpleNamespace(__name__="perf.old", one=declared())
    assert requests._kernel(module, "new", Kernel, RENAMED) is module.one
    with pytest.raises(RuntimeError, match="declares no kernel 'old'"):
        requests._kernel(module, "old", Kernel, RENAMED)
