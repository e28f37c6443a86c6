"""Checkouts under test: where each lies, which commit it is, and what it declares."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import pkgutil
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from benchmarks import reach, trial_file
from benchmarks.coordinator.ranks import Failed, Failure, PoolDied, StepFailed, WorkerPool, started
from benchmarks.machine.limits import unseen_gpu
from benchmarks.plan import unknown_kernel
from benchmarks.reach import CheckoutCode
from benchmarks.shapes import Into, Json, JsonObject, whole
from benchmarks.sources import Unreadable, is_of_part
from benchmarks.trial_file import EARLIEST_MS, LATEST_MS, Status
from kernels import registry, spec
from kernels.project import current_kernel

AT_ONCE = 8
"""Processes that import at a time: each takes a core and, with an operator's module, some 400 MB (2026-11)."""

START_S = 180.0
"""How long a process may take to import torch and list its devices."""


Folder = Annotated[Path, Into(lambda path: Path(path).resolve())]


class CheckoutError(Exception):
    """A checkout cannot be measured; the text names it and says the next step."""


@dataclasses.dataclass(frozen=True)
class Checkout:
    """The source of one side and the Python that runs it.  commit, date_ms, dirty: as the caller knows them.

    date_ms: committer date, milliseconds since 1970 UTC.
    renamed: what the settings of head say of names that this side still has (kernels.project); it goes by the new ones.
    """

    role: str
    path: Folder
    commit: str | None = None
    date_ms: Annotated[int, whole(EARLIEST_MS, LATEST_MS)] | None = None
    dirty: bool | None = None
    python: str = sys.executable
    renamed: Mapping[str, str] = dataclasses.field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if not self.path.is_dir():
            raise CheckoutError(f"checkout {self.role}: {self.path} is not a folder")

    @functools.cached_property
    def code(self) -> CheckoutCode:
        """Which files its operators come from."""
        return CheckoutCode(self.path)


@dataclasses.dataclass(frozen=True)
class Description:
    """What a checkout declares and what its Python sees; all JSON values.

    broken: of each module that does not import, the reason and the operators it declares (null: not known).
    """

    kernels: Mapping[str, JsonObject]
    modules: Mapping[str, str]
    broken: list[JsonObject]
    devices: list[JsonObject]
    environment: JsonObject


def probe(checkout: Checkout, directory: Path, variables: Mapping[str, str], on_cpu: bool = False) -> Description:
    """The machine and the versions as the Python of a checkout sees them; of no operators.

    variables: of the process that looks, beside those of this one.  on_cpu: a GPU is left alone on purpose.  Raises
    CheckoutError if it cannot measure, or does not see the GPU that is there.
    """
    [seen] = probed_by([checkout], directory, variables)
    if why := "" if on_cpu else unseen_gpu(seen["devices"], seen["environment"]):
        raise CheckoutError(why)
    environment = {key: value for key, value in seen["environment"].items() if "missing" not in key}
    return Description({}, {}, [], seen["devices"], environment)


def describe(
    checkouts: Sequence[Checkout], directory: Path, terms: Json, limit_s: float, kernels: Sequence[str] = ()
) -> dict[str, Description]:
    """What every checkout declares, by role.  terms: of the protocol.  limit_s: for the import of a module.

    kernels: those alone whose declaration is wanted, where the sources say in which modules it is.

    Each module is imported in a process of its own, several at a time: what one does to Python, to torch or to the
    process must not make others look broken.  Raises CheckoutError where a checkout's Python measures nothing.
    """
    probed = probed_by(checkouts, directory)
    asked = [
        (checkout, "declare", {"place": _place(seen), "protocol": dict(terms), "module": module, **more})
        for checkout, seen in zip(checkouts, probed, strict=True)
        for modules in [modules_with(checkout, kernels)]
        for more in [{"modules": modules, "renamed": dict(checkout.renamed)}]
        for module in modules
    ]
    answers = list(zip(asked, answers_of(directory, limit_s, asked), strict=True))
    return {
        one.role: _description(one, seen, {said["module"]: a for (of, _, said), a in answers if of is one})
        for one, seen in zip(checkouts, probed, strict=True)
    }


def probed_by(
    checkouts: Sequence[Checkout], directory: Path, variables: Mapping[str, str] | None = None
) -> list[JsonObject]:
    """What the Python of each checkout sees; CheckoutError where one measures nothing."""
    probed = answers_of(directory, START_S, [(one, "probe", {}) for one in checkouts], variables)
    for checkout, seen in zip(checkouts, probed, strict=True):
        if isinstance(seen, Failed):
            raise _error(checkout, seen.failure, f"{checkout.python} cannot run the measuring process: ")
    return probed


Asked = tuple[Checkout, str, JsonObject]
"""A request to a process of a checkout: which, its name, and its fields."""


def answers_of(
    directory: Path, limit_s: float, asked: Sequence[Asked], variables: Mapping[str, str] | None = None
) -> list[Any]:
    """The answer to each request, of a process of its own, or the StepFailed or PoolDied that it came to."""
    answers: list[Any] = []
    running: deque[WorkerPool] = deque()
    with contextlib.ExitStack() as processes:
        for checkout, op, fields in asked:
            if len(running) == AT_ONCE:
                answers.append(_answer(running.popleft()))
            label = f"describe.{checkout.role}"
            try:
                pool = processes.enter_context(started(label, checkout.python, checkout.path, 1, directory, variables))
            except OSError as error:
                why = f"cannot start its Python: {error}; name an executable that exists"
                raise CheckoutError(f"checkout {checkout.role}: {why}") from error
            pool.post("import" if op == "declare" else op, limit_s, op, **fields)
            running.append(pool)
        return [*answers, *map(_answer, running)]


