"""A benchmark program on two checkouts (or one): built, run in turn on the same device, its rows as trial lines.

A round is one run of every side, in an order that is drawn; the sample of a case is the median of what that run prints
of it.  What a side does costs that side: a build or a run that fails, or a row that is wrong or is not there, is a
status of its arms with the program's own words, and never a missing line.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import platform
import random
import re
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks import lifetime
from benchmarks.coordinator.checkouts import Checkout, Description, probe
from benchmarks.coordinator.orders import CaseCounter, MeasureOrder, Report
from benchmarks.coordinator.samples import failed_entry, floor_of
from benchmarks.coordinator.trial import Session
from benchmarks.machine.system import gpu_file
from benchmarks.plan import PlannedCase, Protocol, Selection
from benchmarks.programs.reader import Program, Reader, ReaderError, Row, fitting, read, readers
from benchmarks.shapes import JsonObject, digest_of, text_digest
from benchmarks.trial_file import PROGRAM, Status

SHOWN_OUTPUT = 1500
"""Characters of what a program printed, from the end, that an arm's detail holds."""

PROGRESS_S = 2.0
"""Between two looks at what a build has printed."""

ERRORS = (
    re.compile(r"[:(]\d+[:)].*\berror\b"),
    re.compile(r"^CMake Error|undefined reference|^ld: |^ninja: error|\*\*\* No rule"),
    re.compile(r"(?i)\berror\s*:"),
)
"""In a line of a build that says what is wrong, the most telling first: of a compiler, of a linker or CMake, of others
(pip begins with "error: subprocess-exited-with-error")."""

STEP_S = 0.05
"""A file may be this much older than the clock says: file systems take the time of the last tick."""

STATUS = {"wrong": Status.WRONG, "failed": Status.ERROR, "skipped": Status.UNSUPPORTED}
"""Of an arm whose row says so."""


def last_of(lines: Sequence[str]) -> str:
    """The last line with something in it, "" of none."""
    return next((line for line in reversed(lines) if line.strip()), "")


def error_in(lines: Sequence[str]) -> str:
    """The first error that a compiler names, else the last line: what processes build together ends in a line of its
    tool.
    """
    telling = (line for pattern in ERRORS for line in lines if pattern.search(line))
    return next(telling, last_of(lines))


class NothingToRun(Exception):
    """No side prints a row; the text says why."""


@dataclasses.dataclass(frozen=True)
class ProgramRun:
    """One run of a side.  rows: by case and backend.  why: it failed as a whole, "" if not; detail: its last words."""

    rows: Mapping[tuple[str, str], Row]
    status: Status = Status.OK
    why: str = ""
    detail: str = ""
    said: tuple[str, ...] = ()


