"""Every view, in the order of the navigation."""

from __future__ import annotations

from dashboards.views import (
    View,
    backends,
    compare,
    events,
    machines,
    pull_request,
    records,
    roofline,
    scaling,
    shapes,
    studies,
    sustained,
    sweeps,
)

VIEWS: tuple[View, ...] = (
    *(events.VIEW, compare.VIEW, backends.VIEW, shapes.VIEW, roofline.VIEW),
    *(scaling.VIEW, sustained.VIEW, studies.VIEW, sweeps.VIEW, machines.VIEW, records.VIEW, pull_request.VIEW),
)
