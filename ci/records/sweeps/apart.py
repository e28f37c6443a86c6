"""What in results/ is a machine's folder, and what is kept beside the machines."""

from __future__ import annotations

from pathlib import Path

NO_MACHINES = ("imported", "sweeps", "studies", "canary", "checks", "curves", "causes")
"""Folders of results/ that have readers of their own."""


def machine_folders(results_dir: Path) -> list[Path]:
    """The folders of machines, in order; none without the folder."""
    found = sorted(results_dir.iterdir()) if results_dir.is_dir() else []
    return [one for one in found if one.is_dir() and not one.name.startswith(".") and one.name not in NO_MACHINES]
