"""Key sets that change while the service runs: read from a file or a URL, in the background."""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import structlog

from toolbelay.authority.keys import (
    MAX_JWKS_BYTES,
    JwksError,
    KeySet,
    KeysUnavailableError,
    VerificationKey,
    parse_jwks,
)

URL_REFRESH_SECONDS = 300.0
URL_PAUSE_SECONDS = 10.0  # at most one fetch in this time, whatever the tokens say
FILE_REFRESH_SECONDS = 1.0
FETCH_SECONDS = 5.0
LAST_GOOD_SECONDS = 24 * 3600.0

_log = structlog.get_logger(__name__)

Fetch = Callable[[], Awaitable[bytes]]


class RefreshedKeys:
    """A key set kept current by single-flight background reads.

    Calls with known keys never wait. A call whose key is unknown, or that comes before the first good
    read, waits for one read (bounded by `fetch_seconds`), unless one was started within `pause_seconds`.
    The last good keys serve for `last_good_seconds` after the last good read.
    """

    def __init__(
        self,
        fetch: Fetch,
        allowed: frozenset[str],
        *,
        refresh_seconds: float,
        pause_seconds: float,
        fetch_seconds: float = FETCH_SECONDS,
        last_good_seconds: float = LAST_GOOD_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._fetch = fetch
        self._allowed = allowed
        self._refresh_seconds = refresh_seconds
        self._pause_seconds = pause_seconds
        self._fetch_seconds = fetch_seconds
        self._last_good_seconds = last_good_seconds
        self._clock = clock
        self._keys = KeySet()
        self._digest = b""
        self._version = 0
        self._good_at = float("-inf")
        self._tried_at = float("-inf")
        self._task: asyncio.Task[None] | None = None
        self.fetches = 0
        self.failures = 0
        self.last_failure: str | None = None

    async def start(self) -> None:
        """Read once; a failure is counted and logged, and later calls try again."""
        await self._finished(self._begin())

    async def close(self) -> None:
        """Stop a running read."""
        task, self._task = self._task, None
        if task is not None and not task.done():
            task.cancel()
            await asyncio.wait({task})

    def version(self) -> int | None:
        """Tell the key set's number; `None` when no keys may serve. Starts a due read, never waits."""
        now = self._clock()
        if now - self._good_at >= self._refresh_seconds and self._may_try(now):
            self._begin()
        return self._version if now - self._good_at < self._last_good_seconds else None

    async def candidates(self, kid: str | None, algorithm: str) -> tuple[VerificationKey, ...]:
        """Keys for this header; an unknown `kid` may cost one read, shared by all who wait for it."""
        usable = self.version() is not None
        found = self._keys.candidates(kid, algorithm) if usable else ()
        if found:
            return found
        task = self._running()
        if task is None and self._may_try(self._clock()):
            task = self._begin()
        if task is not None:
            await self._finished(task)
        if self.version() is None:
            raise KeysUnavailableError
        return self._keys.candidates(kid, algorithm)

    def _may_try(self, now: float) -> bool:
        return self._running() is None and now - self._tried_at >= self._pause_seconds

    def _running(self) -> asyncio.Task[None] | None:
        return self._task if self._task is not None and not self._task.done() else None

    def _begin(self) -> asyncio.Task[None]:
        running = self._running()
        if running is not None:
            return running
        self._tried_at = self._clock()
        self._task = asyncio.get_running_loop().create_task(self._refresh())
        return self._task

    async def _finished(self, task: asyncio.Task[None]) -> None:
        # wait() leaves the shared read running when one of its waiters is cancelled.
        await asyncio.wait({task}, timeout=self._fetch_seconds + 1.0)

    async def _refresh(self) -> None:
        self.fetches += 1
        try:
            async with asyncio.timeout(self._fetch_seconds):
                await self._take(await self._fetch())
        except (JwksError, OSError, httpx.HTTPError, TimeoutError) as error:
            self.failures += 1
            self.last_failure = str(error) if isinstance(error, JwksError) else type(error).__name__
            _log.warning("jwks_refresh_failed", cause=self.last_failure)
            return
        self._good_at = self._clock()
        self.last_failure = None

    async def _take(self, document: bytes) -> None:
        digest = hashlib.sha256(document).digest()
        if digest == self._digest:
            return
        keys = await asyncio.to_thread(parse_jwks, document, self._allowed)
        self._keys, self._digest = keys, digest
        self._version += 1


class _File:
    """Reads a small local file off the loop. Whether it changed is told by its digest, not by its times."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def __call__(self) -> bytes:
        return await asyncio.to_thread(self._read)

    def _read(self) -> bytes:
        with self._path.open("rb") as file:
            return file.read(MAX_JWKS_BYTES + 1)


class _Url:
    """Fetches a URL: no redirects, bounded size; the time is bounded by the caller."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._trust_env = not is_loopback(url)  # a proxy never stands before the own machine
        self._client: httpx.AsyncClient | None = None

    async def __call__(self) -> bytes:
        if self._client is None:
            # Building the TLS context reads the trust store: tens of milliseconds, so not on the loop.
            context = await asyncio.to_thread(httpx.create_ssl_context)
            self._client = httpx.AsyncClient(
                verify=context, follow_redirects=False, trust_env=self._trust_env, timeout=FETCH_SECONDS
            )
        headers = {"accept": "application/jwk-set+json, application/json"}
        async with self._client.stream("GET", self._url, headers=headers) as response:
            if response.status_code != httpx.codes.OK:
                raise JwksError(f"the key set's address answered with status {response.status_code}")
            return await _bounded(response)

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()
            self._client = None


async def _bounded(response: httpx.Response) -> bytes:
    parts = bytearray()
    async for part in response.aiter_bytes(16_384):
        parts += part
        if len(parts) > MAX_JWKS_BYTES:
            raise JwksError(f"the key set is larger than {MAX_JWKS_BYTES} bytes")
    return bytes(parts)


class JwksFile(RefreshedKeys):
    """A JWKS file, read again every second at most while calls come in."""

    def __init__(self, path: Path, allowed: frozenset[str], *, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(
            _File(path),
            allowed,
            refresh_seconds=FILE_REFRESH_SECONDS,
            pause_seconds=FILE_REFRESH_SECONDS,
            clock=clock,
        )

    async def start(self) -> None:
        """Read the file; raises JwksError when it cannot be used, since waiting would not cure that."""
        await super().start()
        if self.last_failure is not None:
            raise JwksError(f"the key set file cannot be used: {self.last_failure}")


class JwksUrl(RefreshedKeys):
    """A JWKS URL, fetched every 300 s and on an unknown `kid`, at most once in 10 s."""

    def __init__(
        self,
        url: str,
        allowed: frozenset[str],
        *,
        allow_http: bool = False,
        refresh_seconds: float = URL_REFRESH_SECONDS,
        pause_seconds: float = URL_PAUSE_SECONDS,
        fetch_seconds: float = FETCH_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take an https URL, or http on a loopback address or where `allow_http`; else ValueError."""
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ValueError("the key set's URL must be http(s)://host/…")
        if parts.scheme == "http" and not (allow_http or is_loopback(url)):
            raise ValueError("the key set's URL must be https: who changes the keys on the way is anybody")
        self._url_fetch = _Url(url)
        super().__init__(
            self._url_fetch,
            allowed,
            refresh_seconds=refresh_seconds,
            pause_seconds=pause_seconds,
            fetch_seconds=fetch_seconds,
            clock=clock,
        )

    async def close(self) -> None:
        """Stop a running fetch and close the connection."""
        await super().close()
        await self._url_fetch.close()


def is_loopback(url: str) -> bool:
    """Whether a URL's host is this machine."""
    host = urlsplit(url).hostname or ""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
