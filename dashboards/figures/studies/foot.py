"""What stands below a figure of a study: what it leaves out, what is published elsewhere, and its origin."""

from __future__ import annotations

from collections.abc import Iterator

from dashboards.figures.studies.lines import reference_name
from dashboards.figures.studies.picture import Picture
from dashboards.figures.studies.spec import FOOT, FigureSpec

AS_IT_IS = ("machine", "versions", "note")
"""Facts that need no name before them."""


def foot(spec: FigureSpec, picture: Picture) -> list[str]:
    """Sentences, the facts last."""
    names = [*FOOT, *(name for name in spec.foot if name not in FOOT)]
    facts = [spec.foot[name] if name in AS_IT_IS else f"{name} {spec.foot[name]}" for name in names]
    return [*picture.notes, *_sources(spec, picture), " · ".join(facts)]


def _sources(spec: FigureSpec, picture: Picture) -> Iterator[str]:
    """Where the published numbers that are drawn come from."""
    drawn = {marks.name for panel in picture.panels for marks in panel.marks}
    told = {
        f"{reference_name(one)}: {one.get('source', 'no source')}"
        for one in spec.published
        if f"published: {reference_name(one)}" in drawn
    }
    if told:
        yield "dashed and published elsewhere, not measured here: " + "; ".join(sorted(told))
