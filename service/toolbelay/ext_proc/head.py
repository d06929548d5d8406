"""What a request's headers and Envoy's dynamic metadata say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from google.protobuf.json_format import MessageToDict

from toolbelay.catalog.formats import WireFormat
from toolbelay.errors import invalid
from toolbelay.ext_proc.conversation import format_of_path
from toolbelay.ext_proc.options import ExtProcOptions


@dataclass(frozen=True, slots=True)
class RequestHead:
    """Header values are raw bytes, by lower-case name; `metadata` is that of Envoy's filters, by namespace."""

    headers: Mapping[str, tuple[bytes, ...]]
    metadata: Mapping[str, Mapping[str, Any]]
    wire_format: WireFormat | None  # None: no chat endpoint

    @property
    def coding(self) -> str:
        """The content-encoding, lower case; "" where there is none."""
        return b",".join(self.headers.get("content-encoding", ())).decode("latin-1").strip().lower()

    @property
    def may_be_chat(self) -> bool:
        """A POST of JSON to a chat endpoint. A missing content type counts as JSON."""
        if self.wire_format is None or self.first(":method") != b"POST":
            return False
        return is_json(self.first("content-type") or b"application/json")

    def first(self, name: str) -> bytes:
        return self.headers.get(name, (b"",))[0]

    def text(self, name: str) -> str:
        """The one value of a header that carries an id; "" where it is absent. Raises INVALID_REQUEST."""
        values = set(self.headers.get(name, ())) if name else set()
        if len(values) > 1:
            raise invalid(name, "is given more than once")
        try:
            return values.pop().decode() if values else ""
        except UnicodeDecodeError:
            raise invalid(name, "is not UTF-8") from None


def read_head(http_headers: Any, metadata_context: Any, options: ExtProcOptions) -> RequestHead:
    """The head of an ext_proc HttpHeaders message; either of `value` and `raw_value` is read."""
    headers = read_headers(http_headers)
    wanted = (options.metadata_namespace, options.jwt_namespace)
    metadata = {
        name: MessageToDict(struct) for name, struct in metadata_context.filter_metadata.items() if name in wanted
    }
    path = headers.get(":path", (b"",))[0].decode("latin-1")
    return RequestHead(headers, metadata, format_of_path(path))


def read_headers(http_headers: Any) -> dict[str, tuple[bytes, ...]]:
    """Header values by lower-case name, in order."""
    headers: dict[str, tuple[bytes, ...]] = {}
    for header in http_headers.headers.headers:
        key = header.key.lower()
        headers[key] = (*headers.get(key, ()), header.raw_value or header.value.encode())
    return headers


def is_json(content_type: bytes) -> bool:
    """Whether a content type is JSON's."""
    kind = content_type.partition(b";")[0].strip().lower()
    return kind == b"application/json" or kind.endswith(b"+json")
