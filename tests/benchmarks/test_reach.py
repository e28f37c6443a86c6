"""What an operator's code is in repositories of all kinds, and what a process must not have run."""

from __future__ import annotations

import io
import json
import os
import pickle
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from benchmarks import reach
from benchmarks.reach import CheckoutCode, compared
from benchmarks.sources import Unreadable, imported, of_folder
from kernels.project import layout
from tests.kit import ROOT, git

DECLARED = "from ridgeline.spec import Kernel\nimport mine.ops\nrms = Kernel('rms')\n"


def written(root, files):
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def reached(root, **settings):
    """What operator rms reaches, whose package is perf."""
    written(root, {"ridgeline.toml": 'kernels = ["perf"]\n' + "".join(f"{k} = {v}\n" for k, v in settings.items())})
    tree = of_folder(root)
    return reach.reached(tree, reach.declared(tree)["rms"])


@pytest.mark.parametrize("source", ["", "src/", "python/", "packages/mine/src/"])
@pytest.mark.parametrize("package", [True, False])
def test_what_a_declaration_imports_is_found_in_whatever_folder_the_repository_keeps_it(tmp_path, source, package):
    files = {"perf/norms.py": DECLARED, f"{source}mine/ops.py": "from .deep import one\n", f"{source}mine/deep.py": ""}
    if package:
        files |= {f"{source}mine/__init__.py": "", "perf/__init__.py": ""}
    written(tmp_path, {**files, "other/mine_ops.py": "", "docs/notes.txt": ""})
    assert reached(tmp_path) == set(files)


def test_the_folders_that_packages_lie_in_are_the_usual_ones_and_those_of_the_settings(tmp_path):
    written(tmp_path, {"pyproject.toml": '[tool.ridgeline]\nsources = ["extra", "src"]'})
    assert layout(tmp_path).sources == ("", "src", "python", "extra")


@pytest.mark.parametrize(
    "text",
    [
        "import importlib, os\nimportlib.import_module(os.environ['IMPL'])",
        "import importlib as i\nload = i.import_module\nload('mine.ops')",
        "from importlib import import_module as get\nget(NAME)",
        "__import__('mi' + 'ne')",
        "exec(open(PATH).read())",
        "getattr(__builtins__, 'exec')(TEXT)",
        "import runpy\nrunpy.run_path(PATH)",
        "from importlib.util import spec_from_file_location\nspec_from_file_location('x', PATH)",
        "from importlib.metadata import entry_points\nentry_points()['mine'].load()",
        "import pkgutil\npkgutil.resolve_name(NAME)",
        "import sys\nsys.path.insert(0, TOOLS)\nimport make",
        "def broken(:",
    ],
)
def test_where_an_import_cannot_be_followed_every_file_counts(tmp_path, text):
    files = {"perf/norms.py": DECLARED, "mine/ops.py": text, "elsewhere/impl.py": "", "data/table.bin": ""}
    written(tmp_path, {**files, "README.md": "", "results/machine/record.json": "", ".hidden/x.py": ""})
    assert reached(tmp_path) == set(files)


@pytest.mark.parametrize(
    ("text", "more"),
    [
        ("from pathlib import Path\nPath(__file__).with_name('table.csv')", {"data/deep/table.csv"}),
        ("open(ROOT / 'data' / NAME)", {"data/table.bin", "data/deep/table.csv"}),
        ("open(f'{ROOT}/data/{NAME}.csv')", {"data/table.bin", "data/deep/table.csv"}),
        ("import glob\nglob.glob(ROOT + '/*.cfg')", {"tools/one.cfg"}),
        ("import subprocess\nsubprocess.run([PYTHON, 'tools/make.py'])", {"tools/make.py", "tools/one.cfg"}),
        ("from tools import *", {"tools/__init__.py", "tools/make.py", "tools/one.cfg"}),
        ("model.eval()\nx = 'a sentence with data in it'", set()),
    ],
)
def test_files_that_are_named_in_strings_count_and_those_that_are_not_do_not(tmp_path, text, more):
    files = {"perf/norms.py": DECLARED, "mine/ops.py": text, "mine/beside.json": ""}
    others = {"data/table.bin": "", "data/deep/table.csv": "", "tools/make.py": "", "tools/one.cfg": ""}
    written(tmp_path, {**files, **others, "tools/__init__.py": "", "tests/test_ops.py": ""})
    assert reached(tmp_path) - {"tools/__init__.py"} == (set(files) | more) - {"tools/__init__.py"}


