"""Every view, in the order of the navigation."""

from __future__ import annotations

from dashboards.views import View, backends, compare, events, pull_request, shapes

VIEWS: tuple[View, ...] = (events.VIEW, compare.VIEW, backends.VIEW, shapes.VIEW, pull_request.VIEW)
