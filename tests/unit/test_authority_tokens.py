"""From an authorization value to a principal: what is taken, and everything that is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.utils import base64url_encode

from toolbelay.authority.minting import SigningKey, mint
from toolbelay.authority.principal import Principal
from toolbelay.authority.tokens import TokenConfig, TokenVerifier
from toolbelay.errors import ErrorReason, ToolbelayError

ISSUER = "https://idp.example/auth"
AUDIENCE = "toolbelay"
SECRET = b"s" * 32
NOW = 1_800_000_000.0
MISSING = object()


def config(**changes: Any) -> TokenConfig:
    given: dict[str, Any] = {"issuer": ISSUER, "audiences": (AUDIENCE,), "hs256_secret": SECRET}
    return TokenConfig(**{**given, **changes})


def verifier(now: float = NOW, **changes: Any) -> TokenVerifier:
    return TokenVerifier(config(**changes), now=lambda: now)


def claims(**changes: Any) -> dict[str, Any]:
    base = {"iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "exp": NOW + 60, "tenant": "acme"}
    return {name: value for name, value in {**base, **changes}.items() if value is not MISSING}


def sign(payload: object, header: dict[str, Any] | None = None, secret: bytes = SECRET) -> str:
    """Sign anything at all, past PyJWT's own checks of claims."""
    return jwt.api_jws.encode(json.dumps(payload).encode(), secret, algorithm="HS256", headers=header)


async def refusal(check: TokenVerifier, *values: str | bytes) -> ToolbelayError:
    with pytest.raises(ToolbelayError) as caught:
        await check.verify(values)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__
    return caught.value


async def test_a_good_token_makes_a_principal() -> None:
    token = sign(claims(roles=["support", "eu"], scope="read write", toolbelay_session="s-1"))
    principal = await verifier().verify([f"Bearer {token}"])
    assert principal == Principal(
        tenant="acme",
        issuer=ISSUER,
        subject="alice",
        roles=frozenset({"support", "eu"}),
        scopes=frozenset({"read", "write"}),
        session_claim="s-1",
        expires_at=NOW + 60,
    )


@pytest.mark.parametrize("form", ["Bearer {}", "bearer {}", "BEARER   {}", "Bearer  {} "])
async def test_the_scheme_is_case_insensitive(form: str) -> None:
    value = form.format(sign(claims()))
    assert (await verifier().verify([value])).subject == "alice"
    assert (await verifier().verify([value.encode()])).subject == "alice"


@pytest.mark.parametrize("values", [[], [""], ["   "], [b""]])
async def test_no_value_is_a_missing_token(values: list[str | bytes]) -> None:
    error = await refusal(verifier(), *values)
    assert error.reason is ErrorReason.TOKEN_MISSING


async def test_more_than_one_value_is_refused_in_any_order() -> None:
    good, bad = f"Bearer {sign(claims())}", f"Bearer {sign(claims(sub='mallory'), secret=b'x' * 32)}"
    for values in ((good, bad), (bad, good), (good, good)):
        assert (await refusal(verifier(), *values)).reason is ErrorReason.TOKEN_INVALID


@pytest.mark.parametrize(
    "value",
    [
        "{}",
        "Basic {}",
        "Bearer{}",
        "Bearer\t{}",
        "Bearer {}, Bearer {}",
        "Bearer {}\n",
        "Bearer {}\u00e9",
        "Bearer a.b",
        "Bearer a.b.c",
        "Bearer",
        "Bearer ",
        "Bearer ..",
        "Bearer {}.x.y",
        b"Bearer \xff\xfe",
        "Bearer \ud800",
    ],
)
async def test_other_shapes_are_invalid(value: str | bytes) -> None:
    if isinstance(value, str):
        value = value.replace("{}", sign(claims()))
    assert (await refusal(verifier(), value)).reason is ErrorReason.TOKEN_INVALID


async def test_size_is_bounded_at_32_kib() -> None:
    padded = sign(claims(note="x" * 20_000))
    assert len(padded) > 17_000
    assert (await verifier().verify([f"Bearer {padded}"])).subject == "alice"
    error = await refusal(verifier(), f"Bearer {sign(claims(note='x' * 40_000))}")
    assert error.reason is ErrorReason.TOKEN_INVALID
    assert "32768" in error.message


