"""Tables of tuned knobs: read by the names that knobs have now, also where a file has the old ones."""

import json

import pytest

from kernels._shared.tuning import all_knobs, described, first_then, points, read_tuned
from kernels.all_reduce import config as all_reduce
from kernels.hardware import DEVICES
from kernels.reduce_scatter import config as reduce_scatter
from kernels.registry import discover
from kernels.spec import Place, Unsupported

KERNELS = discover().kernels
ARCHES = ("sm_90", "gfx942", "gfx950")
UNITS = {device.arch: device.compute_units for device in reversed(DEVICES)}
TUNABLE = [(k, b) for k in sorted(KERNELS) for b, backend in KERNELS[k].backends.items() if backend.tuned]


def test_a_table_with_the_old_name_of_a_knob_is_read(tmp_path):
    (tmp_path / "tuned.toml").write_text('[sm_90.w4_1MB]\nway = "two_shot"\nprograms = 32\n')
    found = read_tuned(str(tmp_path / "config.py"))
    assert found == {"sm_90": {"w4_1MB": {"algorithm": "two_shot", "programs": 32}}}


def test_the_tables_name_the_knob_as_the_backends_do():
    for config in (all_reduce, reduce_scatter):
        for knobs in config.TUNED["sm_90"].values():
            assert {"algorithm", "way"} & set(knobs) == {"algorithm"}


def test_candidates_start_with_the_choice_and_do_not_repeat():
    one, two = {"a": 1}, {"a": 2}
    assert first_then(two, [one, two, one]) == [two, one]


def test_provenance_is_no_knob(tmp_path):
    (tmp_path / "tuned.toml").write_text(
        "[sm_90.m64]\nprograms = 32\n[sm_90.m64.confirmed]\nratio = 0.9\n[sm_90.m64.confirmed.code]\nwinner = 'ab'\n"
    )
    assert read_tuned(str(tmp_path / "config.py")) == {"sm_90": {"m64": {"programs": 32}}}


def placed(kernel, arch):
    """The cases of a kernel on a device of the architecture."""
    return [case.at(Place(world=case.world, arch=arch, compute_units=UNITS[arch])) for case in kernel.cases]


def test_every_operator_can_be_tuned():
    of_ours = {name for name, kernel in KERNELS.items() if kernel.compilations}
    assert {name for name, _ in TUNABLE} == of_ours != set()


@pytest.mark.parametrize(("name", "backend"), TUNABLE)
def test_a_choice_is_the_entry_of_the_table_or_the_rule(name, backend):
    declared = KERNELS[name].backends[backend]
    for arch in ARCHES:
        for case in placed(KERNELS[name], arch):
            place = described(declared, case, arch)
            entry = {k: max(1, int(v / place["scale"].get(k, v and 1))) if k in place["scale"] else v
                     for k, v in place["entry"].items()}  # fmt: skip
            expected = {**place["defaults"], **(entry or place["rule"])}
            assert all_knobs(declared, case, arch, {}) == expected, (case.name, arch)
            assert json.loads(json.dumps(place)) == place
            assert place["table"][-1] == arch


@pytest.mark.parametrize(("name", "backend"), TUNABLE)
def test_a_point_has_every_knob_and_the_choice_is_the_first(name, backend):
    declared = KERNELS[name].backends[backend]
    for arch in ARCHES:
        for case in placed(KERNELS[name], arch)[:12]:
            tried = points(declared, case, arch)
            chosen = all_knobs(declared, case, arch, {})
            assert tried[0] == chosen
            assert all(set(knobs) == set(chosen) for knobs in tried)
            assert len({json.dumps(knobs, sort_keys=True) for knobs in tried}) == len(tried) > 1, (case.name, arch)
            assert json.loads(json.dumps(tried)) == tried


def test_an_entry_of_one_backend_of_the_table_is_not_that_of_another(tmp_path, monkeypatch):
    kernel = KERNELS["moe_gemm2_mxfp4"]
    case = placed(kernel, "sm_90")[3]
    place = kernel.backends["triton_reduce"].tuned
    monkeypatch.setitem(place.rule.__globals__["TUNED"], "triton_reduce", {"sm_90": {place.key(case): {"tiles": 7}}})
    assert kernel.backends["triton_reduce"].config(case, "sm_90") == {"tiles": 7}
    assert kernel.backends["triton_atomic"].config(case, "sm_90") == place.rule(case, "sm_90")


@pytest.mark.parametrize("name", sorted({name for name, _ in TUNABLE}))
def test_a_compilation_says_how_many_programs_are_launched(name):
    kernel = KERNELS[name]
    for arch in ("sm_90", "gfx950"):
        for backend, compile_ in kernel.compilations.items():
            for case in placed(kernel, arch)[:2]:
                try:
                    found = compile_(case, arch)
                except Unsupported:
                    continue
                for one in found:
                    assert min(one.grid) > 0, (backend, case.name)
                    assert one.constants.get("PROGRAMS", one.grid[0]) == one.grid[0]
