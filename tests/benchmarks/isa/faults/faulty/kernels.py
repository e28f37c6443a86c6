"""One kernel a fault, and one that is sound."""

import time

import triton
import triton.language as tl

from kernels.spec import Case, Compilation, Cost, Kernel, Tolerance, Unsupported


@triton.jit
def copy(source, target, N, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(target + offsets, tl.load(source + offsets, mask=offsets < N), mask=offsets < N)


@triton.constexpr_function
def misbehave(how):
    if how == "hang":
        __import__("time").sleep(1000)
    blocks = []
    while how == "eat":
        blocks.append(b"x" * (64 << 20))
        __import__("time").sleep(0.02)
    if how == "die":
        __import__("os").abort()
    return 1


@triton.jit
def bad_at_compile_time(source, target, N, BLOCK: tl.constexpr, HOW: tl.constexpr):
    scale: tl.constexpr = misbehave(HOW)
    offsets = tl.arange(0, BLOCK) * scale
    tl.store(target + offsets, tl.load(source + offsets))


@triton.constexpr_function
def unreadable():
    return time.monotonic() > 0


@triton.jit
def unreadable_dependency(source, target, N, BLOCK: tl.constexpr):
    scale: tl.constexpr = unreadable()
    tl.store(target + tl.arange(0, BLOCK), scale)


@triton.jit
def wrong_shapes(source, target, N, BLOCK: tl.constexpr):
    tl.store(target + tl.arange(0, BLOCK), tl.load(source + tl.arange(0, 2 * BLOCK)))


def _declared(name, function, options=None, constants=None, only=None, arguments=None, cases=("one", "two")):
    kernel = Kernel(name, cases=[Case(case, tier="pr", N=4096) for case in cases], tolerance=Tolerance())
    kernel.inputs(lambda case, seed: {})
    kernel.cost(lambda case: Cost())
    kernel.reference(lambda case, inputs: None)
    kernel.backend("triton")(lambda case, inputs: lambda: None)

    def declare(case, arch):
        if only and arch != only:
            raise Unsupported(f"needs {only}")
        given = {"source": ("*fp16", (case.N,)), "target": ("*fp16", (case.N,)), "N": case.N} | (arguments or {})
        launch = {"num_warps": 4} | (options or {})
        return [Compilation("", function, given, {"BLOCK": 1024} | (constants or {}), launch)]

    kernel.isa("triton")(declare)
    return kernel


sound = _declared("sound", copy)
hangs = _declared("hangs", bad_at_compile_time, constants={"HOW": "hang"}, only="gfx942", cases=["one"])
eats = _declared("eats", bad_at_compile_time, constants={"HOW": "eat"}, only="gfx942", cases=["one"])
dies = _declared("dies", bad_at_compile_time, constants={"HOW": "die"}, only="gfx942", cases=["one"])
unread = _declared("unread", unreadable_dependency)
misfit = _declared("misfit", wrong_shapes)
bad_option = _declared("bad_option", copy, options={"num_wraps": 8})
foreign_option = _declared("foreign_option", copy, options={"maxnreg": 128})
kpack = _declared("kpack", copy, options={"kpack": 2})
bad_parameter = _declared("bad_parameter", copy, constants={"BLOK": 64})
missing_parameter = _declared("missing_parameter", bad_at_compile_time)
bad_type = _declared("bad_type", copy, arguments={"source": ("*float16", (4096,))})
tuned = _declared("tuned", triton.autotune([triton.Config({"BLOCK": 64})], key=["N"])(copy))
only_gfx950 = _declared("only_gfx950", copy, only="gfx950")
large = _declared("large", copy, arguments={"source": ("*fp16", (4096,), 8 << 30)})


def _broken_declaration(case, arch):
    raise KeyError("no tile for this shape")


undeclared = Kernel("undeclared", cases=[Case("one", tier="pr")], tolerance=Tolerance())
undeclared.inputs(lambda case, seed: {})
undeclared.cost(lambda case: Cost())
undeclared.reference(lambda case, inputs: None)
undeclared.backend("triton")(lambda case, inputs: lambda: None)
undeclared.isa("triton")(_broken_declaration)
