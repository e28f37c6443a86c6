"""Names of kernels read from source: all of them, or none at all."""

from __future__ import annotations

import pytest

from benchmarks.coordinator.checkouts import Checkout, describe, modules_with, refuse_unknown
from benchmarks.plan import UsageError
from benchmarks.reach import declared
from benchmarks.sources import Unreadable, names_in, of_folder
from kernels.registry import discover
from tests.kit import ROOT

IMPORT = "from kernels.spec import Case, Kernel\n"


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("a = Kernel('a', cases=[])\nb = Kernel(name='b')", {"a", "b"}),
        ("def make():\n    return Kernel('a')", {"a"}),
        ("def show(k: Kernel) -> dict[str, Kernel]:\n    return isinstance(k, Kernel)", set()),
        ("import kernels.spec as s\nk = s.Kernel('a')", {"a"}),
    ],
)
def test_a_name_that_is_certain_is_found(source, found):
    assert set(names_in(IMPORT + source)) == found


@pytest.mark.parametrize(
    "source",
    [
        "import os\nk = Kernel(os.environ['NAME'])",
        "for p in ('x', 'y'):\n    Kernel(f'g_{p}')",
        "NAME = 'a'\nNAME += 'b'\nk = Kernel(NAME)",
        "def make(p):\n    return Kernel(f'g_{p}')\nmake('x')",
        "class Mine(Kernel): ...\nk = Mine('a')",
        "K = Kernel\nk = K('a')",
        "from kernels.spec import Kernel as K\nk = K('a')",
        "k = (lambda p: Kernel('g' + p))('x')",
        "k = Kernel(*['a'])",
        "k = Kernel(",
    ],
)
def test_one_name_that_is_not_certain_leaves_it_to_the_import(source):
    with pytest.raises(Unreadable):
        names_in(IMPORT + source)


def test_a_package_that_lies_elsewhere_is_not_certain(tmp_path):
    (tmp_path / "ridgeline.toml").write_text('kernels = ["installed"]')
    refuse_unknown(["theirs"], [Checkout("head", tmp_path)])


def test_our_own_names_are_those_that_an_import_finds():
    assert declared(of_folder(ROOT)).keys() == discover(["kernels"]).kernels.keys()


def test_only_a_name_that_no_checkout_declares_is_refused(tmp_path):
    for role in ("base", "head"):
        (tmp_path / role / "kernels").mkdir(parents=True)
        (tmp_path / role / "kernels" / "one.py").write_text(IMPORT + f"k = Kernel('of_{role}')")

    def asked(*names):
        refuse_unknown(names, [Checkout(role, tmp_path / role) for role in ("base", "head")])

    asked()
    asked("of_base", "of_head")
    with pytest.raises(UsageError, match="no kernel 'other'; known: of_base, of_head"):
        asked("other")
    (tmp_path / "base" / "kernels" / "two.py").write_text("def broken(:  # Kernel")
    asked("other")


DECLARED = """from kernels.spec import Case, Cost, Kernel, Tolerance
again = Kernel("again", cases=[Case("c", n=1, dtype="fp32")], tolerance=Tolerance())
again.inputs(lambda case, seed: {})
again.cost(lambda case: Cost())
again.reference(lambda case, inputs: None)
again.backend("ours")(lambda case, inputs: print)
"""


def test_a_kernel_that_two_modules_declare_is_the_first_ones_and_one_that_is_imported_is_nobody_elses(
    toy_tree, tmp_path
):
    """Each module is imported in a process of its own, so what two of them have is told apart by who holds it."""
    files = {"toy/one.py": DECLARED, "toy/three.py": DECLARED, "toy/two.py": "from .one import again\n"}
    found = describe([Checkout("head", toy_tree("tree", files))], tmp_path, {}, 60.0)["head"]
    assert found.kernels.keys() == {"again", "faults", "pairs", "steady"}
    assert {one["module"]: one["reason"] for one in found.broken} == {
        "toy.three": "DeclarationError: kernel 'again' in toy.three is declared by another module already"
    }
    assert found.modules["again"] == "toy.two"


def test_modules_that_cannot_hold_what_is_asked_for_are_not_imported(tmp_path):
    """A module that imports another one's kernel may hold it; where a name is computed, every module may."""
    files = {"a": "k = Kernel('a')", "b": "from kernels.a import k\nm = Kernel('b')", "c": "n = Kernel('c')"}
    (tmp_path / "kernels").mkdir()
    for name, text in files.items():
        (tmp_path / "kernels" / f"{name}.py").write_text(IMPORT + text)
    assert modules_with(Checkout("head", tmp_path), ["a"]) == ["kernels", "kernels.a", "kernels.b"]
    assert modules_with(Checkout("base", tmp_path, renamed={"c": "new"}), ["new"]) == ["kernels", "kernels.c"]
    assert len(modules_with(Checkout("head", tmp_path))) == 4
    (tmp_path / "kernels" / "d.py").write_text(IMPORT + "k = Kernel(NAME)")
    assert len(modules_with(Checkout("head", tmp_path), ["a"])) == 5
