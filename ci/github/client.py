"""One repository on GitHub, call by call.

A path is that of the REST API within the repository: "pulls/7".  The token goes to the API's own host only.  Faults
that pass (a limit, a server or network that is away) are waited out.
"""

from __future__ import annotations

import functools
import json
import os
import re
import ssl
import time
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import httpx

API = "https://api.github.com"
API_VERSION = "2022-11-28"
SAFE = re.compile(r"https://|http://(127\.0\.0\.1|localhost|\[::1\])(:\d+)?(/|$)")
"""Addresses to which a token may go: TLS, or one where it leaves no machine, a proxy of one's own or a test."""
TIMEOUT_S = 30.0
PATIENCE_S = 900.0
"""Seconds that one call waits in all, also where GitHub asks for a pause: a job must not sleep for an hour."""
LONGEST_PAUSE_S = 240.0
"""Pauses double, from a second to this."""
LIMIT_PAUSE_S = 60.0
"""After a limit that names no time: "at least one minute" (docs.github.com, "Best practices for using the REST API",
2026-11-22)."""
LIMIT_WORDS = ("secondary rate limit", "abuse detection", "rate limit exceeded")
"""What a 403 says that is a limit and not a missing right."""
NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
"""Faults before anything of a call is on its way."""


class GitHubError(Exception):
    """GitHub cannot be asked or refuses; the text names the call, the answer and the likely cause."""


class PassingFault(Exception):
    """An attempt failed in a way that passes.  pause_s: to wait at least.  sent: whether the call may have been
    carried out all the same."""

    def __init__(self, text: str, pause_s: float = 0.0, sent: bool = True) -> None:
        super().__init__(text)
        self.pause_s, self.sent = pause_s, sent


