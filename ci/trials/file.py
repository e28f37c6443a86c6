"""Trial files: the raw product of measuring, one JSON line per trial (`.jsonl` or `.jsonl.gz`).

Reading never loses anything: a line that cannot be used is returned with its reason, and can be set aside beside the
file under a name that depends on its content only.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import re
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

FORMAT, VERSION = "ridgeline-trial", 1

STATUSES = ("ok", "wrong", "error", "hang", "crash", "unsupported", "skipped")
FAILED = ("wrong", "crash", "hang", "error")
"""Statuses of an arm that ran and must not have ended so, worst first."""


class RecordError(Exception):
    """Records cannot be written or read; the text says what happened, what is safe, and the next step."""


@dataclasses.dataclass(frozen=True)
class Problem:
    """Something that was left out: where, why (with the next step), and where it was put aside, if anywhere."""

    where: str
    why: str
    set_aside: str = ""

    def __str__(self) -> str:
        return f"{self.where}: {self.why}" + (f" (set aside as {self.set_aside})" if self.set_aside else "")


@dataclasses.dataclass(frozen=True, eq=False)
class TrialLine:
    """One trial: its line of text without the newline, and what the line says."""

    text: str
    data: Mapping[str, Any]

    @property
    def id(self) -> str:
        """The key by which a trial is recorded once."""
        return str(self.data["id"])

    @property
    def order(self) -> tuple[str, str, int, str]:
        """Sort key: by time; the same for whoever writes the file."""
        return (str(self.data["started_at"]), str(self.data["session"]), int(self.data["trial"]), self.id)


def read_trials(path: Path) -> tuple[list[TrialLine], list[tuple[int, bytes, str]]]:
    """All trials of a file, and every line that is none as (line number from 1, its bytes, why)."""
    try:
        content = path.read_bytes()
    except OSError as error:
        return [], [(0, b"", f"cannot be read: {error.strerror or error}")]
    bad: list[tuple[int, bytes, str]] = []
    if content[:2] == b"\x1f\x8b":
        content, torn = _unzip(content)
        if torn:
            bad.append((0, b"", torn))
    good: list[TrialLine] = []
    lines = content.split(b"\n")
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                good.append(parse_trial(line))
            except ValueError as error:
                torn_end = number == len(lines)
                bad.append(
                    (
                        number,
                        line,
                        f"the last line is torn, its writer was interrupted: {error}" if torn_end else str(error),
                    )
                )
    return good, bad


def parse_trial(line: bytes) -> TrialLine:
    """The trial of one line; ValueError says what is wrong with it."""
    try:
        text = line.decode().strip()
        data = json.loads(text, parse_constant=_refuse_constant)
    except UnicodeDecodeError:
        raise ValueError("not UTF-8 text") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg} at character {error.pos}") from None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise ValueError(f'no trial: "format" is not "{FORMAT}"')
    if data.get("version") != VERSION:
        raise ValueError(
            f"a trial of version {data.get('version')!r}; this Ridgeline reads version {VERSION}: update "
            "it and record the file again"
        )
    _check(data)
    return TrialLine(text, data)


def set_aside(path: Path, content: bytes) -> str:
    """Keep content beside `path` as PATH.setaside-DIGEST, the same content under one name; "" if it cannot be."""
    target = path.with_name(f"{path.name}.setaside-{hashlib.sha256(content).hexdigest()[:8]}")
    try:
        if not target.exists():
            target.write_bytes(content)
    except OSError:
        return ""
    return str(target)


def env_name(environment: Mapping[str, Any]) -> str:
    """The name of an environment: "py3.12-torch2.11.0-triton3.6.0"; local version parts ("+cu130") are dropped."""
    parts = [f"py{python_version(environment)}"]
    parts += [f"{package}{version}" for package, version in requirements(environment).items()]
    return re.sub(r"[^A-Za-z0-9._-]", "_", "-".join(parts))


def requirements(environment: Mapping[str, Any]) -> dict[str, str]:
    """Versions that tell environments apart: torch and triton, those that are there."""
    return {name: str(environment[name]).split("+")[0] for name in ("torch", "triton") if environment.get(name)}


def python_version(environment: Mapping[str, Any]) -> str:
    """Major and minor version of Python, "3.12"."""
    return ".".join(str(environment.get("python", "")).split(".")[:2])


def _unzip(content: bytes) -> tuple[bytes, str]:
    """What can be unpacked of a gzip file (trials are appended as members of their own), and why the rest cannot."""
    unpacked = b""
    while content:
        member = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
        try:
            unpacked += member.decompress(content)
        except zlib.error as error:
            return unpacked, f"a damaged gzip file: {error}; what comes before is used"
        if not member.eof:
            return unpacked, "the gzip file ends early, its writer was interrupted; what comes before is used"
        content = member.unused_data
    return unpacked, ""


def _check(data: Mapping[str, Any]) -> None:
    """ValueError unless the parts of a trial that recording relies on are there and have the right shape."""
    for key, kind in (
        ("id", str),
        ("session", str),
        ("trial", int),
        ("started_at", str),
        ("kernel", str),
        ("machine", dict),
        ("trees", dict),
        ("cases", dict),
    ):
        if not isinstance(data.get(key), kind):
            raise ValueError(f"a trial whose {key!r} is {data.get(key)!r:.60}; {kind.__name__} expected")
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", str(data["machine"].get("name", ""))):
        raise ValueError(
            f"a trial of a foreign machine: its name {data['machine'].get('name')!r} is no file name; "
            "names come from `ridgeline doctor`"
        )
    for role, tree in data["trees"].items():
        if not isinstance(tree, dict) or not isinstance(tree.get("environment"), dict):
            raise ValueError(f"a trial whose tree {role!r} has no environment")
        declared = tree.get("declaration")  # None: that tree lacks the kernel
        needed = ("kernel", "backends", "cases", "yardstick")
        if declared is not None and not (isinstance(declared, dict) and all(key in declared for key in needed)):
            raise ValueError(f"a trial whose tree {role!r} declares something without {', '.join(needed)}")
    for name, case in data["cases"].items():
        for arm, result in case.get("arms", {}).items():
            _check_arm(f"{name}: {arm}", result)


def _check_arm(name: str, result: Mapping[str, Any]) -> None:
    if result.get("status") not in STATUSES:
        raise ValueError(f"a trial in which {name} has status {result.get('status')!r}; known: {', '.join(STATUSES)}")
    seconds = result.get("seconds")
    if result["status"] == "ok" and not _are_times(seconds):
        raise ValueError(f"a trial in which {name} is ok but its seconds are not positive numbers")


def _are_times(seconds: Any) -> bool:
    return (
        isinstance(seconds, list)
        and bool(seconds)
        and set(map(type, seconds)) <= {int, float}
        and min(seconds) > 0
        and max(seconds) < math.inf
    )


def _refuse_constant(token: str) -> float:
    raise ValueError(f"the token {token} is not allowed in a trial")


def problems_of(path: Path, bad: Iterable[tuple[int, bytes, str]], keep: bool) -> list[Problem]:
    """The lines that are no trials as problems; with `keep` each is kept beside the file."""
    return [
        Problem(f"{path}:{number}" if number else str(path), why, set_aside(path, line) if keep and line else "")
        for number, line, why in bad
    ]
