"""One repository on GitHub, call by call.

A path is that of the REST API: "pulls/7" is of the repository, "/orgs/o/actions/runners" of the API as a whole.  The
token goes to the API's own host only.  Faults that pass (a limit, a server or network that is away) are waited out.
"""

from __future__ import annotations

import functools
import json
import os
import re
import ssl
import time
import urllib.parse
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, TypeVar

import httpx

API = "https://api.github.com"
API_VERSION = "2022-11-28"
LOOPBACK = [("http", host) for host in ("127.0.0.1", "localhost", "::1")]
"""Where an address without TLS leaves no machine: a proxy of one's own, a test."""
PAGES = 1000
"""Pages of 100 entries that are read of a list at most; a list without end is a fault of the server."""
PATIENCE_S = 900.0
"""Seconds that one call waits in all, also where GitHub asks for a pause: a job must not sleep for an hour."""
FIRST_PAUSE_S, FIRST_LIMIT_S, LONGEST_PAUSE_S = 1.0, 60.0, 240.0
"""Pauses double from the first: after a server error, and after a limit that names no time ("at least one minute";
docs.github.com, "Best practices for using the REST API", 2026-11-22)."""
LIMIT_WORDS = ("secondary rate limit", "abuse detection", "rate limit exceeded")
"""What a 403 says that is a limit and not a missing right."""
NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
"""Faults before anything of a call is on its way."""

T = TypeVar("T")


class GitHubError(Exception):
    """GitHub cannot be asked or refuses; the text names the call, the answer and the likely cause.

    status: of the answer, 0 if there was none.
    """

    def __init__(self, text: str, status: int = 0) -> None:
        super().__init__(text)
        self.status = status


class PassingFault(Exception):
    """An attempt failed in a way that passes.  first_pause_s: doubles with each attempt.  pause_s: GitHub's own.

    sent: whether the call may have been carried out all the same.
    """

    def __init__(
        self, text: str, first_pause_s: float = FIRST_PAUSE_S, pause_s: float | None = None, sent: bool = True
    ) -> None:
        super().__init__(text)
        self.first_pause_s, self.pause_s, self.sent = first_pause_s, pause_s, sent


class GitHub:
    """Calls on one repository (``owner/name``), synchronous.  Values are plain JSON: dicts, lists, texts, numbers.

    sleep, clock: for tests.
    """

    def __init__(
        self,
        repository: str,
        token: str,
        api: str = API,
        sleep: Callable[[float], None] | None = None,
        clock: Callable[[], float] = time.time,
        timeout_s: float = 30.0,
    ) -> None:
        if not re.fullmatch(r"(?!\.)[\w.-]+/(?!\.{1,2}$)[\w.-]+", repository):
            raise GitHubError(f"repository {repository!r} must look like owner/name")
        if not token:
            raise GitHubError("there is no token; set GITHUB_TOKEN (a job needs `permissions: pull-requests: write`)")
        if not (api.startswith("https://") or _origin(api)[:2] in LOOPBACK):
            raise GitHubError(f"the API {api!r:.100} must be an https address: the token would be seen on the way")
        self.repository, self.api = repository, api.rstrip("/")
        self._sleep, self._clock = sleep or time.sleep, clock
        self._http = httpx.Client(
            timeout=timeout_s,
            verify=_certificates(),
            follow_redirects=True,  # without the token where that leads to another host
            headers={
                "Authorization": f"Bearer {token}",
                "Accept": "application/vnd.github+json",
                "X-GitHub-Api-Version": API_VERSION,
                "User-Agent": "ridgeline",
            },
        )

    def get(self, path: str, none_for: Collection[int] = ()) -> Any:
        """What is at a path; None if the answer's status is one of `none_for`."""
        return self._repeated(f"GET {path}", lambda: self._once("GET", self._url(path), none_for=none_for)[0])

    def patch(self, path: str, value: object) -> Any:
        """Change what is at a path; safe to repeat."""
        return self._repeated(f"PATCH {path}", lambda: self._once("PATCH", self._url(path), value)[0])

    def delete(self, path: str) -> None:
        """Remove what is at a path; nothing there is as good."""
        self._repeated(f"DELETE {path}", lambda: self._once("DELETE", self._url(path), none_for=(404, 410)))

    def post(self, path: str, value: object = None, repeatable: bool = False) -> Any:
        """Do something once.  GitHubError where it may have been done, and `repeatable` is false."""

        def step() -> Any:
            try:
                return self._once("POST", self._url(path), value)[0]
            except PassingFault as fault:
                if fault.sent and not repeatable:
                    raise GitHubError(f"POST {path}: {fault}; it may have been carried out") from fault
                raise

        return self._repeated(f"POST {path}", step)

    def items(self, path: str, key: str = "", none_for: Collection[int] = ()) -> Iterator[Any]:
        """Every item of a list, page by page.  key: where the answer has it ("jobs"), "" if it is the list itself."""
        url = self._url(path + ("&" if "?" in path else "?") + "per_page=100")
        for _ in range(PAGES):
            step = functools.partial(self._once, "GET", url, none_for=none_for)
            page, following = self._repeated(f"GET {path}", step)
            listed = page.get(key) if key and isinstance(page, dict) else page
            if not isinstance(listed, list | None):
                raise GitHubError(f"GET {path}: a list was expected, not {str(page)[:100]!r}")
            yield from listed or ()
            if not following:
                return
            url = urllib.parse.urljoin(url, following)
            if _origin(url) != _origin(self.api):
                raise GitHubError(f"GET {path}: its next page is at {_origin(url)!r:.200}, another host; not followed")
        raise GitHubError(f"GET {path}: the list has no end after {PAGES} pages")

    def put_branch(self, name: str, commit: str) -> None:
        """Put a branch on a commit, whether it is there or not."""
        if self.get(f"git/ref/heads/{name}", none_for=(404,)) is None:
            self.post("git/refs", {"ref": f"refs/heads/{name}", "sha": commit}, repeatable=True)
        else:
            self.patch(f"git/refs/heads/{name}", {"sha": commit, "force": True})

    # ---- one attempt, and the next ----

    def _repeated(self, call: str, step: Callable[[], T]) -> T:
        """The step, again after every fault that passes, until PATIENCE_S is spent."""
        waited, attempts = 0.0, 0
        while True:
            try:
                return step()
            except PassingFault as fault:
                pause = fault.pause_s
                if pause is None:
                    pause = min(fault.first_pause_s * 2.0**attempts, LONGEST_PAUSE_S)
                attempts += 1
                if waited + pause > PATIENCE_S:
                    wait = f"the next in {pause:.0f} s; one call waits {PATIENCE_S:.0f} s at most"
                    raise GitHubError(f"{call}: no success in {attempts} attempts, {wait}; last: {fault}") from None
                waited += max(pause, 0.0)
                self._sleep(max(pause, 0.0))

    def _once(
        self, method: str, url: str, value: object = None, none_for: Collection[int] = ()
    ) -> tuple[Any, str | None]:
        """One attempt: the value and the address of the next page.  Raises PassingFault, GitHubError."""
        call = f"{method} {urllib.parse.urlsplit(url).path}"
        body = None if value is None else json.dumps(value).encode()  # half a character of UTF-16 as an escape
        try:
            answer = self._http.request(method, url, content=body, headers={"Content-Type": "application/json"})
        except httpx.TransportError as error:
            raise PassingFault(f"{type(error).__name__} {error}", sent=not isinstance(error, NEVER_SENT)) from error
        except httpx.TooManyRedirects:
            raise GitHubError(f"{call}: redirected too often") from None
        if answer.status_code in none_for:
            return None, None
        try:
            message = str(answer.json().get("message", ""))
        except (ValueError, AttributeError):
            message = answer.text
        text = f"{answer.status_code} {message[:200]}".strip()
        if answer.status_code >= 500 or answer.status_code == 408:  # 408: it waited for us too long
            raise PassingFault(text)
        if limit := limit_fault(answer.status_code, answer.headers, text, self._clock()):
            raise limit
        if answer.status_code >= 300:
            raise GitHubError(f"{call}: {text}{_hint(answer)}", answer.status_code)
        return _json(answer, call), answer.links.get("next", {}).get("url")

    def _url(self, path: str) -> str:
        """The address of a path; "" is the repository itself, and no address ends in a slash."""
        return self.api + (path if path.startswith("/") else f"/repos/{self.repository}/{path}".removesuffix("/"))


