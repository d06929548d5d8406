"""Which key verifies which token, what is remembered of it, and tokens for development."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.utils import base64url_encode

from tests.support.tokens import AUDIENCE, ISSUER, NOW, SECRET, claims, config, refusal, sign, verifier
from toolbelay.authority.minting import SigningKey, mint
from toolbelay.authority.principal import Principal
from toolbelay.authority.tokens import TokenVerifier
from toolbelay.errors import ErrorReason


def jwk_of(key: Any, kid: str | None, **more: Any) -> dict[str, Any]:
    algorithm: Any = {
        rsa.RSAPrivateKey: jwt.algorithms.RSAAlgorithm,
        ec.EllipticCurvePrivateKey: jwt.algorithms.ECAlgorithm,
        ed25519.Ed25519PrivateKey: jwt.algorithms.OKPAlgorithm,
    }[
        next(
            kind
            for kind in (rsa.RSAPrivateKey, ec.EllipticCurvePrivateKey, ed25519.Ed25519PrivateKey)
            if isinstance(key, kind)
        )
    ]
    public = algorithm.to_jwk(key.public_key(), as_dict=True)
    public.pop("key_ops", None)
    return {**public, **({} if kid is None else {"kid": kid}), **more}


RSA_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC_KEY = ec.generate_private_key(ec.SECP256R1())
ED_KEY = ed25519.Ed25519PrivateKey.generate()


def key_file(tmp_path: Path, *keys: dict[str, Any]) -> Path:
    path = tmp_path / "jwks.json"
    path.write_text(json.dumps({"keys": list(keys)}))
    return path


def from_file(path: Path, **changes: Any) -> TokenVerifier:
    return verifier(hs256_secret=None, jwks_file=path, **changes)


def signed(key: Any, algorithm: str, kid: str | None = None, **changes: Any) -> str:
    headers = None if kid is None else {"kid": kid}
    return "Bearer " + jwt.encode(claims(**changes), key, algorithm=algorithm, headers=headers)


@pytest.mark.parametrize(
    ("key", "algorithm"),
    [
        (RSA_KEY, "RS256"),
        (RSA_KEY, "RS512"),
        (RSA_KEY, "PS256"),
        (EC_KEY, "ES256"),
        (ec.generate_private_key(ec.SECP384R1()), "ES384"),
        (ec.generate_private_key(ec.SECP521R1()), "ES512"),
        (ED_KEY, "EdDSA"),
    ],
)
async def test_each_algorithm_verifies_with_its_key(tmp_path: Path, key: Any, algorithm: str) -> None:
    check = from_file(key_file(tmp_path, jwk_of(key, "k1")))
    await check.start()
    assert (await check.verify([signed(key, algorithm, "k1")])).subject == "alice"
    await check.close()


async def test_the_algorithm_is_pinned_to_the_key(tmp_path: Path) -> None:
    keys = (jwk_of(RSA_KEY, "r", alg="RS256"), jwk_of(EC_KEY, "e"), jwk_of(ED_KEY, "o"))
    check = from_file(key_file(tmp_path, *keys))
    await check.verify([signed(RSA_KEY, "RS256", "r")])
    for value in (
        signed(RSA_KEY, "RS512", "r"),  # the key says RS256
        signed(RSA_KEY, "PS256", "r"),
        signed(EC_KEY, "ES256", "r"),  # another key's name
        signed(RSA_KEY, "RS256", "e"),
        signed(ED_KEY, "EdDSA", "e"),
        signed(RSA_KEY, "RS256", "unknown"),
        signed(rsa.generate_private_key(public_exponent=65537, key_size=2048), "RS256", "r"),
    ):
        assert (await refusal(check, value)).reason is ErrorReason.TOKEN_INVALID
    await check.close()


@pytest.mark.parametrize("encoding", [Encoding.PEM, Encoding.DER])
@pytest.mark.parametrize("key", [RSA_KEY, ED_KEY])
async def test_a_public_key_is_never_an_hmac_secret(tmp_path: Path, key: Any, encoding: Encoding) -> None:
    check = from_file(key_file(tmp_path, jwk_of(key, "k")))
    public = key.public_key().public_bytes(encoding, PublicFormat.SubjectPublicKeyInfo)
    head = base64url_encode(json.dumps({"alg": "HS256", "kid": "k"}).encode())
    body = base64url_encode(json.dumps(claims()).encode())
    signature = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256).sign(head + b"." + body, public)
    value = b"Bearer " + b".".join([head, body, base64url_encode(signature)])
    assert (await refusal(check, value)).reason is ErrorReason.TOKEN_INVALID
    await check.close()


async def test_a_missing_kid_needs_exactly_one_fitting_key(tmp_path: Path) -> None:
    one = from_file(key_file(tmp_path, jwk_of(RSA_KEY, "r"), jwk_of(ED_KEY, "o")))
    assert (await one.verify([signed(ED_KEY, "EdDSA")])).subject == "alice"
    await one.close()
    other = ed25519.Ed25519PrivateKey.generate()
    two = from_file(key_file(tmp_path, jwk_of(ED_KEY, "o"), jwk_of(other, "p")))
    await refusal(two, signed(ED_KEY, "EdDSA"))
    assert (await two.verify([signed(other, "EdDSA", "p")])).subject == "alice"
    await two.close()


async def test_an_allow_list_narrows_what_keys_could_do(tmp_path: Path) -> None:
    check = from_file(key_file(tmp_path, jwk_of(RSA_KEY, "r"), jwk_of(ED_KEY, "o")), algorithms=("EdDSA",))
    await check.verify([signed(ED_KEY, "EdDSA", "o")])
    await refusal(check, signed(RSA_KEY, "RS256", "r"))
    await check.close()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"issuer": ""}, "issuer"),
        ({"audiences": ()}, "audience"),
        ({"audiences": ("",)}, "audience"),
        ({"hs256_secret": b"short"}, "32"),
        ({"hs256_secret": None}, "key source"),
        ({"jwks_url": "https://x/y"}, "key source"),
        ({"algorithms": ("RS256",)}, "RS256"),
        ({"algorithms": ("none",)}, "none"),
        ({"algorithms": ()}, "empty"),
        ({"hs256_secret": None, "jwks_url": "https://x/y", "algorithms": ("HS256",)}, "HS256"),
        ({"hs256_secret": None, "jwks_url": "http://idp.example/y"}, "https"),
        ({"hs256_secret": None, "jwks_url": "file:///etc/passwd"}, "http"),
        ({"default_tenant": " "}, "tenant"),
        ({"hs256_secret": RSA_KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)}, "asymm"),
    ],
)
def test_unsafe_settings_stop_the_start(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words) as caught:
        TokenVerifier(config(**changes))
    assert SECRET.decode() not in str(caught.value)


async def test_verified_tokens_are_remembered_until_they_expire() -> None:
    now = [NOW]
    check = TokenVerifier(config(), now=lambda: now[0])
    value = f"Bearer {sign(claims(exp=NOW + 10))}"
    first = await check.verify([value])
    assert await check.verify([value]) is first
    assert (check.cache.hits, check.cache.misses, len(check.cache)) == (1, 1, 1)
    now[0] = NOW + 14.9
    assert await check.verify([value]) is first
    now[0] = NOW + 15
    assert (await refusal(check, value)).reason is ErrorReason.TOKEN_EXPIRED
    assert len(check.cache) == 0


async def test_the_memory_is_bounded_and_holds_no_refusals() -> None:
    check = TokenVerifier(config(), now=lambda: NOW, remembered=4)
    for number in range(10):
        await check.verify([f"Bearer {sign(claims(sub=f'u{number}'))}"])
        await refusal(check, f"Bearer {sign(claims(sub=''))}")
    assert len(check.cache) == 4
    assert check.refused == {"sub": 10}


async def test_tokens_of_two_tenants_never_share() -> None:
    check = verifier()
    a, b = (f"Bearer {sign(claims(tenant=tenant))}" for tenant in ("a", "b"))
    for _ in range(3):
        assert [(await check.verify([value])).tenant for value in (a, b)] == ["a", "b"]


async def test_neither_messages_nor_reprs_hold_content() -> None:
    seen: list[str] = []
    check = TokenVerifier(config(), now=lambda: NOW, on_refused=seen.append)
    token = sign(claims(sub="", tenant="secret-tenant", roles=["secret-role"]))
    error = await refusal(check, f"Bearer {token}")
    assert seen == ["sub"]
    for text in (str(error), repr(error), repr(error.metadata), repr(check), repr(config())):
        assert "secret" not in text.replace("hs256_secret", "")
        assert token not in text
        assert SECRET.decode() not in text


@pytest.mark.parametrize("make", [lambda: SigningKey.from_secret(SECRET), SigningKey.generate])
async def test_minted_tokens_verify(tmp_path: Path, make: Any) -> None:
    key = make()
    path = tmp_path / "jwks.json"
    if key.algorithm == "EdDSA":
        path.write_bytes(key.jwks())
        key = SigningKey.from_pem(key.pem())
        check = from_file(path)
    else:
        check = verifier()
    token = mint(
        key,
        issuer=ISSUER,
        audience=AUDIENCE,
        subject="alice",
        tenant="acme",
        roles=["toolbelay.admin"],
        scopes=["a", "b"],
        session="s",
        ttl_seconds=60,
        now=NOW,
    )
    assert await check.verify([f"Bearer {token}"]) == Principal(
        "acme", ISSUER, "alice", frozenset({"toolbelay.admin"}), frozenset({"a", "b"}), "s", NOW + 60
    )
    assert SECRET.decode() not in repr(key)
    await check.close()


@pytest.mark.parametrize("change", [{"subject": " "}, {"ttl_seconds": 0}, {"ttl_seconds": 10**8}])
def test_minting_refuses_what_would_not_verify(change: dict[str, Any]) -> None:
    given: dict[str, Any] = {"issuer": ISSUER, "audience": AUDIENCE, "subject": "a"}
    with pytest.raises(ValueError, match=r"subject|life"):
        mint(SigningKey.generate(), **{**given, **change})


def test_a_signing_key_is_ed25519_or_a_long_secret() -> None:
    with pytest.raises(ValueError, match="32"):
        SigningKey.from_secret(b"short")
    with pytest.raises(ValueError, match="PEM"):
        SigningKey.from_pem(b"nonsense")
