"""What a machine with git, make and Python may lack, and what a test does there: it is skipped, and never under CI."""

from __future__ import annotations

import os
import shutil

import pytest

PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
"""Debian's daemons are not on everybody's path."""

PACKAGES = {
    "Chromium": "chromium",
    "Node.js": "nodejs",
    "npm": "npm",
    "OpenSSL": "openssl",
    "Slurm": "slurmctld slurmd slurm-client munge slurm-wlm-basic-plugins",
}
"""Debian's packages, which .ci/run installs."""

PROGRAMS = {
    "Chromium": [("chromium", "chromium-browser", "google-chrome", "chrome")],
    "Node.js": [("node",)],
    "npm": [("npm",)],
    "OpenSSL": [("openssl",)],
    "Slurm": [("slurmctld",), ("slurmd",), ("sbatch",), ("munged",)],
}
"""Each under any of its names."""


def found(name):
    """The path of the first program of PROGRAMS[name], None if one of them is absent."""
    paths = [next(filter(None, (shutil.which(one, path=PATH) for one in names)), None) for names in PROGRAMS[name]]
    return paths[0] if all(paths) else None


def needed(name):
    """The same, for a test that cannot do without."""
    return found(name) or absent(f"{name} is not here: `apt-get install {PACKAGES[name]}`, or `.ci/run`, which does it")


def absent(why):
    """End a test that lacks something; `why` says what, and what to install."""
    pytest.fail(why, pytrace=False) if os.environ.get("CI") else pytest.skip(why)
