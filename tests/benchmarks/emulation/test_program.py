"""`ridgeline emulate -- PROGRAM` on a small project of somebody's: right, wrong, and what a person sees."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib.metadata import version

import pytest
import torch
from packaging.version import Version

from benchmarks.emulation.device.configurations import difference
from benchmarks.emulation.device.session import free_bytes
from tests.kit import HANGS_S, ROOT, mostly_nightly

CHECKS = [
    *("moves", "modules_and_gradients", "device", "defaults", "files", "tools", "no_times", "graphs", "refusals"),
    *("kernels", "own_operations", "spawning"),
]
"""Functions of semantics.py."""

PROJECT = "tests/benchmarks/emulation/program"


def emulate(*arguments, timeout=HANGS_S):
    """The verb in a process of its own."""
    command = [sys.executable, "-m", "ci", "emulate", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=timeout)


def checks(*arguments):
    return ["python", "-m", "pytest", "-rpf", "-p", "no:cacheprovider", f"{PROJECT}/checks.py", *arguments]


@pytest.mark.slow
@pytest.mark.parametrize("arch", mostly_nightly(["gfx942", "gfx950"], "gfx942"))
def test_the_device_does_what_one_gpu_does(arch):
    done = emulate("--arch", arch, "--", "python", "-m", "tests.benchmarks.emulation.program.semantics")
    assert done.returncode == 1, done.stdout + done.stderr  # for an assertion of a kernel does not hold
    assert done.stdout.split() == CHECKS
    assert re.search(rf"{arch}: 13 launches of 3 kernels, [\d,]+ instructions of waves", done.stderr)


@pytest.mark.slow
def test_a_suite_fails_where_its_kernels_are_wrong_and_a_fault_names_its_lane(tmp_path):
    rows = tmp_path / "rows.jsonl"
    done = emulate("--json", str(rows), "--", *checks("-n", "1", "-p", "xdist"))
    assert done.returncode == 1
    said = done.stdout + done.stderr
    assert set(re.findall(r"FAILED \S+::(\w+)", said)) == {"test_wrong", "test_tail"}, said
    assert done.stdout.count("PASSED ") == 5
    assert "session.py" not in done.stdout  # among the frames of test_tail
    assert re.search(
        r"gfx942: 4 bytes at 0x\w+: outside of every buffer .*; BUFFER_STORE_DWORD\w* at 0x\w+ of add_without_a_mask, "
        r"workgroup 3, wave 3, lane 40 \(.*kernels.py:\d+: tl.store",
        done.stderr,
    )
    launches = [json.loads(line) for line in rows.read_text().splitlines()]
    assert {row["kernel"] for row in launches} == {"add_kernel", "add_without_a_mask", "double_kernel"}
    whole = next(row for row in launches if row["kernel"] == "double_kernel")
    assert whole["configuration"]["BLOCK"] == 64
    assert whole["grid"] == [5, 1, 1]
    assert whole["counts"]["bytes"] == {"load": 4 * 1200, "store": 1200}  # each of 4 waves loads the block of 64
    assert whole["instructions"] == sum(whole["counts"]["classes"].values())
    assert whole["registers"]["vgpr_count"] > 0


@pytest.mark.nightly
def test_a_wrong_configuration_is_found_where_all_are_run():
    double = ("--", *checks("-k", "double"))
    assert emulate(*double).returncode == 0
    done = emulate("--configurations", "all", *double)
    assert done.returncode == 1
    assert re.search(r"double_kernel: BLOCK: 256, .* writes another out than BLOCK: 64, ", done.stderr)


@pytest.mark.parametrize(
    ("expected", "output", "differs"),
    [
        ([1, 2, 3, 4], [1, 2, 3, 4.00001], False),
        ([1, 2, 3, 4], [1, 2, 3, 5], True),
        ([1, 2, 3, 4], [2, 1, 3, 4], True),
        ([1, 2, 3, 4], [3, 7, 0, 0], False),  # of blocks that are twice as large
        ([1, 2, 3, 4], [3, 6, 0, 0], True),
    ],
)
def test_what_configurations_write_is_equal_but_for_rounding_and_the_parts_of_a_sum(expected, output, differs):
    both = torch.tensor([expected, output], dtype=torch.float32)
    assert bool(difference(torch.zeros(4), *both)) is differs


def test_a_cgroup_that_allows_less_than_is_free_bounds_memory(tmp_path):
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/meminfo").write_text("MemFree: 1 kB\nMemAvailable: 8192 kB\n")
    (tmp_path / "proc/self/cgroup").write_text("4:memory:/job/step\n2:cpu:/other\n0::/job\n")
    for least, group, limit in (
        (8, "job/memory.max", "max"),
        (8, "memory/other/memory.limit_in_bytes", "1"),
        (4, "memory.max", f"{4 << 20}\n"),
        (2, "memory/job/memory.limit_in_bytes", f"{2 << 20}\n"),
    ):
        (tmp_path / "sys/fs/cgroup" / group).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "sys/fs/cgroup" / group).write_text(limit)
        assert free_bytes(tmp_path) == least << 20


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "code", "why"),
    [
        ("", 3, "ridgeline emulate -- pytest tests"),
        (("pytest", "tests"), 3, "a program stands behind --"),
        (("--", "no-such-program"), 3, "no-such-program: no such program"),
        (("--", "sh", "-c", "sleep 1; kill -INT $PPID; sleep 1; exit 7"), 130, "the program's exit code is 7"),
    ],
)
def test_what_is_no_program_is_refused_and_one_ends_by_itself_after_ctrl_c(words, code, why):
    done = emulate(*words)
    assert done.returncode == code
    assert why in done.stderr


PRODUCT = """\
import amdsmi, torch, triton
import triton.language as tl
from triton._C.libtriton import amd

