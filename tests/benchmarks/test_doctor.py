"""What the doctor calls a problem, from facts alone."""

from __future__ import annotations

import pytest

from benchmarks import doctor
from benchmarks.doctor import Kind

GPU = {
    "name": "x1", "kind": "gpu", "arch": "sm_90", "device": "NVIDIA H200", "count": 1, "compute_units": 132,
    "chip_id": "2335", "memory_bytes": 150_754_820_096, "cpu_count": 16,
}  # fmt: skip
CPU = {**GPU, "kind": "cpu", "arch": "cpu", "device": "EPYC"}
SOUND = {
    "machine": GPU,
    "environment": {"python": "3.11.7", "torch": "2.13.0+cu130", "triton": "3.8.0"},
    "why_no_state": None,
    "unseen_gpu": "",
    "gpu_faults": [],
    "kernels": {"gemm": {"small": "", "huge": "too large"}},
    "broken": [],
    "disk": [{"path": "/tmp", "free_bytes": 8 << 30}],
    "shm": {"path": "/dev/shm", "free_bytes": 8 << 30, "total_bytes": 16 << 30},
}


def test_a_sound_machine_has_no_problem():
    assert doctor.problems(SOUND) == []
    assert doctor.problems({**SOUND, "machine": CPU, "why_no_state": "no GPU", "shm": None}) == []
    assert doctor.in_words({**SOUND, "problems": []}).endswith(
        "kernel    gemm: 1 of 2 cases can be measured here\n          - too large\nno problem found"
    )


@pytest.mark.parametrize(
    ("facts", "kind", "level", "text"),
    [
        ({"broken": [{"module": "toy.x", "reason": "gone"}]}, Kind.BROKEN_MODULE, "warning", "module toy.x does not"),
        ({"environment": {**SOUND["environment"], "triton": None}}, Kind.LIBRARY_MISSING, "warning", "triton cannot"),
        (
            {"environment": {**SOUND["environment"], "torch": "2.10.1"}},
            Kind.UNTESTED_VERSION,
            "warning",
            "torch 2.10.1",
        ),
        (
            {"environment": {**SOUND["environment"], "python": "3.13.0"}},
            Kind.UNTESTED_VERSION,
            "warning",
            "3.11 to 3.12",
        ),
        ({"machine": {**GPU, "device": "X9", "arch": "sm_999"}}, Kind.UNKNOWN_HARDWARE, "warning", "X9 (sm_999)"),
        ({"unseen_gpu": "torch sees none"}, Kind.UNSEEN_GPU, "error", "not seen by torch"),
        (
            {"gpu_faults": [{"text": "mixed products", "next_step": "choose"}]},
            Kind.GPU_FAULT,
            "warning",
            "mixed products",
        ),
        ({"why_no_state": "no library"}, Kind.NO_DEVICE_STATE, "warning", "clocks, power"),
        ({"disk": [{"path": "/r", "free_bytes": 1 << 30}]}, Kind.LOW_DISK, "warning", "1024 MiB are free where /r"),
        ({"disk": [{"path": "/r", "free_bytes": 1 << 20}]}, Kind.LOW_DISK, "error", "1 MiB are free where /r"),
        ({"shm": {**SOUND["shm"], "free_bytes": 64 << 20}}, Kind.LOW_SHM, "warning", "64 MiB free of 16384 MiB"),
    ],
)
def test_each_problem_says_what_why_and_the_next_step(facts, kind, level, text):
    [found] = doctor.problems({**SOUND, **facts})
    assert (found.kind, found.level) == (kind, level)
    assert text in found.text
    assert found.why
    assert found.next_step
