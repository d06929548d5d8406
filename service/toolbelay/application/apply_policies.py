"""Policy files into texts, and the check of a whole set."""

from __future__ import annotations

from collections.abc import Sequence

from toolbelay.application.apply_bundle import MAX_POLICIES, MAX_POLICY, SourceFile
from toolbelay.authority.policy import validate_policies
from toolbelay.catalog.definitions import Fault
from toolbelay.storage.port import PolicyFile


def read_policies(files: Sequence[SourceFile]) -> tuple[dict[str, str], list[Fault]]:
    """(text by file name, faults) of Cedar files; only their bytes are looked at."""
    texts: dict[str, str] = {}
    faults: list[Fault] = []
    if len(files) > MAX_POLICIES:
        faults.append(Fault("policies", "", f"{len(files)} files are more than the limit of {MAX_POLICIES}"))
    for file in files:
        where = f"policies/{file.name}"
        if len(file.content) > MAX_POLICY:
            faults.append(Fault(where, "", f"is more than the limit of {MAX_POLICY} bytes"))
            continue
        try:
            text = file.content.decode("utf-8")
        except UnicodeDecodeError as error:
            line = file.content.count(b"\n", 0, error.start) + 1
            faults.append(Fault(f"{where}:{line}", "", "not UTF-8"))
            continue
        if "\0" in text:
            line = text.count("\n", 0, text.index("\0")) + 1
            faults.append(Fault(f"{where}:{line}", "", "NUL is refused"))
        elif file.name in texts:
            faults.append(Fault(where, "", "given twice"))
        else:
            texts[file.name] = text
    return texts, faults


def check_policy_set(files: Sequence[PolicyFile]) -> list[Fault]:
    """Every fault of the whole set: syntax, schema, templates, ids given twice."""
    return [
        Fault(
            f"policies/{fault.file}" if fault.line is None else f"policies/{fault.file}:{fault.line}",
            "",
            fault.message,
        )
        for fault in validate_policies(files)
    ]
