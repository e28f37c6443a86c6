"""Conditional requests: a GET whose answer has not changed costs nothing of GitHub's rate limit.

docs.github.com, "Best practices for using the REST API" (read 2026-11-22): a conditional request that is answered 304
does not count against the primary limit.
"""

from __future__ import annotations

from collections import OrderedDict

import httpx

KEPT = 1000
"""Answers that are kept, the newest: a look asks for a few hundred pages of at most 100 entries."""


class ETags(httpx.BaseTransport):
    """Sends what `inner` sends; a GET that was answered before says so, and a 304 becomes the answer that was kept."""

    def __init__(self, inner: httpx.BaseTransport) -> None:
        self._inner = inner
        self._kept: OrderedDict[str, httpx.Response] = OrderedDict()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """The answer of the server, or the kept one."""
        if request.method != "GET":
            return self._inner.handle_request(request)
        url = str(request.url)
        kept = self._kept.get(url)
        if kept is not None:
            request.headers["If-None-Match"] = kept.headers["etag"]
        answer = self._inner.handle_request(request)
        if answer.status_code == httpx.codes.NOT_MODIFIED and kept is not None:
            answer.close()
            return _copy(kept)
        return self._keep(url, answer) if answer.status_code == httpx.codes.OK else answer

    def _keep(self, url: str, answer: httpx.Response) -> httpx.Response:
        self._kept.pop(url, None)
        if "etag" not in answer.headers:
            return answer
        answer.read()
        self._kept[url] = _copy(answer)
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        return _copy(answer)

    def close(self) -> None:
        """Close the connections."""
        self._inner.close()


def _copy(answer: httpx.Response) -> httpx.Response:
    """The same answer with its body decoded."""
    coded = ("content-encoding", "content-length", "transfer-encoding")
    headers = [(key, value) for key, value in answer.headers.multi_items() if key.lower() not in coded]
    return httpx.Response(answer.status_code, headers=headers, content=answer.content)
