"""Key sets that rotate, hang, break and lie, over real HTTP: calls with known keys never notice."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from tests.support.waiting import wait_until_async
from toolbelay.authority.key_refresh import JwksFile, JwksUrl
from toolbelay.authority.keys import ASYMMETRIC_ALGORITHMS, JwksError, parse_jwks
from toolbelay.authority.minting import SigningKey, mint
from toolbelay.authority.tokens import TokenConfig, TokenVerifier
from toolbelay.errors import ErrorReason, ToolbelayError

ISSUER = "https://idp.example/auth"
Answer = Callable[[asyncio.StreamWriter], Awaitable[None]]


def document(*keys: SigningKey) -> bytes:
    return json.dumps({"keys": [entry for key in keys for entry in json.loads(key.jwks())["keys"]]}).encode()


def bearer(key: SigningKey, subject: str = "alice") -> str:
    return "Bearer " + mint(key, issuer=ISSUER, audience="toolbelay", subject=subject, tenant="acme")


def reply(body: bytes, status: str = "200 OK", extra: str = "") -> Answer:
    async def answer(writer: asyncio.StreamWriter) -> None:
        head = f"HTTP/1.1 {status}\r\ncontent-length: {len(body)}\r\n{extra}connection: close\r\n\r\n"
        writer.write(head.encode() + body)
        await writer.drain()

    return answer


class Endpoint:
    """A real HTTP server whose answer the test sets."""

    def __init__(self) -> None:
        self.answer: Answer = reply(b"{}")
        self.requests = 0
        self.url = ""
        self.released = asyncio.Event()

    async def hang(self, writer: asyncio.StreamWriter) -> None:
        await self.released.wait()

    async def drip(self, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n")
        while not self.released.is_set():
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(0.01)

    async def flood(self, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n")
        while not self.released.is_set():
            writer.write(b" " * 65_536)
            await writer.drain()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            self.requests += 1
            await self.answer(writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


@pytest.fixture
async def endpoint() -> AsyncIterator[Endpoint]:
    made = Endpoint()
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    made.url = f"http://127.0.0.1:{port}/jwks"
    yield made
    made.released.set()
    server.close()
    await server.wait_closed()


class Clock:
    """Monotonic seconds that the test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Setup:
    """A verifier on a JWKS URL with a clock of its own."""

    def __init__(self, url: str, fetch_seconds: float = 5.0) -> None:
        self.clock = Clock()
        self.source = JwksUrl(url, ASYMMETRIC_ALGORITHMS, fetch_seconds=fetch_seconds, clock=self.clock)
        self.verifier = TokenVerifier(
            TokenConfig(issuer=ISSUER, audiences=("toolbelay",), jwks_url=url), source=self.source
        )

    async def accepts(self, key: SigningKey, subject: str = "alice") -> bool:
        try:
            await self.verifier.verify([bearer(key, subject)])
        except ToolbelayError as error:
            if error.reason is not ErrorReason.TOKEN_INVALID:
                raise
            return False
        return True

    async def refreshed(self) -> None:
        """Let the due read, which calls never wait for, come to its end."""
        await wait_until_async(lambda: self.source._running() is None, timeout=10)


pytestmark = pytest.mark.faults

OLD, NEW, STRANGER = (SigningKey.generate(kid) for kid in ("old", "new", "stranger"))


async def test_a_rotated_key_is_found_by_its_kid_and_a_removed_one_stops(endpoint: Endpoint) -> None:
    endpoint.answer = reply(document(OLD))
    setup = Setup(endpoint.url)
    await setup.verifier.start()
    value = bearer(OLD)
    await setup.verifier.verify([value])
    endpoint.answer = reply(document(NEW))
    setup.clock.now += 11
    assert await setup.accepts(NEW)
    with pytest.raises(ToolbelayError):  # remembered or not: its key is gone
        await setup.verifier.verify([value])
    assert endpoint.requests == 2
    await setup.verifier.close()


