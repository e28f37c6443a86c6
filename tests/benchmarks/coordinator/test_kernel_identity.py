"""Which files a kernel's code can come from: never fewer than it uses, and not those of its neighbours."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.coordinator import kernel_identity as identity
from benchmarks.coordinator.kernel_identity import kernel_digests

ROOT = Path(__file__).resolve().parents[3]

SOURCES = {
    "lib/__init__.py": "",
    "lib/limits.toml": "lds = 65536\n",
    "lib/shared.py": "def helper(): ...\n",
    "lib/gemm/__init__.py": "from lib.shared import helper\nfrom lib.gemm import tiles\n",
    "lib/gemm/tiles.py": "",
    "lib/gemm/tuned.toml": "[m1]\n",
    "lib/gemm/deep/data.bin": "x",
    "lib/gather.py": "import importlib\ndef build(): importlib.import_module('lib.' + 'lazy')\n",
    "lib/lazy.py": "import theirs.rope\n",
    "theirs/__init__.py": "",
    "theirs/rope.py": "",
    "theirs/alone.py": "",
}
MODULES = {"gemm": "lib.gemm", "gather": "lib.gather", "alone": "theirs.alone", "rooted": "lib"}


@pytest.fixture
def root(tmp_path):
    for name, text in SOURCES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("changed", "kernels"),
    [
        ("lib/gemm/tiles.py", {"gemm"}),
        ("lib/gemm/tuned.toml", {"gemm"}),
        ("lib/gemm/deep/data.bin", {"gemm"}),
        ("lib/shared.py", {"gemm"}),
        ("lib/gather.py", {"gather"}),
        ("lib/lazy.py", {"gather"}),
        ("theirs/rope.py", {"gather"}),
        ("theirs/alone.py", {"alone"}),
        ("theirs/__init__.py", {"gather", "alone"}),
        ("lib/__init__.py", {"gemm", "gather", "rooted"}),
        ("lib/limits.toml", {"gemm", "gather", "rooted"}),
        ("lib/new.py", set()),
        ("lib/__pycache__/gemm.pyc", set()),
        ("elsewhere.py", set()),
    ],
)
def test_a_change_touches_the_kernels_that_can_use_it(root, changed, kernels):
    before = kernel_digests(root, ["lib", "theirs"], MODULES)
    assert all(re.fullmatch(r"[0-9a-f]{16}", digest) for digest in before.values())
    path = root / changed
    path.parent.mkdir(exist_ok=True)
    path.write_text((path.read_text() if path.exists() else "") + "# more\n")
    after = kernel_digests(root, ["lib", "theirs"], MODULES)
    assert {name for name in MODULES if before[name] != after[name]} == kernels


def test_a_kernel_of_no_known_part_hangs_on_everything(root):
    before = kernel_digests(root, ["lib"], {"odd": "elsewhere.kernel"})
    (root / "lib" / "lazy.py").write_text("")
    assert kernel_digests(root, ["lib"], {"odd": "elsewhere.kernel"}) != before


def test_two_checkouts_in_different_folders_agree(root, tmp_path_factory):
    other = tmp_path_factory.mktemp("other")
    for name, text in SOURCES.items():
        (other / name).parent.mkdir(parents=True, exist_ok=True)
        (other / name).write_text(text)
    assert kernel_digests(root, ["lib", "theirs"], MODULES) == kernel_digests(other, ["lib", "theirs"], MODULES)


def test_every_file_that_our_kernels_import_counts():
    """What a fresh process has of `kernels` after all of an operator's modules were imported is in its digest."""
    script = (
        "import importlib, pkgutil, sys\nname = sys.argv[1]\nmodule = importlib.import_module(name)\n"
        "for info in pkgutil.iter_modules(getattr(module, '__path__', [])):\n"
        "    importlib.import_module(f'{name}.{info.name}')\n"
        "print(*sorted(n for n in sys.modules if n.startswith('kernels.')))"
    )
    needs = identity._needs(identity._parts(ROOT, ["kernels"]))
    for operator in ("gemm_all_scatter", "moe_gemm2_mxfp4"):
        done = subprocess.run(
            [sys.executable, "-c", script, f"kernels.{operator}"], cwd=ROOT, check=True, capture_output=True, text=True
        )
        imported = {module.split(".")[1] for module in done.stdout.split()}
        reached = {name for _, name in identity._reached(("kernels", operator), needs)}
        assert imported <= reached
        assert not {"grouped_gemm", "all_gather"} & reached, "a change of these is none of this operator"


def test_a_listed_package_that_is_one_module_counts_with_its_file(root):
    (root / "single.py").write_text("fast = True\n")
    before = kernel_digests(root, ["single"], {"kernel": "single"})
    (root / "single.py").write_text("fast = False\n")
    assert kernel_digests(root, ["single"], {"kernel": "single"}) != before
    assert identity.files_of(root / "single") == [root / "single.py"]
