"""Checkouts under test: where each lies, which commit it is, and what it declares."""

from __future__ import annotations

import dataclasses
import functools
import pkgutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks import trial_file
from benchmarks.coordinator import starting
from benchmarks.coordinator.ranks import Failure, PoolDied, StepFailed, WorkerPool
from benchmarks.reach.code import CheckoutCode
from benchmarks.trial_file import Status
from kernels import registry, spec

MOST_REFUSED = 20
"""Modules that may end the describing process one after the other before we give up."""

START_S = 180.0
"""How long a process may take to import torch and list its devices."""


class CheckoutError(Exception):
    """A checkout cannot be measured; the text names it and says the next step."""


@dataclasses.dataclass(frozen=True)
class Checkout:
    """The source of one side and the Python that runs it.  commit, date_ms, dirty: as the caller knows them.

    date_ms: committer date, milliseconds since 1970 UTC.
    """

    role: str
    path: Path
    commit: str | None = None
    date_ms: int | None = None
    dirty: bool | None = None
    python: str = sys.executable

    def __post_init__(self) -> None:
        if not self.path.is_dir():
            raise CheckoutError(f"checkout {self.role}: {self.path} is not a folder")

    @functools.cached_property
    def code(self) -> CheckoutCode:
        """Which files its operators come from."""
        return CheckoutCode(self.path)


@dataclasses.dataclass(frozen=True)
class Description:
    """What a checkout declares and what its Python sees; all JSON values."""

    kernels: Mapping[str, dict[str, Any]]
    modules: Mapping[str, str]
    broken: list[dict[str, Any]]
    devices: list[dict[str, Any]]
    environment: dict[str, Any]


@dataclasses.dataclass
class Declared:
    """What was found so far: kernels, the module of each, broken modules, and which modules are sound."""

    kernels: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)
    modules: dict[str, str] = dataclasses.field(default_factory=dict)
    broken: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)
    sound: set[str] = dataclasses.field(default_factory=set)

    @classmethod
    def of(cls, answer: dict[str, Any], asked: Iterable[str]) -> Declared:
        """The answer of a process that was asked for modules.  If a package is broken, none of its modules was seen."""
        broken = {one["module"]: one for one in answer["broken"]}
        sound = {name for name in asked if name not in broken and name.rpartition(".")[0] not in broken}
        return cls(answer["kernels"], answer["modules"], broken, sound)

    @classmethod
    def without(cls, module: str, reason: str, detail: str = "") -> Declared:
        """Of a module that declares nothing."""
        return cls(broken={module: {"module": module, "reason": reason, "detail": detail}})

    def replace(self, module: str, alone: Declared) -> None:
        """Take what a module declares in a process of its own for what it declared among others."""
        before = self.broken.pop(module, None)
        for name in alone.kernels:
            self.kernels.setdefault(name, alone.kernels[name])
            self.modules.setdefault(name, alone.modules[name])
        if before and any(self.modules[name] != module for name in alone.kernels):
            self.broken[module] = before  # it declares again what another module declares
        self.broken.update(alone.broken)

    def description(self, devices: list[dict[str, Any]], environment: dict[str, Any]) -> Description:
        """All of it, in the order of the names, without declarations that no trial file can hold."""
        for name in [one for one in self.kernels if trial_file.unfit_declaration(self.kernels[one])]:
            module = self.modules[name]
            reason = f"its declaration cannot be: {trial_file.unfit_declaration(self.kernels.pop(name))}"
            self.broken[module] = {"module": module, "reason": reason, "detail": ""}
        kernels = {name: self.kernels[name] for name in sorted(self.kernels)}
        return Description(kernels, self.modules, list(self.broken.values()), devices, environment)


