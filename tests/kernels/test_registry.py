"""Which modules declare kernels, and which packages a project lists."""

import subprocess
import sys
from pathlib import Path

import pytest

from kernels import project
from kernels.project import ProjectError, listed_packages
from kernels.registry import declares, discover
from kernels.spec import DeclarationError
from tests.kit import HANGS_S, ROOT

WITHOUT_TRITON = """
import importlib.abc, sys

class Hidden(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "triton":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hidden())
from kernels.registry import discover
found = discover()
print(*(f"{b.module}: {b.reason}" for b in found.broken), sep="\\n")
print(*sorted(found.kernels))
"""


def run(code, folder=ROOT):
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, timeout=HANGS_S)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.slow
def test_without_triton_every_kernel_is_declared_and_no_module_is_broken():
    *broken, kernels = run(WITHOUT_TRITON)
    assert broken == [""]
    assert kernels.split() == sorted(discover().kernels)


def test_a_module_that_fails_is_broken_unless_its_name_says_that_it_declares_nothing(tmp_path):
    package = tmp_path / "others"
    package.mkdir()
    for name in ("__init__", "_helper", "numerics", "scale"):
        (package / f"{name}.py").write_text("" if name == "__init__" else "import no_such_module")
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r})\n" + (
        "from kernels.registry import discover\nprint(*(b.module for b in discover(['others']).broken))"
    )
    assert run(code, tmp_path) == ["others.numerics others.scale"]


def test_what_declares_kernels():
    assert [declares("kernels", name) for name in ("gemm", "numerics", "project", "_shared")] == [True] + 3 * [False]
    assert [declares("their.package", name) for name in ("numerics", "_helper")] == [True, False]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, ["kernels"]),
        ("[tool.ridgeline]\nother = 1", ["kernels"]),
        ("[tool.ridgeline]\nkernels = ['kernels', 'their.package']", ["kernels", "their.package"]),
    ],
)
def test_listed_packages(tmp_path, text, expected):
    if text is not None:
        (tmp_path / "pyproject.toml").write_text(text)
    assert listed_packages(tmp_path) == expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[tool.ridgeline]\nkernels = 'kernels'", r"kernels is 'kernels'; allowed is a list"),
        ("[tool.ridgeline]\nkernels = ['../x']", r"kernels is \['\.\./x'\]; allowed"),
        ("[tool]\nridgeline = 3", r"\[tool.ridgeline\] is 3, not a table; write"),
        ("[tool", "cannot be read as TOML.*; correct the file"),
    ],
)
def test_a_wrong_list_of_packages_is_one_clear_error(tmp_path, text, said):
    (tmp_path / "pyproject.toml").write_text(text)
    with pytest.raises(ProjectError, match=said) as caught:
        listed_packages(tmp_path)
    assert str(tmp_path / "pyproject.toml") in str(caught.value)
    assert isinstance(caught.value, DeclarationError)


@pytest.mark.parametrize("settings", [True, False])
def test_what_nobody_named_a_place_for_lies_at_the_root(tmp_path, monkeypatch, settings):
    (tmp_path / "deep/er").mkdir(parents=True)
    (tmp_path / "ridgeline.toml" if settings else tmp_path / ".git").write_text("")
    for folder, seen in ((".", "site"), ("deep/er", "../../site")):
        monkeypatch.chdir(tmp_path / folder)
        assert project.place("site") == Path(seen)
        assert project.around(Path.cwd()).results == tmp_path.resolve() / "results"
    assert project.place("site", tmp_path / "deep") == Path("../site")


def test_a_folder_in_no_clone_is_a_project_itself(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert project.place(".ridgeline/x") == Path(".ridgeline/x")


RENAMED = {"old": "new", "k/m": "k/n", "k/n": "k/o", "k/hip": "k/rocm", "k/gone": "", "dead": "", "new/a": "new/b"}


@pytest.mark.parametrize(
    ("name", "now"),
    [
        ("old/triton/m", "new/triton/m"),
        ("old/triton/a", "new/triton/b"),
        ("k/triton/m", "k/triton/o"),
        ("k/hip/m", "k/rocm/o"),
        ("k/hip/gone", ""),
        ("dead/triton/m", ""),
        ("other/triton/m", "other/triton/m"),
    ],
)
def test_a_name_is_followed_to_what_it_is_now(name, now):
    assert project.current_name(name, RENAMED) == now
    assert project.current_name(name, {}) == name


@pytest.mark.parametrize(
    ("renamed", "unknown"),
    [
        ({"old": "gemm", "gemm/m": "gemm/m64", "gemm/tr": "gemm/triton"}, ""),
        ({"old": "gem"}, '"gem", which head does not declare (there are gemm, moe)'),
        ({"gemm/m": "gemm/m46"}, '"gemm/m46", which head does not declare (gemm has m64, triton)'),
    ],
)
def test_a_new_name_that_nothing_has_is_named_with_what_there_is(renamed, unknown):
    assert unknown in project.unknown_new_name(renamed, {"gemm": ["m64", "triton"], "moe": []})
    assert bool(project.unknown_new_name(renamed, {"gemm": ["m64", "triton"], "moe": []})) == bool(unknown)


def test_names_that_are_given_in_a_circle_end():
    assert project.current_name("a/t/c", {"a": "b", "b": "a"}) == "a/t/c"
    assert project.current_kernel("dead", RENAMED) == "dead"


@pytest.mark.parametrize(
    "entry", ['"k/m" = "n"', '"k" = "a/b"', '"k/" = "k/n"', '"a/b/c" = "a/b/d"', '"" = "k"', '"k" = 1']
)
def test_a_name_of_another_form_is_refused(entry, tmp_path):
    (tmp_path / "ridgeline.toml").write_text(f"renamed = {{{entry}}}\n")
    with pytest.raises(ProjectError, match="renamed is .*allowed is a table such as"):
        project.layout(tmp_path)
