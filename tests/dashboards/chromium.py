"""A headless Chromium, driven by Playwright: enough to open a page, run JavaScript in it and take a picture.

The browser is the system's (Debian's `chromium`); Playwright's package brings the driver only.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    pass

SETTLED = "document.readyState === 'complete' && !document.querySelector('[data-busy]')"
"""The page has drawn its tables, or says why it cannot."""

SHOWN = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done())))"
"""A frame has been shown: until then a chart is drawn once more, when it learns its width, and loses the focus."""


class Page:
    """One tab.  errors: what the console and the page complained about; requests: every address it asked for."""

    def __init__(self, browser):
        self._browser = browser
        self.errors = []
        self.requests = []
        self.renew()

    def renew(self):
        """A fresh tab, at the start and after a crash."""
        self.crashed = False
        self.tab = self._browser.new_page()
        self.tab.set_default_timeout(20_000)
        self.tab.on("crash", self._note_crash)
        self.tab.on("request", lambda request: self.requests.append(request.url))
        self.tab.on("pageerror", lambda error: self.errors.append(str(error)))
        self.tab.on("console", self._note_console)

    def open(self, address):
        """Load a page from scratch and wait until it has drawn its tables and charts."""
        self.tab.goto("about:blank")
        self.tab.goto(address)
        self.wait(SETTLED)
        self.run(SHOWN)

    def run(self, script):
        """Value of a JavaScript expression."""
        return self.tab.evaluate(script)

    def texts(self, selector):
        """What is written in every element of a selector."""
        return self.run(f"[...document.querySelectorAll({selector!r})].map(e => e.innerText || e.textContent)")

    def wait(self, condition, seconds=60):
        """Until a JavaScript condition is true.  By asking again: the pages' policy forbids what `eval` needs.

        While the tab goes from one page to the next there is nobody to ask.
        """
        for _ in range(int(seconds / 0.02)):
            if self._is(condition):
                return
            self.tab.wait_for_timeout(20)
        raise TimeoutError(f"{condition} is still false; the page complains: {self.errors}")

    def _is(self, condition):
        from playwright import sync_api

        try:
            return bool(self.run(f"Boolean({condition})"))
        except sync_api.Error as error:
            if "Execution context was destroyed" in str(error):
                return False
            raise

    def size(self, width, height, scheme="light", media=""):
        """Size of the window, colour scheme, and medium ("print")."""
        self.tab.set_viewport_size({"width": width, "height": height})
        self.tab.emulate_media(color_scheme=scheme, media=media or "screen")

    def _note_crash(self, _):
        self.crashed = True

    def _note_console(self, message):
        if message.type in ("error", "warning"):
            self.errors.append(message.text)


@contextlib.contextmanager
def browser(program):
    """A fresh browser with a fresh profile; it is gone afterwards."""
    from playwright import sync_api as playwright  # here, so that the other tests do without it

    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=program, chromium_sandbox=False, args=["--hide-scrollbars"])
        try:
            yield Page(chromium)
        finally:
            chromium.close()
