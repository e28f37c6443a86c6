"""What the platform says of the job that measured: GitHub's answer to "list jobs for a workflow run", as a file.

The measured code has no part in it, so it says when the job ran, and why there may be no trials.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


class RunFileError(ValueError):
    """The file does not describe the job; the text says what is wrong and where such a file comes from."""


FAILED = ("failure", "cancelled", "timed_out")
"""Conclusions of a step after which the next ones do not run (REST API, workflow jobs, 2026-11)."""


@dataclasses.dataclass(frozen=True)
class MeasuringJob:
    """One job of a run.  started_ms, ended_ms: milliseconds since 1970 UTC, None where it has not got so far.

    runner: name of the machine that took it, "" if none did.  failed_step: the first step that did not succeed.
    """

    name: str
    status: str = ""
    conclusion: str = ""
    started_ms: int | None = None
    ended_ms: int | None = None
    runner: str = ""
    failed_step: str = ""

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> MeasuringJob:
        """From GitHub's JSON; a job that no runner took has no times."""
        runner = str(data.get("runner_name") or "")
        started, ended = (_moment(data.get(key)) if runner else None for key in ("started_at", "completed_at"))
        failed = (step["name"] for step in data.get("steps") or () if step.get("conclusion") in FAILED)
        status, conclusion = (str(data.get(key) or "") for key in ("status", "conclusion"))
        return cls(str(data["name"]), status, conclusion, started, ended, runner, str(next(failed, "")))

    def why_nothing(self, pool: str) -> str:
        """Why this job handed over no trials, in one sentence."""
        if not self.runner:
            return f"absent: no machine of pool {pool} took the job {self.name!r}"
        if self.failed_step:
            return f"did not start: the job {self.name!r} ended at its step {self.failed_step!r}"
        ended = self.conclusion or self.status or "unknown"
        return f"nothing was measured: the job {self.name!r} handed over no trials (it ended as {ended})"


ASK = "`gh api repos/OWNER/NAME/actions/runs/ID/jobs` prints one"


def read(path: Path, job: str = "") -> MeasuringJob:
    """The job of that name in the file, or its only one."""
    try:
        data = json.loads(path.read_bytes())
        jobs = [MeasuringJob.of(one) for one in data["jobs"]]
    except OSError as error:
        raise RunFileError(f"{path} cannot be read: {error.strerror or error}; {ASK}") from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise RunFileError(f"{path} does not hold the jobs of a run ({type(error).__name__}: {error}); {ASK}") from None
    return _chosen(jobs, job, path)


def _chosen(jobs: Sequence[MeasuringJob], name: str, path: Path) -> MeasuringJob:
    """The newest of that name: a job that was run again stands last."""
    found = [one for one in jobs if not name or one.name == name]
    if not found or (not name and len(found) > 1):
        known = ", ".join(repr(one.name) for one in jobs[:20]) or "none"
        raise RunFileError(f"{path} has {len(found)} jobs called {name!r}; --job names one of: {known}")
    return found[-1]


def _moment(text: object) -> int | None:
    return round(datetime.datetime.fromisoformat(str(text)).timestamp() * 1000) if text else None