def of_environment(environ: Mapping[str, str] = os.environ) -> GitHub:
    """The repository and the token of a workflow's step, or of whoever set the same variables."""
    missing = [name for name in ("GITHUB_REPOSITORY", "GITHUB_TOKEN") if not environ.get(name)]
    if missing:
        raise GitHubError(f"{' and '.join(missing)} not set; a workflow's step sets them through `env:`")
    return GitHub(environ["GITHUB_REPOSITORY"], environ["GITHUB_TOKEN"], environ.get("GITHUB_API_URL") or API)


# ---- what an answer says ---------------------------------------------------------------------------------------------


def limit_fault(status: int, headers: Mapping[str, str], text: str, now: float) -> PassingFault | None:
    """The limit that an answer speaks of, None if it speaks of none.  headers: lower-case names."""
    if status not in (403, 429):
        return None
    after, reset = headers.get("retry-after", ""), headers.get("x-ratelimit-reset", "")
    pause = float(after) if after.isdecimal() else None
    if pause is None and headers.get("x-ratelimit-remaining") == "0" and reset.isdecimal():
        pause = float(reset) - now
    if status == 429 or pause is not None or any(words in text.lower() for words in LIMIT_WORDS):
        return PassingFault(text, FIRST_LIMIT_S, pause, sent=False)
    return None


def _json(answer: httpx.Response, call: str) -> Any:
    """The JSON value of a good answer, None of an empty one; a page of HTML instead is a fault on the way."""
    if not answer.content.strip():
        return None
    try:
        return answer.json()
    except ValueError as error:
        kind = answer.headers.get("content-type", "no type")
        if kind.startswith("application/json"):
            raise PassingFault(f"half an answer: {error}") from error
        raise GitHubError(
            f"{call}: answered {answer.status_code} with {kind} instead of JSON ({answer.text[:80]!r}): a proxy or"
            " a log-in page stands between; look at GITHUB_API_URL and the proxy",
            answer.status_code,
        ) from None


def _hint(answer: httpx.Response) -> str:
    needed = answer.headers.get("x-accepted-github-permissions")
    hints = {
        401: "; the token is wrong or has expired",
        403: f"; the job needs `permissions: {needed or 'pull-requests: write'}`",
        404: "; the token does not see this repository, or the number is wrong",
    }
    return hints.get(answer.status_code, "")


@functools.cache
def _certificates() -> ssl.SSLContext:
    """Read once: 25 ms of CPU."""
    return httpx.create_ssl_context()


def _origin(url: str) -> tuple[str, str | None, int | None]:
    """Scheme, host and port of an address; httpx leaves a scheme's own port out."""
    try:
        parts = httpx.URL(url)
    except httpx.InvalidURL:
        return "", None, None
    return parts.scheme, parts.host, parts.port
