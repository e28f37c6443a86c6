"""Every declared study is sound: its operators, cases, backends and knobs exist."""

from __future__ import annotations

import dataclasses
import inspect

import pytest

from ci.studies.declared import studies, study_named
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


def test_an_unknown_study_lists_those_there_are():
    with pytest.raises(StudyError, match="no study 'm_swep'; there are: .*m_sweep"):
        study_named("m_swep")


def test_knobs_of_an_architecture():
    tried = Tried(knobs={"kpack": (1, 2)}, arches=("gfx",), cases=("*_m16_*",))
    assert (tried.on("gfx942"), tried.on("sm_90")) == (True, False)
    assert (tried.at("n1_m16_fp16"), tried.at("n1_m1_fp16")) == (True, False)
