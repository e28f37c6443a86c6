"""Commits whose files differ and whose machine code does not are one class; what does not compile is one of its own."""

from __future__ import annotations

import dataclasses
import io
from pathlib import Path

import pytest
from rich.console import Console

from ci.bisect import axes
from ci.bisect.axes import CommitAxis, same_code
from ci.git.repository import Repository
from ci.isa.compiled import CompiledCode, CompiledEntry, CompiledTree, CompileError, CompileStatus, LostArch, Wanted
from tests.ci.bisect.toys import git

CODE = CompiledCode("11aa", "11aa.s", None, (), "")  # type: ignore[arg-type]
ENTRY = CompiledEntry("gemm", "triton", "w4", "gfx942", ("m16", "m64"), CompileStatus.OK, "", CODE)
OTHER = dataclasses.replace(ENTRY, code=dataclasses.replace(CODE, hash="22bb"))
LACKS = dataclasses.replace(ENTRY, status=CompileStatus.UNSUPPORTED, why="no such backend", code=None)
FAILS = dataclasses.replace(ENTRY, status=CompileStatus.FAILED, why="no memory", code=None)


def tree(*entries: CompiledEntry, failures: tuple[LostArch, ...] = ()) -> CompiledTree:
    return CompiledTree("3.8.0", ("gfx942",), entries, failures=failures)


def test_code_configuration_and_cases_make_the_digest() -> None:
    alike = axes.digest(tree(ENTRY, OTHER))
    assert alike == axes.digest(tree(OTHER, ENTRY, LACKS))
    others = [
        tree(ENTRY),
        tree(OTHER),
        tree(dataclasses.replace(ENTRY, label="w8"), OTHER),
        tree(dataclasses.replace(ENTRY, cases=("m16",)), OTHER),
        tree(dataclasses.replace(ENTRY, arch="gfx950"), OTHER),
    ]
    assert len({alike, *map(axes.digest, others)}) == len(others) + 1


@pytest.mark.parametrize(
    "found", [tree(), tree(LACKS), tree(ENTRY, FAILS), tree(ENTRY, failures=(LostArch("gfx942", "no Triton"),))]
)
def test_what_does_not_all_compile_has_none(found: CompiledTree) -> None:
    assert axes.digest(found) == ""


@dataclasses.dataclass
class MadeCompiler:
    """Compiles what the file `code` of a checkout names; hears which."""

    entries: dict[str, CompiledEntry]
    console: Console = dataclasses.field(default_factory=lambda: Console(file=io.StringIO()))
    asked: list[str] = dataclasses.field(default_factory=list)

    def compile(self, folder: Path, wanted: Wanted, what: str) -> CompiledTree:
        self.asked.append((folder / "code").read_text())
        if self.asked[-1] not in self.entries:
            raise CompileError("it does not import")
        return tree(self.entries[self.asked[-1]])


def test_each_run_of_equal_files_is_compiled_once_and_what_fails_stays_apart(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "-b", "main")
    files = ["a", "a", "b", "broken", "c"]
    for number, text in enumerate(files):
        (tmp_path / "code").write_text(text)
        (tmp_path / "README.md").write_text(str(number))
        git(tmp_path, "add", "-A")
        git(tmp_path, "commit", "-q", "-m", f"change {number}")
    repository = Repository(tmp_path)
    axis = CommitAxis(repository, repository.commits("", "HEAD"), files)
    compiler = MadeCompiler({"a": ENTRY, "b": ENTRY, "c": OTHER})
    found = axes.labelled(axis, Wanted(["gfx942"]), compiler)  # type: ignore[arg-type]
    assert compiler.asked == ["a", "b", "broken", "c"]
    assert same_code(found.known, {}) == [True, True, False, False]
    assert found.known[3] == "broken"
    assert "it does not import" in compiler.console.file.getvalue()  # type: ignore[attr-defined]
    left = [one for one in (tmp_path / ".ridgeline/trees").iterdir() if one.is_dir()]
    assert not left, "the checkouts are gone again"
