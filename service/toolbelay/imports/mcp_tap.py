"""Takes listed tools out of MCP messages before the SDK parses them.

The SDK refuses a whole page for one tool that it cannot model, and its JSON reader a whole message for one
string or one schema nested too deep. So the tools are cut out of the bytes, to be judged one by one, and the
SDK is given the message with an empty list. Everything else of the protocol stays the SDK's.
"""

from __future__ import annotations

from typing import Final

from toolbelay.catalog.raw_json import JsonTextError
from toolbelay.imports.candidates import MAX_TOOLS
from toolbelay.imports.split import Part, split_array, split_object

MAX_MESSAGE: Final = 32 * 1024 * 1024  # bytes of one message
MAX_LISTED: Final = 128 * 1024 * 1024  # bytes of all tools


class Tap:
    """The tools of one listing. `trouble`: why a message could not be read, "" where none was; for an error's text."""

    def __init__(self) -> None:
        self.items: list[bytes] = []
        self.trouble = ""
        self._open = False
        self._answers = 0
        self._size = 0

    def open_page(self) -> None:
        """From here on the next answer with tools is a page."""
        self._open = True
        self._answers = 0

    def close_page(self) -> None:
        """The SDK has its answer. Raises ValueError unless exactly one page came, within the bounds."""
        self._open = False
        if self._answers != 1:
            count = "no list of tools" if not self._answers else f"{self._answers} answers"
            raise ValueError(f"one question for tools brought {count}{': ' + self.trouble if self.trouble else ''}")
        if len(self.items) > MAX_TOOLS or self._size > MAX_LISTED:
            raise ValueError(f"more than {MAX_TOOLS} tools or {MAX_LISTED} bytes were listed")

    def strip(self, message: bytes) -> bytes:
        """The message for the SDK: its tools taken out where it is an awaited page, else as it came."""
        if not self._open or b'"tools"' not in message:
            return message
        try:
            place = _tools_of(message)
            if place is None:
                return message
            items = split_array(message[place.start : place.end])
        except JsonTextError as error:
            self.trouble = str(error)
            return message
        self._answers += 1
        if len(self.items) <= MAX_TOOLS and self._size <= MAX_LISTED:  # one page over the bounds is enough to tell
            self.items += [message[place.start + item.start : place.start + item.end] for item in items]
            self._size += place.end - place.start
        return message[: place.start] + b"[]" + message[place.end :]


def _tools_of(message: bytes) -> Part | None:
    result = next((part for part in split_object(message) if part.key == "result"), None)
    if result is None:
        return None
    inner = message[result.start : result.end]
    if not inner.startswith(b"{"):
        return None
    tools = [part for part in split_object(inner) if part.key == "tools"]
    if len(tools) != 1 or inner[tools[0].start : tools[0].start + 1] != b"[":
        return None
    return Part("tools", result.start + tools[0].start, result.start + tools[0].end)