def test_an_attribute_is_a_module_where_the_file_imports_what_it_belongs_to(tmp_path):
    text = "import mine.deep as d\ndef f(self, config):\n    return d.inner.g(self.tools.make, config.data, tools.make)"
    files = {"perf/norms.py": DECLARED, "mine/ops.py": text, "mine/deep/__init__.py": "", "mine/deep/inner.py": ""}
    tools = {"tools/__init__.py": "", "tools/make.py": "", "config.py": ""}
    assert reached(written(tmp_path, {**files, **tools})) == set(files)
    written(tmp_path, {"mine/deep/__init__.py": "import tools", "mine/ops.py": f"from mine.deep import *\n{text}"})
    assert reached(tmp_path) == {*files, *tools}, "of a name that may come by * it may be one"


def test_sources_of_machine_code_count_for_every_operator_wherever_they_lie(tmp_path):
    files = {"perf/norms.py": DECLARED, "mine/ops.py": "", "csrc/rms.cu": "", "csrc/rms.h": "", "mine/_C.so": ""}
    assert reached(written(tmp_path, files)) == set(files)


def test_what_git_ignores_is_left_out_unless_a_process_could_import_it(tmp_path):
    files = {"perf/norms.py": DECLARED, "mine/ops.py": "", ".gitignore": "*.so\n_version.py\ncache.json\n"}
    written(tmp_path, {**files, "mine/_C.so": "", "mine/_version.py": "", "mine/cache.json": "", "mine/new.json": ""})
    git(tmp_path, "init", "-q")
    assert reached(tmp_path) == {"perf/norms.py", "mine/ops.py", "mine/_C.so", "mine/new.json"}
    assert "mine/_version.py" in of_folder(tmp_path).files


def test_a_submodule_counts_by_its_commit(tmp_path):
    other = written(tmp_path / "other", {"a.py": ""})
    root = written(tmp_path / "root", {"perf/norms.py": DECLARED, "mine/ops.py": ""})
    for folder in (other, root):
        git(folder, "init", "-q")
        git(folder, "add", "-A")
        git(folder, "commit", "-qm", "one")
    git(root, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(other), "third_party/other")
    assert "third_party/other/" in reached(root)
    assert of_folder(root).digest("third_party/other/") == git(other, "rev-parse", "HEAD")


def test_a_kept_result_hangs_on_the_variables_that_the_code_names(tmp_path, monkeypatch):
    written(tmp_path, {"perf/norms.py": DECLARED, "mine/ops.py": "import os\nos.environ.get('MY_TILE')"})
    reached(tmp_path)
    assert CheckoutCode(tmp_path).environment("perf.norms") == {}
    monkeypatch.setenv("MY_TILE", "64")
    assert CheckoutCode(tmp_path).environment("perf.norms") == {"MY_TILE": "64"}


FACTORY = "from ridgeline.spec import Kernel\ndef make(name):\n    return Kernel(name)\n"


