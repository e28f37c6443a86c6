"""Which libraries a kernel's backends call, as installed here: version, and where it came from; nothing is imported."""

from __future__ import annotations

import importlib.metadata
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

ORIGIN = "direct_url.json"
"""What an installer says about a distribution that did not come from an index (PEP 610)."""


def of_backends(backends: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """By backend, the libraries that it declares: version and origin by distribution, without what is not installed.

    A declaration before 2026-11-22 names none.
    """
    return {name: installed(getattr(backend, "libraries", ())) for name, backend in backends.items()}


def installed(distributions: Iterable[str]) -> dict[str, str]:
    """ "0.1.20.post1 (github.com/ROCm/aiter, e4048607)" by distribution."""
    found = {}
    for name in distributions:
        try:
            one = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        origin = _origin(one.read_text(ORIGIN))
        found[name] = f"{one.version} ({origin})" if origin else str(one.version)
    return found


def _origin(text: str | None) -> str:
    """Repository and commit, or that it was built from a folder; never a path or a user of this machine."""
    try:
        told = json.loads(text or "{}")
    except ValueError:
        return ""
    if not isinstance(told, dict) or not told:
        return ""
    commit = str(told.get("vcs_info", {}).get("commit_id", ""))[:8]
    if commit:
        return f"{re.sub(r'^.*?//(?:[^/@]*@)?|[.]git$', '', str(told.get('url', '')))}, {commit}"
    return "built from a folder" if "dir_info" in told else "from a file"
