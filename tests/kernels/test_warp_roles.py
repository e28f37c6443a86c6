"""Kernels with roles, on a CPU: tiles, slots, phases and flags (tests/kernels/roles_shim.py)."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels import roles_shim as shim

ROWS = shim.imported("kernels._shared.rows_with_roles")
WEIGHTS = shim.imported("kernels.grouped_gemm.weights_with_roles")


def whole(shape, seed):
    """Small whole numbers: sums are exact in every order."""
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(np.float32)


def slices(lens):
    ends = np.cumsum(lens)
    return ends.astype(np.int32), [slice(end - size, end) for end, size in zip(ends, lens, strict=True)]


@pytest.mark.parametrize("by_column", [True, False])
@pytest.mark.parametrize(
    ("lens", "columns", "depth", "block_n", "split"),
    [
        ((130, 0, 70), 300, 150, 256, 1),
        ((130, 0, 70), 300, 200, 192, 4),
        ((5,), 100, 330, 128, 4),
        ((128, 128, 1), 192, 64, 192, 2),
    ],
)
def test_rows_against_a_product_per_group(by_column, lens, columns, depth, block_n, split):
    programs, knobs = 3, {"block_n": block_n, "block_k": 64, "group_m": 2, "split": split, "num_stages": 3}
    ends, parts = slices(lens)
    a, b = whole((sum(lens), depth), 1), whole((len(lens), columns, depth), 2)
    out = np.full((sum(lens), columns), np.nan, np.float32)
    right = b if by_column else np.ascontiguousarray(b.transpose(0, 2, 1))
    scratch = {
        name: shim.Pointer(np.zeros(int(np.prod(shape)), np.int64 if name == "flags" else np.float32))
        for name, (_, shape) in ROWS.scratch(knobs, programs).items()
    }
    given = ROWS.arguments(a, right, out, ends, by_column, block_n, 64) | {"ends": shim.Pointer(ends)}
    for _ in range(2):  # flags are down again
        out[...] = np.nan
        shim.launch(
            ROWS.rows_with_roles, programs, **given, **scratch, **ROWS.constants(len(lens), by_column, knobs, programs)
        )
        for group, rows in enumerate(parts):
            np.testing.assert_array_equal(out[rows], a[rows] @ b[group].T)
    assert not scratch["flags"].data.any()


@pytest.mark.parametrize("block_n", [256, 192, 128])
@pytest.mark.parametrize("lens", [(70, 0, 130, 130), (64,), (1, 200)])
def test_weights_against_a_product_per_group(lens, block_n):
    programs, knobs = 3, {"block_n": block_n, "block_k": 64, "group_m": 2, "num_stages": 3}
    ends, parts = slices(lens)
    dy, a = whole((sum(lens), 150), 1), whole((sum(lens), 300), 2)
    out = np.full((len(lens), 150, 300), np.nan, np.float32)
    queue = shim.Pointer(np.zeros(2, np.int64))
    given = WEIGHTS.arguments(dy, a, out, ends, block_n, 64) | {"ends": shim.Pointer(ends), "queue": queue}
    for _ in range(2):  # the queue is set back
        out[...] = np.nan
        shim.launch(WEIGHTS.weights_with_roles, programs, **given, **WEIGHTS.constants(len(lens), 32, knobs, programs))
        for group, rows in enumerate(parts):
            np.testing.assert_array_equal(out[group], dy[rows].T @ a[rows])
    assert not queue.data.any()
