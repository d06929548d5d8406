"""From REDIS_URL to a link. No secret of the URL appears in an error or a repr.

    redis://[user:password@]host[:6379][/db]          rediss:// the same over TLS
    unix:///path/to/socket[?db=1]
    redis+cluster://[user:password@]host[:port][,host[:port]…]
    redis+sentinel://[user:password@]host[:26379][,host[:26379]…]/master-name[/db]

`rediss+cluster://` and `rediss+sentinel://` speak TLS to the nodes. A query may set redis-py's TLS options
(`ssl_ca_certs`, `ssl_certfile`, …). The credentials are the data nodes'; Sentinels are asked without any unless the
query gives `sentinel_username` and `sentinel_password`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

from redis.asyncio.cluster import ClusterNode, RedisCluster
from redis.asyncio.connection import AbstractConnection, Connection, SSLConnection, parse_url
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff

from toolbelay.sessions.breaker import Breaker
from toolbelay.sessions.cluster import ClusterLink
from toolbelay.sessions.endpoint import Endpoint
from toolbelay.sessions.link import Link, SingleLink
from toolbelay.sessions.observer import StoreObserver

CONNECT_SECONDS = 1.0
TOPOLOGY_SECONDS = 0.5  # one node's answer about the topology
SENTINEL_SECONDS = 0.1  # short, so that a hung Sentinel leaves time to ask the next one within a call
_DEFAULT_PORTS = {"cluster": 6379, "sentinel": 26379}

# Set over whatever a URL's query says: each is a promise of this package. A second of "retry" would send writes twice,
# RESP 3 and driver_info would cost further trips per connection, a socket timeout is kept by the caller instead.
_OURS: dict[str, Any] = {
    "protocol": 2,
    "driver_info": None,
    "decode_responses": False,
    "socket_timeout": None,
    "socket_connect_timeout": CONNECT_SECONDS,
    "health_check_interval": 0,
    "retry_on_timeout": False,
}
_REFUSED = ("max_connections", "timeout", "lib_name", "lib_version", "legacy_responses", "retry_on_error")


@dataclass(frozen=True, slots=True)
class Target:
    """A parsed REDIS_URL. `options`: for redis-py's connections, credentials among them."""

    kind: str  # "single", "cluster" or "sentinel"
    tls: bool
    hosts: tuple[tuple[str, int], ...] = ()
    master: str = ""
    options: dict[str, Any] = field(default_factory=dict, repr=False)
    sentinel_options: dict[str, Any] = field(default_factory=dict, repr=False)


def parse(url: str) -> Target:
    """Read a URL. Raises ValueError that names the fault, never the URL."""
    scheme, separator, rest = url.partition("://")
    base, _, kind = scheme.partition("+")
    if not separator or base not in {"redis", "rediss", "unix"} or kind not in {"", "cluster", "sentinel"}:
        raise ValueError("the Redis URL's scheme is none of redis, rediss, unix, redis+cluster, redis+sentinel")
    if not kind:
        return Target("single", tls=base == "rediss", options=_options(url))
    if base == "unix":
        raise ValueError(f"a unix socket cannot be a {kind}")
    # Not by urlsplit: some Python releases refuse an address in brackets among several hosts.
    place, _, query = rest.partition("?")
    netloc, _, below = place.partition("/")
    credentials, _, hosts = netloc.rpartition("@")
    path = [part for part in below.split("/") if part]
    master = path.pop(0) if kind == "sentinel" and path else ""
    if kind == "sentinel" and not master:
        raise ValueError("a redis+sentinel URL names the master after the hosts: …/mymaster")
    if kind == "cluster" and path and path != ["0"]:
        raise ValueError("a Redis Cluster has no database but 0")
    database = f"/{path[0]}" if path else ""
    options = _options(f"redis://{credentials}@host{database}?{query}")
    sentinel = {
        name.removeprefix("sentinel_"): options.pop(name)
        for name in ("sentinel_username", "sentinel_password")
        if name in options
    }
    return Target(kind, base == "rediss", _hosts(hosts, kind), master, options, sentinel)


