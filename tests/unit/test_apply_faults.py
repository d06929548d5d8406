"""An apply that is refused tells everything that is wrong, whatever kind it is of."""

from __future__ import annotations

import pytest

from toolbelay.application.apply_bundle import ConfigBundle, ConfigRefusedError, SourceFile
from toolbelay.application.apply_config import read_bundle


def test_faults_of_tools_policies_and_routes_are_listed_together() -> None:
    bundle = ConfigBundle(
        tools=(SourceFile("t.jsonl", b'{"toolset": "caller", "name": "x", "description": "", "input_schema": {}}\n'),),
        policies=(SourceFile("p.cedar", b"permit (principal, action"),),
        routes=SourceFile("routes.yaml", b"routes:\n  default:\n    nonsense: 1\n"),
    )
    with pytest.raises(ConfigRefusedError) as refused:
        read_bundle(bundle)
    places = {fault.where.split(":")[0] for fault in refused.value.faults}
    assert {"tools/t.jsonl", "policies/p.cedar"} < places
    assert any("nonsense" in fault.message for fault in refused.value.faults)
