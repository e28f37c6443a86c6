"""What a changed file can reach: never fewer operators than use it, and not their neighbours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.reach import operators, tree
from benchmarks.reach.sources import Unreadable, imported

ROOT = Path(__file__).resolve().parents[3]
KERNEL = "from kernels.spec import Kernel\n{0} = Kernel('{0}')\n"

SOURCES = {
    "kernels/__init__.py": "",
    "kernels/spec.py": "class Kernel: ...\n",
    "kernels/gemm/__init__.py": KERNEL.format("gemm") + "def build():\n    from . import launch\n",
    "kernels/gemm/launch.py": "from ..shared import tiles\nimport helper.deep\n",
    "kernels/gemm/tuned.toml": "[m1]\n",
    "kernels/gather.py": KERNEL.format("gather") + "import importlib\nimportlib.import_module('kernels.lazy')\n",
    "kernels/lazy.py": "import kernels\ndef f(): return kernels.attribute.x\n",
    "kernels/attribute.py": "x = 1\n",
    "kernels/reduce/__init__.py": KERNEL.format("reduce") + "from kernels.shared.loader import load\nload('one')\n",
    "kernels/shared/__init__.py": "",
    "kernels/shared/tiles.py": "",
    "kernels/shared/alone.py": "",
    "kernels/shared/loader.py": "import importlib as i\ndef load(a): return i.import_module(f'kernels.scans.{a}')\n",
    "kernels/scans/__init__.py": "",
    "kernels/scans/one.py": "",
    "helper/__init__.py": "",
    "helper/deep.py": "import more\n",
    "more.py": "",
    "unused.py": "",
    "docs/words.py": "gemm gather reduce",
}


def made(folder: Path, changed: dict[str, str | None]) -> tree.SourceTree:
    for name, text in {**SOURCES, **changed}.items():
        if text is not None:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
    return tree.of_folder(folder)


@pytest.mark.parametrize(
    ("changed", "differing"),
    [
        ("kernels/gemm/launch.py", {"gemm"}),
        ("kernels/gemm/tuned.toml", {"gemm"}),
        ("kernels/shared/tiles.py", {"gemm"}),
        ("kernels/shared/__init__.py", {"gemm", "reduce"}),
        ("kernels/lazy.py", {"gather"}),
        ("kernels/attribute.py", {"gather"}),
        ("kernels/scans/one.py", {"reduce"}),
        ("kernels/shared/alone.py", set()),
        ("kernels/spec.py", {"gemm", "gather", "reduce"}),
        ("kernels/__init__.py", {"gemm", "gather", "reduce"}),
        ("helper/deep.py", {"gemm"}),
        ("more.py", {"gemm"}),
        ("unused.py", set()),
        ("docs/words.py", set()),
    ],
)
def test_a_changed_file_reaches_the_operators_that_use_it(tmp_path, changed, differing):
    base, head = made(tmp_path / "base", {}), made(tmp_path / "head", {changed: SOURCES[changed] + "# more\n"})
    found = operators.compared(base, head)
    assert (set(found.differing), found.unknown) == (differing, "")
    assert set(found.same) == {"gemm", "gather", "reduce"} - differing
    assert set(found.differing.values()) <= {(changed,)}, "the file is named"


def test_the_package_that_an_operator_lies_in_counts_though_nothing_names_it(tmp_path):
    alone = {"other/__init__.py": "", "other/sort.py": "import theirs\nsort = theirs.Kernel('sort')\n"}
    for side, more in (("base", ""), ("head", "limit = 2\n")):
        made(tmp_path / side, {**alone, "other/__init__.py": more})
    for side in ("base", "head"):
        (tmp_path / side / "ridgeline.toml").write_text('kernels = ["kernels", "other"]')
    found = operators.compared(*(tree.of_folder(tmp_path / side) for side in ("base", "head")))
    assert found.differing == {"sort": ("other/__init__.py",)}


def test_a_file_that_is_new_or_gone_counts(tmp_path):
    base = made(tmp_path / "base", {"kernels/gemm/new.py": ""})
    head = made(tmp_path / "head", {"kernels/gather.py": None, "kernels/scan.py": KERNEL.format("scan")})
    assert set(operators.compared(base, head).differing) == {"gemm", "gather", "scan"}


def test_what_cannot_be_read_reaches_everything(tmp_path):
    base, head = made(tmp_path / "base", {}), made(tmp_path / "head", {"kernels/odd.py": "k = Kernel(make())"})
    assert "cannot be read" in operators.compared(base, head).unknown
    with pytest.raises(Unreadable):
        operators.declared(head)
    (tmp_path / "base" / "ridgeline.toml").write_text('kernels = ["kernels", "more"]')
    other = tree.of_folder(tmp_path / "base")
    assert "kernels, more in head" in operators.compared(base, other).unknown


def test_a_file_that_does_not_parse_may_import_anything():
    assert imported("def (", "a.b", False).dynamic
    assert imported("from .. import c", "a.b.d", False).modules >= {"a", "a.c"}
    assert imported("from . import c", "a.b", True).modules >= {"a.b", "a.b.c"}


ORACLE = """
import importlib, json, os, sys
found = {}
for name, module in json.loads(sys.argv[1]).items():
    read, write = os.pipe()
    if not os.fork():
        importlib.import_module(module)
        files = [getattr(one, "__file__", None) for one in list(sys.modules.values())]
        os.write(write, json.dumps([one for one in files if one]).encode())
        os._exit(0)
    os.close(write)
    found[name] = json.loads(open(read).read())
print(json.dumps(found))
"""


@pytest.mark.slow
def test_whatever_an_operator_imports_when_it_runs_is_reached():
    ours = tree.of_folder(ROOT)
    homes = operators.declared(ours)
    modules = {name: parts[0].replace("/", ".") for name, parts in homes.items()}
    preload = f"import torch\n{ORACLE}"
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    said = subprocess.run(
        [sys.executable, "-c", preload, json.dumps(modules)], cwd=ROOT, env=env, capture_output=True, check=True
    )
    for name, files in json.loads(said.stdout).items():
        own = {str(Path(one).relative_to(ROOT)) for one in files if Path(one).is_relative_to(ROOT / "kernels")}
        assert own
        assert own <= operators.reached(ours, homes[name]), name


def test_our_operators_do_not_reach_each_other():
    ours = tree.of_folder(ROOT)
    found = operators.reached(ours, ["kernels/gemm"])
    assert {"kernels/gemm/launch.py", "kernels/gemm/tuned.toml", "kernels/hardware.py"} <= found
    assert not [path for path in found if path.startswith(("kernels/all_reduce/", "kernels/grouped_gemm/"))]
