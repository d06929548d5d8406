"""Ports that stay ours, however many test runs share the machine."""

from __future__ import annotations

import socket


class ReservedPort:
    """A port of 127.0.0.1, bound but not listened on, so the kernel hands it to nobody else.

    A server that sets SO_REUSEADDR (Redis, PostgreSQL and the proxy do) can listen on it all the same, again and again
    after restarts; while none does, connecting is refused.
    """

    def __init__(self) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(("127.0.0.1", 0))
        self.number: int = self._socket.getsockname()[1]

    def release(self) -> None:
        self._socket.close()
