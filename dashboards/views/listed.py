"""Every view, in the order of the navigation."""

from __future__ import annotations

from dashboards.views import View, backends, compare, roofline, shapes

VIEWS: tuple[View, ...] = (compare.VIEW, backends.VIEW, shapes.VIEW, roofline.VIEW)
