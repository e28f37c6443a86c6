"""Kernels with roles, on a CPU: tiles, slots, phases and flags."""

from __future__ import annotations

import contextlib
import importlib
import sys
import threading
import types
from unittest import mock

import numpy as np
import pytest

from tests.kit import HANGS_S

# Kernels with roles (kernels/_shared/warp_roles.py) run on a CPU: each warp group of each program is a thread. Gluon
# has no interpreter. Here its language is numpy, a barrier of shared memory is a condition variable, and the copy
# engine copies at once. So what the roles agree on is checked: tiles, slots, phases, flags, and that nobody waits for
# ever. What the compiler makes of it is not (tests/kernels/test_compiled.py).


BILLION = 1 << 30

_here = threading.local()
_atomics = threading.RLock()


class Number(int):
    """A constexpr: `value` is what the host reads."""

    value = property(int)


class Pointer:
    """An address in a flat array; sums with arrays are arrays of addresses."""

    def __init__(self, data, at=0):
        self.data, self.at = data, at

    def __add__(self, more):
        return Pointer(self.data, self.at + more)

    def __sub__(self, less):
        return Pointer(self.data, self.at - less)


class Tile:
    """Shared memory: views of one array."""

    def __init__(self, data):
        self.data, self.shape, self.dtype = data, data.shape, np.float32

    def index(self, at):
        return Tile(self.data[int(at)])

    def reshape(self, shape):
        return Tile(self.data.reshape(shape))

    def permute(self, order):
        return Tile(self.data.transpose(order))

    def store(self, value):
        self.data[...] = value

    def load(self, layout):
        return self.data.copy()


class Sums(np.ndarray):
    """An accumulator."""

    type = types.SimpleNamespace(layout=None)

    def to(self, dtype):
        return np.asarray(self, dtype)


class Barrier:
    """An mbarrier: a phase ends when all have arrived, with all the bytes that were expected."""

    def __init__(self):
        self.changed = threading.Condition()

    def init(self, count):
        self.count = self.left = count
        self.bytes = self.phase = 0

    def arrive(self, bytes_more=0, arrivals=0):
        with self.changed:
            self.left -= arrivals
            self.bytes += bytes_more
            assert self.left >= 0, "more arrivals than the barrier was made for"
            if self.left == 0 and self.bytes == 0:
                self.phase, self.left = 1 - self.phase, self.count
                self.changed.notify_all()

    def wait(self, parity):
        with self.changed:
            assert self.changed.wait_for(lambda: self.phase != parity, HANGS_S), "a barrier that nobody completes"


class Barriers:
    def __init__(self, count):
        self.all = [Barrier() for _ in range(count)]

    def index(self, at):
        return self.all[int(at)]


class Descriptor:
    """A tensor and a block of it; one that is ragged is told at each access where its group ends."""

    dtype = np.float32

    def __init__(self, tensor, block, ragged):
        self.tensor, self.ragged = tensor, ragged
        self.block_type = types.SimpleNamespace(shape=[1, 1, *block] if ragged else list(block))
        self.layout, self.block = None, block

    def place(self, coordinates):
        """What is inside: of the tensor, of the block."""
        ends = list(self.tensor.shape)
        if self.ragged:
            assert coordinates[0] == BILLION
            coordinates, ends[0] = [coordinates[1] + coordinates[2] - BILLION, coordinates[3]], coordinates[1]
        sizes = [max(0, min(b, e - int(c))) for c, b, e in zip(coordinates, self.block, ends, strict=True)]
        whole = tuple(slice(int(c), int(c) + n) for c, n in zip(coordinates, sizes, strict=True))
        return whole, tuple(slice(0, n) for n in sizes)


def _load_tile(desc, coordinates, barrier, tile):
    whole, part = desc.place(coordinates)
    block = np.zeros(desc.block, np.float32)
    block[part] = desc.tensor[whole]
    tile.store(block.reshape(tile.shape))
    barrier.arrive(bytes_more=-2 * block.size)


def _store_tile(desc, coordinates, tile):
    whole, part = desc.place(coordinates)
    desc.tensor[whole] = tile.data.reshape(desc.block)[part]


