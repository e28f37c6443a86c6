"""Every view, in the order of the navigation."""

from __future__ import annotations

from dashboards.views import View, backends, events, pull_request

VIEWS: tuple[View, ...] = (events.VIEW, backends.VIEW, pull_request.VIEW)
