"""Control flow: dominators and loops against obvious definitions, paths against enumeration, text without names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.isa import nvidia
from benchmarks.isa.code import Code, Instruction, Jump, dominators


def jump(instruction):
    """A toy instruction set: `go A B` goes to A or B or on, `goto A` to A, `end` nowhere."""
    if instruction.mnemonic == "go":
        return Jump(instruction.operands, falls_through=True)
    if instruction.mnemonic == "goto":
        return Jump(instruction.operands, falls_through=False)
    return Jump((), falls_through=False) if instruction.mnemonic == "end" else None


def code(text):
    lines = [line.strip() for line in text.split(";")]
    return Code(
        [line[:-1] if line.endswith(":") else Instruction(line.split()[0], tuple(line.split()[1:])) for line in lines],
        jump,
    )


@st.composite
def graphs(draw):
    """Random programs: one block a label, each with up to two jumps."""
    size = draw(st.integers(1, 7))
    lines = []
    for block in range(size):
        targets = draw(st.lists(st.integers(0, size - 1), max_size=2))
        lines += [
            f"b{block}:",
            "work",
            f"{draw(st.sampled_from(['go', 'goto', 'end']))} " + " ".join(f"b{t}" for t in targets),
        ]
    return code(";".join(lines))


def reachable(successors, without=None, start=0):
    seen, waiting = set(), [start] if start != without else []
    while waiting:
        block = waiting.pop()
        if block not in seen:
            seen.add(block)
            waiting += [t for t in successors[block] if t != without]
    return seen


@given(graphs())
def test_a_block_dominates_what_cannot_be_reached_without_it(program):
    successors = program.successors
    for block, above in enumerate(dominators(successors)):
        without = {one for one in range(len(successors)) if block not in reachable(successors, without=one)}
        assert {one for one in range(len(successors)) if above >> one & 1} == (
            without if block in reachable(successors) else set()
        )


@given(graphs())
def test_a_loop_is_what_reaches_its_back_edge_without_its_header(program):
    successors, live = program.successors, reachable(program.successors)
    expected = {}
    for source in live:
        for header in successors[source]:
            if source not in reachable(successors, without=header):
                body = {b for b in live if b != header and source in reachable(successors, without=header, start=b)}
                expected.setdefault(header, set()).update(body | {header, source})
    assert {loop.header: set(loop.blocks) for loop in program.loops} == expected
    for loop in program.loops:
        assert loop.depth == sum(loop.header in body for body in expected.values())


def order(successors):
    """The order in which edges count as forward: that of a depth-first walk."""
    seen, finished = set(), []

    def visit(block):
        seen.add(block)
        for target in successors[block]:
            if target not in seen:
                visit(target)
        finished.append(block)

    visit(0)
    return {block: index for index, block in enumerate(reversed(finished))}


@given(graphs(), st.lists(st.integers(0, 9), min_size=7, max_size=7))
def test_the_heaviest_path_against_all_paths(program, weights):
    place = order(program.successors)

    def best(block):
        return weights[block] + max((best(t) for t in program.successors[block] if place[t] > place[block]), default=0)

    assert program.heaviest_path(dict(enumerate(weights))) == best(0)


@given(graphs(), st.lists(st.integers(0, 9), min_size=7, max_size=7))
def test_the_heaviest_pass_through_a_loop_against_all_of_them(program, weights):
    successors, place = program.successors, order(program.successors)

    def ways(block, allowed):
        yield [block]
        for target in successors[block]:
            if target in allowed and place[target] > place[block]:
                yield from ([block, *rest] for rest in ways(target, allowed))

    for loop in program.loops:
        every = list(ways(loop.header, loop.blocks))
        closed = [way for way in every if loop.header in successors[way[-1]]]
        found = program.heaviest_pass(loop, weights)
        assert found in (closed or every)
        assert sum(weights[b] for b in found) == max(sum(weights[b] for b in way) for way in closed or every)


NEST = "a;outer:;b;inner:;c;go inner;d;go outer;e;end"


def test_text_marks_loops_and_renames_labels_in_order():
    assert code(NEST).text() == code(NEST.replace("outer", ".LBB7_3").replace("inner", ".LBB7_9")).text()
    assert code(NEST).text().splitlines() == [
        "; no loop",
        "\ta",
        "; loop L0 depth 1",
        "L0:",
        "\tb",
        "; loop L1 depth 2",
        "L1:",
        "\tc",
        "\tgo L1",
        "; loop L0 depth 1",
        "\td",
        "\tgo L0",
        "; no loop",
        "\te",
        "\tend",
    ]


def test_labels_do_not_eat_parts_of_other_names():
    assert "\twork L0x" in code("L:;goto L;work Lx;end").text().replace("Lx", "L0x")
    assert code(".L1:;a .L10;goto .L1").text().count(".L10") == 1


def test_an_empty_program_has_nothing():
    empty = Code([], jump)
    assert (empty.loops, empty.instructions, empty.heaviest_path({})) == ([], [], 0)


# Reading SASS: classes, widths, loops, resources.


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
