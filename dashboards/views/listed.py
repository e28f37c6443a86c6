"""Every view, in the order of the navigation."""

from __future__ import annotations

from dashboards.views import View, backends

VIEWS: tuple[View, ...] = (backends.VIEW,)
