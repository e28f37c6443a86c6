"""Faults planted in the source of kernels, one at a time: which does `ridgeline verify --arch` find?

    PYTHONPATH=. python tests/study/planted_emulation.py > tests/study/planted_emulation.md

Each fault is an edit of one line.  It is planted in a copy of the tree, and the small cases of the operator are
executed until one is wrong, as `verify` does.  Beside it stand the static metrics (benchmarks.isa) in which the
compiled code of that case differs from that of the tree without the fault.  About five minutes on two cores.

Faults whose effect depends on an order (a counter set back to 1, a slice summed before it is stored) are not among
them: workgroups advance together in the emulator, and such a fault does not show.
"""

from __future__ import annotations

import functools
import importlib
import multiprocessing
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import torch

from benchmarks.emulation import cases
from benchmarks.isa import amd

JITFunction = importlib.import_module("triton.runtime.jit").JITFunction  # without types

ROOT = Path(__file__).parents[2]


class Fault(NamedTuple):
    """An edit: in a file of kernels/, `old` (which occurs there, the occurrence that counts is `nth`) becomes `new`."""

    what: str
    operator: str
    arch: str
    file: str
    old: str
    new: str
    nth: int = 0


PRODUCT, ORDER, GEMM = "_shared/tile_product.py", "_shared/tile_order.py", "gemm/device.py"
ROWS, WEIGHTS, GROUPS = "grouped_gemm/rows_device.py", "grouped_gemm/weights_device.py", "grouped_gemm/device.py"
EXPERTS = "moe_gemm2_mxfp4/device.py"
FORWARD, DGRAD, WGRAD, MOE = "grouped_gemm_forward", "grouped_gemm_dgrad", "grouped_gemm_wgrad", "moe_gemm2_mxfp4"

