"""One repository on GitHub, call by call: tenacity repeats, httpx carries and reads.

A path is that of the REST API: "pulls/7" is of the repository, "/orgs/o/actions/runners" of the API as a whole.  The
token goes to the API's own host only: a redirection or a next page elsewhere is refused.
"""

from __future__ import annotations

import email.utils
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
import tenacity

# When a call to GitHub is tried again, how long after, and when not any more: rules without any input or output.
#
# Rules: docs.github.com, "Best practices for using the REST API" (read 2026-11-22): wait as long as Retry-After says;
# else until x-ratelimit-reset if nothing remains; else at least a minute, growing with every refusal.


BUSY_S = 600.0
"""Seconds.  Server errors, time-outs and a network that is away are retried this long: enough for a restart."""
LONGEST_PAUSE_S = 900.0
"""Seconds.  A server that asks for a longer pause is an error: a job must not sleep for an hour."""
LIMITED_S = 1800.0
"""Seconds that one call waits for limits in all: two of the longest pauses."""
FIRST_LIMIT_S = 60.0
"""Seconds to wait for a limit that names no time; twice as long after each refusal (GitHub: "at least one minute")."""
SLOWEST_BEAT_S = 60.0
"""Seconds between two attempts at most while the server is down."""
WORDS = ("secondary rate limit", "abuse detection", "rate limit exceeded")
"""What a 403 says that is a limit and not a missing right."""


class Trouble(Exception):
    """An attempt failed in a way that passes.  asked: seconds that the server asks us to wait, None if it does not."""

    def __init__(self, said: str, limited: bool = False, asked: float | None = None) -> None:
        super().__init__(said)
        self.limited, self.asked = limited, asked


class Patience:
    """How long one call is tried again, as tenacity asks for it.  what: the call, for the error."""

    def __init__(self, what: str, clock: Callable[[], float]) -> None:
        self._what, self._clock, self._began = what, clock, clock()
        self._slept = self._waited = 0.0
        self._faults = self._limits = 0

    def __call__(self, state: tenacity.RetryCallState) -> float:
        """Seconds until the next attempt.  Raises GitHubError where they are too many."""
        trouble = state.outcome.exception() if state.outcome else None
        assert isinstance(trouble, Trouble)
        if trouble.limited:
            pause, enough = self._after_limit(trouble), self._waited > LIMITED_S
        else:
            pause = min(2.0**self._faults, SLOWEST_BEAT_S)
            self._faults += 1
            self._slept += pause  # also where somebody's clock stands still
            enough = max(self._slept, self._clock() - self._began - self._waited + pause) > BUSY_S
        if enough:
            raise GitHubError(f"{self._what}: no success in {state.attempt_number} attempts; last: {trouble}")
        return pause

    def _after_limit(self, trouble: Trouble) -> float:
        pause = trouble.asked
        if pause is None:
            pause = min(FIRST_LIMIT_S * 2.0**self._limits, LONGEST_PAUSE_S)
            self._limits += 1
        if pause > LONGEST_PAUSE_S:
            asked = f"it asks for a pause of {pause:.0f} s, more than {LONGEST_PAUSE_S:.0f} s"
            raise GitHubError(f"{self._what}: {asked}; last: {trouble}")
        self._waited += max(pause, 0.0)
        return max(pause, 0.0)


def limit(status: int, headers: Mapping[str, str], said: str, now: float) -> Trouble | None:
    """The limit that an answer speaks of, None if it speaks of none.  headers: lower-case names."""
    if status not in (403, 429):
        return None
    asked = retry_after(headers.get("retry-after"), now)
    spent = headers.get("x-ratelimit-remaining") == "0"
    if asked is None and spent:
        asked = _number(headers.get("x-ratelimit-reset"), now) - now
    named = any(words in said.lower() for words in WORDS)
    return Trouble(said, limited=True, asked=asked) if status == 429 or asked is not None or named else None


def retry_after(header: str | None, now: float) -> float | None:
    """Seconds from a Retry-After header: a number or an HTTP date (RFC 9110, 10.2.3); None if absent or unreadable."""
    if header is None:
        return None
    if header.strip().isdigit():
        return float(header)
    try:
        return email.utils.parsedate_to_datetime(header).timestamp() - now
    except ValueError:
        return None


def _number(text: str | None, otherwise: float) -> float:
    try:
        return float(text) if text else otherwise
    except ValueError:
        return otherwise


API = "https://api.github.com"
API_VERSION = "2022-11-28"
LOOPBACK = [("http", host) for host in ("127.0.0.1", "localhost", "::1")]
"""Where an address without TLS leaves no machine: a proxy of one's own, a test."""
HOPS = 5
"""Redirections that are followed for one call: a repository that was renamed and moved needs two."""
PAGES = 1000
"""Pages of 100 entries that are read of a list at most; a list without end is a fault of the server."""
MOVED = (301, 302, 307, 308)
"""GitHub: a redirected call is to be repeated verbatim."""

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