class Describer:
    """Asks a checkout what it declares, in a process of its own.

    begin() starts the process and proceed() has it import, so that several checkouts do so at once; end() waits for the
    answer.
    """

    def __init__(self, checkout: Checkout, directory: Path, protocol: Mapping[str, Any], limit_s: float) -> None:
        self._checkout, self._directory = checkout, directory
        self._protocol, self._limit_s = dict(protocol), limit_s
        self._import_marker = directory / f"importing.{checkout.role}"
        self._refuse: dict[str, str] = {}
        self._failed: list[Failure] = []
        self.pool: WorkerPool | None = None
        self._seen: dict[str, Any] = {}
        self._asked = False

    def begin(self) -> None:
        """Start the process and ask it for its devices."""
        checkout = self._checkout
        label = f"describe.{checkout.role}"
        try:
            with starting.ready(checkout.python):
                self.pool = WorkerPool(label, checkout.python, checkout.path, 1, self._directory)
        except OSError as error:
            why = f"cannot start its Python: {error}; name an executable that exists"
            raise CheckoutError(f"checkout {checkout.role}: {why}") from error
        self.pool.post("probe", START_S, "probe")

    def proceed(self) -> None:
        """Take its devices, and ask for the declarations."""
        self._seen = self._probed()
        self._post(self._seen)
        self._asked = True

    def end(self) -> Description:
        """The answer.

        A module that hangs the process is refused, and the process started again.  If any module is broken, or the
        process ended, each that is not known to be sound is imported alone, in a process of its own: what one does to
        Python, to torch or to the process must not make others look broken.
        """
        try:
            if not self._asked:
                self.proceed()
            seen = self._seen
            found = self._declared_together()
            for module in self._modules():
                if module in self._refuse:
                    found.replace(module, Declared.without(module, self._refuse[module]))
                elif module not in found.sound and module.rpartition(".")[0] not in found.broken:
                    found.replace(module, self._declared_alone(seen, module))
            if self._failed and not found.kernels:
                raise self._error(self._failed[0])
            return found.description(seen["devices"], self._environment(seen))
        finally:
            self.kill()

    def _declared_together(self) -> Declared:
        """What all modules declare in one process; nothing if one of them ended it."""
        while True:
            try:
                return Declared.of(self._told(), self._modules())
            except PoolDied as died:
                if died.failure.status != Status.HANG or not self._refuse_module(died):
                    return Declared()
            except StepFailed:
                return Declared()
            self.begin()
            self.proceed()

    def kill(self) -> None:
        """End the process."""
        if self.pool:
            self.pool.kill()

    def _probed(self) -> dict[str, Any]:
        assert self.pool
        try:
            return self.pool.collect()[0]
        except (StepFailed, PoolDied) as error:
            raise self._error(error.failure, f"{self._checkout.python} cannot run the measuring process: ") from error

    def _declared_alone(self, seen: dict[str, Any], module: str) -> Declared:
        """What one module declares in a process of its own."""
        try:
            self.kill()
            self.begin()
            self._probed()
            self._post(seen, module)
            return Declared.of(self._told(), [module])
        except PoolDied as died:
            what = "hung" if died.failure.status == Status.HANG else "ended the process"
            return Declared.without(module, f"importing it {what}: {died.failure.why}", died.failure.detail)
        except StepFailed as failed:
            self._failed.append(failed.failure)
            return Declared.without(module, failed.failure.why, failed.failure.detail)

    def _post(self, seen: dict[str, Any], only: str = "") -> None:
        assert self.pool
        first = (seen["devices"] or [{"arch": "cpu", "compute_units": None}])[0]
        device = "cuda:0" if seen["devices"] else "cpu"
        request = {
            "import_marker": str(self._import_marker),
            "refuse": self._refuse,
            "place": {"device": device, "arch": first["arch"], "compute_units": first["compute_units"]},
            "protocol": self._protocol,
            "only": only,
        }
        self.pool.post("import", self._limit_s, "declare", **request)

    def _told(self) -> dict[str, Any]:
        assert self.pool
        found: dict[str, Any] = self.pool.collect()[0]
        return found

    def _environment(self, seen: dict[str, Any]) -> dict[str, Any]:
        environment = dict(seen["environment"])
        if self._checkout.python != sys.executable:
            environment["executable"] = self._checkout.python
        return environment

    def _modules(self) -> list[str]:
        """Every module of the checkout that may declare kernels, found without importing one."""
        found = []
        for package, home in zip(listed_packages(self._checkout), self._checkout.code.tree.homes, strict=True):
            folder = self._checkout.path / home
            names = [info.name for info in pkgutil.iter_modules([str(folder)])]
            found += [package, *(f"{package}.{name}" for name in names if registry.declares(package, name))]
        return found

    def _refuse_module(self, died: PoolDied) -> bool:
        """Whether the module that hung the process is known; it is refused from now on."""
        module = self._import_marker.read_text() if self._import_marker.exists() else ""
        if not module or module in self._refuse or len(self._refuse) >= MOST_REFUSED:
            return False
        self._refuse[module] = f"importing it hung: {died.failure.why}"
        return True

    def _error(self, failure: Failure, what: str = "") -> CheckoutError:
        where = f"checkout {self._checkout.role} ({self._checkout.path})"
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


def called_libraries(declaration: Mapping[str, Any] | None) -> dict[str, str]:
    """Version and origin of every library that an operator's backends call, by distribution."""
    by_backend = (declaration or {}).get("libraries", {})
    return {name: version for called in by_backend.values() for name, version in called.items()}