FAULTS = (
    Fault("K tail: one column too many", "gemm", "gfx942", PRODUCT, "k < K)[None", "k <= K)[None"),
    Fault("K tail: one column too few", "gemm", "gfx950", PRODUCT, "k < K)[None", "k < K - 1)[None"),
    Fault(
        "K tail: masked elements are 1",
        "gemm",
        "gfx942",
        PRODUCT,
        "mask=inside, other=0.0), tl.load(y_at, mask=inside, other=0.0)",
        "mask=inside, other=1.0), tl.load(y_at, mask=inside, other=1.0)",
    ),
    Fault("A advances one element too few", "gemm", "gfx942", PRODUCT, "x_at += BLOCK_K", "x_at += BLOCK_K - 1"),
    Fault("W advances one element too few", "gemm", "gfx950", PRODUCT, "y_at += BLOCK_K", "y_at += BLOCK_K - 1"),
    Fault("last column reads another row of W", "gemm", "gfx942", PRODUCT, "BLOCK_N)) % N)", "BLOCK_N)) % (N - 1))"),
    Fault("last row reads another row of A", "gemm", "gfx950", PRODUCT, "BLOCK_M)) % M)", "BLOCK_M)) % (M - 1))"),
    Fault("neighbours in K swapped in W", "gemm", "gfx942", PRODUCT, "BLOCK_K + k)[", "BLOCK_K + (k ^ 1))[", 1),
    Fault("last slice not summed", "gemm", "gfx942", PRODUCT, "range(SPLIT_K)", "range(SPLIT_K - 1)"),
    Fault("a slice summed from its neighbour", "gemm", "gfx950", PRODUCT, "i * STRIDE", "(i // 2 * 2) * STRIDE"),
    Fault(
        "K steps left over are dropped",
        "gemm",
        "gfx942",
        GEMM,
        "tl.cdiv(tl.cdiv(K, BLOCK_K), SPLIT_K)",
        "tl.cdiv(K, BLOCK_K) // SPLIT_K",
    ),
    Fault(
        "last K step of a slice dropped",
        "gemm",
        "gfx950",
        GEMM,
        "(part + 1) * per_slice,",
        "(part + 1) * per_slice - 1,",
    ),
    Fault(
        "first K step of a slice twice",
        "gemm",
        "gfx942",
        GEMM,
        "first, last = part * per_slice,",
        "first, last = tl.maximum(part * per_slice - 1, 0),",
    ),
    Fault(
        "last column not stored",
        "gemm",
        "gfx942",
        GEMM,
        "inside = (m < M)[:, None] & (n < N)",
        "inside = (m < M)[:, None] & (n < N - 1)",
    ),
    Fault("last row not stored", "gemm", "gfx950", GEMM, "inside = (m < M)", "inside = (m < M - 1)"),
    Fault(
        "swapped lanes in the store",
        "gemm",
        "gfx942",
        GEMM,
        "n[None, :]\n    if SPLIT_K",
        "(n ^ 1)[None, :]\n    if SPLIT_K",
    ),
    Fault(
        "arrivals not set back",
        "gemm",
        "gfx942",
        GEMM,
        "tl.store(arrivals + tile, 0)",
        "tl.store(arrivals + tile, SPLIT_K)",
    ),
    Fault("two slices share a workspace", "gemm", "gfx950", GEMM, "sums + part * (", "sums + (part // 2) * ("),
    Fault("tiles share a workspace", "gemm", "gfx942", GEMM, "tile * (SPLIT_K * BLOCK_M", "tile * (BLOCK_M"),
    Fault("vector: last of K dropped", "gemm", "gfx942", GEMM, "inside = step + k < K", "inside = step + k < K - 1"),
    Fault("vector: last column not stored", "gemm", "gfx950", GEMM, "mask=n < N)", "mask=n < N - 1)"),
    Fault("vector: only the last step counts", "gemm", "gfx942", GEMM, "acc += x.to", "acc = x.to"),
    Fault(
        "incomplete band of tiles",
        "gemm",
        "gfx950",
        ORDER,
        "within % height, within // height",
        "within % GROUP_M, within // GROUP_M",
    ),
    Fault("programs left over collide", "gemm", "gfx942", ORDER, " + tl.minimum(xcd, programs % XCDS)", ""),
    Fault(
        "last column of a group not stored", FORWARD, "gfx942", ROWS, "n_in = ns < columns", "n_in = ns < columns - 1"
    ),
    Fault(
        "last row of a group not stored", FORWARD, "gfx950", ROWS, "(rows_in < end - m0)", "(rows_in < end - m0 - 1)"
    ),
    Fault("depth tail: one too many", FORWARD, "gfx942", ROWS, "ks < depth - k0", "ks <= depth - k0"),
    Fault(
        "depth tail dropped",
        DGRAD,
        "gfx950",
        ROWS,
        "tl.range(0, depth, BLOCK_K)",
        "tl.range(0, depth - BLOCK_K + 1, BLOCK_K)",
    ),
    Fault(
        "weights of another group",
        DGRAD,
        "gfx942",
        ROWS,
        "b_ptr + group.to(",
        "b_ptr + tl.minimum(group, GROUPS - 2).to(",
    ),
    Fault("a tile given to the wrong group", FORWARD, "gfx942", ROWS, "(tile_ends <= tile)", "(tile_ends < tile)"),
    Fault(
        "start of a group off by one",
        FORWARD,
        "gfx950",
        ROWS,
        "return group, start + tile_m",
        "return group, start + 1 + tile_m",
    ),
    Fault("row tail of a group dropped", WGRAD, "gfx942", WEIGHTS, "ms < end - last", "ms < end - last - 1"),
    Fault("a row of the next group counts", WGRAD, "gfx950", WEIGHTS, "ms < end - last", "ms <= end - last"),
    Fault(
        "rows advance by the other stride",
        WGRAD,
        "gfx942",
        WEIGHTS,
        "dy_at += BLOCK_K * stride_dy",
        "dy_at += BLOCK_K * stride_a",
    ),
    Fault("groups of equal size share a place", WGRAD, "gfx942", WEIGHTS, "((other == own) &", "((other != own) &"),
    Fault(
        "last tile of a group dropped",
        WGRAD,
        "gfx950",
        WEIGHTS,
        "last = (place + 1) * per_group",
        "last = (place + 1) * per_group - 1",
    ),
    Fault("slots of a token collide", MOE, "gfx942", EXPERTS, "(ids >> 24))", "(ids >> 25))"),
    Fault("scales doubled", MOE, "gfx942", EXPERTS, "fields.to(tl.int32) << 23", "(fields.to(tl.int32) + 1) << 23"),
    Fault("sign of the activations lost", MOE, "gfx942", EXPERTS, "((byte & 0x08) << 12)", "((byte & 0x00) << 12)"),
    Fault("two parts of the activations swapped", MOE, "gfx942", EXPERTS, "right[3].T", "right[2].T"),
    Fault("last slot not summed", MOE, "gfx950", EXPERTS, "static_range(TOPK)", "static_range(TOPK - 1)"),
    Fault(
        "last column of a row not stored",
        MOE,
        "gfx942",
        EXPERTS,
        "(at_n < columns)[None, :]",
        "(at_n < columns - 1)[None, :]",
    ),
    Fault(
        "sums of a tile kept for the next",
        MOE,
        "gfx942",
        EXPERTS,
        "acc = tl.zeros((BLOCK_N, ROWS), tl.float32)",
        "acc = acc * 1.0",
        1,
    ),
    Fault(
        "scales of another step",
        MOE,
        "gfx950",
        EXPERTS,
        "(k0 // 16 + ss)[None, :], n_in",
        "(k0 // 32 + ss)[None, :], n_in",
    ),
    Fault("routing weight left out", MOE, "gfx950", EXPERTS, "acc * routed[:, None], ids", "acc, ids"),
)


