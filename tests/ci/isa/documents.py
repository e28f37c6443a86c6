"""Compiled trees and result files of `python -m benchmarks.isa` by hand, for tests of what reads them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from ci.isa.compiled import CompiledTree, parse
from ci.isa.judge import CodeVerdict

METRICS = {
    "vgpr": 86,
    "agpr": 0,
    "sgpr": 24,
    "vgpr_spills": 0,
    "sgpr_spills": 0,
    "scratch_bytes": 0,
    "scratch_ops": 0,
    "scratch_ops_in_loops": 0,
    "agpr_moves_in_loops": 0,
    "lds_bytes": 32768,
    "lds_limit": 65536,
    "waves_per_group": 8,
    "occupancy": 4,
    "occupancy_by_registers": 4,
    "occupancy_by_lds": 4,
    "code_bytes": 3400,
    "instructions": 532,
    "mix": {"salu": 120, "valu": 224, "mfma": 96, "load": 12, "store": 8, "lds": 48, "wait": 19, "barrier": 5},
    "matrix": {"v_mfma_f32_16x16x16_f16": 96},
    "load_widths": {"16": 12},
    "store_widths": {"8": 8},
    "store_names": {"buffer_store_dwordx2": 8},
    "bytes_per_load": 16.0,
    "bytes_per_store": 8.0,
    "loads_to_lds": 0,
    "remote_store_widths": {},
    "remote_store_names": {},
    "remote_store_bytes": 0,
    "remote_store_bytes_in_loops": 0,
    "bytes_per_remote_store": None,
    "subdword_remote_stores": 0,
    "remote_store_drains": 0,
    "remote_store_drains_between": 0,
    "heap_base_loads": 0,
    "heap_base_loads_in_loops": 0,
    "lds_read_widths": {"2x8": 36},
    "lds_write_widths": {"2x8": 12},
    "barriers": 5,
    "waits": 30,
    "atomics": {},
    "loops": 1,
    "loop": {"instructions": 70, "depth": 1, "mix": {"mfma": 32, "lds": 16, "valu": 22}, "matrix_share": 0.4571},
}

REMOTE = {
    "store_widths": {"16": 16},
    "store_names": {"global_store_dwordx4": 16},
    "remote_store_widths": {"16": 16},
    "remote_store_names": {"global_store_dwordx4": 16},
    "remote_store_bytes": 256,
    "heap_base_loads": 8,
}
"""What differs in a kernel that stores to remote ranks."""


def entry_json(
    kernel="gemm",
    code="a",
    *,
    backend="triton",
    label="",
    arch="gfx942",
    cases=("one",),
    status="ok",
    why="",
    will_not_load=None,
    notes=(),
    without=(),
    **metrics,
):
    """One compilation; `code` is its hash, further keywords are its metrics.  without: metrics that are left out."""
    head = {"kernel": kernel, "backend": backend, "label": label, "arch": arch, "triton": "3.8.0"}
    head |= {"cases": list(cases), "status": status}
    if status != "ok":
        return head | {"why": why or "it says why"}
    kept = {name: value for name, value in (METRICS | metrics).items() if name not in without}
    remarks = {"notes": list(notes), "will_not_load": will_not_load}
    return head | {"hash": code, "asm": f"{code}.s", "metrics": kept} | remarks


def document_json(*entries, triton="3.8.0", broken=(), failures=()):
    """A result file of these entries."""
    head = {"format": "ridgeline-isa", "version": 1, "triton": triton, "arches": ["gfx942"]}
    return head | {"entries": list(entries), "broken": list(broken), "failures": list(failures)}


def entry(*words, **fields):
    """The same, as it is read."""
    return parse(json.dumps(document_json(entry_json(*words, **fields))), "a result file").entries[0]


def document(*entries, triton="3.8.0", broken=(), failures=()):
    """A compiled tree of these entries; broken and failures: {module or architecture: why}."""
    return CompiledTree(triton, ("gfx942",), entries, dict(broken), dict(failures))


# Compile source trees for real, plant changes in them, and read the alarms: for tests of the ISA gate.

ROOT = Path(__file__).resolve().parents[3]


def compiled(tree, cache, *arches, **chosen):
    """A source tree, compiled; chosen: see result_file."""
    return parse(result_file(tree, cache, *arches, **chosen), str(tree))


def result_file(tree, cache, *arches, kernels=(), cases=(), backends=()):
    """The text of a tree's result file."""
    command = [sys.executable, "-m", "benchmarks.isa", "--tree", tree, "--cache", cache]
    command += ["--progress", "none"]
    for flag, values in (("--arch", arches), ("--kernel", kernels), ("--case", cases), ("--backend", backends)):
        for value in values:
            command += [flag, value]
    done = subprocess.run([str(part) for part in command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    return done.stdout


def change(path, *changes):
    """Replace text in a file; every replacement must apply."""
    text = path.read_text()
    for old, new in changes:
        assert old in text, f"{path.name} has no {old!r}"
        text = text.replace(old, new)
    path.write_text(text)


def alarms(judgement):
    """(kernel, arch) -> rules that alarm; every configuration without alarm must be SAME."""
    for difference in judgement.differences:
        assert difference.alarms or difference.verdict is CodeVerdict.SAME, (difference, difference.findings)
    found = {}
    for difference in judgement.differences:
        for finding in difference.alarms:
            rules = found.setdefault((difference.kernel, difference.arch), [])
            rules += [finding.rule] if finding.rule not in rules else []
    return found


DEQUANTISE = '''@triton.jit
def dequantised(packed, scale):
    """[rows, K/2] bytes of two e2m1 and [rows, K/32] e8m0 -> [rows, K] bf16."""
    nibbles = tl.join(packed & 15, packed >> 4).reshape(packed.shape[0], packed.shape[1] * 2).to(tl.int32)
    exponent, mantissa = (nibbles >> 1) & 3, nibbles & 1
    value = tl.where(exponent == 0, mantissa * 0.5, (1.0 + 0.5 * mantissa) * tl.exp2((exponent - 1).to(tl.float32)))
    value = tl.where(nibbles >= 8, -value, value)
    factor = tl.exp2(scale.to(tl.float32) - 127.0)
    factor = tl.broadcast_to(factor[:, :, None], (scale.shape[0], scale.shape[1], 32)).reshape(value.shape)
    return (value * factor).to(tl.bfloat16)


'''
"""What MXFP4 costs without the scaled matrix instruction."""