class ProgramSession(Session):
    """One command.  A context manager: on entering it both sides are built and run once, untimed.

    kept: folder for the stamps of builds.  printed: by role, the end of what the first run printed.
    """

    def __init__(
        self, program: Program, checkouts: Sequence[Checkout], protocol: Protocol, report: Report, kept: Path
    ) -> None:
        super().__init__(checkouts, protocol, Selection(), report)
        self.program, self._kept = program, kept
        self.reader: Reader | None = program.reader
        self.warnings: list[str] = []
        self.printed: dict[str, str] = {}
        self._seen: dict[str, dict[tuple[str, str], Row]] = {one.role: {} for one in checkouts}
        self._broken: dict[str, ProgramRun] = {}

    # ---- before the first trial --------------------------------------------------------------------------------------

    def _describe(self) -> None:
        """The machine; both sides built; one run of each, which says what cases there are."""
        if gpu_file(Path("/")):
            seen = probe(self.checkouts[0], self._directory, {})
        else:  # torch, which takes seconds to import, would see none
            seen = Description({}, {}, [], [], {"python": platform.python_version()})
        self.descriptions = {one.role: seen for one in self.checkouts}
        self._look_at_machine()
        begin = time.time()
        for one in self.checkouts:
            if failed := self._build(one):
                self._broken[one.role] = failed
        if shared := _shared(self.program.run, self.checkouts, begin):
            for one in self.checkouts:
                self._stamp(one).unlink(missing_ok=True)
            raise NothingToRun(
                f"`run` names {shared}, which builds of both sides write: the later one's would run on both; "
                "build inside of the checkout (cmake -B build)"
            )
        runs = {one.role: self._broken.get(one.role) or self._warmed_up(one) for one in self.checkouts}
        for role, run in runs.items():
            self._seen[role] |= run.rows
            self.warnings += [f"{role}: {sentence}" for sentence in run.said]
        if not any(run.rows for run in runs.values()):
            raise NothingToRun("; ".join(f"{role}: {run.why}\n{run.detail}".strip() for role, run in runs.items()))
        self._declare()

    def _build(self, checkout: Checkout) -> ProgramRun | None:
        """Build a side, unless it is built already; the failure, None if there is none."""
        stamp = self._stamp(checkout)
        key = [checkout.commit, self.program.build, _submodules(checkout.path), _made_at(checkout.path)]
        if not self.program.build or (not checkout.dirty and checkout.commit and _content(stamp) == key):
            return None
        doing = f"building {checkout.role}"
        self.on_progress({"done": 0, "total": None, "what": f"{doing}: {self.program.build}"})
        stamp.unlink(missing_ok=True)
        ended = self._shell(self.program.build, checkout.path, error_in, doing)
        if ended.why:
            why = f"{checkout.role} cannot be built: {ended.why}"
            return dataclasses.replace(ended, status=Status.ERROR, why=why, rows={})
        stamp.parent.mkdir(parents=True, exist_ok=True)
        stamp.write_text(json.dumps(key))
        return None

    def _stamp(self, checkout: Checkout) -> Path:
        """The file that says what is built in a checkout."""
        return self._kept / f"{text_digest(str(checkout.path))}.json"

    def _warmed_up(self, checkout: Checkout) -> ProgramRun:
        self.on_progress({"done": 0, "total": None, "what": f"first run of {checkout.role}"})
        return self._run(checkout)

    def _declare(self) -> None:
        """Give each side the cases that it printed; head those of base, too: what it no longer prints has failed."""
        for one in self.checkouts:
            rows = dict(self._seen[one.role])
            if one.role == "head":
                rows = {**self._seen.get("base", {}), **rows}
            cases = {row.case: row for row in rows.values()}
            libraries = {*self.program.baselines, *(self.reader.baselines if self.reader else ())}
            terms = [self.program.run, self.reader.name if self.reader else "", self.program.unit]
            backends = list(dict.fromkeys(row.backend for row in rows.values())) or ["program"]
            declaration = {
                "kernel": self.program.name,
                "backends": backends,
                "baselines": [name for name in backends if name in libraries],
                "cases": [
                    {"name": name, "tier": "pr", "dtype": "unknown", "world": row.ranks} for name, row in cases.items()
                ],
                "yardstick": digest_of(terms),
                "case_yardsticks": {name: digest_of([row.unit, row.ranks]) for name, row in cases.items()},
                "costs": {name: {key: round(held) for key, held in row.cost.items()} for name, row in cases.items()},
            }
            found = self.descriptions[one.role]
            self.descriptions[one.role] = dataclasses.replace(found, kernels={self.program.name: declaration})

    # ---- running -----------------------------------------------------------------------------------------------------

    def _run(self, checkout: Checkout) -> ProgramRun:
        """Run a side once and read what it prints."""
        written = checkout.path / self.program.output if self.program.output else None
        if written:
            written.unlink(missing_ok=True)  # of an earlier run
        ended = self._shell(self.program.run, checkout.path)
        self.printed.setdefault(checkout.role, ended.detail)
        if ended.why:
            return self._with_rows(ended, ended.detail if written is None else _text(written), strict=False)
        if written and not written.is_file():
            why = f"it ended well and wrote no {self.program.output}"
            return dataclasses.replace(ended, status=Status.ERROR, why=why)
        return self._with_rows(ended, _text(written) if written else ended.detail, strict=True)

    def _timed_run(self, checkout: Checkout) -> ProgramRun:
        """A run as one of a trial's rounds, in the ledger of its seconds."""
        self._ledger.sent(self, "samples", {})
        try:
            return self._run(checkout)
        finally:
            self._ledger.answered(self)

    def _with_rows(self, ended: ProgramRun, text: str, strict: bool) -> ProgramRun:
        """A run with what it printed before it ended.  strict: no row at all is a failure of its own."""
        try:
            self.reader = self.reader or fitting(text, readers())
            reading = read(text, self.reader, self.program.unit)
        except ReaderError as error:
            return dataclasses.replace(ended, status=Status.ERROR, why=str(error)) if strict else _cut(ended)
        rows = {(row.case, row.backend): row for row in reading.rows}
        if reading.died and not ended.why:
            ended = dataclasses.replace(ended, status=Status.ERROR, why=f"the run broke off {reading.died}")
        return _cut(dataclasses.replace(ended, rows=rows, said=reading.said))

    def _shell(
        self, line: str, folder: Path, telling: Callable[[Sequence[str]], str] = last_of, doing: str = ""
    ) -> ProgramRun:
        """Run a line of bash to its end; detail: all that it printed.  Its process group is ended with it.

        telling: which of the lines that it printed says why it failed.  doing: what is told of it while it runs, with
        the newest of these lines; "": nothing.
        """
        printed = self._directory / f"printed-{os.urandom(4).hex()}"
        variables = {**lifetime.told(os.environ), "PATH": f"{Path(sys.executable).parent}{os.pathsep}{_path()}"}
        child = None
        try:
            with printed.open("wb") as out, (printed.with_suffix(".err")).open("wb") as err:
                streams = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": err}
                argv = ["bash", "-o", "pipefail", "-c", line]
                child = subprocess.Popen(argv, cwd=folder, env=variables, start_new_session=True, **streams)
            code = self._ended(child, printed, doing)
        finally:
            if child:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
                child.wait()
        text, errors = _text(printed), _text(printed.with_suffix(".err"))
        for file in (printed, printed.with_suffix(".err")):
            file.unlink(missing_ok=True)
        status, why = _ending(code, self.protocol.deadline_s)
        printed_lines = [one.strip() for one in f"{text}\n{errors}".splitlines() if one.strip()]
        why = f"`{line[:100]}` {why}; it said: {telling(printed_lines)[:300] or 'nothing'}" if why else ""
        detail = text if not why else f"{text}\n{errors}"
        return ProgramRun({}, status, why, detail)

    def _ended(self, child: subprocess.Popen[bytes], printed: Path, doing: str) -> int | None:
        """The exit code of a child, None where its time is over."""
        end = time.monotonic() + self.protocol.deadline_s
        while (left_s := end - time.monotonic()) > 0:
            try:
                return child.wait(min(left_s, PROGRESS_S) if doing else left_s)
            except subprocess.TimeoutExpired:
                with printed.open("rb") as written:
                    written.seek(max(0, printed.stat().st_size - SHOWN_OUTPUT))
                    newest = last_of(written.read().decode("utf-8", "replace").splitlines()).strip()
                if newest:
                    self.on_progress({"done": 0, "total": None, "what": f"{doing}: {newest[:100]}"})
        return None

    # ---- trials ------------------------------------------------------------------------------------------------------

    def trials(self, orders: Iterable[Sequence[MeasureOrder]]) -> Iterator[JsonObject]:
        """The lines of these orders.

        A program runs as a whole: an order of some cases times all of them.  Each run is a fresh process, so that more
        rounds tell no more than more trials: their number stays.
        """
        name = self.program.name
        for order in (one for several in orders for one in several if name not in one.without):
            progress = CaseCounter(order.trials * self.protocol.rounds * len(self.checkouts), self.on_progress)
            for number in range(order.first_trial, order.first_trial + order.trials):
                yield self._trial(number, progress)
            progress.finish()

    def _trial(self, number: int, progress: CaseCounter) -> JsonObject:
        rounds = self.protocol.rounds
        drawn = random.Random(f"{self.protocol.seed}/{self.program.name}/{number}")
        runs: dict[str, list[ProgramRun]] = {one.role: [] for one in self.checkouts}
        planned: list[PlannedCase] = []

        def measured(entries: JsonObject, warnings: list[str]) -> None:
            for turn in range(rounds):
                order = list(self.checkouts)
                drawn.shuffle(order)
                for one in order:
                    progress.start(f"trial {number + 1}, round {turn + 1} of {rounds}: {one.role}")
                    run = self._broken.get(one.role) or self._timed_run(one)
                    runs[one.role].append(run)
                    progress.done += 1
                if any(each[-1].why for each in runs.values()):
                    break  # what fails as a whole is no better after more rounds
            for role, each in runs.items():
                for run in each:
                    self._seen[role] |= {key: row for key, row in run.rows.items() if key not in self._seen[role]}
            self._declare()
            entries.update(self._entries(runs))
            planned.extend(PlannedCase(name, 1, ()) for name in entries)  # known when all has run
            warnings += self.warnings

        return self.line(self.program.name, planned, number, measured)

    def _entries(self, runs: Mapping[str, Sequence[ProgramRun]]) -> JsonObject:
        """The cases of a trial line."""
        entries: JsonObject = {}
        expected = {role: dict(known) for role, known in self._seen.items()}
        if "head" in expected:
            expected["head"] = {**expected.get("base", {}), **expected["head"]}
        for role, known in expected.items():
            for key, row in known.items():
                entry = entries.setdefault(row.case, {"method": PROGRAM, "warnings": [], "arms": {}})
                arm = entry["arms"][f"{role}/{row.backend}"] = _arm(runs[role], key)
                declared = list(self.descriptions[role].kernels.values())
                floor = floor_of(declared, row.case, self.machine)
                if arm["status"] == Status.OK and (said := floor.broken_by(arm["seconds"])):
                    entry["warnings"].append(f"{role}/{row.backend}: {said}")
        return entries