def planted(fault: Fault, tree: Path) -> None:
    """Plant it in a copy of the tree.  ValueError where the line is not there any more."""
    path = tree / "kernels" / fault.file
    parts = path.read_text().split(fault.old)
    at = fault.nth % (len(parts) - 1) if len(parts) > 1 else -1
    if at < 0:
        raise ValueError(f"{fault.what}: {fault.file} has no {fault.old!r}")
    path.write_text(fault.old.join(parts[: at + 1]) + fault.new + fault.old.join(parts[at + 1 :]))


def found(fault: Fault) -> dict[str, Any]:
    """{"case", "why", "cases" executed, "metrics" that differ}; no case: the fault was not found."""
    with tempfile.TemporaryDirectory(prefix="ridgeline-planted-") as folder:
        tree = Path(folder)
        shutil.copytree(ROOT / "kernels", tree / "kernels", ignore=shutil.ignore_patterns("__pycache__"))
        planted(fault, tree)
        told = _in_a_process(executed, fault, tree, "")
        static = told.pop("static")
        before = _without(fault.operator, fault.arch, told["case"]) if told["case"] else static
        return told | {"metrics": sorted(name for name in static if static[name] != before.get(name))}


@functools.cache
def _without(operator: str, arch: str, case: str) -> dict[str, Any]:
    """The static metrics of a case in the tree without a fault."""
    nothing = Fault("", operator, arch, "", "", "")
    return dict(_in_a_process(executed, nothing, ROOT, case)["static"])


def _in_a_process(function: Callable[..., dict[str, Any]], *given: Any) -> dict[str, Any]:
    """What a function gives in a process of its own, which has imported what is imported here."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:
        return pool.submit(function, *given).result()


def executed(fault: Fault, tree: Path, only: str) -> dict[str, Any]:
    """What the small cases of a tree give, the smallest first, up to the first wrong one; or one case only."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "kernels"]:
        del sys.modules[name]
    sys.path.insert(0, str(tree))
    os.environ["TRITON_DISABLE_LINE_INFO"] = "1"  # they would be in the text that metrics are read from
    kernel = importlib.import_module("kernels.registry").discover().kernels[fault.operator]
    compiled, compiling = [], JITFunction._do_compile

    def kept(*given: Any, **more: Any) -> Any:
        compiled.append(compiling(*given, **more))
        return compiled[-1]

    JITFunction._do_compile = kept
    cases._explained = lambda *given: ("", [])  # who wrote the wrong element takes as long again
    every = cases.small_cases({fault.operator: kernel}, [fault.arch])
    told: dict[str, Any] = {"case": "", "why": "", "cases": 0}
    for small in sorted(every, key=lambda one: kernel.function("cost")(one.case).flops):
        name = f"{small.backend} {small.name}"
        if only not in ("", name):
            continue
        compiled.clear()
        told["cases"] += 1
        try:
            cases.execute(kernel, small)
        except Exception as error:
            told |= {"case": name, "why": f"{type(error).__name__}: {error}".splitlines()[0]}
            break
    static: dict[str, Any] = {}
    for number, one in enumerate(compiled):
        text = one.asm["amdgcn"]
        metrics = amd.metrics(text, amd.parse(text), one.metadata.shared, "inttoptr" in one.asm["llir"])
        static |= {f"{name}{number or ''}": value for name, value in metrics.items()}
    return {**told, "static": static}


def _reported(fault: Fault) -> dict[str, Any]:
    told = found(fault)
    print(f"{fault.what}: {told['case'] or 'NOT FOUND'}; {told['why'][:200]}", file=sys.stderr, flush=True)
    return told


def table() -> str:
    """Markdown, one row a fault."""
    with ThreadPoolExecutor(2) as pool:
        told = list(pool.map(_reported, FAULTS))
    caught = sum(bool(one["case"]) for one in told)
    silent = sum(bool(one["case"]) and not one["metrics"] for one in told)
    rows = [
        f"{caught} of {len(FAULTS)} faults are found; in {silent} of them no static metric of the code differs.",
        "",
        "| fault | operator | target | found by | static metrics that differ |",
        "|---|---|---|---|---|",
    ]
    for fault, one in zip(FAULTS, told, strict=True):
        case = one["case"].partition("@")[0] or f"NOT FOUND in {one['cases']} cases"
        differ = ", ".join(one["metrics"][:4]) + (
            f" and {len(one['metrics']) - 4} more" if len(one["metrics"]) > 4 else ""
        )
        rows.append(f"| {fault.what} | {fault.operator} | {fault.arch} | {case} | {differ or 'none'} |")
    return "\n".join(rows)


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(table())
