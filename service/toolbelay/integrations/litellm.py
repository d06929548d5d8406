"""A callback of the LiteLLM proxy: each chat request gets the tools that Toolbelay selects for its user.

In the proxy's config.yaml (docs/integrations/litellm.md has the whole set-up):

```yaml
litellm_settings:
  callbacks: toolbelay.integrations.litellm.hook
```
"""

from __future__ import annotations

import os
from typing import Any

from fastapi import HTTPException
from litellm.integrations.custom_logger import CustomLogger

from toolbelay.client import AsyncToolbelayClient, ToolbelayCallError
from toolbelay.integrations import litellm_request as given
from toolbelay.integrations.litellm_request import HookOptions, HookUser

_OURS = ("tools", "tool_choice")


class ToolbelayHook(CustomLogger):  # type: ignore[misc]  # litellm is not installed where types are checked
    """The hook. A subclass must define `async_pre_call_hook` itself: the proxy does not call inherited ones.

    Raises HTTPException: 403 for a key without a user and for what policy refuses, 400 for a request that
    cannot be read, 503 when the service cannot answer and `on_error` is "raise".
    """

    enforces_request_content = True  # the proxy then asks for the records of batch files too

    def __init__(self, options: HookOptions) -> None:
        super().__init__()
        self._options = options
        self._client: AsyncToolbelayClient | None = None

    async def async_pre_call_hook(
        self, user_api_key_dict: Any, cache: Any, data: dict[str, Any], call_type: str
    ) -> dict[str, Any]:
        """Replace `tools` and `tool_choice` of a chat request, leave everything else."""
        del cache
        wire_format = given.FORMATS.get(call_type)
        if wire_format is None:
            if self._options.other_calls == "refuse" and given.offers_tools(data, call_type):
                raise _refused(403, "TOOLS_NOT_SELECTABLE", f"tools cannot be selected for {call_type} calls")
            return data
        user = given.user_of(user_api_key_dict)
        if user is None:
            raise _refused(403, "NO_USER", "the API key belongs to no user, and tools are given to users only")
        try:
            prepared = await self._reach().prepare(
                data,
                format=wire_format,
                session_id=given.header(data, given.SESSION_HEADERS),
                turn_id=given.header(data, [given.TURN_HEADER]),
                route=self._options.route,
                token=lambda session_id: self._token(user, session_id),
            )
        except ToolbelayCallError as error:
            raise _refused(given.status_of(error), error.reason or error.code.name, error.message) from None
        for key in _OURS:
            data.pop(key, None)
        data.update({key: prepared.body[key] for key in _OURS if key in prepared.body})
        return data

    def _reach(self) -> AsyncToolbelayClient:
        """The client, made on the loop that serves: the proxy loads callbacks before it forks and runs."""
        if self._client is None:
            options = self._options
            self._client = AsyncToolbelayClient(
                options.address, timeout=options.timeout, on_error=options.on_error, tls=options.tls
            )
        return self._client

    def _token(self, user: HookUser, session_id: str) -> str:
        tenant = self._options.tenant or None
        return self._options.minter.mint(user.subject, tenant=tenant, roles=user.roles, session_id=session_id or None)


def _refused(status: int, reason: str, message: str) -> HTTPException:
    return HTTPException(status, {"error": {"message": f"toolbelay: {message}", "type": reason, "code": reason}})


_hook: ToolbelayHook | None = None


def __getattr__(name: str) -> Any:
    """`hook`: the one instance, configured by the environment when the proxy first asks for it."""
    global _hook
    if name != "hook":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if _hook is None:
        _hook = ToolbelayHook(given.options_from(os.environ))
    return _hook