def _arm(runs: Sequence[ProgramRun], key: tuple[str, str]) -> JsonObject:
    """One case of one side: its samples by round, or why it has none."""
    for run in runs:
        row = run.rows.get(key)
        if row is None:
            why = run.why or "the program printed no row for it"
            return failed_entry(run.status if run.why else Status.ERROR, why, run.detail)
        if row.status != "ok":
            return failed_entry(STATUS[row.status], row.note, run.detail)
        if run.why:
            return failed_entry(run.status, run.why, run.detail)
    seconds = [statistics.median(run.rows[key].seconds) for run in runs]
    return {"status": Status.OK, "seconds": seconds, "error": {"norm": 0.0, "peak": 0.0}}


# ---- parts -----------------------------------------------------------------------------------------------------------


def _ending(code: int | None, limit_s: float) -> tuple[Status, str]:
    """How a process ended: the status of its arms and a few words, "" where it ended well.  None: it did not end."""
    if code is None:
        return Status.HANG, f"did not end within {limit_s:g} s and was killed (--deadline)"
    number = -code if code < 0 else code - 128 if code > 128 else 0
    if number in signal.valid_signals() and number:
        return Status.CRASH, f"was killed by {signal.Signals(number).name}"
    return (Status.ERROR, f"ended with exit code {code}") if code else (Status.OK, "")


