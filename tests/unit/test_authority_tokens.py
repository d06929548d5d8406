"""From an authorization value to a principal: what is taken, and everything that is refused."""

from __future__ import annotations

import json
from typing import Any

import jwt
import pytest
from jwt.utils import base64url_encode

from tests.support.tokens import AUDIENCE, ISSUER, MISSING, NOW, SECRET, claims, refusal, sign, verifier
from toolbelay.authority.principal import Principal
from toolbelay.errors import ErrorReason


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
