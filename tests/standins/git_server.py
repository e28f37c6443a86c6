"""A git server on this machine that remembers the headers of every request: http or https, with redirections."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from werkzeug import Request, Response
from werkzeug.serving import make_server

from tests.needed import needed
from tests.standins.github import Quiet

BACKEND = [subprocess.run(["git", "--exec-path"], capture_output=True, text=True).stdout.strip() + "/git-http-backend"]


class GitServer:
    """Serves the repositories below a folder.  redirect: where every request is sent instead, "" if nowhere."""

    def __init__(self, folder: Path, certificate: Path | None = None) -> None:
        self.folder, self.redirect = folder, ""
        self.authorizations: list[str | None] = []
        key = (str(certificate),) * 2 if certificate else None
        app = Request.application(self.answer)
        self.http = make_server("127.0.0.1", 0, app, threaded=True, request_handler=Quiet, ssl_context=key)
        self.url = f"{'https' if certificate else 'http'}://127.0.0.1:{self.http.server_port}"

    def answer(self, request: Request) -> Response:
        """What git's own server program answers."""
        self.authorizations.append(request.headers.get("Authorization"))
        if self.redirect:
            return Response("", 302, {"Location": f"{self.redirect}{request.full_path}"})
        body = request.get_data()
        env = {
            "REQUEST_METHOD": request.method,
            "PATH_INFO": request.path,
            "QUERY_STRING": request.query_string.decode(),
            "CONTENT_TYPE": request.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": request.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": request.headers.get("Git-Protocol", ""),
            "REMOTE_USER": "somebody",
            "GIT_PROJECT_ROOT": str(self.folder),
            "GIT_HTTP_EXPORT_ALL": "1",
        }
        output = subprocess.run(BACKEND, env={**os.environ, **env}, input=body, capture_output=True, check=True).stdout
        head, _, content = output.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        return Response(content, headers.pop("Status", "200 OK"), headers)


@contextmanager
def serving(folder: Path, certificate: Path | None = None) -> Iterator[GitServer]:
    """The server, until the block ends."""
    server = GitServer(folder, certificate)
    threading.Thread(target=server.http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    try:
        yield server
    finally:
        server.http.shutdown()
        server.http.server_close()


def certificate(folder: Path) -> Path:
    """A key and a certificate of 127.0.0.1 that nobody trusts unless told to, in one file."""
    path = folder / "server.pem"
    made = [needed("OpenSSL"), "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    made += ["-days", "2"]
    made += ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", "-", "-out", "-"]
    path.write_bytes(subprocess.run(made, capture_output=True, check=True).stdout)
    return path
