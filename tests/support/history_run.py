"""Plays the F1 history on running replicas: one admin changes, many clients ask at full speed."""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Self

import grpc

from tests.support.history import Answer, Change, Verdict, judge
from tests.support.service import PERMIT_ALL, Service, bundle, tool
from toolbelay.application.apply_bundle import ConfigBundle
from toolbelay.application.apply_config import ApplyConfig
from toolbelay.application.apply_plan import ApplyOptions
from toolbelay.application.runtime import open_store
from toolbelay.errors import ToolbelayError
from toolbelay.sessions.store import RedisSessionStore
from toolbelay.settings import load
from toolbelay.storage.engine import Database
from toolbelay.storage.writer import SqlConfigWriter
from toolbelay.telemetry.metrics import Metrics
from toolbelay.v1 import selection_pb2 as pb

DANGER: Final = "crm/danger"
NEVER: Final = "crm/never"
OTHERS: Final = tuple(f"crm/t{i}" for i in range(6))
ROUTES: Final = {"default": {"strategy": "caller", "sticky": {"max_tools": 16}}}
ANSWERS_BETWEEN: Final = 6  # calls that begin after a change and end before the next one
LONGEST_PAUSE: Final = 0.5  # seconds to wait for them
CALL_SECONDS: Final = 10.0
TRIES: Final = 20  # of one apply

# In no generation is NEVER both there and permitted.
GRANTED: Final = bundle(
    [tool(t) for t in (DANGER, NEVER, *OTHERS)],
    {"all.cedar": f'{PERMIT_ALL} forbid (principal, action, resource == Tool::"{NEVER}");'},
    ROUTES,
)
REVOKED: Final = bundle(
    [tool(t) for t in (DANGER, *OTHERS)],
    {"all.cedar": f'{PERMIT_ALL} forbid (principal, action, resource == Tool::"{DANGER}");'},
    ROUTES,
)


class _RepeatingRaiser:
    """After each raise a second admin's late one of the number before: it must change nothing."""

    def __init__(self, store: RedisSessionStore) -> None:
        self._store = store

    async def raise_generation(self, tenant: str, generation: int, *, timeout: float) -> int:
        stored = await self._store.raise_generation(tenant, generation, timeout=timeout)
        if generation > 1:
            await self._store.raise_generation(tenant, generation - 1, timeout=timeout)
        return stored


class Admin:
    """Applies with open connections, from a loop of its own. A context manager."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        settings = load(self._environment)
        self._thread.start()
        self._database = Database(settings.database_url.get_secret_value(), pool_size=1)
        self._store = open_store(settings, Metrics())
        self._use_case = ApplyConfig(SqlConfigWriter(self._database), _RepeatingRaiser(self._store))
        return self

    def __exit__(self, *_: object) -> None:
        self._run(self._store.close())
        self._run(self._database.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def change(self, *, grants: bool) -> Change:
        """Apply until it is acknowledged: repeating is safe."""
        began = time.monotonic()
        for _ in range(TRIES):
            try:
                generation = self._run(self._apply(GRANTED if grants else REVOKED))
            except ToolbelayError:
                continue
            return Change(generation, grants, began, time.monotonic())
        raise AssertionError("no apply was acknowledged")

    async def _apply(self, config: ConfigBundle) -> int:
        return (await self._use_case.run("acme", config, who="history", options=ApplyOptions(prune=True))).generation

    def _run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)


class Run:
    """One run over `replicas`. `answers` grows while it runs; `refused` counts what was UNAVAILABLE, where that may be."""

    def __init__(self, replicas: Sequence[Service], *, may_refuse: bool = False) -> None:
        self.changes: list[Change] = []
        self.answers: list[Answer] = []
        self.refused = 0
        self._may_refuse = may_refuse
        self._replicas = replicas
        self._over = threading.Event()

    def play(self, seconds: float, *, until_violated: bool = False) -> Verdict:
        """Change and ask for so long, or until the checker finds something."""
        askers = [asker for replica in self._replicas for asker in (_selecting(replica), _authorizing(replica))]
        ends = time.monotonic() + seconds
        with Admin(self._replicas[0].environment) as admin, ThreadPoolExecutor(len(askers)) as threads:
            self._change(admin, grants=True)
            asking = [threads.submit(self._ask, asker) for asker in askers]
            try:
                grants = False
                for number in itertools.count():
                    if time.monotonic() > ends or any(task.done() for task in asking):
                        break
                    self._change(admin, grants=grants)
                    if number % 3:  # else the next change comes while the replicas load this one
                        self._wait_for_answers()
                    grants = not grants
                    if until_violated and judge(self.changes, self.answers[-2000:]).violations:
                        break
            finally:
                self._over.set()
            for task in asking:
                task.result()
        return judge(self.changes, self.answers)

    def _change(self, admin: Admin, *, grants: bool) -> None:
        self.changes.append(admin.change(grants=grants))

    def _wait_for_answers(self) -> None:
        """Let each asker answer wholly between two changes."""
        since, ends = self.changes[-1].ended, time.monotonic() + LONGEST_PAUSE
        while time.monotonic() < ends and not self._over.wait(0.002):
            if sum(answer.began > since for answer in self.answers[-50:]) >= ANSWERS_BETWEEN:
                return

    def _ask(self, asker: Callable[[int], Answer]) -> None:
        number = 0
        while not self._over.is_set():
            number += 1
            try:
                self.answers.append(asker(number))
            except grpc.RpcError as error:
                failed: Any = error
                if not self._may_refuse or failed.code() is not grpc.StatusCode.UNAVAILABLE:
                    raise
                self.refused += 1


def _selecting(replica: Service) -> Callable[[int], Answer]:
    """Turns of one session whose history says that both tools were called: where permitted, they are pinned."""
    client = replica.client("selecting")

    def ask(number: int) -> Answer:
        began = time.monotonic()
        answer = client.select(
            f"history-{replica.port}-{number // 50}",
            candidates=[*OTHERS, NEVER, DANGER],
            called_tools=["never", "danger"],
            timeout=CALL_SECONDS,
        )
        ended = time.monotonic()
        found = {t.tool_id for t in answer.tools}
        pinned = {t.tool_id for t in answer.tools if t.pinned}
        if answer.receipt.outcome != pb.OUTCOME_STATELESS:
            assert (DANGER in pinned) == (DANGER in found)
        return Answer(
            f"select@{replica.port}", began, ended, answer.receipt.generation, DANGER in found, NEVER in found
        )

    return ask


def _authorizing(replica: Service) -> Callable[[int], Answer]:
    """Calls without a session, where policy alone decides."""
    client = replica.client("authorizing")

    def ask(number: int) -> Answer:
        began = time.monotonic()
        answer = client.authorize("", ["danger", "never"], timeout=CALL_SECONDS)
        ended = time.monotonic()
        shows, torn = (d.verdict == pb.VERDICT_ALLOWED for d in answer.decisions)
        return Answer(f"authorize@{replica.port}", began, ended, answer.generation, shows, torn)

    return ask


def summary(run: Run, verdict: Verdict) -> str:
    """For a failing assertion and the soak's output."""
    return json.dumps(
        {
            "changes": len(run.changes),
            "answers": len(run.answers),
            "refused": run.refused,
            "judged after a revocation": verdict.judged,
            "violations": len(verdict.violations),
            "first": list(verdict.violations[:5]),
        }
    )
