"""A repository with toy kernels, of which some commits change one; and trial lines of its commits, made by hand."""

from __future__ import annotations

from tests.ci import made_trials
from tests.kit import git

ROWS = '''"""Sums of rows. {note}"""

import torch
from kernels.spec import Case, Cost, Kernel, Tolerance

rows = Kernel(
    "rows",
    cases=[Case("r4", tier="pr", R=4, C=4096, dtype="fp32")],
    tolerance=Tolerance(norm=1e-5, peak=1e-4),
)


@rows.inputs
def inputs(case, seed):
    return {{"x": torch.randn(case.R, case.C)}}


@rows.cost
def cost(case):
    """One addition per element."""
    return Cost(flops=case.R * case.C, hbm_bytes=4 * case.R * case.C)


@rows.reference
def reference(case, inputs):
    return inputs["x"].double().sum(1).float()


@rows.backend("torch")
def ours(case, inputs):
    x, out = inputs["x"], torch.empty(case.R)

    def call(repeat=range({repeat})):
        for _ in repeat:
            torch.sum(x, dim=1, out=out)
        return out

    return call
'''
LAST, SLOWER, BROKEN = 20, 13, 9
"""The last of the commits 0..20, the one that calls eight times as often, and one whose kernel cannot be imported."""
REWRITTEN = (0, 3, 7, 10, 16)
"""Commits that change words of the kernel's file."""


def made(folder):
    """The repository; its commits by number, tagged v0 to v20."""
    (folder / "toys").mkdir(parents=True)
    (folder / "toys/__init__.py").touch()
    (folder / "pyproject.toml").write_text('[tool.ridgeline]\nkernels = ["toys"]\n')
    git(folder, "init", "-q", "-b", "main")
    for number in range(LAST + 1):
        _change(folder, number)
        git(folder, "add", "-A")
        git(folder, "commit", "-q", "-m", f"change {number}")
        git(folder, "tag", f"v{number}")
    return git(folder, "rev-list", "--reverse", "HEAD").split()


def _change(folder, number):
    repeat = 160 if number >= SLOWER else 20
    if number in (*REWRITTEN, SLOWER):
        (folder / "toys/rows.py").write_text(ROWS.format(note=f"Version {number}.", repeat=repeat))
    elif number == BROKEN:
        (folder / "toys/rows.py").write_text("import nothing_there\n")
    elif number % 2:
        (folder / "toys/other.py").write_text(f'"""Of no kernel, {number}."""\n')
    else:
        (folder / "README.md").write_text(f"{number}\n")


def line(base, head, ratio, number=0, failed="", **more):
    """A trial line of two commits.  failed: the role whose arm is wrong."""
    times = (made_trials.TIMES, [ratio * t for t in made_trials.TIMES])
    arms = [
        made_trials.failed("wrong") if role == failed else made_trials.ok(own)
        for role, own in zip(made_trials.SIDES, times, strict=True)
    ]
    declared = made_trials.declaration(more.get("kernel", "gemm"))
    trees = {role: made_trials.tree(commit, declared=declared) for role, commit in (("base", base), ("head", head))}
    return made_trials.paired({"m16": {"triton": arms}}, number, trees=trees, **more)
