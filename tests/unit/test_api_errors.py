"""Errors: every reason has a code and a place in the proto, and no status outgrows what clients accept."""

from __future__ import annotations

import re
from pathlib import Path

import grpc
import pytest
from google.rpc import error_details_pb2
from hypothesis import given, settings
from hypothesis import strategies as st

from toolbelay.api import errors
from toolbelay.application.apply_bundle import ConfigRefusedError
from toolbelay.catalog.definitions import Fault
from toolbelay.errors import ErrorReason, ToolbelayError, invalid
from toolbelay.v1 import error_reason_pb2


def test_every_reason_has_a_code_and_equals_the_proto_enum() -> None:
    proto = {name.removeprefix("ERROR_REASON_") for name in error_reason_pb2.ErrorReason.DESCRIPTOR.values_by_name}
    assert {reason.value for reason in ErrorReason} == proto - {"UNSPECIFIED"}
    assert set(errors.CODES) == set(ErrorReason)


def test_the_proto_documents_each_reason_under_its_code() -> None:
    text = Path(__file__).parents[2].joinpath("proto/toolbelay/v1/error_reason.proto").read_text()
    for reason, code in errors.CODES.items():
        found = re.search(rf"((?:  //.*\n)+)  ERROR_REASON_{reason.value} =", text)
        assert found is not None
        assert code.name in found[1], f"{reason.value} is not documented as {code.name}"


@pytest.mark.parametrize("reason", list(ErrorReason))
def test_each_reason_carries_error_info(reason: ErrorReason) -> None:
    status = errors.status_of(ToolbelayError(reason, "told", metadata={"generation": "7"}))
    info = error_details_pb2.ErrorInfo()
    assert status.details[0].Unpack(info)
    assert (info.reason, info.domain, dict(info.metadata)) == (reason.value, "toolbelay", {"generation": "7"})


def test_a_field_is_named_in_a_violation() -> None:
    status = errors.status_of(invalid("candidates[3].score", "must be finite"))
    bad = error_details_pb2.BadRequest()
    assert status.code == grpc.StatusCode.INVALID_ARGUMENT.value[0]
    assert status.details[1].Unpack(bad)
    assert [(v.field, v.description) for v in bad.field_violations] == [("candidates[3].score", "must be finite")]


def test_no_field_no_violation() -> None:
    assert len(errors.status_of(invalid(None, "unreadable")).details) == 1


def test_many_faults_are_cut_to_what_fits() -> None:
    error = ConfigRefusedError([Fault(f"tools/crm.jsonl:{n}", "crm/x", "é" * 900) for n in range(1000)])
    status = errors.status_of(error)
    bad = error_details_pb2.BadRequest()
    assert status.details[1].Unpack(bad)
    assert len(bad.field_violations) > 1
    assert status.ByteSize() < 4096


@settings(max_examples=100, deadline=None)
@given(
    st.text(st.characters(), max_size=3000),
    st.text(st.characters(), max_size=3000),
    st.dictionaries(st.text(st.characters(), max_size=400), st.text(st.characters(), max_size=3000), max_size=20),
)
def test_a_status_stays_under_4_kib_and_is_valid_utf8(message: str, field: str, metadata: dict[str, str]) -> None:
    status = errors.status_of(ToolbelayError(ErrorReason.INVALID_REQUEST, message, field=field, metadata=metadata))
    assert len(status.SerializeToString()) < 4096
