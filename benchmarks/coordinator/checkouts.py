"""Checkouts under test: where each lies, which commit it is, and what it declares."""

from __future__ import annotations

import dataclasses
import hashlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.coordinator import starting
from benchmarks.coordinator.kernel_identity import files_of
from benchmarks.coordinator.ranks import Failure, PoolDied, StepFailed, WorkerPool
from benchmarks.coordinator.signals import deferred
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


@dataclasses.dataclass(frozen=True)
class Description:
    """What a checkout declares and what its Python sees; all JSON values."""

    kernels: Mapping[str, dict[str, Any]]
    modules: Mapping[str, str]
    broken: list[dict[str, Any]]
    devices: list[dict[str, Any]]
    environment: dict[str, Any]


class Describer:
    """Asks a checkout what it declares, in a process of its own.

    begin() starts the process, so that several checkouts start at once; end() waits for the answer.
    """

    def __init__(self, checkout: Checkout, directory: Path, protocol: Mapping[str, Any], limit_s: float) -> None:
        self._checkout, self._directory = checkout, directory
        self._protocol, self._limit_s = dict(protocol), limit_s
        self._import_marker = directory / f"importing.{checkout.role}"
        self._refuse: dict[str, str] = {}
        self.pool: WorkerPool | None = None

    def begin(self) -> None:
        """Start the process and ask it for its devices."""
        checkout = self._checkout
        label = f"describe.{checkout.role}"
        try:
            starting.prepare(checkout.python)
            with deferred():
                self.pool = WorkerPool(label, checkout.python, checkout.path, 1, self._directory)
        except OSError as error:
            why = f"cannot start its Python: {error}; name an executable that exists"
            raise CheckoutError(f"checkout {checkout.role}: {why}") from error
        self.pool.post("probe", START_S, "probe")

    def end(self) -> Description:
        """The answer.  A module that ends or hangs the process is refused, and the process started again."""
        try:
            while True:
                seen = self._probed()
                try:
                    return self._declared(seen)
                except PoolDied as died:
                    self._refuse_module(died)
                    self.begin()
        finally:
            self.kill()

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

    def _declared(self, seen: dict[str, Any]) -> Description:
        assert self.pool
        first = (seen["devices"] or [{"arch": "cpu", "compute_units": None}])[0]
        device = "cuda:0" if seen["devices"] else "cpu"
        request = {
            "import_marker": str(self._import_marker),
            "refuse": self._refuse,
            "place": {"device": device, "arch": first["arch"], "compute_units": first["compute_units"]},
            "protocol": self._protocol,
        }
        try:
            found = self.pool.ask("import", self._limit_s, "declare", **request)[0]
        except StepFailed as error:
            raise self._error(error.failure) from error
        environment = dict(seen["environment"])
        if self._checkout.python != sys.executable:
            environment["executable"] = self._checkout.python
        return Description(found["kernels"], found["modules"], found["broken"], seen["devices"], environment)

    def _refuse_module(self, died: PoolDied) -> None:
        module = self._import_marker.read_text() if self._import_marker.exists() else ""
        if not module or module in self._refuse or len(self._refuse) >= MOST_REFUSED:
            raise self._error(died.failure)
        what = "hung" if died.failure.status == Status.HANG else "ended the process"
        self._refuse[module] = f"importing it {what}: {died.failure.why}"

    def _error(self, failure: Failure, what: str = "") -> CheckoutError:
        where = f"checkout {self._checkout.role} ({self._checkout.path})"
        return CheckoutError(f"{where}: {what}{failure.why}\n{failure.detail}")


def listed_packages(checkout: Checkout) -> list[str]:
    """The packages with kernels that the checkout lists; CheckoutError if its pyproject.toml is wrong."""
    try:
        return registry.listed_packages(checkout.path)
    except (spec.DeclarationError, ValueError) as error:
        raise CheckoutError(f"checkout {checkout.role}: {error}") from error


def kernels_digest(checkout: Checkout) -> str:
    """16 hex digits over every file of the listed kernel packages: names and contents."""
    digest = hashlib.sha256()
    for package in sorted(listed_packages(checkout)):
        for path in files_of(checkout.path.joinpath(*package.split("."))):
            digest.update(f"{path.relative_to(checkout.path).as_posix()}\0".encode())
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]
