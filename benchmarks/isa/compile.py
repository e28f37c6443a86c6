"""Ahead-of-time compilation through the JIT's own specialisation, with no device: runs inside a worker process.

A stand-in driver names the target, and tensors without storage answer what the JIT asks (type, alignment, 32-bit offset
range).  So the code is what a launch with these arguments gets.  Triton keeps some device limits for the life of a
process, so one process compiles for one architecture only.
"""

from __future__ import annotations

import dataclasses
import gc
import math
import os
import re
import tempfile
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..shapes import Json, JsonObject, digest_of, text_digest
from . import amd, nvidia
from .code import Code

ELEMENT_BYTES = {
    "fp64": 8,
    "fp32": 4,
    "fp16": 2,
    "bf16": 2,
    "fp8e4nv": 1,
    "fp8e4b8": 1,
    "fp8e4b15": 1,
    "fp8e5": 1,
    "fp8e5b16": 1,
    "i1": 1,
    "i8": 1,
    "u8": 1,
    "i16": 2,
    "u16": 2,
    "i32": 4,
    "u32": 4,
    "i64": 8,
    "u64": 8,
}
"""Bytes of the element types a pointer argument may name (Triton's own short names)."""


class WrongDeclaration(Exception):
    """A declared compilation that would not do what it says; the text says what to change."""


@dataclasses.dataclass(frozen=True)
class StorageFree:
    """A tensor as the JIT sees it when it specialises; address 0 stands for "aligned to 16 bytes", as allocators do.

    dtype: Triton's short name.  storage_bytes: of the whole allocation; only below 2 GiB are offsets 32-bit on AMD.
    """

    dtype: str
    shape: tuple[int, ...]
    storage_bytes: int

    def data_ptr(self) -> int:
        """Aligned."""
        return 0

    def ptr_range(self) -> int:
        """Bytes from the pointer to the end of its storage."""
        return self.storage_bytes

    def stride(self) -> tuple[int, ...]:
        """Of a contiguous tensor."""
        return tuple(math.prod(self.shape[i + 1 :]) for i in range(len(self.shape)))


class OfflineDriver:
    """A driver that knows its target and nothing else."""

    def __init__(self, gpu_target: Any) -> None:
        self._target = gpu_target

    def get_current_target(self) -> Any:
        """The architecture compiled for."""
        return self._target

    def get_current_device(self) -> int:
        """There is one, number 0."""
        return 0

    def get_current_stream(self, device: int | None = None) -> int:
        """The default one."""
        return 0


@dataclasses.dataclass(frozen=True)
class Specialised:
    """What the JIT would compile: its source object, parsed options, and warnings given on the way."""

    source: Any
    options: JsonObject
    notes: tuple[str, ...]


def pretend(arch: str) -> Any:
    """Make Triton compile for `arch` in this process; returns Triton's target object."""
    from triton.backends.amd.compiler import HIPBackend
    from triton.backends.compiler import GPUTarget
    from triton.runtime.driver import driver

    found = ARCHES[arch]
    gpu_target = GPUTarget(found.backend, found.arch, found.wave_size)
    driver.set_active(OfflineDriver(gpu_target))
    # It is not to import torch (1 to 3 s) to look for torch tensors, of which there are none: from 3.8 on it asks this.
    if hasattr(HIPBackend, "_torch_available"):
        HIPBackend._torch_available = False
    return gpu_target


def argument(name: str, declared: Any) -> Any:
    """A declared argument as the JIT takes it: ("*fp16", shape[, storage bytes]) becomes a tensor, the rest stays."""
    if not isinstance(declared, tuple):
        return declared
    kind, shape, *storage = declared
    element = str(kind).removeprefix("*")
    if not str(kind).startswith("*") or element not in ELEMENT_BYTES:
        raise WrongDeclaration(
            f"argument {name!r} has the type {kind!r}; a pointer type is '*' and one of {', '.join(ELEMENT_BYTES)}"
        )
    size = storage[0] if storage else math.prod(shape) * ELEMENT_BYTES[element]
    return StorageFree(element, tuple(shape), size)


def check(compilation: Any, gpu_target: Any, version: str) -> None:
    """Refuse what Triton would ignore or not understand, by name."""
    function = compilation.function
    if not all(hasattr(function, name) for name in ("warmup", "arg_names", "create_binder")):
        raise WrongDeclaration(
            f"function is of type {type(function).__name__}; declare the @triton.jit or @gluon.jit function itself "
            "(of an autotuner its .fn) with the chosen constants"
        )
    from triton.compiler import make_backend

    known = sorted(make_backend(gpu_target).parse_options({}).__dict__)
    for name in compilation.options:
        if name not in known:
            raise WrongDeclaration(
                f"option {name!r} means nothing to the {gpu_target.backend} backend of Triton {version}, "
                f"which would ignore it; it knows {', '.join(known)}"
            )
    called, given = function.__name__, {**compilation.arguments, **compilation.constants}
    for name in given:
        if name not in function.arg_names:
            raise WrongDeclaration(f"{called} has no parameter {name!r}; it has {', '.join(function.arg_names)}")
    missing = [p.name for p in function.params if not p.has_default and p.name not in given]
    if missing:
        raise WrongDeclaration(f"{called} needs {', '.join(missing)}, which the declaration does not give")


