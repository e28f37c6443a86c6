"""What tests of the pages share: one browser."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

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
