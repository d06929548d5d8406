"""A stub of a model API for trying the stack: it answers each POST with the names of the tools that reached it.

Standard library only; run it with any Python. It answers in the shape of an OpenAI chat completion, whatever the path.
"""

from __future__ import annotations

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MAX_BODY_BYTES = 64 * 1024 * 1024
READ_SECONDS = 30


class Stub(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    timeout = READ_SECONDS

    def do_GET(self) -> None:
        """Say that the stub is up."""
        self._answer(200, {"status": "ok"})

    def do_POST(self) -> None:
        """Answer with the names of the tools in the request, in their order."""
        body = self._body()
        if body is None:
            self._answer(413, {"error": {"message": f"over {MAX_BODY_BYTES} bytes"}})
            return
        try:
            request = json.loads(body)
            tools = [_name(tool) for tool in request.get("tools", ())]
        except (ValueError, AttributeError, TypeError):
            self._answer(400, {"error": {"message": "a JSON object with a list of tools, please"}})
            return
        message = {"role": "assistant", "content": json.dumps({"tools": tools})}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        self._answer(200, {"id": "stub", "object": "chat.completion", "choices": [choice]})

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Log the request line and the status, as the base class would, but on one stream and without the address."""
        sys.stderr.write(f"stub: {format % args}\n")

    def _body(self) -> bytes | None:
        if "chunked" in self.headers.get("transfer-encoding", "").lower():
            return self._chunks()
        length = int(self.headers.get("content-length", "0"))
        return self.rfile.read(length) if length <= MAX_BODY_BYTES else None

    def _chunks(self) -> bytes | None:
        body = bytearray()
        while size := int(self.rfile.readline(64).split(b";")[0], 16):
            if len(body) + size > MAX_BODY_BYTES:
                return None
            body += self.rfile.read(size)
            self.rfile.readline(64)
        while self.rfile.readline(8192).strip():
            pass
        return bytes(body)

    def _answer(self, status: int, content: dict[str, Any]) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        if status == 413:
            self.close_connection = True
        self.end_headers()
        self.wfile.write(body)


def _name(tool: Any) -> str:
    return str(tool.get("function", tool).get("name", tool.get("type")))


if __name__ == "__main__":
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 8000
    address = sys.argv[2] if len(sys.argv) > 2 else "0.0.0.0"  # noqa: S104 - inside its container
    with ThreadingHTTPServer((address, port), Stub) as server:
        server.serve_forever()
