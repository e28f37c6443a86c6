"""The modules of this repository and what they import, read from the source."""

from __future__ import annotations

import ast
import functools
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGES = ("kernels", "benchmarks", "ci", "dashboards")


@functools.cache
def files(*packages: str) -> dict[str, Path]:
    """Every module of some packages, of the house without any, by its dotted name."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *(packages or PACKAGES)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    paths = [Path(name) for name in listed.stdout.split() if name.endswith(".py") and (ROOT / name).exists()]
    return {".".join(path.with_suffix("").parts).removesuffix(".__init__"): ROOT / path for path in paths}


@functools.cache
def imports(module: str) -> frozenset[str]:
    """Modules that a module names in its imports, as far as they are modules."""
    return frozenset(name for node in statements(syntax(module)) for name in named(node, module))


def statements(node: ast.AST, *without: type[ast.AST]) -> Iterator[ast.AST]:
    """All statements below a node, but those below nodes of some types."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.stmt, ast.excepthandler, ast.match_case)) and not isinstance(child, without):
            yield child
            yield from statements(child, *without)


def named(node: ast.AST, module: str) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        source = ".".join(filter(None, (_above(module, node.level), node.module)))
        for alias in node.names:
            whole = f"{source}.{alias.name}"
            yield whole if whole in everything() else source


def _above(module: str, level: int) -> str:
    """What the dots of a relative import stand for."""
    inside = module if everything()[module].name == "__init__.py" else module.rpartition(".")[0]
    return ".".join(inside.split(".")[: len(inside.split(".")) + 1 - level]) if level else ""


@functools.cache
def syntax(module: str) -> ast.Module:
    return ast.parse(everything()[module].read_text())


def everything() -> dict[str, Path]:
    """The house and its tests."""
    return files(*PACKAGES, "tests")