@pytest.mark.parametrize(
    "issuer",
    [
        "http",
        "https://idp.example/aut",
        "https://idp.example/auth/",
        "HTTPS://idp.example/auth",
        [ISSUER],
        None,
        7,
        "",
        MISSING,
    ],
)
async def test_the_issuer_matches_exactly(issuer: object) -> None:
    token = sign(claims(iss=issuer))
    assert (await refusal(verifier(), f"Bearer {token}")).reason is ErrorReason.TOKEN_INVALID


@pytest.mark.parametrize("audience", ["other", "toolbela", ["other"], [], 7, None, MISSING, [AUDIENCE, 7], {}])
async def test_a_wrong_audience_is_refused(audience: object) -> None:
    token = sign(claims(aud=audience))
    assert (await refusal(verifier(), f"Bearer {token}")).reason is ErrorReason.TOKEN_INVALID


async def test_an_audience_list_with_one_match_is_taken() -> None:
    assert (await verifier().verify([f"Bearer {sign(claims(aud=['a', AUDIENCE]))}"])).subject == "alice"


@pytest.mark.parametrize(
    "subject", [42, "", " ", "\t\n", None, True, ["a"], "x" * 10_000, "a\0b", "\ud800", 4.2, {}, MISSING]
)
async def test_the_subject_is_a_bounded_string(subject: object) -> None:
    token = sign(claims(sub=subject))
    assert (await refusal(verifier(), f"Bearer {token}")).reason is ErrorReason.TOKEN_INVALID


async def test_subjects_are_kept_as_given() -> None:
    for subject in ("42", 'a"b', 'User::"alice"', "😀", " padded ", "x" * 1024):
        assert (await verifier().verify([f"Bearer {sign(claims(sub=subject))}"])).subject == subject


@pytest.mark.parametrize("name", ["exp", "nbf", "iat"])
@pytest.mark.parametrize("value", ["1900000000", True, None, [], 1e20, float("nan"), float("inf"), -1, 10**400])
async def test_times_are_finite_numbers(name: str, value: object) -> None:
    token = sign(claims(**{name: value}))
    assert (await refusal(verifier(), f"Bearer {token}")).reason is ErrorReason.TOKEN_INVALID


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"iat": NOW + 2}, None),
        ({"iat": NOW + 600}, ErrorReason.TOKEN_INVALID),
        ({"nbf": NOW + 2}, None),
        ({"nbf": NOW + 600}, ErrorReason.TOKEN_INVALID),
        ({"exp": NOW - 2}, None),
        ({"exp": NOW - 5}, ErrorReason.TOKEN_EXPIRED),
        ({"exp": NOW - 600}, ErrorReason.TOKEN_EXPIRED),
        ({"exp": NOW + 0.5}, None),
        ({"exp": MISSING}, ErrorReason.TOKEN_INVALID),
    ],
)
async def test_times_have_a_leeway_of_five_seconds(changes: dict[str, Any], reason: ErrorReason | None) -> None:
    value = f"Bearer {sign(claims(**changes))}"
    if reason is None:
        await verifier().verify([value])
    else:
        assert (await refusal(verifier(), value)).reason is reason


async def test_an_expired_forgery_is_invalid_not_expired() -> None:
    forged = sign(claims(exp=NOW - 600), secret=b"x" * 32)
    assert (await refusal(verifier(), f"Bearer {forged}")).reason is ErrorReason.TOKEN_INVALID


@pytest.mark.parametrize("tenant", [7, "", " ", None, ["acme"], "a\0", "\udfff", "x" * 257, MISSING])
async def test_the_tenant_is_a_string(tenant: object) -> None:
    token = sign(claims(tenant=tenant))
    assert (await refusal(verifier(), f"Bearer {token}")).reason is ErrorReason.TOKEN_INVALID


async def test_the_default_tenant_stands_in_for_a_missing_claim_only() -> None:
    check = verifier(default_tenant="solo")
    assert (await check.verify([f"Bearer {sign(claims(tenant=MISSING))}"])).tenant == "solo"
    assert (await check.verify([f"Bearer {sign(claims())}"])).tenant == "acme"
    await refusal(check, f"Bearer {sign(claims(tenant=None))}")


