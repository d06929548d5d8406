"""The stub MCP server over streamable HTTP: plain JSON answers, or server-sent events."""

from __future__ import annotations

import gzip
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.support.mcp_stub import answer


class McpHttpStub:
    """Serves `script` (see `mcp_stub`); `seen` holds each request's headers."""

    def __init__(self, script: dict[str, Any], *, events: bool = False, status: int = 200, coding: str = "") -> None:
        self.script = script
        self.seen: list[dict[str, str]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                outer.seen.append({key.lower(): value for key, value in self.headers.items()})
                message = json.loads(self.rfile.read(int(self.headers["content-length"])))
                if "id" not in message:
                    self._send(202, "text/plain", b"")
                    return
                text = answer(outer.script, message).encode()
                if events:
                    self._send(status, "text/event-stream", b"event: message\r\ndata: %b\r\n\r\n" % text)
                else:
                    self._send(status, "application/json", text)

            def do_GET(self) -> None:
                self._send(405, "text/plain", b"")

            def do_DELETE(self) -> None:
                self._send(405, "text/plain", b"")

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
                """Stay quiet."""

            def _send(self, status: int, kind: str, body: bytes) -> None:
                if coding:
                    body = gzip.compress(body)
                self.send_response(status)
                if coding:
                    self.send_header("content-encoding", coding)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/mcp"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