async def test_keys_are_fetched_again_after_300_seconds_without_waiting(endpoint: Endpoint) -> None:
    endpoint.answer = reply(document(OLD, NEW))
    setup = Setup(endpoint.url)
    await setup.verifier.start()
    setup.clock.now += 299
    assert await setup.accepts(OLD)
    assert endpoint.requests == 1
    endpoint.answer = reply(document(NEW))
    setup.clock.now += 2
    assert await setup.accepts(OLD)  # serves while the fetch runs
    await setup.refreshed()
    assert not await setup.accepts(OLD)
    assert await setup.accepts(NEW)
    assert endpoint.requests == 2
    await setup.verifier.close()


async def test_a_flood_of_unknown_kids_costs_one_fetch_in_ten_seconds(endpoint: Endpoint) -> None:
    endpoint.answer = reply(document(OLD))
    setup = Setup(endpoint.url)
    await setup.verifier.start()
    setup.clock.now += 11
    strangers = [SigningKey.generate(f"k{number}") for number in range(50)]
    assert not any(await asyncio.gather(*(setup.accepts(key) for key in strangers)))
    assert endpoint.requests == 2
    setup.clock.now += 9.9
    assert not any(await asyncio.gather(*(setup.accepts(key) for key in strangers)))
    assert endpoint.requests == 2
    setup.clock.now += 0.2
    assert not await setup.accepts(strangers[0])
    assert endpoint.requests == 3
    await setup.verifier.close()


@pytest.mark.parametrize(
    "fault", ["hang", "drip", "flood", "500", "redirect", "prose", "empty", "oct", "cut", "closed"]
)
async def test_a_broken_endpoint_leaves_the_known_keys_alone(endpoint: Endpoint, fault: str) -> None:
    secret = {"kty": "oct", "kid": "stranger", "k": "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0", "alg": "HS256"}
    faults: dict[str, Answer] = {
        "hang": endpoint.hang,
        "drip": endpoint.drip,
        "flood": endpoint.flood,
        "500": reply(document(STRANGER), "500 Oops"),
        "redirect": reply(document(STRANGER), "302 Found", f"location: {endpoint.url}\r\n"),
        "prose": reply(b"<html>down</html>"),
        "empty": reply(b'{"keys": []}'),
        "oct": reply(json.dumps({"keys": [secret]}).encode()),
        "cut": reply(document(STRANGER)[:40]),
        "closed": reply(b"", "junk"),
    }
    endpoint.answer = reply(document(OLD))
    setup = Setup(endpoint.url, fetch_seconds=0.5)
    await setup.verifier.start()
    endpoint.answer = faults[fault]
    setup.clock.now += 301
    waiting = asyncio.create_task(setup.accepts(STRANGER))
    await wait_until_async(lambda: endpoint.requests == 2 or waiting.done(), timeout=10)
    for number in range(20):  # while the fetch hangs and after it failed
        assert await setup.accepts(OLD, f"user{number}")
    assert not await waiting
    assert await setup.accepts(OLD, "after")
    assert setup.source.failures == 1
    await setup.verifier.close()


async def test_the_last_good_keys_serve_for_24_hours_at_most(endpoint: Endpoint) -> None:
    endpoint.answer = reply(document(OLD))
    setup = Setup(endpoint.url)
    await setup.verifier.start()
    value = bearer(OLD)
    await setup.verifier.verify([value])
    endpoint.answer = reply(b"", "503 Down")
    setup.clock.now += 24 * 3600 - 1
    await setup.verifier.verify([value])
    await setup.refreshed()
    setup.clock.now += 2
    assert not setup.verifier.ready
    with pytest.raises(ToolbelayError) as caught:
        await setup.verifier.verify([value])
    assert caught.value.reason is ErrorReason.AUTHORITY_UNVERIFIABLE
    endpoint.answer = reply(document(OLD))
    setup.clock.now += 11
    await setup.verifier.verify([value])  # recovers without a restart
    await setup.verifier.close()


