"""What has changed in the functions that our adapters of other libraries call?

    python -m tests.kernels.contracts

Compares what is installed here with tests/recordings/vendors, which has each function as its repository had it at a
named commit: arguments in order, their kinds, defaults and, of torch operators, types.  One line for each function;
exit code 1 if one differs.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import importlib.util
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

RECORDINGS = Path(__file__).resolve().parents[1] / "recordings" / "vendors"

OPERATOR = "::"
"""Between the namespace and the name of a torch operator."""


@dataclasses.dataclass(frozen=True)
class Argument:
    """One argument.  kind: as in inspect.Parameter; default: source text, None without one; type: of operators only."""

    name: str
    kind: str = "positional or keyword"
    default: str | None = None
    type: str = ""

    def __str__(self) -> str:
        return self.name if self.default is None else f"{self.name}={self.default}"


@dataclasses.dataclass(frozen=True)
class UpstreamFunction:
    """A function as it was read.  imports: the module that registers an operator; earlier: (versions, arguments)."""

    name: str
    distribution: str
    repository: str
    path: str
    commit: str
    date: str
    arguments: tuple[Argument, ...]
    tensors: Mapping[str, Mapping[str, Any]]
    imports: str = ""
    earlier: tuple[tuple[str, tuple[Argument, ...]], ...] = ()

    @property
    def where(self) -> str:
        """Where it was read, for messages."""
        return f"{self.repository} {self.path} at {self.commit[:8]} ({self.date})"


def recorded(folder: Path = RECORDINGS) -> list[UpstreamFunction]:
    """Every recorded function."""
    return [one for path in sorted(folder.glob("*.json")) for one in _of_file(json.loads(path.read_text()))]


def _of_file(told: Mapping[str, Any]) -> Iterator[UpstreamFunction]:
    shared = {key: told[key] for key in ("distribution", "repository", "commit", "date")}
    for one in told["functions"]:
        earlier = tuple((old["versions"], _arguments(old["signature"])) for old in one.get("earlier", ()))
        about = {"imports": told.get("imports", ""), "tensors": one["tensors"], "earlier": earlier}
        yield UpstreamFunction(one["name"], path=one["path"], arguments=_arguments(one["signature"]), **shared, **about)


def _arguments(signature: str) -> tuple[Argument, ...]:
    """Of `def f(...)` or of an operator's schema `f(...) -> ...`."""
    if signature.startswith("def "):
        return of_python(f"{signature}: ...", signature[4:].partition("(")[0])
    return of_schema(signature)


def of_python(source: str, name: str) -> tuple[Argument, ...]:
    """The arguments of a function in a module's source.  ValueError if it has no such function."""
    functions = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)]
    found = next((node.args for node in functions if node.name == name), None)
    if found is None:
        raise ValueError(f"there is no function {name}")
    positional = [*found.posonlyargs, *found.args]
    defaults = [None] * (len(positional) - len(found.defaults)) + list(found.defaults)
    kinds = ["positional only"] * len(found.posonlyargs) + ["positional or keyword"] * len(found.args)
    starred = [Argument(one.arg, kind) for one, kind in ((found.vararg, "*"), (found.kwarg, "**")) if one]
    named = zip(found.kwonlyargs, found.kw_defaults, strict=True)
    return (
        *(Argument(one.arg, kind, _text(at)) for one, kind, at in zip(positional, kinds, defaults, strict=True)),
        *(Argument(one.arg, "keyword only", _text(at)) for one, at in named),
        *starred,
    )


def _text(default: ast.expr | None) -> str | None:
    return None if default is None else ast.unparse(default)


def of_schema(schema: str) -> tuple[Argument, ...]:
    """The arguments of an operator's schema: "name(Tensor a, int? b=None, *, bool c) -> Tensor"."""
    inside = schema[schema.index("(") + 1 : schema.rindex(") ->")]
    kind, found = "positional or keyword", []
    for part in re.split(r",\s*(?![^()\[\]]*[)\]])", inside):
        if part.strip() == "*":
            kind = "keyword only"
        elif part.strip():
            declared, _, default = part.strip().partition("=")
            typed, _, name = declared.strip().rpartition(" ")
            found.append(Argument(name, kind, _default(default.strip()), typed.strip()))
    return tuple(found)


def _default(text: str) -> str | None:
    """A default of a schema; torch prints 0.0 as 0."""
    return f"{text}0" if re.fullmatch(r"-?\d+\.", text) else text or None


def changes(before: Sequence[Argument], now: Sequence[Argument]) -> list[str]:
    """What is different, in words; empty if nothing is."""
    old, new = {one.name: one for one in before}, {one.name: one for one in now}
    gone, added = [name for name in old if name not in new], [one for one in now if one.name not in old]
    both = [name for name in old if name in new]
    found = [f"the argument {name} is gone" for name in gone]
    found += [f"the argument {one.name} is new" + (" and required" if one.default is None else "") for one in added]
    if [name for name in new if name in old] != both:
        found.append(f"the order was {', '.join(both)} and is {', '.join(name for name in new if name in old)}")
    for name in both:
        for what in ("default", "kind", "type"):
            was, has = getattr(old[name], what), getattr(new[name], what)
            if was != has:
                found.append(f"the {what} of {name} was {was} and is {has}")
    return found


def sentence(function: UpstreamFunction, found: Sequence[Argument]) -> str:
    """What changed in a function, "" if it is as recorded, now or in an earlier version."""
    different = changes(function.arguments, found)
    if not different or any(not changes(arguments, found) for _, arguments in function.earlier):
        return ""
    expected = ", ".join(map(str, function.arguments))
    changed = f"{function.name} in {function.distribution}: {'; '.join(different)}"
    return f"{changed}; expected ({expected}) as in {function.where}"


def in_package(function: UpstreamFunction) -> tuple[Argument, ...]:
    """Its arguments as installed here: an operator's from torch, another's from the file, without importing it."""
    if OPERATOR in function.name:
        importlib.import_module(function.imports)
        torch = importlib.import_module("torch")
        namespace, _, name = function.name.partition(OPERATOR)
        return of_schema(str(getattr(getattr(torch.ops, namespace), name).default._schema))
    package, *inner = function.name.split(".")
    found = importlib.util.find_spec(package)
    for folder in (found.submodule_search_locations or ()) if found else ():
        path = Path(folder, *inner[:-1]).with_suffix(".py")
        if path.exists():
            return of_python(path.read_text(encoding="utf-8"), inner[-1])
    raise ValueError(f"{package} is not installed" if found is None else f"its package has no {'.'.join(inner)}")


def compare(functions: Sequence[UpstreamFunction]) -> Iterator[tuple[str, str, str]]:
    """(name, "same" | "differs" | "absent", sentence)."""
    for one in functions:
        try:
            found = in_package(one)
        except Exception as error:  # a library's import raises anything
            yield one.name, "absent", f"{one.name}: {type(error).__name__}: {error}"
            continue
        what = sentence(one, found)
        yield one.name, "differs" if what else "same", what or f"{one.name}: as in {one.where}"


def main() -> int:
    """One line for each function; 1 if one differs."""
    outcomes = list(compare(recorded()))
    for _, outcome, words in outcomes:
        print(f"{outcome:8} {words}")
    return int(any(outcome == "differs" for _, outcome, _ in outcomes))


if __name__ == "__main__":
    sys.exit(main())
