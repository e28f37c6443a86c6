"""Every view, in the order of the navigation."""

from __future__ import annotations

from dashboards.views import View, compare, events, machines, newest, pull_request, scaling, studies

VIEWS: tuple[View, ...] = (
    *(events.VIEW, compare.VIEW, newest.BACKENDS, newest.SHAPES, newest.ROOFLINE),
    *(scaling.VIEW, scaling.SUSTAINED, studies.VIEW, studies.SWEEPS, machines.VIEW, machines.CHECKS, pull_request.VIEW),
)
