"""The socket on which a script's process and the coordinator talk while the script runs: one JSON line a message."""

from __future__ import annotations

import json
import socket
from typing import Any


class Link:
    """The script's end.  `tell` says what happened, `asked` waits for the next request."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.connect(path)
        self._lines = self._socket.makefile("rb")

    def tell(self, **event: Any) -> None:
        """One message."""
        self._socket.sendall(json.dumps(event).encode() + b"\n")

    def asked(self) -> dict[str, Any]:
        """The next request; EOFError when the coordinator is gone."""
        line = self._lines.readline()
        if not line:
            raise EOFError("the coordinator has closed the link")
        request: dict[str, Any] = json.loads(line)
        return request
