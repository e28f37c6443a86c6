"""Reading SASS: classes, widths, loops, resources."""

from __future__ import annotations

import pytest

from benchmarks.isa import nvidia
from benchmarks.isa.code import Instruction

SASS = """
        .global         tile
.text.tile:
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0010*/              @!P0 BRA `(.L_x_2) ;
.L_x_1:
        /*0020*/                   LDGSTS.E.BYPASS.128 [R35], desc[UR18][R8.64], !P3 ;
        /*0030*/                   HGMMA.64x128x16.F32 R24, gdesc[UR12], R24 ;
        /*0040*/                   STL [R1+0x8], R4 ;
        /*0050*/               @P0 BRA `(.L_x_1) ;
.L_x_2:
        /*0060*/                   STG.E.U16 desc[UR18][R54.64], R244 ;
        /*0070*/                   STG.E.128 desc[UR18][R54.64], R244 ;
        /*0080*/                   LDS R2, [R3] ;
        /*0090*/                   EXIT ;
.L_x_3:
        /*00a0*/                   BRA `(.L_x_3) ;
        /*00b0*/                   NOP ;
"""
USAGE = "Function tile:\n  REG:103 STACK:16 SHARED:1024 LOCAL:0 CONSTANT[0]:584\n"


def test_metrics_of_a_small_kernel():
    found = nvidia.metrics(USAGE, nvidia.parse(SASS), 65536, 8)
    assert found["registers"] == 103
    assert (found["scratch_bytes"], found["scratch_ops"], found["scratch_ops_in_loops"]) == (16, 1, 1)
    assert found["matrix"] == {"HGMMA.64x128x16.F32": 1}
    assert found["load_widths"] == {"16": 1}
    assert found["store_widths"] == {"16": 1, "2": 1}
    assert (found["loads_to_lds"], found["lds_read_widths"]) == (1, {"4": 1})
    assert found["loop"] == {
        "instructions": 4,
        "depth": 1,
        "matrix_share": 0.25,
        "mix": {"branch": 1, "load": 1, "local": 1, "matrix": 1},
    }


def test_padding_behind_the_end_is_no_code():
    assert len(nvidia.parse(SASS).instructions) == 10


def test_a_predicated_exit_falls_through():
    assert nvidia.jump(Instruction("EXIT", (), "@P0")).falls_through
    assert not nvidia.jump(Instruction("EXIT")).falls_through


@pytest.mark.parametrize(
    ("name", "width"),
    [("LDG.E.128", 16), ("LDG.E.64", 8), ("LDG.E", 4), ("STG.E.U16", 2), ("LDG.E.U8", 1), ("UTMALDG.2D", None)],
)
def test_bytes_a_lane(name, width):
    assert nvidia.access_bytes(Instruction(name)) == width


def test_a_missing_or_failing_tool_is_named(tmp_path):
    with pytest.raises(nvidia.ToolError, match=r"nvdisasm is missing; the triton wheel"):
        nvidia.disassemble(b"", tmp_path)
    tool = tmp_path / "nvdisasm"
    tool.write_text("#!/bin/sh\necho broken cubin >&2\nexit 3\n")
    tool.chmod(0o755)
    with pytest.raises(nvidia.ToolError, match=r"nvdisasm ended with exit code 3: broken cubin"):
        nvidia.disassemble(b"", tmp_path)


def test_usage_without_registers_is_refused():
    with pytest.raises(nvidia.ToolError, match="does not give REG"):
        nvidia.metrics("nothing", nvidia.parse(SASS), 0, 4)
