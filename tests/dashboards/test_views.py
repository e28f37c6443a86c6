"""Views in general: how a page that is listed comes into the site."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from dashboards import build
from dashboards.views import SiteInput, View
from tests.dashboards import made_site, synthetic
from tests.dashboards.test_build import received


def _newest(site: SiteInput) -> Iterator[tuple[str, Any]]:
    for lane in site.lanes:
        yield f"{lane.slug}/extra", {"rows": len(lane.frame)}


def _beside(site: SiteInput) -> Iterator[tuple[str, bytes]]:
    yield "extra.csv", b"rows\n%d\n" % len(site.frame)


def test_a_listed_view_becomes_a_page_with_its_data_and_its_place_in_the_navigation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    view = View("extra", "Extra <page>", scripts=("table.js",), data=_newest, files=_beside)
    monkeypatch.setattr(build, "VIEWS", (view,))
    frame = synthetic.history(2, synthetic.CASES[:1], machines=["h200x2-1a2b3c4d"])
    files = made_site.site_files(frame)
    assert received(files, "h200x2-1a2b3c4d/extra") == {"rows": len(frame)}
    assert files["extra.csv"] == b"rows\n%d\n" % len(frame)
    page = files["extra.html"].decode()
    assert "<h1>Extra &lt;page&gt;</h1>" in page
    assert 'href="extra.html" aria-current="page"' in page
    assert 'href="../extra.html">' in files["kernels/gemm.html"].decode()


def test_without_records_the_views_are_there_and_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "VIEWS", (View("extra", "Extra", data=_newest),))
    files = made_site.site_files(synthetic.history(1).iloc[:0])
    assert not any(name.endswith("/extra.js") for name in files)
    assert b"There are no records yet" in files["extra.html"]
