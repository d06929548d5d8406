"""Ways to a server other than plain TCP: a socket, TLS, another database."""

from __future__ import annotations

import asyncio
import datetime as dt
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.contract.session_store_tools import TIMEOUT, Place, Session, Stores
from tests.support.servers import RedisServer
from toolbelay.sessions.port import Found, StateUnavailableError


@pytest.fixture
async def stores(redis_server: RedisServer) -> AsyncIterator[Stores]:
    stores = Stores(Place(redis_server.url, [redis_server]))
    yield stores
    await stores.close()


async def test_a_unix_socket(fresh_redis_server: Callable[..., RedisServer], tmp_path: Path, stores: Stores) -> None:
    path = tmp_path / "s"
    fresh_redis_server("--unixsocket", str(path))
    session = Session(stores.make(f"unix://{path}"))
    await session.begin()
    assert (await session.open()).found is Found.PRESENT


async def test_another_database(redis_server: RedisServer, stores: Stores) -> None:
    await Session(stores.make(f"redis://127.0.0.1:{redis_server.port}/3")).begin()
    assert redis_server.command("DBSIZE") == 0
    keyspace = redis_server.command("INFO", "keyspace")
    assert isinstance(keyspace, dict)
    assert keyspace["db3"]["keys"] == 2
    assert (await Session(stores.make()).peek()).found is Found.ABSENT


async def test_tls_with_a_known_and_an_unknown_authority(
    redis_server: RedisServer, stores: Stores, tmp_path: Path
) -> None:
    certificate, key = _self_signed(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    async with await _tls_front(redis_server.port, context) as front:
        port = front.sockets[0].getsockname()[1]
        session = Session(stores.make(f"rediss://localhost:{port}/0?ssl_ca_certs={certificate}"))
        await session.begin()
        assert (await session.open()).found is Found.PRESENT
        distrusting = Session(stores.make(f"rediss://localhost:{port}/0"))
        with pytest.raises(StateUnavailableError, match="connection"):
            await distrusting.store.ping(timeout=TIMEOUT)
        await stores.close()


async def _tls_front(target: int, context: ssl.SSLContext) -> asyncio.Server:
    """Ends TLS before a server whose build has none."""

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(65536):
            writer.write(chunk)
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", target)
        await asyncio.gather(pump(reader, inner_writer), pump(inner_reader, writer), return_exceptions=True)

    return await asyncio.start_server(serve, "localhost", 0, ssl=context)


def _self_signed(directory: Path) -> tuple[Path, Path]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    paths = directory / "certificate.pem", directory / "key.pem"
    paths[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    paths[1].write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return paths
