"""Every declared study is sound: its operators, cases, backends and knobs exist."""

from __future__ import annotations

import dataclasses
import inspect

import pytest

from ci.studies.declared import studies, study_named
from ci.studies.run import combinations
from ci.studies.types import Study, StudyError, StudyPart, Tried
from kernels.registry import discover

KERNELS = discover().kernels
NAMES = sorted(studies())


@pytest.fixture(params=NAMES)
def one(request: pytest.FixtureRequest) -> Study:
    return study_named(request.param)


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
        assert part.tried or set(part.arms) - {part.anchor}, (one.name, part.operator)


def test_backends_and_knobs_exist(one):
    for part in one.parts:
        known = KERNELS[part.operator].backends
        assert {part.anchor, *part.arms} <= set(known), (one.name, part.operator)
        for tried in part.tried:
            assert tried.backend in known
            named = {name for knobs in (tried.knobs, *tried.points) for name in knobs}
            assert named <= knobs_of(part.operator, tried.backend), named


def test_the_grid_has_1200_points_and_the_roofline_60():
    [part] = study_named("roofline_grid").parts
    assert len(combinations(part.tried[0])) == 1200
    alone = [part for part in study_named("roofline").parts if part.ranks == (1,)]
    assert sum(len(cases_of(part)) for part in alone) == 60


def test_m_goes_from_1_to_1024_in_powers_of_two():
    for part in study_named("m_sweep").parts:
        for world in part.ranks:
            shapes = {(case.N, case.K) for case in cases_of(part)}
            found = {(case.N, case.K, case.M) for case in cases_of(part) if case.world == world}
            assert found == {(n, k, 2**power) for n, k in shapes for power in range(11)}
            assert len(shapes) == 4


def test_an_unknown_study_lists_those_there_are():
    with pytest.raises(StudyError, match="no study 'm_swep'; there are: .*m_sweep"):
        study_named("m_swep")


def test_knobs_of_an_architecture():
    tried = Tried(knobs={"kpack": (1, 2)}, arches=("gfx",), cases=("*_m16_*",))
    assert (tried.on("gfx942"), tried.on("sm_90")) == (True, False)
    assert (tried.at("n1_m16_fp16"), tried.at("n1_m1_fp16")) == (True, False)
