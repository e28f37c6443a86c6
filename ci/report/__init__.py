"""Rendering: a :class:`Report` in, text out.  Terminal for people, Markdown for pull requests, JSON for machines."""

from ci.report.model import CaseCost, Report, Side, Skip

__all__ = ["CaseCost", "Report", "Side", "Skip"]
