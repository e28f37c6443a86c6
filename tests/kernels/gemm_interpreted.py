"""Run by test_gemm.py in a process with TRITON_INTERPRET=1: the kernels' arithmetic on a CPU, tails included."""

from __future__ import annotations

from kernels.gemm import gemm
from kernels.numerics import compare, poison
from kernels.spec import Case, Place

PLACE = Place(compute_units=3)


def right(m: int, n: int, k: int, **knobs: object) -> None:
    """Two calls into a poisoned output match the reference."""
    case = Case("t", M=m, N=n, K=k, dtype="fp16").at(PLACE)
    inputs = gemm.function("inputs")(case, 7)
    expected = gemm.function("reference")(case, inputs)
    call = gemm.backends["triton"].build(case, inputs, **knobs)
    for turn in range(2):
        poison(call())
        found = compare(call(), expected, gemm.tolerance_for(case))
        assert found.ok, (turn, m, n, k, knobs, found.why)


def split_and_tails() -> None:
    right(33, 70, 136, variant="split", block_m=32, block_n=32, block_k=32)
    right(33, 70, 136, variant="split", block_m=32, block_n=32, block_k=32, split_k=2, xcds=4, group_m=2)
    right(33, 64, 128, variant="split", block_m=16, block_n=64, block_k=32, split_k=4, swap=True)
    right(5, 64, 96, variant="split", block_m=16, block_n=32, block_k=64, split_k=2)


def descriptors() -> None:
    for parts, flatten in ((1, True), (2, False), (4, True), (0, True)):
        right(
            70,
            96,
            136,
            variant="persistent",
            block_m=32,
            block_n=32,
            block_k=32,
            parts=parts,
            flatten=flatten,
            group_m=2,
        )
    for parts in (0, 1):
        right(70, 96, 136, variant="specialized", block_m=32, block_n=32, block_k=32, parts=parts)
    right(40, 72, 136, variant="split", block_m=32, block_n=32, block_k=32, split_k=2, tma=True)
    right(16, 72, 136, variant="split", block_m=16, block_n=64, block_k=64, split_k=1, tma=True, swap=True)


def one_token() -> None:
    right(1, 70, 200, variant="vector", block_n=8, block_k=64)
    right(1, 64, 256, variant="vector", block_n=16, block_k=128)


def counters_clear_themselves() -> None:
    """The slice that finishes a tile leaves its counter at 0: seen from the workspace of a built call."""
    case = Case("t", M=32, N=64, K=128, dtype="fp16").at(PLACE)
    inputs = gemm.function("inputs")(case, 1)
    call = gemm.backends["triton"].build(case, inputs, variant="split", block_m=32, block_n=32, block_k=32, split_k=4)
    arguments = next(cell.cell_contents for cell in call.__closure__ or () if isinstance(cell.cell_contents, dict))
    for _ in range(3):
        call()
        assert arguments["arrivals"].tolist() == [0, 0]
    arguments["arrivals"][0] = 1  # as if the call before had not cleared it
    poison(arguments["workspace"])
    early = call().clone()
    assert early[:, :32].isnan().all(), "a counter that was not cleared goes unseen"