@triton.jit
def product(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n, k = tl.arange(0, BM) % M, tl.arange(0, BN) % N, tl.arange(0, BK)
    a += m[:, None] * K + k[None, :]
    b += k[:, None] * N + n[None, :]
    total = tl.zeros((BM, BN), tl.float32)
    for _ in range(0, tl.cdiv(K, BK)):
        total = tl.dot(tl.load(a), tl.load(b), total)
        a += BK
        b += BK * N
    tl.store(c + m[:, None] * N + n[None, :], total)

@triton.jit
def inverted(x):
    i = tl.arange(0, 64)
    tl.store(x + i, 1 / tl.load(x + i))

c = torch.full((64,), 2.0, device="cuda")
inverted[(1,)](c, allow_flush_denorm=True)  # but for the steps of a division
assert (c == 0.5).all()
a, b, c = (torch.randn(shape, device="cuda") for shape in ((128, 256), (256, 128), (128, 128)))
assert torch.histc(torch.tensor([0, 0, 1], device="cuda"), 2).tolist() == [2, 1]  # of whole numbers
amd.hipblas.HipblasLt(c).matmul(a, b.T, c)
assert torch.allclose(c, a @ b, atol=1e-3)
with torch.inference_mode():
    inferred = (a @ b).cpu()
    assert (inferred.device.type, (c.half() @ c.half()).dtype) == ("cpu", torch.float16)
    inferred = inferred.cuda()
assert inferred.cpu().numpy().shape == (128, 128)
info = amdsmi.amdsmi_get_gpu_asic_info(amdsmi.amdsmi_get_processor_handles()[0])
assert info["target_graphics_version"] == torch.cuda.get_device_properties(0).gcnArchName.partition(":")[0]
product[(1,)](a, b, c, 128, 128, 256, BM=128, BN=128, BK=64, num_warps=8, num_stages=2, kpack=1)
"""


@pytest.mark.slow
def test_a_hazard_of_the_compiler_ends_a_program_and_what_has_none_is_not_accused(tmp_path, monkeypatch):
    """triton-lang/triton issue 11696: the block ping-pong passes a barrier with reads of the LDS outstanding; that of
    Triton 3.9 waits for them before it (lgkmcnt(0), read in its code).
    """
    (tmp_path / "product.py").write_text(PRODUCT)
    run = ("--", "python", str(tmp_path / "product.py"))
    done = emulate(*run)
    waits = Version(version("triton")) >= Version("3.9")
    assert done.returncode == (0 if waits else 1), done.stderr
    hazards = re.findall(r"nothing orders DS_READ_B64 at 0x\w+, wave \d, before DS_WRITE2_B64 at 0x\w+", done.stderr)
    assert bool(hazards) != waits
    assert emulate("--no-hazards", *run).returncode == 0
    monkeypatch.setenv("TRITON_HIP_USE_BLOCK_PINGPONG", "0")
    assert emulate(*run).returncode == 0