def _atomic(change):
    def atomic(at, *values, **_):
        with _atomics:
            before = int(at.data[at.at])
            at.data[at.at] = change(before, *values)
        return before

    return atomic


def _load(at, mask=True, other=0, **_):
    found = at.data[np.where(mask, at.at, 0)]
    return np.where(mask, found, other) if np.ndim(at.at) else int(np.where(mask, found, other))


def _store(at, value):
    at.data[at.at] = value


def _allocated(dtype, shape, layout):
    return (
        Barriers(shape[0])
        if layout == "barriers"
        else Tile(np.full(shape, np.nan if dtype is np.float32 else 0, dtype))
    )


def _warp_specialize(roles, warps, registers):
    threads = [_thread(_here.program, function, arguments) for function, arguments in roles]
    _joined(threads)


def _thread(program, function, arguments):
    def run():
        _here.program = program
        try:
            function(*arguments)
        except BaseException as error:
            thread.error = error  # type: ignore[attr-defined]

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def _joined(threads):
    for thread in threads:
        thread.join(4 * HANGS_S)
        assert not thread.is_alive(), "a role that does not end"
        if hasattr(thread, "error"):
            raise thread.error


def _mma(x, y, acc, is_async):
    return acc + x.data @ y.data


def _tile_at(index, rows, cols, group_m):
    first = index // (group_m * cols) * group_m
    height, within = min(rows - first, group_m), index % (group_m * cols)
    return first + within % height, within // height


