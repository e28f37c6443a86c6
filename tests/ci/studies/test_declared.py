"""Before and after: the two points of a change are found, whichever of them is the default."""

from __future__ import annotations

import dataclasses
import inspect
import math

import pandas as pd
import pytest

from ci.studies.declared import studies, study_named
from ci.studies.declared.changes import Change, before_and_after
from ci.studies.declared.cus import by_cus
from ci.studies.declared.scaling import scaled
from ci.studies.frame import StudyError, Tried, with_derived
from kernels.registry import discover

PLAIN = {
    "machine": "h200x2",
    "env": "py3.12",
    "commit": "c0ffee",
    "regime": "spaced",
    "operator": "gemm_all_scatter",
    "case": "c",
    "backend": "triton",
    "point": "",
    "knobs": {},
    "config": {},
    "dims": {},
    "dtype": "fp16",
    "world": 1,
    "payload_bytes": 0,
    "tier": "nightly",
    "baseline": False,
    "is_anchor": False,
    "status": "ok",
    "seconds": 1e-3,
    "ratio": 1.0,
    "low": math.nan,
    "high": math.nan,
    "flops": 0,
    "hbm_bytes": 0,
    "link_bytes": 0,
    "arch": "sm_90",
    "device": "NVIDIA H200",
    "compute_units": 132,
    "chip_id": math.nan,
    "memory_bytes": 150_000_000_000,
    "kind": "gpu",
    "whole_s": math.nan,
    "count": 2,
}


def made_rows(*rows):
    """A row for each mapping, over PLAIN, with every derived column."""
    return with_derived(pd.DataFrame([{**PLAIN, "kernel": PLAIN["operator"], **row} for row in rows]))


DECLARED = (
    Change("hint", "op", {"hint": False}, {"hint": True}, ("m*",)),
    Change("put", "op", {"scatter": "store"}, {"scatter": "put"}, ("m*",)),
    Change("wide", "op", {"rows": 8, "width": 64}, {"rows": 1, "width": 64}, ("m*",), "gluon"),
)
DEFAULT = {"hint": True, "scatter": "store", "programs": 4}


def row(seconds, backend="triton", config=DEFAULT, case="m1", **knobs):
    return {
        "operator": "op",
        "case": case,
        "backend": backend,
        "seconds": seconds,
        "ratio": seconds,
        "low": seconds * 0.9,
        "high": seconds * 1.1,
        "point": "x" if knobs else "",
        "is_anchor": not knobs and backend == "triton",
        "knobs": knobs,
        "config": {**config, **knobs},
    }


def rows():
    return made_rows(
        row(1.0),
        row(3.0, hint=False),
        row(0.5, scatter="put"),
        row(9.0, hint=False, scatter="put"),
        row(2.0, "gluon", {"rows": 4, "width": 0}, rows=8, width=64),
        row(1.0, "gluon", {"rows": 4, "width": 0}, rows=1, width=64),
        row(7.0, case="other", hint=False),
    )


def pairs(rows):
    made = before_and_after(rows, DECLARED)
    return dict(zip(made["change"], made.to_dict("records"), strict=True))


def test_both_points_of_a_change_stand_in_one_row():
    """The point with both `hint` and `scatter` turned belongs to no declared change, nor does another case."""
    made = pairs(rows())
    assert [(name, row["before"], row["after"]) for name, row in made.items()] == [
        ("hint", 3e6, 1e6), ("put", 1e6, 0.5e6), ("wide", 2e6, 1e6)
    ]  # fmt: skip
    assert made["hint"]["change_ratio"] == pytest.approx(1 / 3)
    assert made["put"]["change_ratio"] == pytest.approx(0.5)
    assert made["put"]["ratio_low"] < 0.5 < made["put"]["ratio_high"]


