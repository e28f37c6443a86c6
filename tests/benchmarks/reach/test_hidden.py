"""Changes that hide from whoever looks at imports: each is in the digest, or what ran is refused with a sentence."""

from __future__ import annotations

import io
import os
import pickle
import subprocess
import zipfile
from pathlib import Path

import pytest

from benchmarks.reach.code import CheckoutCode
from benchmarks.reach.operators import compared
from benchmarks.reach.tree import of_folder
from tests.benchmarks.reach.test_code import git, seen, written

DECLARED = "from ridgeline.spec import Kernel\nimport mine.ops\nrms = Kernel('rms')\n"
LOAD = "from pathlib import Path\nHERE = Path(__file__).parent\n"


def zipped(text: str) -> bytes:
    """An archive with one module."""
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        archive.writestr("packed.py", text)
    return held.getvalue()


PLANTS: dict[str, tuple[str, str, tuple[str | bytes, str | bytes]]] = {
    "a module that a variable chooses": (
        "import importlib, os\nimportlib.import_module('mine.' + os.environ.get('IMPL', 'fast'))",
        "mine/fast.py",
        ("x = 1", "x = 2"),
    ),
    "one of two imports": (
        "import os\nif os.environ.get('FAST'):\n    from mine import fast\nelse:\n    from mine import slow",
        "mine/slow.py",
        ("x = 1", "x = 2"),
    ),
    "a table that is read at set-up": (
        LOAD + "def build(): return (HERE / 'table.bin').read_bytes()",
        "mine/table.bin",
        ("1", "2"),
    ),
    "a table in another folder": (LOAD + "open(HERE.parent / 'tables' / 'a.bin')", "tables/a.bin", ("1", "2")),
    "a constant in a TOML": (
        "import tomllib\ntomllib.load(open(ROOT + '/limits.toml', 'rb'))",
        "conf/limits.toml",
        ("n = 1", "n = 2"),
    ),
    "whatever matches a pattern": (LOAD + "next((HERE.parent / 'conf').glob('*.cfg'))", "conf/one.cfg", ("1", "2")),
    "a name that is made of pieces": ("open(f'{ROOT}/{ARCH}_{DTYPE}.json')", "conf/gfx942_fp16.json", ("1", "2")),
    "a kernel made by a template": (LOAD + "T = (HERE / 'kernel.tmpl').read_text()", "mine/kernel.tmpl", ("a", "b")),
    "exec of a text": (
        LOAD + "exec((HERE.parent / 'gen' / 'kernel.txt').read_text())",
        "gen/kernel.txt",
        ("x=1", "x=2"),
    ),
    "eval by another name": ("import builtins as b\ngetattr(b, 'eval')(open(P).read())", "gen/kernel.txt", ("1", "2")),
    "CUDA that is built at set-up": ("from torch.utils.cpp_extension import load\nload(N, S)", "csrc/k.cu", ("1", "2")),
    "a header of it": ("from torch.utils.cpp_extension import load\nload(N, S)", "csrc/k.cuh", ("1", "2")),
    "a library in the repository": ("import ctypes\nctypes.CDLL(P)", "lib/libk.so", ("1", "2")),
    "a code object": ("import hip\nhip.load(P)", "objects/k.hsaco", ("1", "2")),
    "a pickled function": (
        LOAD + "import pickle\npickle.load(open(HERE / 'f.pkl', 'rb'))",
        "mine/f.pkl",
        (pickle.dumps(len), pickle.dumps(abs)),
    ),
    "all names of a package": ("from extra import *", "extra/impl.py", ("x = 1", "x = 2")),
    "a package that imports when asked": (
        "import extra\nextra.impl",
        "extra/__init__.py",
        ("def __getattr__(n):\n    import importlib\n    return importlib.import_module('.' + n, __name__)", "x = 2"),
    ),
    "what such a package imports": ("import lazy\nlazy.impl", "lazy/impl.py", ("x = 1", "x = 2")),
    "a script folder on the path": (
        "import sys\nsys.path.insert(0, TOOLS)\nimport helper",
        "bench/tools/helper.py",
        ("x = 1", "x = 2"),
    ),
    "a program of its own": ("import subprocess\nsubprocess.run([PYTHON, 'tools/gen.py'])", "tools/gen.py", ("1", "2")),
    "what that program imports": (
        "import subprocess\nsubprocess.run([PYTHON, 'tools/gen2.py'])",
        "tools/parts.py",
        ("1", "2"),
    ),
    "a run of a path": ("import runpy\nrunpy.run_path(P)", "scripts/impl", ("x = 1", "x = 2")),
    "a source without an ending": (
        "from importlib.machinery import SourceFileLoader\nSourceFileLoader('x', P)",
        "bin/impl",
        ("1", "2"),
    ),
    "an archive of modules": (
        "import sys\nsys.path.append(R + '/lib.zip')\nimport packed",
        "lib.zip",
        (zipped("x = 1"), zipped("x = 2")),
    ),
    "an entry point": (
        "from importlib.metadata import entry_points\nentry_points(group='mine')",
        "plugins/a.py",
        ("1", "2"),
    ),
    "resources of a package": (
        "from importlib import resources\nresources.files('mine').joinpath('w.dat')",
        "mine/w.dat",
        ("1", "2"),
    ),
    "a module beside the declaration": ("import perf._helpers", "perf/_helpers.py", ("x = 1", "x = 2")),
}
"""What mine/ops.py holds, and a file in two versions."""