@pytest.mark.parametrize(
    ("text", "readable"),
    [
        ("from mine.factory import make\ngemm = make('gemm')", False),
        ("from mine import factory as f\nglobals()['x'] = f.make('gemm')", False),
        ("from ..mine.factory import make\ngemm = make('gemm')", False),
        ("import vendor\ngemm = vendor.kernels.make('gemm')", False),
        ("import vendor\n@vendor.operator\ndef gemm(): ...", False),
        ("from mine.plain import table\nT = table(3)", True),
        ("import torch, functools\nD = torch.device('cpu')\n@functools.cache\ndef f(): ...", True),
        (
            "from ridgeline.spec import Case, Kernel\nr = Kernel('rms', cases=[Case('a')])\n@r.inputs\ndef i(): ...",
            True,
        ),
    ],
)
def test_an_operator_that_somebody_else_makes_is_not_overlooked(tmp_path, text, readable):
    files = {"perf/norms.py": DECLARED, "perf/more.py": text, "mine/ops.py": "", "mine/factory.py": FACTORY}
    sides = [written(tmp_path / name, {**files, "mine/plain.py": "def table(n): ..."}) for name in ("base", "head")]
    for side in sides:
        written(side, {"ridgeline.toml": 'kernels = ["perf"]'})
    written(sides[1], {"perf/more.py": f"{text}\n# changed"})
    found = reach.compared(*map(of_folder, sides))
    assert bool(found.unknown) is not readable, found


def test_a_package_behind_a_link_is_read(tmp_path):
    written(tmp_path / "elsewhere", {"norms.py": DECLARED, "tuned.toml": ""})
    root = written(tmp_path / "root", {"mine/ops.py": "", "loop/x.py": ""})
    (root / "perf").symlink_to(tmp_path / "elsewhere")
    (root / "loop" / "again").symlink_to(root)
    git(root, "init", "-q")
    assert reached(root) == {"perf/norms.py", "perf/tuned.toml", "mine/ops.py"}


# ---- what ran --------------------------------------------------------------------------------------------------------

PROCESS = """
import json, sys
sys.path.insert(0, {root!r})
from benchmarks import naming
naming.settle()
from pathlib import Path
checkout = Path(sys.argv[1])
ran = naming.our("benchmarks.naming")
naming.open_to(checkout)
watching = ran.RanFiles(checkout)
exec(sys.argv[2])
print(json.dumps(watching.new(json.loads(sys.argv[3]))))
"""


def seen(checkout, program, *paths):
    """The fault of a process that imports the declaration of a checkout and runs a program; "" where there is none."""
    code = CheckoutCode(checkout)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}
    command = [
        sys.executable,
        "-P",
        "-c",
        PROCESS.format(root=str(ROOT)),
        str(checkout),
        program,
        json.dumps(code.tops),
    ]
    said = subprocess.run(command, capture_output=True, text=True, env=env, cwd=checkout.parent)
    assert not said.returncode, said.stderr
    found = code.ran("perf.norms", **json.loads(said.stdout))
    assert set(found.files) <= code.files("perf.norms")
    return found.fault


@pytest.fixture
def sides(tmp_path):
    """A repository, and a worktree of it that lacks what the repository has as well."""
    files = {"perf/__init__.py": "", "perf/norms.py": "import mine.ops\n", "mine/ops.py": "", "data/t.bin": "x"}
    root = written(
        tmp_path / "repository", {**files, "ridgeline.toml": 'kernels = ["perf"]', ".gitignore": ".ridgeline"}
    )
    git(root, "init", "-q")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "one")
    base = root / ".ridgeline" / "trees" / "abc"
    git(root, "worktree", "add", "-q", "--detach", str(base))
    written(root, {"mine/new.py": "", "extra/only.py": "", "mine/cache.json": "{}"})
    return root, base


def test_a_process_that_ran_its_own_checkout_is_in_order(sides):
    for side in sides:
        assert seen(side, "import perf.norms") == ""