def _hosts(text: str, kind: str) -> tuple[tuple[str, int], ...]:
    hosts = []
    for part in text.split(","):
        try:
            split = urlsplit(f"redis://{part}")
            host, port = split.hostname, split.port or _DEFAULT_PORTS[kind]
        except ValueError:
            host = None
        if not host:
            raise ValueError("a host of the Redis URL is not host or host:port")
        hosts.append((host, port))
    return tuple(hosts)


def _options(url: str) -> dict[str, Any]:
    refused = [name for name in parse_qs(urlsplit(url).query) if name in _REFUSED]
    if refused:
        raise ValueError(f"the Redis URL may not set {refused[0]}")
    try:
        options: dict[str, Any] = dict(parse_url(url))
    except ValueError:
        raise ValueError("the Redis URL cannot be read") from None
    return options


def open_link(url: str, *, pool_size: int, observer: StoreObserver) -> Link:
    """A link to the servers of a URL; connects on first use. `pool_size`: connections per server, from 1.

    Raises ValueError for a URL that cannot be read.
    """
    target = parse(url)
    if pool_size < 1:
        raise ValueError("the Redis pool needs at least one connection")
    if target.kind == "cluster":
        return _cluster(target, pool_size, observer)
    if target.kind == "sentinel":
        return _sentinel(target, pool_size, observer)
    options = {**target.options, **_OURS}
    connection_class = options.pop("connection_class", Connection)
    endpoint = _endpoint(lambda: connection_class(**options, retry=_never()), pool_size, observer)
    return SingleLink(endpoint, observer)


def _never() -> Retry:
    """redis-py would else send a script again after a timeout: up to ten times."""
    return Retry(NoBackoff(), 0)


def _endpoint(
    make: Callable[[], AbstractConnection],
    size: int,
    observer: StoreObserver,
    aim: Callable[[AbstractConnection], Awaitable[None]] | None = None,
) -> Endpoint:
    return Endpoint(make, size=size, breaker=Breaker(on_change=observer.breaker_changed), aim=aim)


def _sentinel(target: Target, pool_size: int, observer: StoreObserver) -> Link:
    quick = {"socket_timeout": SENTINEL_SECONDS, "socket_connect_timeout": SENTINEL_SECONDS, "retry": _never()}
    plain = {"protocol": 2, "driver_info": None}
    own = {**quick, **plain, **target.sentinel_options}
    sentinel = Sentinel(target.hosts, sentinel_kwargs=own)  # type: ignore[no-untyped-call]
    options = {name: value for name, value in target.options.items() if name not in {"host", "port"}}
    connection_class = SSLConnection if target.tls else Connection
    known: list[tuple[str, int]] = []

    async def aim(connection: AbstractConnection) -> None:
        assert isinstance(connection, Connection)
        address = await sentinel.discover_master(target.master)
        if known and known != [address]:
            await endpoint.forget()
        known[:] = [address]
        connection.host, connection.port = address

    endpoint = _endpoint(lambda: connection_class(**options, **_OURS, retry=_never()), pool_size, observer, aim)
    return SingleLink(endpoint, observer, also_close=sentinel.aclose)


def _cluster(target: Target, pool_size: int, observer: StoreObserver) -> Link:
    options = {name: value for name, value in target.options.items() if name not in {"host", "port", "db"}}
    seeds = [ClusterNode(host, port) for host, port in target.hosts]
    ours = {name: value for name, value in _OURS.items() if name != "retry_on_timeout"}
    # Only the looks at the topology go through this client; they need a timeout of their own.
    ours["socket_timeout"] = TOPOLOGY_SECONDS

    def client() -> RedisCluster:
        return RedisCluster(
            startup_nodes=seeds, require_full_coverage=False, ssl=target.tls, retry=_never(), **options, **ours
        )

    def endpoint(node: ClusterNode) -> Endpoint:
        own = {**node.connection_kwargs, **_OURS}
        return _endpoint(lambda: node.connection_class(**own, retry=_never()), pool_size, observer)

    return ClusterLink(client, endpoint, observer)