class GitHub:
    """Calls on one repository (``owner/name``), synchronous.  Values are plain JSON: dicts, lists, texts, numbers."""

    def __init__(self, repository: str, token: str, api: str = API) -> None:
        if not re.fullmatch(r"(?!\.)[\w.-]+/(?!\.{1,2}$)[\w.-]+", repository):
            raise GitHubError(f"the repository (GITHUB_REPOSITORY) is {repository!r}, and must look like owner/name")
        if not token:
            raise GitHubError("no token: set GITHUB_TOKEN, a workflow's step through `env:`")
        if not SAFE.match(api):
            raise GitHubError(f"the API {api!r:.100} must be an https address: the token would be seen on the way")
        self.repository, self.api = repository, api.rstrip("/")
        self._http = httpx.Client(
            timeout=TIMEOUT_S,
            verify=_certificates(),
            follow_redirects=True,  # without the token where that leads to another host
            headers={
                "Authorization": f"Bearer {token}",
                "Accept": "application/vnd.github+json",
                "Content-Type": "application/json",
                "X-GitHub-Api-Version": API_VERSION,
                "User-Agent": "ridgeline",
            },
        )

    def get(self, path: str, none_for: Collection[int] = ()) -> Any:
        """What is at a path; None if the answer's status is one of `none_for`."""
        return self._call("GET", self._url(path), none_for=none_for)[0]

    def patch(self, path: str, value: object) -> None:
        """Change what is at a path; safe to repeat."""
        self._call("PATCH", self._url(path), value)

    def delete(self, path: str) -> None:
        """Remove what is at a path; nothing there is as good."""
        self._call("DELETE", self._url(path), none_for=(404, 410))

    def post(self, path: str, value: object, repeatable: bool = False) -> Any:
        """Do something once.  GitHubError where it may have been done, and `repeatable` is false."""
        return self._call("POST", self._url(path), value, repeatable=repeatable)[0]

    def items(self, path: str, key: str = "", none_for: Collection[int] = ()) -> Iterator[Any]:
        """Every item of a list, page by page.  key: where the answer has it ("jobs"), "" if it is the list itself."""
        url = self._url(path + ("&" if "?" in path else "?") + "per_page=100")
        while url:
            page, url = self._call("GET", url, none_for=none_for)
            yield from (page[key] if page and key else page) or ()
            if url and not url.startswith(f"{self.api}/"):
                raise GitHubError(f"GET {path}: its next page is at {url!r:.200}, another host; not followed")

    def put_branch(self, name: str, commit: str) -> None:
        """Put a branch on a commit, whether it is there or not."""
        if self.get(f"git/ref/heads/{name}", none_for=(404,)) is None:
            self.post("git/refs", {"ref": f"refs/heads/{name}", "sha": commit}, repeatable=True)
        else:
            self.patch(f"git/refs/heads/{name}", {"sha": commit, "force": True})

    def _url(self, path: str) -> str:
        """The address of a path; "" is the repository itself, and no address ends in a slash."""
        return f"{self.api}/repos/{self.repository}/{path}".removesuffix("/")

    def _call(
        self, method: str, url: str, value: object = None, none_for: Collection[int] = (), repeatable: bool = True
    ) -> tuple[Any, str]:
        """The value and the address of the next page, tried again after every fault that passes."""
        call, waited_s, attempts = f"{method} {url.removeprefix(self.api)}", 0.0, 0
        while True:
            try:
                return self._once(method, url, value, none_for)
            except PassingFault as fault:
                if fault.sent and not repeatable:
                    raise GitHubError(f"{call}: {fault}; it may have been carried out") from fault
                pause_s = max(fault.pause_s, min(2.0**attempts, LONGEST_PAUSE_S))
                attempts += 1
                waited_s += pause_s
                if waited_s > PATIENCE_S:
                    wait = f"the next in {pause_s:.0f} s; one call waits {PATIENCE_S:.0f} s at most"
                    raise GitHubError(f"{call}: no success in {attempts} attempts, {wait}; last: {fault}") from None
                time.sleep(pause_s)
            except GitHubError as error:
                raise GitHubError(f"{call}: {error}") from None

    def _once(self, method: str, url: str, value: object, none_for: Collection[int]) -> tuple[Any, str]:
        """One attempt.  Raises PassingFault, GitHubError."""
        body = None if value is None else json.dumps(value).encode()  # half a character of UTF-16 as an escape
        try:
            answer = self._http.request(method, url, content=body)
        except httpx.RequestError as error:
            raise PassingFault(f"{type(error).__name__} {error}", sent=not isinstance(error, NEVER_SENT)) from error
        if answer.status_code in none_for:
            return None, ""
        text = f"{answer.status_code} {answer.text[:200]}".strip()
        if answer.is_success:
            try:
                value = answer.json() if answer.content.strip() else None
            except ValueError:
                between = "a proxy or a log-in page stands between; look at GITHUB_API_URL and the proxy"
                raise GitHubError(f"the answer is not JSON ({text!r:.100}): {between}") from None
            return value, answer.links.get("next", {}).get("url", "")
        if answer.status_code >= 500 or answer.status_code == 408:  # 408: it waited for us too long
            raise PassingFault(text)
        if (pause_s := _limit_pause_s(answer)) is not None:
            raise PassingFault(text, pause_s, sent=False)
        raise GitHubError(f"{text}{_hint(answer)}")


def of_environment(environ: Mapping[str, str] = os.environ) -> GitHub:
    """The repository and the token of a workflow's step, or of whoever set the same variables."""
    repository, token = environ.get("GITHUB_REPOSITORY", ""), environ.get("GITHUB_TOKEN", "")
    return GitHub(repository, token, environ.get("GITHUB_API_URL") or API)


# ---- what an answer says ---------------------------------------------------------------------------------------------


def _limit_pause_s(answer: httpx.Response) -> float | None:
    """Seconds to wait where the answer speaks of a limit, else None."""
    after, reset = (answer.headers.get(name, "") for name in ("retry-after", "x-ratelimit-reset"))
    if answer.status_code not in (403, 429):
        return None
    if after.isdecimal():
        return float(after)
    if answer.headers.get("x-ratelimit-remaining") == "0" and reset.isdecimal():
        return float(reset) - time.time()
    is_limit = answer.status_code == 429 or any(words in answer.text.lower() for words in LIMIT_WORDS)
    return LIMIT_PAUSE_S if is_limit else None


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