def _answer(pool: WorkerPool) -> Any:
    """The answer of a process, which has ended then, or how it failed."""
    try:
        return pool.collect()[0]
    except Failed as error:
        return error
    finally:
        pool.kill()


def _place(seen: Json) -> JsonObject:
    """Fields of kernels.spec.Place on the first device."""
    first = (seen["devices"] or [{"arch": "cpu", "compute_units": None}])[0]
    device = "cuda:0" if seen["devices"] else "cpu"
    return {"device": device, "arch": first["arch"], "compute_units": first["compute_units"]}


def modules_with(checkout: Checkout, kernels: Sequence[str] = ()) -> list[str]:
    """Every module of the checkout that may declare kernels, found without importing one.

    kernels: only the modules that reach the declaration of one of these, and all where it is not certain which do.
    """
    found = []
    for package, home in zip(listed_packages(checkout), checkout.code.tree.homes, strict=True):
        names = [info.name for info in pkgutil.iter_modules([str(checkout.path / home)])]
        found += [package, *(f"{package}.{name}" for name in names if registry.declares(package, name))]
    parts = _parts_of(checkout, kernels)
    return [one for one in found if not parts or any(is_of_part(f, p) for f in checkout.code.files(one) for p in parts)]


def _parts_of(checkout: Checkout, kernels: Sequence[str]) -> set[str]:
    """Where some kernels are declared; nothing where that is not certain of each."""
    try:
        homes = reach.declared(checkout.code.tree) if kernels else {}
    except Unreadable:
        return set()
    of_each = [[own for name, own in homes.items() if current_kernel(name, checkout.renamed) == one] for one in kernels]
    return {part for declared in of_each for own in declared for part in own} if all(of_each) else set()


def _description(checkout: Checkout, seen: Json, answers: Json) -> Description:
    """Of what each module came to.  If a package is broken, none of its modules is looked at."""
    kernels: dict[str, JsonObject] = {}
    homes: dict[str, list[str]] = {}
    broken: dict[str, JsonObject] = {}
    for module, answer in answers.items():
        if module.rpartition(".")[0] in broken:
            continue
        if isinstance(answer, Failed):
            why, failure = answer.failure.why, answer.failure
            if isinstance(answer, PoolDied):
                what = "hung" if failure.status == Status.HANG else "ended the process"
                why = f"importing it {what}: {why}"
            broken[module] = _broken(module, why, failure.detail)
            continue
        broken |= {one["module"]: one for one in answer["broken"]}
        for name, declared in answer["kernels"].items():
            if name in homes and module not in homes[name] and homes[name][-1] not in answer["homes"][name]:
                why = f"DeclarationError: kernel {name!r} in {module} is declared by another module already"
                broken[module] = _broken(module, why)
            elif unfit := trial_file.unfit_declaration(declared):
                broken[module] = _broken(module, f"its declaration cannot be: {unfit}")
            else:
                kernels.setdefault(name, declared)
                homes[name] = [*answer["homes"][name], module]
    failed = [answer for answer in answers.values() if isinstance(answer, StepFailed)]
    if failed and not kernels:
        raise _error(checkout, failed[0].failure)
    environment = dict(seen["environment"])
    if checkout.python != sys.executable:
        environment["executable"] = checkout.python
    modules = {name: own[-1] for name, own in homes.items()}
    for module, one in broken.items():
        names = reach.declared_by(checkout.code.tree, module)
        one["declares"] = names and [current_kernel(name, checkout.renamed) for name in names]
    return Description(dict(sorted(kernels.items())), modules, list(broken.values()), seen["devices"], environment)


def _broken(module: str, why: str, detail: str = "") -> JsonObject:
    return {"module": module, "reason": why, "detail": detail}


def _error(checkout: Checkout, failure: Failure, what: str = "") -> CheckoutError:
    where = f"checkout {checkout.role} ({checkout.path})"
    return CheckoutError(f"{where}: {what}{failure.why}\n{failure.detail}")


def listed_packages(checkout: Checkout) -> list[str]:
    """The packages with kernels that the checkout lists; CheckoutError if its pyproject.toml is wrong."""
    try:
        return registry.listed_packages(checkout.path)
    except (spec.DeclarationError, ValueError) as error:
        raise CheckoutError(f"checkout {checkout.role}: {error}") from error


def kernel_files(checkouts: Iterable[Checkout]) -> Iterator[Path]:
    """Every file that the code of an operator can come from, and whatever lies in the packages with kernels."""
    for checkout in checkouts:
        files = {checkout.path / name for name in checkout.code.files() if not name.endswith("/")}
        below = (path for home in checkout.code.tree.homes for path in (checkout.path / home).rglob("*"))
        yield from files | {path for path in below if path.is_file() and "__pycache__" not in path.parts}


def called_libraries(declaration: Json | None) -> dict[str, str]:
    """Version and origin of every library that an operator's backends call, by distribution."""
    by_backend = (declaration or {}).get("libraries", {})
    return {name: version for called in by_backend.values() for name, version in called.items()}


def refuse_unknown(asked: Sequence[str], checkouts: Iterable[Checkout]) -> None:
    """UsageError for a name that certainly no checkout declares.

    An import takes 10 s and more, a misspelt name is refused at once.  What cannot be read from the source for certain
    is left to the import: a name computed from something unknown, a class derived from Kernel, a package elsewhere.
    """
    known: set[str] = set()
    for checkout in checkouts if asked else ():
        listed_packages(checkout)
        tree = checkout.code.tree
        try:
            known |= reach.declared(tree).keys()
        except (Unreadable, OSError):
            return
        if not all((checkout.path / home).is_dir() for home in tree.homes):
            return
    for name in asked:
        if name not in known:
            raise unknown_kernel(name, sorted(known))
