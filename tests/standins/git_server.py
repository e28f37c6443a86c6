"""A git server on this machine that remembers the headers of every request: http or https, with redirections."""

from __future__ import annotations

import os
import ssl
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.needed import needed

BACKEND = [subprocess.run(["git", "--exec-path"], capture_output=True, text=True).stdout.strip() + "/git-http-backend"]


class GitServer(ThreadingHTTPServer):
    """Serves the repositories below a folder.  redirect: where every request is sent instead, "" if nowhere."""

    def __init__(self, folder: Path, certificate: Path | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Request)
        self.folder, self.redirect, self.scheme = folder, "", "https" if certificate else "http"
        self.authorizations: list[str | None] = []
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self.socket = context.wrap_socket(self.socket, server_side=True)

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.server_address[1]}"

    def answer(self, environment: Mapping[str, str], body: bytes) -> tuple[str, list[tuple[str, str]], bytes]:
        """Status, headers and body of git's own server program."""
        env = {**os.environ, **environment, "GIT_PROJECT_ROOT": str(self.folder), "GIT_HTTP_EXPORT_ALL": "1"}
        output = subprocess.run(BACKEND, env=env, input=body, capture_output=True, check=True).stdout
        head, _, content = output.partition(b"\r\n\r\n")
        headers = [(k.strip(), v.strip()) for k, _, v in (line.partition(":") for line in head.decode().split("\r\n"))]
        status = next((value for key, value in headers if key.lower() == "status"), "200 OK")
        return status, [(key, value) for key, value in headers if key.lower() != "status"], content


class _Request(BaseHTTPRequestHandler):
    server: GitServer

    def do_GET(self) -> None:
        self.server.authorizations.append(self.headers.get("Authorization"))
        if self.server.redirect:
            self._send("302 Found", [("Location", self.server.redirect + self.path)], b"")
            return
        path, _, query = self.path.partition("?")
        length = int(self.headers.get("Content-Length") or 0)
        environment = {
            "REQUEST_METHOD": self.command,
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "CONTENT_TYPE": self.headers.get("Content-Type") or "",
            "CONTENT_LENGTH": str(length),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding") or "",
            "GIT_PROTOCOL": self.headers.get("Git-Protocol") or "",
            "REMOTE_USER": "somebody",
        }
        self._send(*self.server.answer(environment, self.rfile.read(length)))

    do_POST = do_GET

    def _send(self, status: str, headers: list[tuple[str, str]], body: bytes) -> None:
        self.send_response(int(status.split()[0]))
        for key, value in (*headers, ("Content-Length", str(len(body)))):
            self.send_header(key, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing on the terminal."""


@contextmanager
def serving(folder: Path, certificate: Path | None = None) -> Iterator[GitServer]:
    """The server, until the block ends."""
    server = GitServer(folder, certificate)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


def certificate(folder: Path) -> Path:
    """A key and a certificate of 127.0.0.1 that nobody trusts unless told to, in one file."""
    path = folder / "server.pem"
    made = [needed("OpenSSL"), "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    made += ["-days", "2"]
    made += ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", "-", "-out", "-"]
    path.write_bytes(subprocess.run(made, capture_output=True, check=True).stdout)
    return path
