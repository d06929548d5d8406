"""A small gateway: it holds API keys, and asks Toolbelay which tools each request carries.

Standard library and `toolbelay.client` only. It takes OpenAI chat requests, mints a token for the key's user, lets
Toolbelay put this turn's tools in, and sends the request on.

    GATEWAY_KEYS='{"sk-alice": "alice"}' TOOLBELAY_ADDRESS=127.0.0.1:50051 TOOLBELAY_JWT_HS256_SECRET=… \
    TOOLBELAY_JWT_ISSUER=… TOOLBELAY_JWT_AUDIENCE=… UPSTREAM=http://127.0.0.1:8000 python examples/gateway.py 8080
"""

from __future__ import annotations

import json
import os
import sys
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from toolbelay.client import TokenMinter, ToolbelayCallError, ToolbelayClient

MAX_BODY_BYTES = 8 * 1024 * 1024
STATUS = {"INVALID_ARGUMENT": 400, "PERMISSION_DENIED": 403, "FAILED_PRECONDITION": 403, "RESOURCE_EXHAUSTED": 413}


class Gateway(BaseHTTPRequestHandler):
    """One connection; the class's attributes are set by `serve`."""

    protocol_version = "HTTP/1.1"
    toolbelay: ToolbelayClient
    minter: TokenMinter
    tenant: str
    upstream: str
    keys: dict[str, str]

    def do_POST(self) -> None:
        """Take a chat request, and send it on with this turn's tools."""
        user = self.keys.get(self.headers.get("authorization", "").removeprefix("Bearer "))
        length = self.headers.get("content-length", "")
        if user is None or not length.isdecimal() or int(length) > MAX_BODY_BYTES:
            self.close_connection = True  # the body is not read
            self._answer(
                401 if user is None else 413, {"error": {"message": "no such key, or no length, or too large"}}
            )
            return
        try:
            request = json.loads(self.rfile.read(int(length)))
            prepared = self.toolbelay.prepare(
                request,
                session_id=self.headers.get("x-session-id", ""),
                token=self.minter.for_user(user, tenant=self.tenant),
            )
        except ToolbelayCallError as error:
            # An outage, a token that the service does not take: not the user's fault.
            status = 503 if error.is_outage else STATUS.get(error.code.name, 503)
            self._answer(status, {"error": {"message": str(error)}})
        except (ValueError, TypeError, AttributeError):
            self._answer(400, {"error": {"message": "not a JSON request"}})
        else:
            self._forward(prepared.body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Say nothing: a gateway's log is its own business."""

    def _forward(self, body: dict[str, Any]) -> None:
        request = urllib.request.Request(  # noqa: S310 - the operator's own address
            self.upstream + self.path, json.dumps(body).encode(), {"content-type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=600) as answer:  # noqa: S310 - same
                self._answer(answer.status, json.load(answer))
        except (OSError, ValueError):  # its errors too; a real gateway passes those on
            self._answer(502, {"error": {"message": "the upstream does not answer"}})

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


def serve(port: int) -> ThreadingHTTPServer:
    """The gateway, ready for `serve_forever`."""
    Gateway.toolbelay = ToolbelayClient(os.environ["TOOLBELAY_ADDRESS"])
    Gateway.minter = TokenMinter.hs256(
        os.environ["TOOLBELAY_JWT_HS256_SECRET"].encode(),
        issuer=os.environ["TOOLBELAY_JWT_ISSUER"],
        audience=os.environ["TOOLBELAY_JWT_AUDIENCE"],
    )
    Gateway.tenant = os.environ.get("TENANT", "default")
    Gateway.upstream = os.environ["UPSTREAM"]
    Gateway.keys = json.loads(os.environ["GATEWAY_KEYS"])
    return ThreadingHTTPServer(("127.0.0.1", port), Gateway)


if __name__ == "__main__":
    serve(int(sys.argv[1])).serve_forever()
