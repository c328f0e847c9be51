"""A small HTTP/1.1 server that looks like uvicorn: routes, JSON bodies, chunked event streams."""

from __future__ import annotations

import http.server
import json
import socket
import socketserver
import time
from typing import Any, Callable

from . import logs

REASONS = {
    200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found", 405: "Method Not Allowed",
    500: "Internal Server Error", 503: "Service Unavailable",
}  # fmt: skip


class Request:
    """One request and the means to answer it."""

    def __init__(self, handler: Handler, method: str, path: str, query: str, body: bytes) -> None:
        self.handler = handler
        self.method = method
        self.path = path
        self.query = query
        self.body = body
        self.headers = handler.headers
        self.answered: Stream | None = None  # the stream that was begun

    def reply(self, status: int, content: bytes = b"", kind: str = "application/json", **extra: str) -> None:
        headers = [("content-length", str(len(content)))]
        if content and kind:
            headers.append(("content-type", kind))
        self._head(status, headers + [(name.replace("_", "-"), value) for name, value in extra.items()])
        self.handler.wfile.write(content)

    def json(self, status: int, value: Any) -> None:
        self.reply(status, json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode())

    def stream(self) -> Stream:
        self._head(200, [("content-type", "text/event-stream; charset=utf-8"), ("transfer-encoding", "chunked")])
        self.answered = Stream(self.handler)
        return self.answered

    def drop(self) -> None:
        """Close the connection without an end to the answer."""
        self.handler.close_connection = True

    def _head(self, status: int, headers: list[tuple[str, str]]) -> None:
        date = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime())
        lines = [f"HTTP/1.1 {status} {REASONS.get(status, '')}", f"date: {date}", "server: uvicorn"]
        lines += [f"{name}: {value}" for name, value in headers]
        self.handler.wfile.write(("\r\n".join(lines) + "\r\nvary: Origin\r\n\r\n").encode())
        server = self.handler.server
        host, port = self.handler.client_address[:2]
        client = f"{host}:{port}"
        logs.access(server.engine, client, f"{self.method} {self.path} HTTP/1.1", f"{status} {REASONS.get(status, '')}")


class Stream:
    """Server-sent events in chunked encoding."""

    def __init__(self, handler: Handler) -> None:
        self.handler = handler

    def event(self, value: Any) -> None:
        text = value if isinstance(value, str) else json.dumps(value, separators=(",", ":"), ensure_ascii=False)
        self.chunk(f"data: {text}\n\n".encode())

    def chunk(self, content: bytes) -> None:
        self.handler.wfile.write(b"%x\r\n%s\r\n" % (len(content), content))

    def end(self) -> None:
        self.handler.wfile.write(b"0\r\n\r\n")


Route = Callable[[Request], None]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Server

    def _serve(self) -> None:
        path, _, query = self.path.partition("?")
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        request = Request(self, self.command, path, query, body)
        try:
            self.server.dispatch(request)
        except OSError:
            self.close_connection = True  # the client went away

    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = do_OPTIONS = _serve

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """Serves `routes`: path -> {method -> function}. `guard` may answer first and then returns True."""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 2048

    def __init__(self, engine: str, listening: socket.socket) -> None:
        self.engine = engine
        self.routes: dict[str, dict[str, Route]] = {}
        self.guard: Callable[[Request], bool] | None = None
        super().__init__(listening.getsockname(), Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listening

    def dispatch(self, request: Request) -> None:
        if self.guard is not None and self.guard(request):
            return
        methods = self.routes.get(request.path)
        if methods is None:
            request.json(404, {"detail": "Not Found"})
        elif request.method not in methods:
            content = b'{"detail":"Method Not Allowed"}'
            request.reply(405, content, allow=", ".join(sorted(methods)))
        else:
            methods[request.method](request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # a client that hung up; real servers do not log it either


def bind(host: str, port: int) -> socket.socket:
    """A bound socket that does not listen yet; OSError when the port is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except OSError:
        listening.close()
        raise
    return listening