BESIDE = {
    "ridgeline.toml": 'kernels = ["perf"]',
    "lazy/__init__.py": str(PLANTS["a package that imports when asked"][2][0]),
    "extra/__init__.py": "__all__ = ['impl']",
    "tools/gen2.py": "import parts",
}


def side(root: Path, name: str, which: int) -> Path:
    text, path, versions = PLANTS[name]
    files = {
        "perf/norms.py": DECLARED,
        "mine/__init__.py": "",
        "mine/ops.py": text,
        "ridgeline.toml": 'kernels = ["perf"]',
    }
    written(root, {**files, **{beside: str(content) for beside, content in BESIDE.items()}})
    content = versions[which]
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_bytes(content if isinstance(content, bytes) else content.encode())
    return root


@pytest.mark.parametrize("name", PLANTS)
def test_a_hidden_change_is_another_code(tmp_path, name):
    base, head, again = (side(tmp_path / str(number), name, number % 2) for number in range(3))
    found = compared(of_folder(base), of_folder(head))
    assert PLANTS[name][1] in found.differing.get("rms", ()), found
    assert CheckoutCode(base).digest("perf.norms") != CheckoutCode(head).digest("perf.norms")
    assert CheckoutCode(base).digest("perf.norms") == CheckoutCode(again).digest("perf.norms"), "a path decides nothing"


@pytest.mark.parametrize(
    ("program", "says"),
    [
        ("open(os.environ['WEIGHTS']).read()", "which is not in this side's checkout"),
        ("open(checkout / chr(119) / ('b' + 'in')).read()", "though nothing in the source of the operator says so"),
        ("sys.path.insert(0, os.environ['ELSEWHERE'])\nimport only_there", "which is not in this side's checkout"),
        ("import ctypes\nctypes.CDLL(os.environ['LIBRARY'])", "which is not in this side's checkout"),
    ],
)
def test_what_no_source_tells_is_refused_when_it_ran(tmp_path, monkeypatch, program, says):
    files = {
        "perf/norms.py": DECLARED.replace("import mine.ops", ""),
        "w/bin": "1",
        "ridgeline.toml": 'kernels = ["perf"]',
    }
    root = written(tmp_path, {**files, ".gitignore": ".ridgeline\nout", "more/only_there.py": ""})
    git(root, "init", "-q")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "one")
    base = root / ".ridgeline" / "trees" / "abc"
    git(root, "worktree", "add", "-q", "--detach", str(base))
    library = root / "libempty.so"
    (root / "empty.c").write_text("int empty(void) { return 0; }\n")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(root / "empty.c")], check=True)
    for variable, value in (("WEIGHTS", root / "w/bin"), ("ELSEWHERE", root / "more"), ("LIBRARY", library)):
        monkeypatch.setenv(variable, os.fspath(value))
    assert says in seen(base, f"import os, sys\n{program}")