def test_a_default_that_its_launch_does_not_name_is_the_side_that_was_not_measured():
    unnamed = {"programs": 4}
    made = [row(1.0, config=unnamed), row(3.0, config=unnamed, hint=False), row(0.5, config=unnamed, scatter="put")]
    found = pairs(made_rows(*made))
    assert {name: row["change_ratio"] for name, row in found.items()} == pytest.approx({"hint": 1 / 3, "put": 0.5})
    assert pairs(made_rows(made[0])) == {}, "one row is no pair"


# The product alone that a row of `scaling` is compared with.


def overhead(two=(), **alone):
    """Of a product on two ranks, 15 µs, against a rank's share alone, 10 µs; two, alone: what differs in them."""
    share = {"dims": {"M": 64, "N": 2048, "K": 4096, "of": 2}, "seconds": 10e-6}
    whole = {"dims": {"M": 64, "N": 4096, "K": 4096}, "seconds": 15e-6, "world": 2}
    return scaled(made_rows({**share, **alone}, {**whole, **dict(two)}))["overhead"][1]


def test_a_row_is_compared_with_what_is_comparable():
    assert overhead() == pytest.approx(1.5)
    assert math.isnan(overhead({"backend": "bulk"})), "the library's product, which was not measured"
    for other in ({"machine": "other"}, {"regime": "sustained"}, {"status": "wrong"}, {"point": "abc"}):
        assert math.isnan(overhead(**other)), other


def test_a_collective_is_compared_with_the_library_at_equal_cus():
    library = {"backend": "rccl", "baseline": True, "seconds": 2e-3}
    ours = {"backend": "triton", "seconds": 1e-3}
    rows = by_cus(
        made_rows(
            {**library, "config": {"channels": 8}},
            {**library, "config": {}},
            {**ours, "config": {"programs": 8}},
            {**ours, "config": {"programs": 16}},
        )
    )
    assert rows["library_percent"][2] == pytest.approx(200)
    assert math.isnan(rows["library_percent"][3])
    assert rows["maker"].tolist() == ["library", "library", "triton", "triton"]


# Every declared study is sound: its operators, cases, backends and knobs exist.

KERNELS = discover().kernels
NAMES = sorted(studies())


@pytest.fixture(params=NAMES)
def one(request):
    return study_named(request.param)


def cases_of(part):
    return [case for case in KERNELS[part.operator].cases if part.has(case.name, case.world)]


def knobs_of(operator, backend):
    return set(list(inspect.signature(KERNELS[operator].backends[backend].build).parameters)[2:])


def test_every_pattern_matches_a_case_on_every_number_of_ranks(one):
    for part in one.parts:
        found = cases_of(part)
        assert {case.world for case in found} == set(part.ranks), (one.name, part.operator)
        for pattern in part.cases:
            assert any(dataclasses.replace(part, cases=(pattern,)).has(c.name, c.world) for c in found), pattern
        for tried in part.tried:
            assert any(tried.at(case.name) for case in found), tried


def test_every_part_has_something_beside_its_anchor(one):
    for part in one.parts:
        assert part.tried or set(part.arms) - {part.anchor}, (one.name, part.operator)


def test_backends_and_knobs_exist(one):
    for part in one.parts:
        known = KERNELS[part.operator].backends
        assert {part.anchor, *part.arms} <= set(known), (one.name, part.operator)
        for tried in part.tried:
            assert tried.backend in known
            named = {name for knobs in (tried.knobs, *tried.points) for name in knobs}
            assert named <= knobs_of(part.operator, tried.backend), named


def test_an_unknown_study_lists_those_there_are():
    with pytest.raises(StudyError, match="no study 'm_swep'; there are: .*m_sweep"):
        study_named("m_swep")


def test_knobs_of_an_architecture():
    tried = Tried(knobs={"kpack": (1, 2)}, arches=("gfx",), cases=("*_m16_*",))
    assert (tried.on("gfx942"), tried.on("sm_90")) == (True, False)
    assert (tried.at("n1_m16_fp16"), tried.at("n1_m1_fp16")) == (True, False)
