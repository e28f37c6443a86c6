"""Every view, in the order of the navigation."""

from __future__ import annotations

from dashboards.views import View, backends, compare, events, pull_request, roofline, shapes

VIEWS: tuple[View, ...] = (events.VIEW, compare.VIEW, backends.VIEW, shapes.VIEW, roofline.VIEW, pull_request.VIEW)
