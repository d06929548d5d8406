"""Development tokens: signed with the development key, or with the shared secret of the settings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from toolbelay.authority.claims import ClaimNames
from toolbelay.authority.minting import SigningKey, mint
from toolbelay.cli import dev_state
from toolbelay.cli.exits import REFUSED, CommandError
from toolbelay.settings import Settings
from toolbelay.settings_check import require_minting

DEFAULT_TENANT = "default"


def tenant_of(settings: Settings, given: str | None) -> str:
    """The tenant that a command is about."""
    return given or settings.default_tenant or DEFAULT_TENANT


def mint_token(
    settings: Settings,
    *,
    subject: str,
    tenant: str | None,
    roles: Sequence[str] = (),
    scopes: Sequence[str] = (),
    session: str | None = None,
    ttl_seconds: int = 3600,
    key_file: str | None = None,
) -> str:
    """A token that the service of `settings` accepts. Raises CommandError or InvalidSettingsError."""
    claims = ClaimNames(
        tenant=settings.claim_tenant,
        roles=settings.claim_roles,
        scopes=settings.claim_scopes,
        session=settings.claim_session,
    )
    try:
        return mint(
            _key(settings, key_file),
            issuer=settings.jwt_issuer,
            audience=settings.jwt_audience[0] if settings.jwt_audience else "",
            subject=subject,
            tenant=tenant_of(settings, tenant),
            roles=roles,
            scopes=scopes,
            session=session,
            ttl_seconds=ttl_seconds,
            claims=claims,
        )
    except ValueError as error:
        raise CommandError(str(error), code=REFUSED) from None


def _key(settings: Settings, key_file: str | None) -> SigningKey:
    if key_file is None and settings.jwt_hs256_secret is None and dev_state.using_dev_state():
        state = dev_state.find()
        assert state is not None
        key_file = str(state.signing_key)
    if key_file is not None:
        return SigningKey.from_pem(Path(key_file).read_bytes())
    require_minting(settings)
    assert settings.jwt_hs256_secret is not None
    return SigningKey.from_secret(settings.jwt_hs256_secret.get_secret_value().encode())
