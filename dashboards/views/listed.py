"""Every view, in the order of the navigation."""

from __future__ import annotations

from dashboards.views import View, backends, machines, records, roofline, scaling, shapes

VIEWS: tuple[View, ...] = (*(backends.VIEW, shapes.VIEW, roofline.VIEW), *(scaling.VIEW, machines.VIEW, records.VIEW))
