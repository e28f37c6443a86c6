"""Every declared study is sound: operators, cases, backends, knobs, columns, kinds of figures and rules exist."""

from __future__ import annotations

import dataclasses
import inspect

import pytest

from benchmarks.studies import studies, study
from benchmarks.studies.types import Drawn, Listed, Rows, Study, StudyError, StudyPart, Tried
from ci.sweeps.measured import COLUMNS as MEASURED
from ci.sweeps.studies.changes import COLUMNS as CHANGES
from ci.sweeps.studies.columns import COLUMNS
from ci.sweeps.studies.figures import RESHAPES, columns_of
from ci.sweeps.studies.guidance import GUIDES
from ci.sweeps.studies.run import combinations
from dashboards.figures.kinds import KEYS
from kernels.registry import discover

OF_ROWS = {
    "machine",
    "world",
    "dtype",
    "tier",
    "flops",
    "hbm_bytes",
    "link_bytes",
    "payload_bytes",
    "whole_s",
    "kernel",
}
"""Columns that ci/sweeps/studies/columns.py adds to those of a sweep."""

KERNELS = discover().kernels
NAMES = sorted(studies())


@pytest.fixture(params=NAMES)
def one(request: pytest.FixtureRequest) -> Study:
    return study(request.param)


def cases_of(part: StudyPart) -> list:
    return [case for case in KERNELS[part.operator].cases if part.has(case.name, case.world)]


def knobs_of(operator: str, backend: str) -> set[str]:
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
        assert part.check or part.tried or set(part.arms) - {part.anchor}, (one.name, part.operator)


def test_backends_and_knobs_exist(one):
    for part in one.parts:
        known = KERNELS[part.operator].backends
        assert {part.anchor, *part.arms} <= set(known), (one.name, part.operator)
        for tried in part.tried:
            assert tried.backend in known
            named = {name for knobs in (tried.knobs, *tried.points) for name in knobs}
            assert named <= knobs_of(part.operator, tried.backend), named


def test_columns_exist(one):
    of_parts = {
        name
        for part in one.parts
        for case in cases_of(part)[:1]
        for name in [
            *dict(case.dims),
            *(k for b in KERNELS[part.operator].backends for k in knobs_of(part.operator, b)),
        ]
    }
    own = {*one.columns, *(CHANGES if one.changes else ())}
    known = {*COLUMNS, *MEASURED, *OF_ROWS, *of_parts, *own}
    listed = one.table
    named = {*listed.keys, *listed.columns, *filter(None, [listed.spread]), *listed.rows.where}
    assert named <= known, named - known
    for drawn in one.figures:
        assert set(columns_of(drawn)) <= known, (drawn.name, set(columns_of(drawn)) - known)


def test_figures_and_rules_are_of_known_kinds(one):
    for drawn in one.figures:
        assert set(drawn.spec) <= set(KEYS[drawn.kind]), drawn.name
        assert drawn.reshape in RESHAPES
    assert set(one.guidance) <= set(GUIDES)


def test_the_grid_has_1200_points_and_the_roofline_60():
    [part] = study("roofline_grid").parts
    assert len(combinations(part.tried[0])) == 1200
    alone = [part for part in study("roofline").parts if part.ranks == (1,)]
    assert sum(len(cases_of(part)) for part in alone) == 60


def test_m_goes_from_1_to_1024_in_powers_of_two():
    for part in study("m_sweep").parts:
        for world in part.ranks:
            shapes = {(case.N, case.K) for case in cases_of(part)}
            found = {(case.N, case.K, case.M) for case in cases_of(part) if case.world == world}
            assert found == {(n, k, 2**power) for n, k in shapes for power in range(11)}
            assert len(shapes) == 4


# ---- what cannot be declared -----------------------------------------------------------------------------------------

TABLE = Listed(("M",), ("us",))
FIGURE = Drawn("f", "curve", "F", {"x": "M", "y": "us"})
PARTS = (StudyPart("gemm", ("*",)),)


def made(**changes):
    fields = {"name": "x", "title": "X", "question": "Why?", "source": "", "parts": PARTS, "table": TABLE}
    return Study(**{**fields, "figures": (FIGURE,), **changes})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"parts": ()}, "'x' has no part"),
        ({"figures": ()}, "'x' has no figure"),
        ({"regime": "fast"}, "'fast' is not one of spaced, sustained"),
        ({"table": Listed(("M",), ("us",), rows=Rows(pick="worst"))}, "'worst' is not one of all, best"),
        ({"figures": (FIGURE, FIGURE)}, "two figures of one name"),
    ],
)
def test_a_study_that_cannot_be_followed_is_refused_by_name(changes, said):
    assert made().ranks == (1,)
    with pytest.raises(StudyError, match=said):
        made(**changes)


def test_an_unknown_study_lists_those_there_are():
    with pytest.raises(StudyError, match="no study 'm_swep'; there are: .*m_sweep"):
        study("m_swep")


def test_knobs_of_an_architecture():
    tried = Tried(knobs={"kpack": (1, 2)}, arches=("gfx",), cases=("*_m16_*",))
    assert (tried.on("gfx942"), tried.on("sm_90")) == (True, False)
    assert (tried.at("n1_m16_fp16"), tried.at("n1_m1_fp16")) == (True, False)
