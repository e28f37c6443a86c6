"""What the doctor calls a problem, from facts alone."""

from __future__ import annotations

import pytest

from benchmarks import doctor
from benchmarks.machine.limits import Problem
from tests.benchmarks.test_sampling_plan import CPU, H200

SOUND = {
    "machine": H200,
    "environment": {"python": "3.11.7", "torch": "2.13.0+cu130", "triton": "3.8.0"},
    "why_no_state": None,
    "unseen_gpu": "",
    "kernels": {"gemm": {"small": "", "huge": "too large"}},
    "broken": [],
    "node": {"problems": []},
}


def test_a_sound_machine_has_no_problem():
    assert doctor.problems(SOUND) == []
    assert doctor.problems({**SOUND, "machine": CPU, "why_no_state": "no GPU"}) == []
    disk = Problem("disk", "error", "5 MiB are free", "free space")
    assert doctor.problems({**SOUND, "node": {"problems": [vars(disk)]}}) == [disk]


@pytest.mark.parametrize(
    ("facts", "kind", "level", "text"),
    [
        ({"broken": [{"module": "toy.x", "reason": "gone"}]}, "broken_module", "warning", "module toy.x does not"),
        ({"environment": {**SOUND["environment"], "triton": None}}, "library_missing", "warning", "triton cannot"),
        ({"environment": {**SOUND["environment"], "torch": "2.10.1"}}, "untested_version", "warning", "torch 2.10.1"),
        ({"environment": {**SOUND["environment"], "python": "3.15.0"}}, "untested_version", "warning", "3.11 to 3.14"),
        ({"machine": {**H200, "device": "X9", "arch": "sm_999"}}, "unknown_hardware", "warning", "X9 (sm_999)"),
        ({"unseen_gpu": "torch sees none"}, "unseen_gpu", "error", "not seen by torch"),
        ({"why_no_state": "no library"}, "no_device_state", "warning", "clocks, power"),
    ],
)
def test_each_problem_says_what_why_and_the_next_step(facts, kind, level, text):
    [found] = doctor.problems({**SOUND, **facts})
    assert (found.kind, found.level) == (kind, level)
    assert text in found.text
    assert found.why
    assert found.next_step