@pytest.mark.parametrize(
    ("program", "says"),
    [
        ("import mine.new", "new.py, which is not in this side's checkout"),
        ("import only", "only.py, which is not in this side's checkout"),
        ("open({root!r} + '/data/t.bin')", "t.bin, which is not in this side's checkout"),
        ("open(checkout / 'data' / 't.bin')", "data/t.bin, though nothing in the source of the operator says so"),
        ("import os\nos.close(os.open(checkout / 'data' / 't.bin', os.O_RDONLY))", "data/t.bin, though nothing"),
        ("import mmap\nf = open(checkout / 'data' / 't.bin', 'rb')\nm = mmap.mmap(f.fileno(), 0, access=1)", "though"),
        ("import mine.ops, sys\nsys.modules.pop('mine.ops')\nimport mine\nmine.__path__ = [{root!r} + '/mine']\n"
         "import mine.ops", "mine/ops.py, not that of this side's checkout"),
    ],
)  # fmt: skip
def test_code_of_the_repository_that_is_not_this_sides_is_named(sides, program, says):
    root, base = sides
    paths = [root, root / "extra"]
    assert says in seen(base, "import perf.norms\n" + program.format(root=str(root)), *paths)


def test_a_copy_that_is_installed_elsewhere_is_named_with_the_next_step(tmp_path):
    files = {"perf/norms.py": "import mine.ops", "python/mine/ops.py": "", "ridgeline.toml": 'kernels = ["perf"]'}
    checkout = written(tmp_path / "checkout", files)
    installed = written(tmp_path / "site" / "mine", {"__init__.py": "", "ops.py": ""}).parent
    assert "not that of this side's checkout (python/mine/ops.py in" in seen(checkout, "import perf.norms", installed)
    written(checkout, {"ridgeline.toml": 'kernels = ["perf"]\nsources = ["python"]'})
    assert "not that of this" in seen(checkout, "import perf.norms", installed), "a package goes before a namespace"
    written(checkout, {"python/mine/__init__.py": ""})
    assert seen(checkout, "import perf.norms", installed) == ""


def test_a_file_that_git_ignores_must_not_decide_what_runs(sides):
    written(sides[0], {".gitignore": ".ridgeline\ncache.json"})
    assert "no file of the commit" in seen(sides[0], "open(checkout / 'mine' / 'cache.json')")


# Changes that hide from whoever looks at imports: each is in the digest, or what ran is refused with a sentence.


LOAD = "from pathlib import Path\nHERE = Path(__file__).parent\n"


def zipped(text):
    """An archive with one module."""
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        archive.writestr("packed.py", text)
    return held.getvalue()


