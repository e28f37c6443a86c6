"""Every view, in the order of the navigation."""

from __future__ import annotations

from dashboards.views import View, backends, machines, records, scaling

VIEWS: tuple[View, ...] = (backends.VIEW, scaling.VIEW, machines.VIEW, records.VIEW)
