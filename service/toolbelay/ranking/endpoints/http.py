"""One bounded JSON exchange with an endpoint."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import httpx

CONNECT_SECONDS = 2.0


class EndpointError(Exception):
    """An endpoint did not answer as the protocol says. The message holds nothing that was sent or received."""

    def __init__(self, message: str, *, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


def open_client(url: str, api_key: str, timeout: float) -> httpx.AsyncClient:
    """A client for one endpoint. `timeout`: seconds between any two bytes."""
    headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
    return httpx.AsyncClient(
        base_url=url.rstrip("/") + "/",
        headers=headers,
        timeout=httpx.Timeout(timeout, connect=min(timeout, CONNECT_SECONDS)),
        limits=httpx.Limits(max_connections=16, max_keepalive_connections=4),
        follow_redirects=False,  # a redirect would take the key elsewhere
        trust_env=False,  # no proxy that the settings do not name
    )


async def post_json(client: httpx.AsyncClient, path: str, body: Mapping[str, Any], most_bytes: int) -> dict[str, Any]:
    """The endpoint's JSON object. Raises EndpointError for any other answer, also one over `most_bytes`."""
    try:
        async with client.stream("POST", path, json=body) as response:
            if response.status_code != httpx.codes.OK:
                raise EndpointError(f"status {response.status_code}", status=response.status_code)
            content = bytearray()
            async for part in response.aiter_bytes():
                content += part
                if len(content) > most_bytes:
                    raise EndpointError("the answer is too large")
    except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
        raise EndpointError(type(error).__name__) from None  # its text may hold the URL
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        raise EndpointError("the answer is not JSON") from None
    if not isinstance(value, dict):
        raise EndpointError("the answer is not a JSON object")
    return value