PLANTS = {
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
    "a kernel made by a template": (LOAD + "T = (HERE / 'kernel.tmpl').read_text()", "mine/kernel.tmpl", ("a", "b")),
    "a pickled function": (
        LOAD + "import pickle\npickle.load(open(HERE / 'f.pkl', 'rb'))",
        "mine/f.pkl",
        (pickle.dumps(len), pickle.dumps(abs)),
    ),
    "a package that imports when asked": (
        "import extra\nextra.impl",
        "extra/__init__.py",
        ("def __getattr__(n):\n    import importlib\n    return importlib.import_module('.' + n, __name__)", "x = 2"),
    ),
    "what such a package imports": ("import lazy\nlazy.impl", "lazy/impl.py", ("x = 1", "x = 2")),
    "what that program imports": (
        "import subprocess\nsubprocess.run([PYTHON, 'tools/gen2.py'])",
        "tools/parts.py",
        ("1", "2"),
    ),
    "an archive of modules": (
        "import sys\nsys.path.append(R + '/lib.zip')\nimport packed",
        "lib.zip",
        (zipped("x = 1"), zipped("x = 2")),
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


def side(root, name, which):
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


COMMENTED = """# The launch, of {0}.

def launch(x):
    'Two launches.'

    return (x,
            {1})  # {0}
"""


@pytest.mark.parametrize(
    ("base", "head", "differs"),
    [
        (COMMENTED.format("a row", 2), COMMENTED.format("a tile", 2).replace("\n            ", " "), False),
        (COMMENTED.format("a row", 2), COMMENTED.format("a row", 3), True),
        (COMMENTED.format("a row", 2), COMMENTED.format("a row", 2).replace("Two", "2"), True),
        ("# coding: latin-1\nx = 1\n", "# coding: utf-8\nx = 1\n", True),
    ],
    ids=["comments", "code", "docstring", "encoding"],
)
def test_comments_and_formatting_are_no_change(tmp_path, base, head, differs):
    texts = ({"kernels/gemm/launch.py": text} for text in (base, head))
    trees = [sources_in(tmp_path / name, changed) for name, changed in zip("ab", texts, strict=True)]
    assert ("gemm" in compared(*trees).differing) is differs


# What a changed file can reach: never fewer operators than use it, and not their neighbours.


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


def sources_in(folder, changed):
    for name, text in {**SOURCES, **changed}.items():
        if text is not None:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
    return of_folder(folder)


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
    base, head = (
        sources_in(tmp_path / "base", {}),
        sources_in(tmp_path / "head", {changed: SOURCES[changed] + "more = 1\n"}),
    )
    found = reach.compared(base, head)
    assert (set(found.differing), found.unknown) == (differing, "")
    assert set(found.same) == {"gemm", "gather", "reduce"} - differing
    assert set(found.differing.values()) <= {(changed,)}, "the file is named"


def test_a_file_that_is_new_or_gone_counts(tmp_path):
    base = sources_in(tmp_path / "base", {"kernels/gemm/new.py": ""})
    head = sources_in(tmp_path / "head", {"kernels/gather.py": None, "kernels/scan.py": KERNEL.format("scan")})
    assert set(reach.compared(base, head).differing) == {"gemm", "gather", "scan"}


def test_what_cannot_be_read_reaches_everything(tmp_path):
    base, head = (
        sources_in(tmp_path / "base", {}),
        sources_in(tmp_path / "head", {"kernels/odd.py": "k = Kernel(make())"}),
    )
    assert "cannot be read" in reach.compared(base, head).unknown
    with pytest.raises(Unreadable):
        reach.declared(head)
    (tmp_path / "base" / "ridgeline.toml").write_text('kernels = ["kernels", "more"]')
    other = of_folder(tmp_path / "base")
    assert "kernels, more in head" in reach.compared(base, other).unknown


def test_a_file_that_does_not_parse_may_import_anything():
    assert imported("def (", "a.b", False).dynamic
    assert imported("from .. import c", "a.b.d", False).modules >= {"a.c"}
    assert imported("from . import c", "a.b", True).modules >= {"a.b.c"}


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
    ours = of_folder(ROOT)
    homes = reach.declared(ours)
    modules = {name: parts[0].replace("/", ".") for name, parts in homes.items()}
    preload = f"import torch\n{ORACLE}"
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    said = subprocess.run(
        [sys.executable, "-c", preload, json.dumps(modules)], cwd=ROOT, env=env, capture_output=True, check=True
    )
    for name, files in json.loads(said.stdout).items():
        own = {str(Path(one).relative_to(ROOT)) for one in files if Path(one).is_relative_to(ROOT / "kernels")}
        assert own
        assert own <= reach.reached(ours, homes[name]), name


def test_our_operators_do_not_reach_each_other():
    ours = of_folder(ROOT)
    found = reach.reached(ours, ["kernels/gemm"])
    assert {"kernels/gemm/device.py", "kernels/gemm/tuned.toml", "kernels/hardware.py"} <= found
    assert not [path for path in found if path.startswith(("kernels/all_reduce/", "kernels/grouped_gemm/"))]


def test_a_renamed_operator_is_compared_with_itself(tmp_path):
    base = {"ridgeline.toml": 'kernels = ["perf"]\n', "perf/norms.py": DECLARED, "mine/ops.py": "a = 1\n"}
    renamed = {"ridgeline.toml": 'kernels = ["perf"]\nrenamed = {"rms" = "norm"}\n'}
    head = {**base, **renamed, "perf/norms.py": DECLARED.replace("'rms'", "'norm'")}
    sides = [of_folder(written(tmp_path / role, files)) for role, files in (("base", base), ("head", head))]
    assert compared(*sides).differing == {"norm": ("perf/norms.py",)}