def specialise(compilation: Any) -> Specialised:
    """Let the JIT bind and specialise the arguments, and stop it where it would compile."""
    function = compilation.function
    given = {name: argument(name, value) for name, value in compilation.arguments.items()}
    caught: JsonObject = {}

    def stop(source: Any, target: Any, options: Json, **_: Any) -> None:
        caught.update(source=source, options=dict(options))

    function.device_caches.clear()
    function.device_caches[0]  # makes the binder, which sets function.compile
    function.compile = stop
    with warnings.catch_warnings(record=True) as given_warnings:
        warnings.simplefilter("always")
        function.warmup(**given, **compilation.constants, **compilation.options, grid=(1,))
    function.device_caches.clear()
    notes = dict.fromkeys(str(w.message).strip() for w in given_warnings)
    return Specialised(caught["source"], caught["options"], tuple(notes))


def key(found: Specialised) -> str:
    """Equal for compilations of one process that are the same: source, types, alignment and constants (the JIT's own
    digest), and options.
    """
    options = {name: str(value) for name, value in found.options.items()}
    return digest_of([found.source.hash(), type(found.source).__name__, found.source.name, options])


def forget_half_made_keys() -> None:
    """Take back the placeholders that Triton leaves as the digest of a function if computing it fails.

    With one, the next compilation of that function (or of one that calls it) would have a key without its source.
    """
    from triton.runtime.jit import JITCallable

    for thing in gc.get_objects():
        if isinstance(thing, JITCallable) and str(thing.hash).startswith("recursion:"):
            thing.hash = None


class Compiler:
    """Compiles declared units for one architecture; Triton's cache has what it compiled before.

    folder: for the texts of the code, each named by its own digest.  written: () -> what this process wrote to stderr
    since the last call (the compiler's own messages).
    """

    def __init__(self, arch: str, folder: Path, written: Callable[[], str] = str) -> None:
        import triton

        self.arch, self._folder, self._written, self.version = arch, folder, written, triton.__version__
        folder.mkdir(parents=True, exist_ok=True)
        self._target = ARCHES[arch]
        self._gpu_target = pretend(arch)
        self._tools = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"

    def record(self, compilation: Any) -> JsonObject:
        """What became of one compilation: {"status": "ok", "hash", "asm", "metrics", "notes", "key"} or
        {"status": "failed" | "refused", "why"}.

        asm: the file of its text in the folder.
        """

        def recorded(found: Specialised) -> JsonObject:
            about = {"key": key(found), "notes": list(found.notes)}
            try:
                record, text = self._read(self._compiled(found))
            except Exception as error:
                return {"status": "failed", "why": first_cause(error, self._written()), **about}
            record["asm"] = f"{record['hash']}.s"
            write(self._folder / record["asm"], text)
            return record | about

        return self._specialised(compilation, recorded)

    def fill(self, compilation: Any) -> JsonObject:
        """Have the binary in Triton's own cache, where a launch finds it: {"status": "ok"}, or why not as above."""

        def filled(found: Specialised) -> JsonObject:
            self._compiled(found)
            return {"status": "ok"}

        return self._specialised(compilation, filled)

    def _specialised(self, compilation: Any, then: Callable[[Specialised], JsonObject]) -> JsonObject:
        """What is made of a compilation once the JIT has specialised it; else why that cannot be."""
        self._written()
        try:
            check(compilation, self._gpu_target, self.version)
            return then(specialise(compilation))
        except WrongDeclaration as error:
            return {"status": "refused", "why": str(error)}
        except Exception as error:
            forget_half_made_keys()
            return {"status": "failed", "why": first_cause(error, self._written())}

    def _compiled(self, found: Specialised) -> Any:
        """The very call that the JIT makes, so that the entry in Triton's cache is the launch's."""
        import triton

        return triton.compile(found.source, target=self._gpu_target, options=found.options)

    def _read(self, kernel: Any) -> tuple[JsonObject, str]:
        """The record of a compiled kernel and its normalised text."""
        shared, num_warps = kernel.metadata.shared, kernel.metadata.num_warps
        if self._target.backend == "hip":
            text = kernel.asm["amdgcn"]
            code = amd.parse(text)
            metrics = amd.metrics(text, code, shared, "inttoptr" in kernel.asm["llir"])
        else:
            sass, usage = nvidia.disassemble(kernel.asm["cubin"], self._tools)
            code = nvidia.parse(sass)
            metrics = nvidia.metrics(usage, code, shared, num_warps)
        normal = normalised(code, metrics)
        return {"status": "ok", "hash": text_digest(normal), "metrics": metrics}, normal


