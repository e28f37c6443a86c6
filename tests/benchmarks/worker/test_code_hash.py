"""Digests of launched code: equal for equal code, different for anything that changes what the device does."""

from __future__ import annotations

import re
import sys
import textwrap
import time
import types

import pytest
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from benchmarks.worker import code_hash

SOURCE = """
import triton
import triton.language as tl


@triton.jit
def add(x, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)
"""


def compiled(folder, source, target, warps=4):
    folder.mkdir(exist_ok=True)
    path = folder / "source.py"
    path.write_text(textwrap.dedent(source))
    module = types.ModuleType("source")
    module.__file__ = str(path)
    exec(compile(path.read_text(), path, "exec"), vars(module))  # the jit reads the source through linecache
    function = vars(module)["add"]
    signature = {"x": "*fp32", "n": "i32", "BLOCK": "constexpr"}
    return triton.compile(ASTSource(function, signature, {(2,): 128}), target=target, options={"num_warps": warps})


@pytest.mark.parametrize("target", [GPUTarget("cuda", 90, 32), GPUTarget("hip", "gfx942", 64)])
def test_lines_and_paths_do_not_count_but_code_and_warps_do(tmp_path, target):
    one = code_hash.code_of(compiled(tmp_path / "a", SOURCE, target))
    moved = code_hash.code_of(compiled(tmp_path / "b", "# a comment\n\n" + SOURCE, target))
    other = code_hash.code_of(compiled(tmp_path / "c", SOURCE.replace("+ 1", "+ 2"), target))
    wider = code_hash.code_of(compiled(tmp_path / "d", SOURCE, target, warps=8))
    assert one == moved
    assert len({one, other, wider}) == 3


@pytest.fixture
def launch(monkeypatch):
    """A stand-in for a compiled kernel that is launched as Triton launches."""

    class CompiledKernel:
        asm = {"ptx": "mov.u32 %r1, 1; // a comment\n\t.loc 1 2 3\nret;"}
        metadata = types.SimpleNamespace(num_warps=4, shared=0)

        def launch_metadata(self, grid, stream, *args):
            return None

    for name in code_hash.LAUNCHERS:  # other tests of this process may have imported one
        monkeypatch.delitem(sys.modules, name, raising=False)
    compiler = types.SimpleNamespace(CompiledKernel=CompiledKernel)
    monkeypatch.setitem(sys.modules, "triton", types.SimpleNamespace(compiler=compiler))
    monkeypatch.setitem(sys.modules, "triton.compiler", compiler)
    return lambda grid, *args: CompiledKernel().launch_metadata(grid, None, *args)


def digest(*works):
    with code_hash.traced() as trace:
        for work in works:
            work()
    return trace.digest()


def test_grid_and_scalars_count_and_addresses_do_not(launch):
    x, same, longer = torch.zeros(8), torch.zeros(8), torch.zeros(9)
    base = digest(lambda: launch((4, 1), x, 100, 0.5))
    assert base == digest(lambda: launch((4, 1), same, 100, 0.5))
    assert re.fullmatch("[0-9a-f]{16}", base or "")
    assert digest(lambda: launch((1,), 1 << 40)) == digest(lambda: launch((1,), 1 << 41))
    assert (
        len(
            {
                base,
                digest(lambda: launch((8, 1), x, 100, 0.5)),
                digest(lambda: launch((4, 1), x, 101, 0.5)),
                digest(lambda: launch((4, 1), longer, 100, 0.5)),
                digest(lambda: launch((4, 1), x, 100, 0.25)),
                digest(*[lambda: launch((4, 1), x, 100, 0.5)] * 2),
            }
        )
        == 6
    )


def test_an_argument_that_answers_for_every_name_is_not_asked():
    class Anything:
        def __getattr__(self, name):
            return Anything()

    assert code_hash.value_of([Anything(), 3]) == ["Anything", 3]
    descriptor = types.SimpleNamespace(shape=[4, 8], strides=[8, 1], block_shape=[2, 2])
    assert code_hash.value_of(descriptor) == ["SimpleNamespace", [4, 8], [8, 1], [2, 2]]


def test_recording_ends(launch):
    before = sys.modules["triton.compiler"].CompiledKernel.launch_metadata
    with code_hash.traced() as trace:
        pass
    launch((1,))
    assert trace.launches == 0
    assert sys.modules["triton.compiler"].CompiledKernel.launch_metadata is before


def test_debug_information_is_no_code():
    ptx = 'add.s32 %r1, %r2, 1; // inline\n\t.file 1 "/home/x.py"\n\n\t.loc 1 3 4\nret;\n\t.section .debug_str\nx'
    ptx = "$L__func_begin0:\n$L__tmp3:\n" + ptx.replace("ret", "$L__tmp4:\nret")
    assert code_hash.normalised(ptx, "ptx") == "add.s32 %r1, %r2, 1;\nret;"
    gcn = '\ts_endpgm ; the end\n; %bb.0:\n\t.ident "clang"\nv_add_f32 v0, v1, v2'
    assert code_hash.normalised(gcn, "amdgcn") == "\ts_endpgm\nv_add_f32 v0, v1, v2"


def test_compiling_is_told_from_the_rest_of_a_first_call(monkeypatch):
    class JITFunction:
        def _do_compile(self):
            time.sleep(0.05)
            return "compiled"

    monkeypatch.setitem(sys.modules, "triton.runtime.jit", types.SimpleNamespace(JITFunction=JITFunction))
    monkeypatch.setitem(sys.modules, "triton.compiler.compiler", types.SimpleNamespace())
    original = JITFunction._do_compile
    with code_hash.compiling() as seconds:
        assert JITFunction()._do_compile() == "compiled"
    assert 0.05 <= sum(seconds) < 0.5
    assert JITFunction._do_compile is original
