"""Wires the use cases to their adapters. The only module that knows them all."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import structlog
from pydantic import SecretStr

from toolbelay.application.apply_config import ApplyConfig
from toolbelay.application.apply_tenant import EndTenantSessions
from toolbelay.application.authorize import AuthorizeToolCalls
from toolbelay.application.explain import ActionDecision, ExplainDecision
from toolbelay.application.indexes import TenantIndexes
from toolbelay.application.ports import Ports
from toolbelay.application.quiet import TURNS
from toolbelay.application.scene import FACTS, ITEMS
from toolbelay.application.select import SelectTools
from toolbelay.application.sessions import Sessions
from toolbelay.authority.claims import ClaimNames
from toolbelay.authority.compiled import CompiledPolicies, PolicyContext
from toolbelay.authority.eligibility import Eligibility, EligibilityView
from toolbelay.authority.principal import Principal
from toolbelay.authority.tokens import TokenConfig, TokenVerifier
from toolbelay.catalog.estimate import ByteEstimator, Estimator, TokenizerEstimator
from toolbelay.catalog.formats import QUIRKS
from toolbelay.catalog.freshness import Freshness
from toolbelay.catalog.model import Tool
from toolbelay.catalog.offered import READINGS
from toolbelay.catalog.snapshot import TenantSnapshot, build_snapshot
from toolbelay.catalog.surface import RENDERINGS, Digester
from toolbelay.memo import Cache
from toolbelay.ranking.found_rows import FOUND_ROWS
from toolbelay.ranking.query import TEXTS, TOKENS
from toolbelay.ranking.stored_rows import STORED_ROWS
from toolbelay.ranking.vector_table import VECTORS
from toolbelay.ranking.wiring import IndexMaker
from toolbelay.ranking.word_vectors import WORDS
from toolbelay.sessions.connect import open_link
from toolbelay.sessions.store import RedisSessionStore
from toolbelay.settings import Settings
from toolbelay.storage.engine import Database
from toolbelay.storage.reader import SqlCatalogReader
from toolbelay.storage.writer import SqlConfigWriter
from toolbelay.telemetry.metrics import Metrics
from toolbelay.telemetry.store import StoreTelemetry
from toolbelay.telemetry.turns import TurnTelemetry

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Runtime:
    """The use cases of one worker, and what must be closed."""

    verifier: TokenVerifier
    select: SelectTools
    authorize: AuthorizeToolCalls
    sessions: Sessions
    apply: ApplyConfig
    explain: ExplainDecision
    ports: Ports
    issuer: str
    _database: Database
    _indexes: TenantIndexes
    _metrics: Metrics
    _index_maker: IndexMaker

    @property
    def servicers(self) -> Mapping[str, object]:
        """Servicer by full service name."""
        from toolbelay.api.admin import AdminServicer
        from toolbelay.api.methods import ADMIN_SERVICE, SELECTION_SERVICE
        from toolbelay.api.selection import SelectionServicer

        selection = SelectionServicer(self.select, self.authorize, self.sessions)
        self._metrics.watch_cache("encoded_items", selection.encoder)
        return {
            SELECTION_SERVICE: selection,
            ADMIN_SERVICE: AdminServicer(self),
        }

    def ready(self) -> bool:
        """Whether schema, catalog, policy and keys are loaded."""
        return self.ports.freshness.ready and self.verifier.ready

    def settled(self) -> bool:
        """Whether each tenant's first index is there, too."""
        return self.ready() and self._indexes.ready

    async def close(self) -> None:
        """Release connections and tasks."""
        await self.ports.freshness.stop()
        await self._indexes.close()
        await self._index_maker.aclose()
        await self.verifier.close()
        await self.ports.store.close()
        await self._database.close()


async def build(settings: Settings, metrics: Metrics) -> Runtime:
    """Open everything and load every tenant. Raises StorageUnavailableError, JwksError, ValueError."""
    secret = _secret(settings.state_secret)
    verifier = TokenVerifier(token_config(settings))
    database = Database(settings.database_url.get_secret_value(), pool_size=settings.database_pool_size)
    store = open_store(settings, metrics)
    eligibility = Eligibility()
    maker = _index_maker(settings)
    indexes = TenantIndexes(maker)
    digest = Digester(_derived(secret, b"item-digests"))
    freshness: Freshness[CompiledPolicies] = Freshness(
        SqlCatalogReader(database),
        store,
        partial(_build_snapshot, digest, _estimator(settings)),
        events=_FreshnessMetrics(metrics),
        on_snapshot=indexes.take,
        poll_seconds=settings.authority_poll_seconds,
        max_unverified_seconds=settings.authority_max_unverified_seconds,
    )
    ports = Ports(
        freshness=freshness,
        store=store,
        decisions=_Decisions(eligibility),
        indexes=indexes,
        events=TurnTelemetry(metrics),
        digest=digest,
        turn_secret=_derived(secret, b"turn-keys"),
    )
    writer = SqlConfigWriter(database)
    runtime = Runtime(
        verifier=verifier,
        select=SelectTools(ports),
        authorize=AuthorizeToolCalls(ports),
        sessions=Sessions(ports, EndTenantSessions(writer, store)),
        apply=ApplyConfig(writer, store),
        explain=ExplainDecision(ports, explain, writer),
        ports=ports,
        issuer=settings.jwt_issuer,
        _database=database,
        _indexes=indexes,
        _metrics=metrics,
        _index_maker=maker,
    )
    try:
        await verifier.start()
        await freshness.start()
    except BaseException:
        await runtime.close()
        raise
    caches: dict[str, Cache] = {
        "tokens": verifier.cache,
        "eligibility": eligibility,
        "facts": FACTS,
        "quiet_turns": TURNS,
        "items": ITEMS,
        "renderings": RENDERINGS,
        "offered_items": READINGS,
        "provider_quirks": QUIRKS,
        "vectors": VECTORS,
        "words": WORDS,
        "query_texts": TEXTS,
        "query_tokens": TOKENS,
        "stored_rows": STORED_ROWS,
        "found_rows": FOUND_ROWS,
        **store.caches,
    }
    for name, cache in caches.items():
        metrics.watch_cache(name, cache)
    return runtime