@pytest.mark.parametrize("name", ["roles", "scope"])
@pytest.mark.parametrize(
    "value", [7, None, {"a": 1}, ["a", 7], [""], ["a\0"], ["\ud800"], ["x" * 257], [f"r{i}" for i in range(257)], True]
)
async def test_roles_and_scopes_are_bounded_lists_of_strings(name: str, value: object) -> None:
    token = sign(claims(**{name: value}))
    assert (await refusal(verifier(), f"Bearer {token}")).reason is ErrorReason.TOKEN_INVALID


async def test_roles_and_scopes_are_counted_together() -> None:
    roles = [f"r{i}" for i in range(200)]
    within = sign(claims(roles=roles, scope=[f"s{i}" for i in range(56)]))
    assert len((await verifier().verify([f"Bearer {within}"])).roles) == 200
    await refusal(verifier(), f"Bearer {sign(claims(roles=roles, scope=[f's{i}' for i in range(57)]))}")


async def test_a_string_of_roles_is_split_at_spaces() -> None:
    principal = await verifier().verify([f"Bearer {sign(claims(roles='a  b ', scope=''))}"])
    assert principal.roles == {"a", "b"}
    assert principal.scopes == frozenset()


@pytest.mark.parametrize("session", [7, "", None, ["s"], "x" * 129, "a\0"])
async def test_the_session_claim_is_a_string(session: object) -> None:
    token = sign(claims(toolbelay_session=session))
    assert (await refusal(verifier(), f"Bearer {token}")).reason is ErrorReason.TOKEN_INVALID


@pytest.mark.parametrize("payload", [[], "text", 7, None, [[[]]], {}])
async def test_a_payload_that_is_no_claim_set_is_refused(payload: object) -> None:
    assert (await refusal(verifier(), f"Bearer {sign(payload)}")).reason is ErrorReason.TOKEN_INVALID


@pytest.mark.parametrize("part", [0, 1])
@pytest.mark.parametrize("text", ["[" * 9000, "{" * 100, "1" * 5000, "\ud83d", "{}", "null", '{"alg":["HS256"]}'])
async def test_hostile_json_in_a_token_is_invalid(part: int, text: str) -> None:
    parts = sign(claims()).split(".")
    parts[part] = base64url_encode(text.encode("utf-8", "surrogatepass")).decode()
    if part == 1:  # signed, so that the claims are reached
        parts = jwt.api_jws.encode(text.encode("utf-8", "surrogatepass"), SECRET, algorithm="HS256").split(".")
    error = await refusal(verifier(), "Bearer " + ".".join(parts))
    assert error.reason is ErrorReason.TOKEN_INVALID


@pytest.mark.parametrize("name", ["jwk", "jku", "x5u", "x5c", "crit", "b64", "zip"])
async def test_headers_that_bring_or_demand_something_are_refused(name: str) -> None:
    token = jwt.api_jws.encode(json.dumps(claims()).encode(), SECRET, algorithm="HS256")
    header = {"alg": "HS256", "typ": "JWT", name: ["x"] if name in {"crit", "x5c"} else "x"}
    head = base64url_encode(json.dumps(header).encode())
    body = token.split(".")[1].encode()
    signature = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256).sign(head + b"." + body, SECRET)
    signed = b".".join([head, body, base64url_encode(signature)]).decode()
    assert (await refusal(verifier(), f"Bearer {signed}")).reason is ErrorReason.TOKEN_INVALID


@pytest.mark.parametrize("algorithm", ["none", "nOnE", "NONE", "", "HS512", "RS256", None, 7])
async def test_other_algorithms_are_refused(algorithm: object) -> None:
    head = base64url_encode(json.dumps({"alg": algorithm, "typ": "JWT"}).encode()).decode()
    _, body, signature = sign(claims()).split(".")
    for last in (signature, "AA"):
        await refusal(verifier(), f"Bearer {head}.{body}.{last}")
    assert (await refusal(verifier(), f"Bearer {head}.{body}.")).reason is ErrorReason.TOKEN_INVALID


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
