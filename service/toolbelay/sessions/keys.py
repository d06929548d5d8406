"""Names in Redis. Nothing of a principal or a session id can be read from them, or be made to collide.

A principal's keys share the hash tag `{P}`, made here and never from a client's text, so that they stand in one slot
of a Cluster. The generation key depends on no secret: every replica, old or new secret, reads the same one.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from functools import lru_cache

from msgspec import Struct

from toolbelay.memo import LruTally
from toolbelay.sessions.port import SessionRef

MIN_SECRET_BYTES = 32
REMEMBERED_KEYS = 8_192  # sessions whose keys are not derived again; 0.5 KB each
_KEPT_BYTES = 18  # 144 bits, 24 characters without padding
_SLOTS = 16384
PROBE_KEY = b"tb:probe"


class SessionKeys(Struct, frozen=True, gc=False):
    """Where one session lives: its own key, its principal's index, and its name within that index."""

    session: bytes
    index: bytes
    member: bytes


class KeyMaker:
    """Derives storage keys from STATE_SECRET: HMAC-SHA256 over length-prefixed parts, cut to 144 bits.

    Raises ValueError for a secret under 32 bytes.
    """

    def __init__(self, secret: bytes) -> None:
        if len(secret) < MIN_SECRET_BYTES:
            raise ValueError(f"the state secret needs at least {MIN_SECRET_BYTES} bytes")
        self._keyed = hmac.new(secret, digestmod="sha256")
        self._session = lru_cache(maxsize=REMEMBERED_KEYS)(self._derived)
        self.cache = LruTally(self._session)  # for metrics

    def session(self, ref: SessionRef) -> SessionKeys:
        return self._session(ref)

    def _derived(self, ref: SessionRef) -> SessionKeys:
        who = _framed(ref.tenant, ref.issuer, ref.subject)
        tag = self._derive("principal", who)
        member = self._derive("session", who + _framed(ref.route, ref.session_id))
        return SessionKeys(b"tb:{%b}:s:%b" % (tag, member), b"tb:{%b}:idx" % tag, member)

    def index(self, tenant: str, issuer: str, subject: str) -> bytes:
        return b"tb:{%b}:idx" % self._derive("principal", _framed(tenant, issuer, subject))

    def _derive(self, purpose: str, framed: str) -> bytes:
        keyed = self._keyed.copy()  # the keyed state is made once: half the time of a fresh HMAC
        keyed.update(f"{purpose}/{framed}".encode())
        return base64.urlsafe_b64encode(keyed.digest()[:_KEPT_BYTES])


def _framed(*parts: str) -> str:
    """Parts with their lengths before them: no two lists of parts give the same text."""
    return "".join([f"{len(part)}:{part}" for part in parts])


@lru_cache(maxsize=4096)
def generation_key(tenant: str) -> bytes:
    return b"tb:gen:%b" % hashlib.sha256(tenant.encode()).hexdigest()[:32].encode()


def slot_of(key: bytes) -> int:
    """The Cluster slot of a key: CRC-16 (XMODEM) of its hash tag, or of all of it."""
    start = key.find(b"{")
    if start >= 0:
        end = key.find(b"}", start + 1)
        if end > start + 1:
            key = key[start + 1 : end]
    return binascii.crc_hqx(key, 0) % _SLOTS  # CRC-HQX from 0 is the XMODEM variant
