"""Counters and histograms. Every label value comes from a bounded set; none holds content or identity.

With several workers each process writes its numbers to files under PROMETHEUS_MULTIPROC_DIR (set before
the first import of this module) and the supervisor's one endpoint adds them up.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from toolbelay.memo import Cache

# Seconds; the service aims at single milliseconds, a route's deadline is at most 60 s.
_BUCKETS: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0)

REMOVED_KINDS: Final = frozenset({"unauthorized", "unavailable", "changed", "incapable", "evicted"})
REDIS_CAUSES: Final = frozenset(
    {
        "timeout", "connection", "readonly", "loading", "masterdown", "moved", "tryagain", "clusterdown", "oom",
        "busy", "noauth", "noperm", "noscript", "misconf", "noreplicas", "pool_exhausted", "too_large",
        "breaker_open", "other",
    }
)  # fmt: skip
UNVERIFIABLE_CAUSES: Final = frozenset({"sql_slow", "sql_unavailable", "sql_behind", "load_failed", "redis_ahead"})
EXT_PROC_OUTCOMES: Final = frozenset({"rewritten", "unchanged", "untouched", "denied", "outage", "failed"})
EXT_PROC_ANSWERS: Final = frozenset({"passed", "changed", "denied", "outage", "failed"})
UNTOUCHED_REASONS: Final = frozenset({"not_chat", "not_json", "too_large", "coding"})
_BODY_BUCKETS: Final = (4096, 32768, 262144, 1048576, 4194304, 8388608, 67108864)
STRATEGIES: Final = frozenset({"keyword", "embedding", "hybrid", "rewrite", "static", "caller", "none"})


class Metrics:
    """All metrics of one worker."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or CollectorRegistry()
        self._caches: dict[str, tuple[Cache, list[int]]] = {}
        self._define_calls()
        self._define_turns()
        self._define_parts()
        self._define_ext_proc()

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"toolbelay_{name}", text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str, mode: str = "livesum") -> Gauge:
        return Gauge(
            f"toolbelay_{name}",
            text,
            labels,
            registry=self.registry,
            multiprocess_mode=mode,  # type: ignore[arg-type]
        )

    def _define_calls(self) -> None:
        self._calls = self._counter("calls", "RPCs answered, by method and gRPC code.", "method", "code")
        self._latency = Histogram(
            "toolbelay_call_seconds",
            "Time from the first byte handled to the answer.",
            ("method",),
            registry=self.registry,
            buckets=_BUCKETS,
        )
        self._overloads = self._counter("overloads", "Calls refused because too many ran at once.")
        self._tokens_refused = self._counter("tokens_refused", "Calls refused for their token.", "reason")
        self._in_flight = self._gauge("in_flight", "Calls running now.")
        self._ready = self._gauge("ready", "1 when ready to answer.", mode="livemin")

    def _define_turns(self) -> None:
        self._turn_counts: dict[tuple[str, str], Callable[[], None]] = {}
        self._turns = self._counter("turns", "SelectTools answers.", "outcome", "reason")
        self._replays = self._counter("replays", "Turns answered before.")
        self._keys_reused = self._counter("turn_keys_reused", "A turn_id that came with other content.")
        self._removed = self._counter("tools_removed", "Stored tools that left or were hidden.", "kind")
        self._fallbacks = self._counter("ranking_fallbacks", "Rankings by another strategy.", "wanted", "used")
        self._conflicts = self._counter("state_conflicts", "Saves that lost to another turn.")
        self._retries = self._counter("state_retries", "Turns planned again after a conflict.")
        self._verdicts = self._counter("tool_calls", "Calls of the model decided.", "verdict", "reason")

    def _define_parts(self) -> None:
        self._redis_failures = self._counter("redis_failures", "Failed uses of Redis.", "cause")
        self._breaker = self._counter("redis_breaker_changes", "State changes of the breaker.", "state")
        self._store_events = self._counter("state_events", "Things beside a state call's result.", "event")
        self._damaged = self._counter("state_damaged", "Envelopes that could not be read.")
        self._unverifiable = self._counter("authority_unverifiable", "Calls closed for want of authority.", "cause")
        self._storage_failures = self._counter("storage_failures", "Failed uses of SQL.")
        self._reloads = self._counter("reloads", "Loads of a tenant's snapshot.", "result")
        self._reload_seconds = Histogram(
            "toolbelay_reload_seconds", "Time of a snapshot's load.", registry=self.registry, buckets=_BUCKETS
        )
        self._lag = self._gauge(
            "generation_lag", "Most generations that a served snapshot was behind at the last check.", mode="livemax"
        )
        self._unverified = self._gauge(
            "authority_unverified_seconds", "Time since SQL was last matched.", mode="livemax"
        )
        self._tenants = self._gauge("tenants", "Tenants with a loaded snapshot.", mode="livemax")
        self._closed = self._gauge("tenants_closed", "Tenants whose generation cannot be loaded.", mode="livemax")
        self._cache_hits = self._counter("cache_hits", "Look-ups that a cache answered.", "cache")
        self._cache_misses = self._counter("cache_misses", "Look-ups that a cache could not answer.", "cache")
        self._cache_entries = self._gauge("cache_entries", "Entries of a cache.", "cache")

    def _define_ext_proc(self) -> None:
        self._ext_proc_requests = self._counter("ext_proc_requests", "Requests shown by Envoy.", "outcome")
        self._ext_proc_untouched = self._counter("ext_proc_untouched", "Requests that passed as they came.", "reason")
        self._ext_proc_answers = self._counter("ext_proc_answers", "Models' answers checked for calls.", "outcome")
        self._ext_proc_seconds = Histogram(
            "toolbelay_ext_proc_seconds",
            "Time from a whole request body to its rewritten form.",
            registry=self.registry,
            buckets=_BUCKETS,
        )
        self._ext_proc_bytes = Histogram(
            "toolbelay_ext_proc_body_bytes",
            "Size of whole request bodies, as they came.",
            registry=self.registry,
            buckets=_BODY_BUCKETS,
        )

    # Calls

    def call_recorder(self, method: str) -> Callable[[str, float], None]:
        """A function (code name, seconds) that records one call of `method`; cheap enough for each call."""
        observe = self._latency.labels(method).observe
        known: dict[str, Callable[[], None]] = {}

        def record(code: str, seconds: float) -> None:
            count = known.get(code)
            if count is None:
                count = known[code] = self._calls.labels(method, code).inc
            count()
            observe(seconds)

        return record

    def overloaded(self) -> None:
        """A call was refused because too many ran at once."""
        self._overloads.inc()

    def token_refused(self, reason: str) -> None:
        """A call was refused for its token; `reason` is an ErrorReason."""
        self._tokens_refused.labels(reason).inc()

    def in_flight(self, calls: int) -> None:
        """So many calls are running."""
        self._in_flight.set(calls)

    def ready(self, *, ready: bool) -> None:
        """Whether this worker is ready."""
        self._ready.set(1 if ready else 0)

    # Turns

    def turn(self, outcome: str, reason: str = "") -> None:
        """A turn was answered; names of planner.model.Outcome and Reason."""
        known = self._turn_counts.get((outcome, reason))
        if known is None:
            known = self._turn_counts[outcome, reason] = self._turns.labels(outcome, reason or "none").inc
        known()

    def replayed(self) -> None:
        """A turn had been answered before."""
        self._replays.inc()

    def turn_key_reused(self) -> None:
        """A turn_id came with other content."""
        self._keys_reused.inc()

    def removed(self, kind: str, count: int) -> None:
        """`count` stored tools left or were hidden; `kind` of REMOVED_KINDS."""
        if count:
            self._removed.labels(kind if kind in REMOVED_KINDS else "other").inc(count)

    def ranking_fallback(self, wanted: str, used: str) -> None:
        """A ranking was made by another strategy than the route's; "" = none could."""
        self._fallbacks.labels(_of(STRATEGIES, wanted or "none"), _of(STRATEGIES, used or "none")).inc()

    def state_conflict(self) -> None:
        """A save lost to another turn of the session."""
        self._conflicts.inc()

    def state_retry(self) -> None:
        """A turn was planned again after a conflict."""
        self._retries.inc()

    def tool_call(self, verdict: str, reason: str = "") -> None:
        """A call of the model was decided; names of the API's Verdict and DenialReason."""
        self._verdicts.labels(verdict, reason or "none").inc()

    # Parts

    def redis_failure(self, cause: str) -> None:
        """A use of Redis failed; `cause` as in StateUnavailableError."""
        self._redis_failures.labels(_of(REDIS_CAUSES, cause)).inc()

    def breaker_changed(self, state: str) -> None:
        """The breaker is now "closed", "open" or "half_open"."""
        self._breaker.labels(_of(frozenset({"closed", "open", "half_open"}), state)).inc()

    def store_event(self, event: str, count: int = 1) -> None:
        """Something happened beside a state call's result; `event` of sessions.observer.StoreEvent."""
        self._store_events.labels(event).inc(count)

    def state_damaged(self) -> None:
        """An envelope could not be read; its session starts fresh."""
        self._damaged.inc()

    def unverifiable(self, cause: str) -> None:
        """A call was closed: what is in force could not be established; `cause` of UNVERIFIABLE_CAUSES."""
        self._unverifiable.labels(_of(UNVERIFIABLE_CAUSES, cause)).inc()

    def storage_failure(self) -> None:
        """A use of SQL failed."""
        self._storage_failures.inc()

    def reloaded(self, *, ok: bool, seconds: float) -> None:
        """A snapshot was loaded, or could not be."""
        self._reloads.labels("ok" if ok else "failed").inc()
        self._reload_seconds.observe(seconds)

    def authority(self, *, lag: int, unverified_seconds: float, tenants: int, closed: int) -> None:
        """How far this worker's snapshots are from SQL."""
        self._lag.set(lag)
        self._unverified.set(unverified_seconds)
        self._tenants.set(tenants)
        self._closed.set(closed)

    # Envoy

    def ext_proc_request(self, outcome: str) -> None:
        """A request of Envoy was answered; `outcome` of EXT_PROC_OUTCOMES."""
        self._ext_proc_requests.labels(_of(EXT_PROC_OUTCOMES, outcome)).inc()

    def ext_proc_untouched(self, reason: str) -> None:
        """A request of Envoy passed as it came; `reason` of UNTOUCHED_REASONS."""
        self._ext_proc_untouched.labels(_of(UNTOUCHED_REASONS, reason)).inc()
        self.ext_proc_request("untouched")

    def ext_proc_answer(self, outcome: str) -> None:
        """A model's answer was checked for calls; `outcome` of EXT_PROC_ANSWERS."""
        self._ext_proc_answers.labels(_of(EXT_PROC_ANSWERS, outcome)).inc()

    def ext_proc_work(self, size: int) -> AbstractContextManager[object]:
        """Time the work on a whole body of `size` bytes."""
        self._ext_proc_bytes.observe(size)
        return self._ext_proc_seconds.time()

    # Caches

    def watch_cache(self, name: str, cache: Cache) -> None:
        """Publish a cache's counters at each `sample`; `name` is one of the program's own words."""
        self._caches[name] = (cache, [0, 0])

    def sample(self) -> None:
        """Take the watched caches' counters over."""
        for name, (cache, seen) in self._caches.items():
            hits, misses = cache.hits, cache.misses
            self._cache_hits.labels(name).inc(max(0, hits - seen[0]))
            self._cache_misses.labels(name).inc(max(0, misses - seen[1]))
            seen[:] = hits, misses
            self._cache_entries.labels(name).set(len(cache))


def _of(bounded: frozenset[str], value: str) -> str:
    return value if value in bounded else "other"
