"""The register that names a compute die is one that gfx942 and gfx950 have; how programs are spread is described."""

import pytest
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from kernels import hardware
from kernels._shared.xcd import described, note_xcds


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_it_assembles_and_reads_the_register(arch):
    compiled = triton.compile(ASTSource(note_xcds, {"out": "*i32"}), GPUTarget("hip", arch, 64), {"num_warps": 1})
    assert "s_getreg_b32 s" in compiled.asm["amdgcn"]
    assert "hwreg(HW_REG_XCC_ID, 0, 4)" in compiled.asm["amdgcn"]
    assert compiled.asm["hsaco"][:4] == b"\x7fELF"


def test_programs_are_counted_by_die_in_the_order_in_which_they_come():
    assert described([3, 0, 1, 2] * 4) == {"programs": [4, 4, 4, 4], "round_robin": True}
    assert described([0, 1, 2, 3, 0, 1]) == {"programs": [2, 2, 1, 1], "round_robin": True}
    assert described([0, 1, 1, 0]) == {"programs": [2, 2], "round_robin": False}
    assert described([5, 5, 5]) == {"programs": [3], "round_robin": True}, "a partition of one die"


def test_only_chips_with_dies_are_asked():
    assert {device.arch for device in hardware.DEVICES if device.xcds > 1} == {"gfx942", "gfx950"}
