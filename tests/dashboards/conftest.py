"""What tests of the pages and figures share: one browser, and the figures that are saved."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from matplotlib.figure import Figure

from dashboards.figures import paper
from tests.dashboards import chromium
from tests.needed import needed


@pytest.fixture(scope="session")
def tab() -> Iterator[chromium.Page]:
    with chromium.browser(needed("Chromium")) as page:
        yield page


@pytest.fixture
def page(tab: chromium.Page) -> Iterator[chromium.Page]:
    """The tab, which must not have complained or asked for anything but files when the test is over."""
    if tab.crashed:
        tab.renew()
    tab.errors.clear()
    tab.requests.clear()
    tab.size(1400, 1000)
    yield tab
    assert tab.errors == []
    assert [address for address in tab.requests if not address.startswith(("file:", "data:", "about:", "blob:"))] == []


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures that were saved, to look at their lines."""
    found: list[Figure] = []
    save = paper.save
    monkeypatch.setattr(paper, "save", lambda figure, path: found.append(figure) or save(figure, path))
    return found