def open_store(settings: Settings, metrics: Metrics) -> RedisSessionStore:
    """The session store of the settings; connects on first use."""
    observer = StoreTelemetry(metrics)
    previous = settings.state_secret_previous
    return RedisSessionStore(
        open_link(settings.redis_url.get_secret_value(), pool_size=settings.redis_pool_size, observer=observer),
        secret=_secret(settings.state_secret),
        previous=_secret(previous) if previous is not None else None,
        sessions_per_principal=settings.sessions_per_principal,
        observer=observer,
    )


def token_config(settings: Settings) -> TokenConfig:
    """What tokens must be, by the settings."""
    hs256 = settings.jwt_hs256_secret
    return TokenConfig(
        issuer=settings.jwt_issuer,
        audiences=settings.jwt_audience,
        algorithms=settings.jwt_algorithms or None,
        hs256_secret=_secret(hs256) if hs256 is not None else None,
        jwks_file=Path(settings.jwt_jwks_file) if settings.jwt_jwks_file else None,
        jwks_url=settings.jwt_jwks_url or None,
        claims=ClaimNames(
            tenant=settings.claim_tenant,
            roles=settings.claim_roles,
            scopes=settings.claim_scopes,
            session=settings.claim_session,
        ),
        default_tenant=settings.default_tenant or None,
    )


def explain(
    policies: CompiledPolicies,
    principal: Principal,
    action: Any,
    tool: Tool,
    *,
    route: str,
    model: str,
    mode: str,
) -> ActionDecision:
    """Decide one action and tell which policies decided."""
    decision = policies.decide(principal, action, tool, PolicyContext(route, model, mode))
    return ActionDecision(decision.allowed, decision.policies, decision.errors)


def _estimator(settings: Settings) -> Estimator:
    return TokenizerEstimator.from_file(Path(settings.tokenizer_file)) if settings.tokenizer_file else ByteEstimator()


def _index_maker(settings: Settings) -> IndexMaker:
    embeddings_key, rewrite_key = settings.embeddings_api_key, settings.rewrite_api_key
    return IndexMaker.of(
        embeddings_url=settings.embeddings_url,
        embeddings_model=settings.embeddings_model,
        embeddings_api_key=embeddings_key.get_secret_value() if embeddings_key is not None else "",
        rewrite_url=settings.rewrite_url,
        rewrite_model=settings.rewrite_model,
        rewrite_api_key=rewrite_key.get_secret_value() if rewrite_key is not None else "",
    )


def _build_snapshot(
    digest: Digester, estimator: Estimator, rows: Any, previous: TenantSnapshot[CompiledPolicies] | None
) -> TenantSnapshot[CompiledPolicies]:
    return build_snapshot(rows, previous, CompiledPolicies.compile, digest, estimator)


def _secret(value: SecretStr | None) -> bytes:
    if value is None:
        raise ValueError("STATE_SECRET is missing")
    return value.get_secret_value().encode()


def _derived(secret: bytes, purpose: bytes) -> bytes:
    """A key of its own for one purpose."""
    return hmac.digest(secret, b"toolbelay/" + purpose, "sha256")


class _Decisions:
    """Eligibility behind the use cases' port."""

    def __init__(self, eligibility: Eligibility) -> None:
        self._eligibility = eligibility

    def view(
        self, policies: CompiledPolicies, principal: Principal, route: str, model: str, mode: str
    ) -> EligibilityView:
        return self._eligibility.view(policies, principal, route, model, mode)


class _FreshnessMetrics:
    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def reloaded(self, tenant: str, generation: int, seconds: float) -> None:
        self._metrics.reloaded(ok=True, seconds=seconds)
        log.info("snapshot_loaded", tenant=tenant, generation=generation, seconds=round(seconds, 4))

    def load_refused(self, tenant: str, generation: int, cause: str, seconds: float) -> None:
        self._metrics.reloaded(ok=False, seconds=seconds)
        log.error("snapshot_refused", tenant=tenant, generation=generation, cause=cause)

    def polled(self, *, lag: int, unverified_seconds: float, tenants: int, closed: int) -> None:
        self._metrics.authority(lag=lag, unverified_seconds=unverified_seconds, tenants=tenants, closed=closed)

    def unverifiable(self, cause: str) -> None:
        self._metrics.unverifiable(cause)
        log.warning("authority_unverifiable", cause=cause)

    def poll_failed(self, cause: str) -> None:
        self._metrics.storage_failure()
        log.warning("authority_poll_failed", cause=cause)