def normalised(code: Code, metrics: Json) -> str:
    """The text that is hashed: resources that a launch depends on, then the code with labels renamed."""
    names = ("vgpr", "agpr", "sgpr", "registers", "scratch_bytes", "lds_bytes", "waves_per_group")
    head = ", ".join(f"{name} {metrics[name]}" for name in names if name in metrics)
    return f"; {head}\n{code.text()}"


# The architectures that can be compiled for on any machine, and what a compiling process must not inherit.


SCRUBBED = ("TRITON_", "AMDGCN_", "MLIR_", "LLVM_", "HIP_", "ROCM_", "CUDA_", "NVPTX_", "DISABLE_", "ALLOW_")
"""Prefixes of environment variables that change code or its text; a compiling process starts without them."""

FIXED = {"TRITON_DISABLE_LINE_INFO": "1", "TRITON_DEFAULT_FP_FUSION": "1", "PYTHONHASHSEED": "0"}
"""Set in every compiling process: without line numbers the text does not depend on the folder; Triton 3.9 warns that
the default of floating-point fusion changes in 3.10."""


@dataclasses.dataclass(frozen=True)
class Target:
    """What triton.backends.compiler.GPUTarget takes: backend, its name of the architecture, lanes of a wave."""

    backend: str
    arch: str | int
    wave_size: int


ARCHES: dict[str, Target] = {
    "gfx942": Target("hip", "gfx942", 64),
    "gfx950": Target("hip", "gfx950", 64),
    "sm_90": Target("cuda", 90, 32),
}
"""MI300X, MI325X; MI350X, MI355X; H100, H200.  Metrics are read for these, see amd.py and nvidia.py."""


def environment(inherited: Mapping[str, str]) -> dict[str, str]:
    """The environment of a compiling process: the inherited one without what changes code, and FIXED."""
    kept = {name: value for name, value in inherited.items() if not name.startswith(SCRUBBED)}
    return kept | FIXED


# The first cause of a failed compilation in one sentence.


_SAID = (r"LLVM ERROR: (.+)", r"(?:^|(?<!Python)\s)error: (.+)", r"Assertion [`'](.+)' failed", r"ptxas fatal\s*: (.+)")
"""How messages of LLVM, MLIR, assertions and ptxas begin, the most specific first."""


def first_cause(error: BaseException, log: str = "") -> str:
    """What went wrong first: the compiler's own message if it wrote one, else the innermost exception's.

    log: what the compiler wrote to stderr.  LLVM's and MLIR's messages come before the exception that follows them.
    """
    if message := compiler_message(log):
        return message
    where = _where(error)
    while error.__cause__ is not None:
        error = error.__cause__
        where = _where(error) or where
    message = str(getattr(error, "error_message", None) or "") or _last_line(str(error))
    text = " ".join(message.split()) or "no message"
    return f"{type(error).__name__}{where}: {_shortened(text)}"


def compiler_message(log: str) -> str:
    """The compiler's own message in what a process wrote, "" where there is none."""
    for pattern in _SAID:
        match = re.search(pattern, log)
        if match:
            return f"the compiler says: {_shortened(match[1].strip())}"
    return ""


def _where(error: BaseException) -> str:
    """at line 12, `total = tl.dot(a, b)`: the line of the kernel's source that Triton names."""
    source, node = getattr(error, "src", None), getattr(error, "node", None)
    line = getattr(node, "lineno", None)
    if not isinstance(source, str) or line is None:
        return ""
    lines = source.splitlines()
    text = lines[line - 1].strip() if 0 < line <= len(lines) else ""
    return f" at line {line}, `{text}`"


def _last_line(text: str) -> str:
    lines = [line for line in text.strip().splitlines() if line.strip(" ^")]
    return lines[-1] if lines else ""


LONGEST_SAID = 300
"""Characters of a compiler's sentence."""


def _shortened(text: str) -> str:
    text = re.sub(r"/[\w./-]*/([\w.-]+)", lambda match: Path(match[0]).name, text)
    return text if len(text) <= LONGEST_SAID else text[: LONGEST_SAID - 3] + "..."


def write(path: Path, text: str) -> None:
    """A file that others may read meanwhile, whole or not at all."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".writing-")
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    os.replace(temporary, path)
