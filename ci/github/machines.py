"""The machines that workflows measure on, from .github/machines.json, as a matrix for GitHub Actions.

``python -m ci.github.machines [NAME ...]`` prints the matrix as one line of JSON and, inside a workflow, also sets the
step's output `machines`.  Standard library only: it runs before anything is installed.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

FILE = Path(__file__).resolve().parents[2] / ".github" / "machines.json"
FIELDS = {"name": str, "gpu": str, "runs_on": list, "image": str, "options": str}


class MachinesError(ValueError):
    """The file of machines is wrong; the text says where, and what to write."""


def load(path: Path = FILE) -> list[dict[str, Any]]:
    """Every machine of the file, checked."""
    try:
        document = json.loads(path.read_text())
    except ValueError as error:
        raise MachinesError(f"{path} is not JSON: {error}") from error
    machines = document.get("machines") if isinstance(document, dict) else None
    if not isinstance(machines, list) or not machines:
        raise MachinesError(f'{path} needs a list "machines" with at least one entry')
    for machine in machines:
        _check(machine, path)
    names = [machine["name"] for machine in machines]
    if len(set(names)) < len(names):
        raise MachinesError(f"{path}: two machines have the same name: {', '.join(names)}")
    return machines


def _check(machine: Mapping[str, Any], path: Path) -> None:
    if not isinstance(machine, dict) or set(machine) != set(FIELDS):
        raise MachinesError(f"{path}: a machine has exactly the fields {', '.join(FIELDS)}; found {machine!r:.200}")
    wrong = [key for key, kind in FIELDS.items() if not isinstance(machine[key], kind) or not machine[key]]
    if wrong:
        raise MachinesError(
            f"{path}: machine {machine['name']!r}: {wrong[0]} must be a {FIELDS[wrong[0]].__name__} that is not empty"
        )
    if not re.fullmatch(r"[a-z0-9-]{1,40}", machine["name"]):
        raise MachinesError(f"{path}: name {machine['name']!r}: use 1 to 40 of a-z, 0-9 and -")
    if "self-hosted" not in machine["runs_on"]:
        raise MachinesError(f'{path}: machine {machine["name"]!r}: runs_on must contain "self-hosted"')


def matrix(machines: Sequence[Mapping[str, Any]], only: Sequence[str] = ()) -> str:
    """One line of JSON: all machines, or those named."""
    known = [machine["name"] for machine in machines]
    unknown = sorted(set(only) - set(known))
    if unknown:
        raise MachinesError(f"no machine {unknown[0]!r}; known: {', '.join(known)}")
    return json.dumps([machine for machine in machines if not only or machine["name"] in only])


def main(argv: Sequence[str], environ: Mapping[str, str] = os.environ) -> int:
    """Print the matrix; returns 3 for a bad file or an unknown name."""
    try:
        line = matrix(load(), [name for name in argv if name])
    except (MachinesError, OSError) as error:
        print(f"Error: {error}", file=sys.stderr)
        return 3
    print(line)
    if environ.get("GITHUB_OUTPUT"):
        with open(environ["GITHUB_OUTPUT"], "a") as file:
            file.write(f"machines={line}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