def _shared(run: str, checkouts: Sequence[Checkout], begin: float) -> Path | None:
    """What a line of bash names outside of several checkouts: a program that a build wrote, or a folder with one."""
    if len(checkouts) < 2:
        return None
    names = re.findall(r"[^\s;|&<>()'\"]*/[^\s;|&<>()'\"]*", run)
    inside = [one.path.resolve() for one in checkouts]
    paths = ((one.path / name).resolve() for one in checkouts for name in names)
    outside = [path for path in paths if path.exists() and not any(path.is_relative_to(folder) for folder in inside)]
    written = ((path, part) for path in outside for part in (path.iterdir() if path.is_dir() else [path]))
    programs = ((path, part) for path, part in written if part.is_file() and os.access(part, os.X_OK))
    return next((path for path, part in programs if part.stat().st_mtime >= begin - STEP_S), None)


def _cut(run: ProgramRun) -> ProgramRun:
    return dataclasses.replace(run, detail=run.detail[-SHOWN_OUTPUT:])


def _content(stamp: Path) -> object:
    try:
        return json.loads(stamp.read_text())
    except (OSError, ValueError):
        return None


def _made_at(folder: Path) -> int:
    """When a worktree was made, in ns: one that was made anew has nothing of what was built in the one before it."""
    link = folder / ".git"
    return link.stat().st_ctime_ns if link.is_file() else 0


def _submodules(folder: Path) -> str:
    """The commits of a checkout's submodules."""
    asked = ["git", "-C", str(folder), "submodule", "status", "--recursive"]
    try:
        return subprocess.run(asked, capture_output=True, text=True, timeout=60, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""


def _text(path: Path | None) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path and path.is_file() else ""


def _path() -> str:
    return os.environ.get("PATH", os.defpath)
