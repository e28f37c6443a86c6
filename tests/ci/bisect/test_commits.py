"""Which commits leave a kernel's files as they were: by what its modules import, in any package, read from git."""

from __future__ import annotations

from pathlib import Path

import pytest

from ci.bisect.axes import commit_axis
from ci.git.repository import Repository
from ci.judging.reach import file_labels
from tests.ci.bisect.toys import git

DECLARED = {
    "pyproject.toml": '[tool.ridgeline]\nkernels = ["lib"]\n',
    "lib/__init__.py": "",
    "lib/limits.toml": "lds = 65536\n",
    "lib/shared.py": "",
    "lib/gemm.py": 'from kernels.spec import Kernel\nfrom lib import shared\ngemm = Kernel("gemm")\n',
    "lib/rows.py": 'from kernels.spec import Kernel\nimport outside.sums\nrows = Kernel(name="rows")\n',
    "outside/__init__.py": "",
    "outside/sums.py": "",
    "outside/alone.py": "",
    "README.md": "words\n",
}


def written(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def committed(folder: Path) -> None:
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "change")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    written(tmp_path, DECLARED)
    git(tmp_path, "init", "-q", "-b", "main")
    committed(tmp_path)
    return tmp_path


def moved(folder: Path, *kernels: str) -> bool:
    """Whether the last commit has another label than the one before it."""
    repository = Repository(folder)
    before, after = file_labels(repository, [repository.resolve(name) for name in ("HEAD^", "HEAD")], kernels)
    return before != after


@pytest.mark.parametrize(
    ("changed", "kernels"),
    [
        ("lib/shared.py", {"gemm"}),
        ("lib/gemm.py", {"gemm"}),
        ("lib/rows.py", {"rows"}),
        ("outside/sums.py", {"rows"}),
        ("lib/__init__.py", {"gemm", "rows"}),
        ("lib/limits.toml", {"gemm", "rows"}),
        ("lib/new.py", set()),
        ("outside/alone.py", set()),
        ("README.md", set()),
    ],
)
def test_a_commit_moves_the_kernels_that_its_files_reach(folder: Path, changed: str, kernels: set[str]) -> None:
    written(folder, {changed: DECLARED.get(changed, "") + "# changed\n"})
    committed(folder)
    assert {name for name in ("gemm", "rows") if moved(folder, name)} == kernels
    assert moved(folder, "gemm", "rows") == moved(folder) == bool(kernels)
    assert moved(folder, "nobody") == (changed != "README.md"), "of what nobody declares, all code counts"


def test_a_name_that_cannot_be_read_makes_all_code_count(folder: Path) -> None:
    written(folder, {"lib/many.py": 'from kernels.spec import Kernel\nKernel(f"made_{which()}")\n'})
    committed(folder)
    written(folder, {"lib/rows.py": DECLARED["lib/rows.py"] + "# changed\n"})
    committed(folder)
    assert moved(folder, "gemm")
    written(folder, {"README.md": "other words\n"})
    committed(folder)
    assert not moved(folder, "gemm")


def test_an_axis_has_a_label_for_each_of_its_commits(folder: Path) -> None:
    for number in range(3):
        written(folder, {"lib/gemm.py": DECLARED["lib/gemm.py"] + "# a\n" * (number // 2), "README.md": f"{number}\n"})
        committed(folder)
    axis = commit_axis(Repository(folder), "HEAD~3", "HEAD", ["gemm"])
    assert len(axis.places) == len(axis.known) == 4
    assert [a == b for a, b in zip(axis.known, axis.known[1:], strict=False)] == [True, True, False]
