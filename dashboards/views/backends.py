"""Backends beside each other: every case with every backend, which is best, and which are as good within the noise."""

from __future__ import annotations

from dashboards.views import View
from dashboards.views.newest import CASES, newest_beside, newest_files

VIEW = View(
    "backends",
    "Backends",
    scripts=(*CASES, "views/backends.js"),
    styles=("views/views.css",),
    data=newest_files,
    files=newest_beside,
)
