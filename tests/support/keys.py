"""The rule that every key the service writes into Redis goes away by itself."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable

from tests.support.servers import RedisServer

LISTED = 10


def assert_every_key_expires(servers: Iterable[RedisServer], allowed: Iterable[str] = ()) -> None:
    """Raise AssertionError that names the keys without a TTL, but for those that match a pattern in `allowed`."""
    patterns = tuple(allowed)
    leaked = sorted(
        key
        for server in servers
        for key in _persistent_keys(server)
        if not any(fnmatch.fnmatchcase(key, pattern) for pattern in patterns)
    )
    assert not leaked, f"{len(leaked)} keys have no TTL: {leaked[:LISTED]}"


def _persistent_keys(server: RedisServer) -> list[str]:
    with server.client() as client:
        keys = list(client.scan_iter(count=1000))
        return [key.decode(errors="backslashreplace") for key in keys if client.ttl(key) == -1]