class UnansweredError(GitHubError):
    """A call that is not safe to repeat got no answer: it may or may not have been carried out."""


class GitHub:
    """Calls on one repository (``owner/name``), synchronous; what passes is waited out (`Patience`).

    sleep, clock: for tests.  transport: what sends the requests, None for httpx's own.  Values are plain JSON: dicts,
    lists, texts, numbers.
    """

    def __init__(
        self,
        repository: str,
        token: str,
        api: str = API,
        sleep: Callable[[float], None] | None = None,
        clock: Callable[[], float] | None = None,
        timeout_s: float = 30.0,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        if not re.fullmatch(r"(?!\.)[\w.-]+/(?!\.{1,2}$)[\w.-]+", repository):
            raise GitHubError(f"repository {repository!r} must look like owner/name")
        if not token:
            raise GitHubError("there is no token; set GITHUB_TOKEN (a job needs `permissions: pull-requests: write`)")
        if not (api.startswith("https://") or _origin(api)[:2] in LOOPBACK):
            raise GitHubError(f"the API {api!r:.100} must be an https address: the token would be seen on the way")
        self.repository, self.api = repository, api.rstrip("/")
        self._sleep, self._clock = sleep or time.sleep, clock or time.time
        self._http = httpx.Client(
            timeout=timeout_s,
            transport=transport,
            verify=_trusted(),
            headers={
                "Authorization": f"Bearer {token}",
                "Accept": "application/vnd.github+json",
                "X-GitHub-Api-Version": API_VERSION,
                "User-Agent": "ridgeline",
            },
        )

    def get(self, path: str, none_for: Collection[int] = ()) -> Any:
        """What is at a path; None if the answer's status is one of `none_for`."""
        return self._tried("GET", path, none_for=none_for)

    def patch(self, path: str, value: object) -> Any:
        """Change what is at a path; safe to repeat."""
        return self._tried("PATCH", path, value)

    def delete(self, path: str) -> None:
        """Remove what is at a path; nothing there is as good."""
        self._tried("DELETE", path, none_for=(404, 410))

    def post(self, path: str, value: object = None, repeatable: bool = False) -> Any:
        """Do something once.  Raises UnansweredError where it may have been done and `repeatable` is false."""
        return self._tried("POST", path, value, repeatable=repeatable)

    def create(self, path: str, value: object, find: Callable[[], T | None], method: str = "POST") -> T | Any:
        """POST what must not be made twice: after each failure `find` looks first whether it was made all the same."""
        tried = False

        def step() -> T | Any:
            nonlocal tried
            found = find() if tried else None
            tried = True
            return self._once(method, self._url(path), value)[0] if found is None else found

        return self.patiently(f"{method} {path}", step)

    def items(self, path: str, key: str = "", none_for: Collection[int] = ()) -> Iterator[Any]:
        """Every item of a list, page by page.  key: where the answer has it ("jobs"), "" if it is the list itself."""
        url = self._url(path + ("&" if "?" in path else "?") + "per_page=100")
        for _ in range(PAGES):
            step = functools.partial(self._once, "GET", url, none_for=none_for)
            page, following = self.patiently(f"GET {path}", step)
            yield from self._listed(page, key, path)
            if not following:
                return
            url = self._own(urllib.parse.urljoin(url, following), path)
        raise GitHubError(f"GET {path}: the list has no end after {PAGES} pages")

    def put_branch(self, name: str, commit: str) -> None:
        """Put a branch on a commit, whether it is there or not."""
        if self.get(f"git/ref/heads/{name}", none_for=(404,)) is None:
            self.create("git/refs", {"ref": f"refs/heads/{name}", "sha": commit}, lambda: None)
        else:
            self.patch(f"git/refs/heads/{name}", {"sha": commit, "force": True})

    def attempt(self, method: str, path: str, value: object) -> Any:
        """One attempt at a call, for a step of `patiently`.  Raises Trouble for what passes."""
        return self._once(method, self._url(path), value)[0]

    def pause(self, seconds: float) -> None:
        """Wait for what others do."""
        self._sleep(seconds)

    def graphql(self, query: str) -> Any:
        """The data that one GraphQL query answers with, tried once: for what REST does not say."""
        root = self.api.removesuffix("/v3")
        try:
            answer = self._once("POST", f"{root}/graphql", {"query": query})[0]
        except Trouble as trouble:
            raise GitHubError(f"POST /graphql: {trouble}") from None
        return answer.get("data") if isinstance(answer, dict) else None

    def _listed(self, page: Any, key: str, path: str) -> list[Any]:
        found = page.get(key) if key and isinstance(page, dict) else page
        if found is None and page is None:
            return []
        if not isinstance(found, list):
            raise GitHubError(f"GET {path}: a list was expected, not {str(page)[:100]!r}")
        return found

    def _tried(
        self, method: str, path: str, value: object = None, repeatable: bool = True, none_for: Collection[int] = ()
    ) -> Any:
        url = self._url(path)
        return self.patiently(f"{method} {path}", lambda: self._once(method, url, value, repeatable, none_for)[0])

    def patiently(self, what: str, step: Callable[[], T]) -> T:
        """The step, taken again from its beginning after every Trouble that passes; what: for the error."""
        again = tenacity.Retrying(
            sleep=self._sleep, wait=Patience(what, self._clock), retry=tenacity.retry_if_exception_type(Trouble)
        )
        return again(step)

    def _once(
        self, method: str, url: str, value: object = None, repeatable: bool = True, none_for: Collection[int] = ()
    ) -> tuple[Any, str | None]:
        """One attempt: the value and the address of the next page.  Raises Trouble for what passes."""
        what = f"{method} {urllib.parse.urlsplit(url).path}"
        try:
            answer = self._followed(method, url, value)
            return (None, None) if answer.status_code in none_for else self._read(answer, what)
        except (httpx.TransportError, _BrokenServer) as error:
            said = str(error) if isinstance(error, _BrokenServer) else f"{type(error).__name__} {error}"
            if repeatable or isinstance(error, NEVER_SENT):
                raise Trouble(said) from error
            raise UnansweredError(f"{what}: {said}; it may have been carried out") from error

    def _followed(self, method: str, url: str, value: object) -> httpx.Response:
        body = None if value is None else json.dumps(value).encode()  # half a character of UTF-16 as an escape
        kind = {} if value is None else {"Content-Type": "application/json"}
        for _ in range(HOPS + 1):
            answer = self._http.request(method, url, content=body, headers=kind)
            place = answer.headers.get("location")
            if answer.status_code not in MOVED or not place:
                return answer
            url = self._own(urllib.parse.urljoin(url, place), f"{method} {url}")
        raise GitHubError(f"{method} {url}: redirected more than {HOPS} times")

    def _read(self, answer: httpx.Response, what: str) -> tuple[Any, str | None]:
        try:
            message = str(answer.json().get("message", ""))
        except (ValueError, AttributeError):
            message = answer.text
        said = f"{answer.status_code} {message[:200]}".strip()
        if answer.status_code >= 500 or answer.status_code == 408:  # 408: it waited for us too long
            raise _BrokenServer(said)
        trouble = limit(answer.status_code, answer.headers, said, self._clock())
        if trouble:
            raise trouble
        if answer.status_code >= 300:
            raise GitHubError(f"{what}: {said}{_hint(answer)}", answer.status_code)
        return _value(answer, what), answer.links.get("next", {}).get("url")

    def _url(self, path: str) -> str:
        """The address of a path; "" is the repository itself, and no address ends in a slash."""
        return self.api + (path if path.startswith("/") else f"/repos/{self.repository}/{path}".removesuffix("/"))

    def _own(self, url: str, what: str) -> str:
        """The address, if it is on the API's own host."""
        if _origin(url) != _origin(self.api):
            raise GitHubError(
                f"{what}: sent on to {_origin(url)!r:.200}, which is not the API's own host; not followed"
            )
        return url


@functools.cache
def _trusted() -> ssl.SSLContext:
    """The certificates, read once: 25 ms of CPU."""
    return httpx.create_ssl_context()


def of_environment(environ: Mapping[str, str] = os.environ) -> GitHub:
    """The repository and the token of a workflow's step, or of whoever set the same variables."""
    missing = [name for name in ("GITHUB_REPOSITORY", "GITHUB_TOKEN") if not environ.get(name)]
    if missing:
        raise GitHubError(f"{' and '.join(missing)} not set; a workflow's step sets them through `env:`")
    return GitHub(environ["GITHUB_REPOSITORY"], environ["GITHUB_TOKEN"], environ.get("GITHUB_API_URL") or API)


class _BrokenServer(Exception):
    """An answer that says nothing about whether the call was carried out."""


def _origin(url: str) -> tuple[str, str | None, int | None]:
    """Scheme, host and port of an address; httpx leaves a scheme's own port out."""
    try:
        whole = httpx.URL(url)
    except httpx.InvalidURL:
        return "", None, None
    return whole.scheme, whole.host, whole.port


def _value(answer: httpx.Response, what: str) -> Any:
    """The JSON value of a good answer, None of an empty one; a page of HTML instead is a fault on the way."""
    if not answer.content.strip():
        return None
    try:
        return answer.json()
    except ValueError as error:
        kind = answer.headers.get("content-type", "no type")
        if kind.startswith("application/json"):
            raise _BrokenServer(f"half an answer: {error}") from error
        raise GitHubError(
            f"{what}: answered {answer.status_code} with {kind} instead of JSON ({answer.text[:80]!r}): a proxy or"
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