async def test_a_start_without_an_endpoint_recovers(endpoint: Endpoint) -> None:
    endpoint.answer = reply(b"", "503 Down")
    setup = Setup(endpoint.url)
    await setup.verifier.start()
    assert not setup.verifier.ready
    with pytest.raises(ToolbelayError) as caught:
        await setup.verifier.verify([bearer(OLD)])
    assert caught.value.reason is ErrorReason.AUTHORITY_UNVERIFIABLE
    endpoint.answer = reply(document(OLD))
    setup.clock.now += 11
    assert await setup.accepts(OLD)
    await setup.verifier.close()


async def test_a_cancelled_waiter_leaves_the_shared_fetch_running(endpoint: Endpoint) -> None:
    endpoint.answer = endpoint.hang
    setup = Setup(endpoint.url)
    first = asyncio.create_task(setup.accepts(OLD))
    await wait_until_async(lambda: endpoint.requests == 1, timeout=10)
    second = asyncio.create_task(setup.accepts(OLD))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait({first})
    assert setup.source._running() is not None
    assert setup.source.fetches == 1
    await setup.verifier.close()
    second.cancel()
    await asyncio.wait({first, second})


async def test_a_key_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "jwks.json"
    path.write_bytes(document(OLD))
    clock = Clock()
    source = JwksFile(path, ASYMMETRIC_ALGORITHMS, clock=clock)
    config = TokenConfig(issuer=ISSUER, audiences=("toolbelay",), jwks_file=path)
    verifier = TokenVerifier(config, source=source)
    await verifier.start()
    value = bearer(OLD)
    await verifier.verify([value])
    path.write_bytes(b'{"keys": [')  # half-written: the last good keys serve
    clock.now += 2
    await verifier.verify([value])
    await wait_until_async(lambda: source.failures == 1, timeout=10)
    await verifier.verify([value])
    path.write_bytes(document(NEW))
    clock.now += 2
    await verifier.verify([bearer(NEW)])
    with pytest.raises(ToolbelayError):
        await verifier.verify([value])
    await verifier.close()


@pytest.mark.parametrize("content", [None, b"", b"[]", b'{"keys": {}}', b'{"keys": [{"kty": "oct", "k": "AAAA"}]}'])
async def test_an_unusable_key_file_stops_the_start(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "jwks.json"
    if content is not None:
        path.write_bytes(content)
    config = TokenConfig(issuer=ISSUER, audiences=("toolbelay",), jwks_file=path)
    with pytest.raises(JwksError, match="key set file"):
        await TokenVerifier(config).start()


def test_keys_that_cannot_verify_are_left_out() -> None:
    good = json.loads(OLD.jwks())["keys"][0]
    bad: list[object] = [
        {**good, "use": "enc"},
        {**good, "key_ops": ["sign"]},
        {**good, "alg": "RS256"},
        {**good, "alg": 7},
        {**good, "kid": 7},
        {**good, "kid": "k" * 257},
        {**good, "crv": "X25519"},
        {**good, "crv": "P-256"},
        {**good, "x": "AA"},
        {**good, "x": None},
        {"kty": "RSA", "n": "AQAB" * 40, "e": "AQAB", "kid": "weak"},
        {"kty": "oct", "k": "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0"},
        {"kty": ["RSA"]},
        7,
        None,
    ]
    for entry in bad:
        with pytest.raises(JwksError):
            parse_jwks(json.dumps({"keys": [entry]}).encode(), ASYMMETRIC_ALGORITHMS)
    keys = parse_jwks(json.dumps({"keys": [*bad, good]}).encode(), ASYMMETRIC_ALGORITHMS)
    assert [key.kid for key in keys.keys] == ["old"]


def test_the_size_of_a_key_set_is_bounded() -> None:
    entry = json.loads(OLD.jwks())["keys"][0]
    with pytest.raises(JwksError, match="64"):
        parse_jwks(json.dumps({"keys": [entry] * 65}).encode(), ASYMMETRIC_ALGORITHMS)
    with pytest.raises(JwksError, match="larger"):
        parse_jwks(b" " * 300_000, ASYMMETRIC_ALGORITHMS)
    with pytest.raises(JwksError, match="JSON"):
        parse_jwks(b"[" * 200_000, ASYMMETRIC_ALGORITHMS)
