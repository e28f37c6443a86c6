"""What a launch needs on this machine: Triton, and functions of other libraries as their sources had them when an
adapter was written.

An adapter passes every argument by its name.  Before its first call it checks that the installed function still takes
these names and asks for no other, so that a change upstream is one sentence and not a wrong number.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.metadata
import importlib.util
import inspect
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import torch

from kernels.spec import Case, Unsupported

# ---- Triton ----


def need_triton(case: Case) -> None:
    """Unsupported where Triton cannot be imported, or has no device to compile for."""
    try:
        from triton import knobs
    except ImportError as error:
        raise _missing("Triton", error) from error
    if case.place.arch == "cpu" and not knobs.runtime.interpret:  # an emulated GPU has an architecture
        needed = "a GPU is needed" if case.world == 1 else "GPUs are needed"
        raise Unsupported(
            f"Triton compiles for GPUs only, and this machine has none; {needed} "
            "(Triton's interpreter is for tests and is never timed)"
        )


def launch_module(load: Callable[[], Any], language: str = "Triton") -> Any:
    """The module that launches an operator, imported by `load`; Unsupported where its language cannot be imported."""
    try:
        return load()
    except (ImportError, AttributeError) as error:
        raise _missing(language, error) from error


def launcher(case: Case, load: Callable[[], Any], language: str = "Triton") -> Any:
    """launch_module, on a machine that can launch the case."""
    loaded = launch_module(load, language)
    need_triton(case)
    return loaded


def _missing(language: str, error: Exception) -> Unsupported:
    return Unsupported(f"{language} cannot be imported here ({error}); install triton 3.6 or later")


# ---- other libraries ----

COMPILING_S = 1800.0
"""aiter builds a module of Composable Kernel or HIP with ninja when one of its functions is first called: minutes on a
node's cores (ROCm/aiter aiter/jit/core.py, e4048607, 2026-08-22); half an hour is where a build counts as hanging."""

TRANSLATING_S = 600.0
"""FlyDSL compiles a kernel through MLIR at its first launch: seconds to a minute each (ROCm/FlyDSL 11c4174d)."""


@dataclasses.dataclass(frozen=True)
class Written:
    """A function as the adapter knows it.  name: dotted, as it is imported or registered; date: of the commit.

    module: imports what has it, by a name that is written out: which files an operator reaches is read in its source.
    """

    name: str
    distribution: str
    repository: str
    path: str
    commit: str
    date: str
    module: Callable[[], Any] | None = None

    def check(self, signature: inspect.Signature, passed: Iterable[str]) -> None:
        """Unsupported unless the function takes every passed name and needs no other."""
        drift = difference(signature, set(passed))
        if drift:
            raise Unsupported(
                f"{self.name} of {version(self.distribution)} {drift}; this adapter was written for {self.repository} "
                f"{self.path} of {self.date} ({self.commit[:8]}): install that state, or adapt the adapter"
            )

    def load(self, remedy: str, passed: Iterable[str]) -> Any:
        """The function, checked; Unsupported with the remedy where it cannot be imported."""
        with missing(f"{self.name} of {version(self.distribution)}", remedy):
            function = getattr(self.module(), self.name.rpartition(".")[2])  # type: ignore[misc]
        self.check(inspect.signature(function), passed)
        return function


def difference(signature: inspect.Signature, passed: set[str]) -> str:
    """Why a call with these names fails, "" if it does not."""
    known = signature.parameters
    if any(one.kind is one.VAR_KEYWORD for one in known.values()):
        return ""
    gone = sorted(passed - known.keys())
    new = [name for name, one in known.items() if one.default is one.empty and name not in passed]
    new = [name for name in new if known[name].kind is not inspect.Parameter.VAR_POSITIONAL]
    parts = [f"has no argument {', '.join(gone)}"] if gone else []
    parts += [f"needs the argument {', '.join(new)}"] if new else []
    return f"{' and '.join(parts)} (it takes {', '.join(known) or 'none'})" if parts else ""


def signature_of_operator(operator: Any) -> inspect.Signature:
    """The signature that a torch operator's schema states."""
    kinds = {True: inspect.Parameter.KEYWORD_ONLY, False: inspect.Parameter.POSITIONAL_OR_KEYWORD}
    return inspect.Signature(
        [
            inspect.Parameter(
                one.name,
                kinds[one.kwarg_only],
                default=one.default_value if one.has_default_value() else inspect.Parameter.empty,
            )
            for one in operator.default._schema.arguments
        ]
    )


def version(distribution: str) -> str:
    """ "amd-aiter 0.1.20", or that it is not known."""
    try:
        return f"{distribution} {importlib.metadata.version(distribution)}"
    except importlib.metadata.PackageNotFoundError:
        return f"{distribution} (of unknown version)"


def need_amd_aiter() -> None:
    """Unsupported unless `import aiter` would find AMD's package.

    The distribution of that name on PyPI (0.13, 2019) is about asynchronous iterators; AMD's is amd-aiter
    (ROCm/aiter setup.py, PACKAGE_NAME).
    """
    found = importlib.util.find_spec("aiter")
    if found is None:
        raise Unsupported("aiter is not installed; `pip install amd-aiter` (the distribution aiter is another project)")
    if not any(Path(folder, "ops").is_dir() for folder in found.submodule_search_locations or ()):
        raise Unsupported(
            f"the package aiter that is installed here ({version('aiter')}) is another project; AMD's is amd-aiter: "
            "`pip uninstall aiter`, then `pip install amd-aiter`"
        )


@contextlib.contextmanager
def missing(what: str, remedy: str) -> Iterator[None]:
    """Turn what an import raises into Unsupported: an absent or broken library is no fault of a case."""
    try:
        yield
    except Unsupported:
        raise
    except Exception as error:  # a library's import can raise anything: no device, no compiler, a wrong ABI
        raise Unsupported(f"{what} cannot be imported ({first_line(error)}); {remedy}") from error


def tried(what: str, call: Callable[[], Any]) -> Callable[[], Any]:
    """The call, after one call of it: what a library compiles or refuses, it does in set-up.

    A device that is lost by the call is no refusal: its error is passed on, so that new processes are started.
    """
    try:
        call()
        _wait()
    except Exception as error:  # a library's own checks come as any kind of exception
        _wait()
        raise Unsupported(f"{what} refuses this case: {first_line(error)}") from error
    return call


def _wait() -> None:
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()


def first_line(error: BaseException) -> str:
    """The first line of the error's text, or its type where it has none."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