def _language():
    same = {name: getattr(np, name) for name in ("where", "minimum", "maximum", "int32", "int64", "float32")}
    return types.SimpleNamespace(
        **same,
        constexpr=lambda value: Number(value) if isinstance(value, int) else value,
        cdiv=lambda a, b: -(-a // b),
        cast=lambda value, _: value,
        program_id=lambda _: _here.program,
        static_range=range,
        arange=lambda first, last, layout: np.arange(first, last),
        full=lambda shape, value, dtype, layout: np.full(shape, value),
        zeros=lambda shape, dtype, layout: np.zeros(shape).view(Sums),
        sum=lambda value, axis: int(value.sum()),
        max=lambda value, axis: int(value.max()),
        load=_load,
        store=_store,
        atomic_add=_atomic(lambda before, more: before + more),
        atomic_xchg=_atomic(lambda before, value: value),
        atomic_cas=_atomic(lambda before, expected, value: value if before == expected else before),
        barrier=lambda: None,
        allocate_shared_memory=_allocated,
        warp_specialize=_warp_specialize,
        NVMMADistributedLayout=lambda *_: None,
        BlockedLayout=lambda *_: None,
        SliceLayout=lambda *_: None,
        SwizzledSharedLayout=lambda *_: None,
    )


def _hopper():
    module = types.ModuleType("hopper")
    module.mbarrier = types.SimpleNamespace(
        MBarrierLayout=lambda: "barriers",
        init=lambda barrier, count: barrier.init(count),
        wait=lambda barrier, phase: barrier.wait(phase),
        expect=lambda barrier, size: barrier.arrive(bytes_more=size, arrivals=1),
        arrive=lambda barrier, pred=True: barrier.arrive(arrivals=1) if pred else None,
    )
    module.tma = types.SimpleNamespace(async_load=_load_tile, async_store=_store_tile, store_wait=lambda _: None)
    module.fence_async_shared = lambda: None
    module.warpgroup_mma = _mma
    module.warpgroup_mma_wait = lambda outstanding, deps: deps if len(deps) > 1 else deps[0]
    return module


def imported(name):
    """A module of kernels with roles, in this language; its descriptors are ours."""
    gluon = types.ModuleType("gluon")
    gluon.jit, gluon.language = (lambda function: function), _language()
    descriptors = types.ModuleType("descriptors")
    descriptors.TensorDescriptor = None
    root = "triton.experimental.gluon"
    fakes = {
        "triton.experimental": types.SimpleNamespace(gluon=gluon),
        root: gluon,
        f"{root}.language.nvidia.hopper": _hopper(),
        f"{root}.nvidia.hopper": descriptors,
    }
    ours = ("kernels._shared.warp_roles", "kernels._shared.rows_with_roles", "kernels.grouped_gemm.weights_with_roles")
    for module in ("kernels._shared.tile_product", "kernels.grouped_gemm"):  # what they import is Triton's own
        importlib.import_module(module)
    packages = [vars(sys.modules[module.rpartition(".")[0]]) for module in ours]
    with contextlib.ExitStack() as stack:
        for names, added in ((sys.modules, fakes), *((package, {}) for package in packages)):
            stack.enter_context(mock.patch.dict(names, added))  # a package keeps its modules as attributes, too
        for module, package in zip(ours, packages, strict=True):
            sys.modules.pop(module, None)
            package.pop(module.rpartition(".")[2], None)
        roles = importlib.import_module(ours[0])
        roles.descriptor = lambda tensor, *block: Descriptor(tensor, block, ragged=False)
        roles.ragged = lambda tensor, *block: Descriptor(tensor, block, ragged=True)
        module = importlib.import_module(name)
    module.tile_at = _tile_at
    return module


def launch(kernel, programs, **arguments):
    """All programs at once, as the GPU runs them."""
    _joined([_thread(program, lambda: kernel(**arguments), ()) for program in range(programs)])


ROWS = imported("kernels._shared.rows_with_roles")
WEIGHTS = imported("kernels.grouped_gemm.weights_with_roles")


def whole(shape, seed):
    """Small whole numbers: sums are exact in every order."""
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(np.float32)


def slices(lens):
    ends = np.cumsum(lens)
    return ends.astype(np.int32), [slice(end - size, end) for end, size in zip(ends, lens, strict=True)]


@pytest.mark.parametrize(
    ("by_column", "lens", "columns", "depth", "block_n", "split"),
    [
        (True, (130, 0, 70), 300, 150, 256, 1),
        (False, (130, 0, 70), 300, 200, 192, 4),
        (True, (5,), 100, 330, 128, 4),
        (False, (128, 128, 1), 192, 64, 192, 2),
    ],
)
def test_rows_against_a_product_per_group(by_column, lens, columns, depth, block_n, split):
    programs, knobs = 3, {"block_n": block_n, "block_k": 64, "group_m": 2, "split": split, "num_stages": 3}
    ends, parts = slices(lens)
    a, b = whole((sum(lens), depth), 1), whole((len(lens), columns, depth), 2)
    out = np.full((sum(lens), columns), np.nan, np.float32)
    right = b if by_column else np.ascontiguousarray(b.transpose(0, 2, 1))
    scratch = {
        name: Pointer(np.zeros(int(np.prod(shape)), np.int64 if name == "flags" else np.float32))
        for name, (_, shape) in ROWS.scratch(knobs, programs).items()
    }
    given = ROWS.arguments(a, right, out, ends, by_column, block_n, 64) | {"ends": Pointer(ends)}
    for _ in range(2):  # flags are down again
        out[...] = np.nan
        launch(
            ROWS.rows_with_roles, programs, **given, **scratch, **ROWS.constants(len(lens), by_column, knobs, programs)
        )
        for group, rows in enumerate(parts):
            np.testing.assert_array_equal(out[rows], a[rows] @ b[group].T)
    assert not scratch["flags"].data.any()


@pytest.mark.parametrize(("lens", "block_n"), [((70, 0, 130, 130), 192), ((64,), 256), ((1, 200), 128)])
def test_weights_against_a_product_per_group(lens, block_n):
    programs, knobs = 3, {"block_n": block_n, "block_k": 64, "group_m": 2, "num_stages": 3}
    ends, parts = slices(lens)
    dy, a = whole((sum(lens), 150), 1), whole((sum(lens), 300), 2)
    out = np.full((len(lens), 150, 300), np.nan, np.float32)
    queue = Pointer(np.zeros(2, np.int64))
    given = WEIGHTS.arguments(dy, a, out, ends, block_n, 64) | {"ends": Pointer(ends), "queue": queue}
    for _ in range(2):  # the queue is set back
        out[...] = np.nan
        launch(WEIGHTS.weights_with_roles, programs, **given, **WEIGHTS.constants(len(lens), 32, knobs, programs))
        for group, rows in enumerate(parts):
            np.testing.assert_array_equal(out[group], dy[rows].T @ a[rows])
    assert not queue.data.any()
