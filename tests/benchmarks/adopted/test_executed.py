"""Kernels whose configuration is chosen by times count as they are written."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytestmark = pytest.mark.slow  # imports Triton

KERNELS = """
import triton
import triton.language as tl
import {other} as other
STEPS = tl.constexpr(2)

@triton.jit
def inner(x):
    return x * STEPS

@triton.autotune([triton.Config({{"BLOCK": one}}) for one in (16, 32)], key=["n"])
@triton.jit
def outer(x, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(x + at, other.more(inner(tl.load(x + at))))
"""

OTHER = "import triton\n@triton.jit\ndef more(x):\n    return x + 1\n"

Load = Callable[[str, str], Any]


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    """The autotuned kernel of the module above, with texts of it and of the module that it uses."""
    monkeypatch.syspath_prepend(tmp_path)
    made: list[str] = []

    def loaded(text: str, other: str) -> Any:
        name = f"kernels_{len(made)}_of_test_executed"
        made.append(name)
        (tmp_path / f"{name}_other.py").write_text(other)
        file = tmp_path / f"{name}.py"
        file.write_text(text.format(other=f"{name}_other"))
        spec = importlib.util.spec_from_file_location("kernels", file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module.outer

    return loaded


def test_a_graph_that_was_captured_before_cannot_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it launches is not called in the closure: equal code there says nothing."""
    import torch

    from benchmarks.worker import code_hash
    from benchmarks.worker.scripts.executed import parts

    monkeypatch.setattr(code_hash, "LAUNCHERS", ())  # another test may have imported one of them

    def replays() -> None:
        with contextlib.suppress(TypeError):  # without a GPU it fails where it enters torch's C++
            torch.cuda.CUDAGraph.replay(SimpleNamespace(_tracker=None))  # type: ignore[arg-type]

    assert parts(replays, lambda file: False, "", "", []) == ({}, "a captured graph")


def test_what_is_written_counts_and_not_where(load: Load) -> None:
    from benchmarks.worker.scripts.executed import written

    moved = ("\n# moved" + KERNELS.replace("    at =", "    # a remark\n    at ="), "# moved\n" + OTHER)
    assert written(load(KERNELS, OTHER)) == written(load(*moved))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("constexpr(2)", "constexpr(3)"),
        ("x * STEPS", "STEPS * x"),
        ("x + at,", "x + 1 * at,"),
        ("BLOCK: tl", "n_BLOCK: tl"),
    ],
)
def test_a_change_to_what_is_called_or_named_counts(load: Load, old: str, new: str) -> None:
    from benchmarks.worker.scripts.executed import written

    assert written(load(KERNELS, OTHER)) != written(load(KERNELS.replace(old, new), OTHER))
    assert written(load(KERNELS, OTHER)) != written(load(KERNELS, OTHER.replace("x + 1", "x + 2")))


def test_the_configuration_that_won_does_not_count(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    from triton.runtime.autotuner import Autotuner

    from benchmarks.worker import code_hash
    from benchmarks.worker.scripts import executed

    def launched(won: int, configs: int) -> tuple[list[Any], list[str]]:
        trace = code_hash.Trace()
        monkeypatch.setattr(Autotuner, "run", lambda self, *_, **__: trace.events.append([f"code {won}", [won]]))
        outer = load(KERNELS, OTHER)
        outer.configs = outer.configs[:configs]
        with executed._tuned(trace) as names:
            outer.run(SimpleNamespace(), 5, grid=(1,))
        return trace.events, names

    assert launched(0, 2) == launched(1, 2)
    assert launched(0, 2)[1] == ["outer"]
    assert launched(0, 1) == ([["code 0", [0]]], [])
    assert launched(1, 1) != launched(0, 1)
