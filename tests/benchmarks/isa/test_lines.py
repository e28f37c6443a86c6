"""A kernel that moved within its file has the key of a compilation that it had."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from benchmarks.isa.compile import forget_lines

SOURCE = """import triton
import triton.language as tl


@triton.jit
def double(x):
    return x + x


@triton.jit
def store(at, VALUE: tl.constexpr):
    tl.store(at, double(VALUE){more})
"""


def loaded(folder: Path, text: str) -> Any:
    folder.mkdir()
    (folder / "one.py").write_text(text)
    spec = importlib.util.spec_from_file_location("one", folder / "one.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_remark_above_a_kernel_does_not_change_its_key_and_other_code_does(tmp_path: Path) -> None:
    text = SOURCE.format(more="")
    sides = [loaded(tmp_path / "base", text), loaded(tmp_path / "head", f"# a remark\n\n{text}")]
    other = loaded(tmp_path / "other", SOURCE.format(more=" + 1"))
    assert sides[0].store.cache_key != sides[1].store.cache_key, "Triton has the line in it"
    forget_lines()
    keys = [one.store.cache_key for one in (*sides, other)]
    assert keys[0] == keys[1] != keys[2]
