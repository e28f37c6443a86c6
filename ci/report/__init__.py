"""Rendering: a :class:`Report` in, text out.  Terminal for people, Markdown for pull requests, JSON for machines."""

from ci.report.model import CaseCost, Report, ReportWarning, Side, Skip, grouped

__all__ = ["CaseCost", "Report", "ReportWarning", "Side", "Skip", "grouped"]
