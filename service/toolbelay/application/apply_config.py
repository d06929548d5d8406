"""Applies tools, policies and routes of a tenant: all of a bundle in one transaction, or nothing."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from toolbelay.application.apply_bundle import MAX_FAULTS, ConfigBundle, ConfigRefusedError
from toolbelay.application.apply_confirm import CONFIRM_SECONDS, GenerationRaiser, behind_redis, confirm_raise
from toolbelay.application.apply_named import named_tools
from toolbelay.application.apply_plan import (
    ApplyOptions,
    ItemChange,
    Plan,
    PolicyCheck,
    Wanted,
    plan,
    scope_of,
)
from toolbelay.application.apply_policies import check_policy_set, read_policies
from toolbelay.application.apply_routes import ReadRoutes, read_routes
from toolbelay.application.apply_tools import ReadTools, read_tools
from toolbelay.catalog.definitions import Fault, is_clean_name
from toolbelay.errors import ErrorReason, ToolbelayError, invalid
from toolbelay.storage.port import (
    ChangeScope,
    ConfigChange,
    ConfigWriter,
    CurrentConfig,
    PolicyFile,
    StorageUnavailableError,
)

MAX_TENANT = 256  # bytes
WRITE_SECONDS = 60.0  # of one apply's transaction
CHECK_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class ApplyResult:
    """What an apply did, or on a dry run would do.

    `generation`: after the apply; on a dry run the present one. `changes` is sorted by kind, then name.
    `tools_before`: tools in the catalog before, for telling how large a prune is.
    """

    generation: int
    changed: bool
    changes: tuple[ItemChange, ...]
    warnings: tuple[str, ...]
    tools_before: int


class ApplyConfig:
    """The use case behind `toolbelay apply` and AdminService.ApplyConfig."""

    def __init__(
        self,
        writer: ConfigWriter,
        raiser: GenerationRaiser,
        *,
        check_policies: PolicyCheck = check_policy_set,
        confirm_seconds: float = CONFIRM_SECONDS,
    ) -> None:
        self._writer = writer
        self._raiser = raiser
        self._check_policies = check_policies
        self._confirm_seconds = confirm_seconds
        self._reading = asyncio.Semaphore(1)  # large bundles are parsed one after another

    async def run(
        self,
        tenant: str,
        bundle: ConfigBundle,
        *,
        who: str,
        options: ApplyOptions = ApplyOptions(),  # noqa: B008  # frozen
        dry_run: bool = False,
        timeout: float = WRITE_SECONDS,
    ) -> ApplyResult:
        """Validate, write, and wait for the confirmed raise.

        `timeout`: seconds of the transaction; reading the bundle comes before it and the raise after.
        Raises ConfigRefusedError with every fault, GENERATION_CONFLICT, AUTHORITY_UNVERIFIABLE when SQL
        cannot be used, PROPAGATION_UNCONFIRMED when the change is committed but not confirmed.
        """
        _check_tenant(tenant)
        async with self._reading:
            wanted, warnings = await asyncio.to_thread(read_bundle, bundle, self._check_policies)
        planned: list[Plan] = []

        def decide(current: CurrentConfig) -> ConfigChange:
            planned.append(plan(wanted, current, options, self._check_policies))
            return planned[-1].write

        try:
            generation = await self._writer.change(
                tenant, scope_of(wanted, options), decide, who=who, dry_run=dry_run, timeout=timeout
            )
        except StorageUnavailableError as error:
            raise _unusable(error) from error
        result = _result(generation, planned[-1], warnings)
        if not dry_run and generation:
            stored = await confirm_raise(self._raiser, tenant, generation, within=self._confirm_seconds)
            if stored > generation and await self._generation(tenant, who) < stored:
                raise behind_redis(generation, stored)
        return result

    async def _generation(self, tenant: str, who: str) -> int:
        """The tenant's generation in SQL by now."""
        nothing = ConfigChange()
        try:
            return await self._writer.change(
                tenant, ChangeScope(), lambda _: nothing, who=who, dry_run=True, timeout=CHECK_SECONDS
            )
        except StorageUnavailableError as error:
            raise _unusable(error) from error


def read_bundle(bundle: ConfigBundle, check_policies: PolicyCheck = check_policy_set) -> tuple[Wanted, tuple[str, ...]]:
    """(what the bundle asks for, warnings). Raises ConfigRefusedError with every fault of every file."""
    tools = read_tools(bundle.tools) if bundle.tools is not None else ReadTools({}, [])
    policies, policy_faults = read_policies(bundle.policies or ())
    routes = read_routes(bundle.routes) if bundle.routes is not None else ReadRoutes({}, [], [])
    faults = [*tools.faults, *policy_faults, *routes.faults]
    if faults:
        # The set in force is checked with the rows, inside the transaction; that is not reached now, so the
        # files are checked by themselves: one apply tells all that is wrong.
        faults += check_policies([PolicyFile(name, text) for name, text in sorted(policies.items())])
        raise ConfigRefusedError(_bounded(faults))
    wanted = Wanted(
        tools=None if bundle.tools is None else tools.tools,
        policies=None if bundle.policies is None else policies,
        routes=None if bundle.routes is None else routes.routes,
        named=named_tools(policies),
    )
    return wanted, (*bundle.warnings, *routes.warnings)


def _bounded(faults: list[Fault]) -> list[Fault]:
    if len(faults) <= MAX_FAULTS:
        return faults
    return [*faults[:MAX_FAULTS], Fault("", "", f"and {len(faults) - MAX_FAULTS} further faults")]


def _check_tenant(tenant: str) -> None:
    size = len(tenant.encode("utf-8", "surrogatepass"))
    if not 1 <= size <= MAX_TENANT or not is_clean_name(tenant):
        raise invalid("tenant", f"a tenant's name is 1 to {MAX_TENANT} bytes of printable text")


def _result(generation: int, done: Plan, warnings: tuple[str, ...]) -> ApplyResult:
    return ApplyResult(
        generation=generation,
        changed=not done.write.empty,
        changes=done.changes,
        warnings=(*warnings, *done.warnings),
        tools_before=done.tools_before,
    )


def _unusable(error: StorageUnavailableError) -> ToolbelayError:
    return ToolbelayError(
        ErrorReason.AUTHORITY_UNVERIFIABLE,
        f"the database could not be used ({error}); whether the change was committed is not known; repeating is safe",
    )
