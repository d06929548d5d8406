"""The API's files agree: generated code with its source, the source with the lint rules and the need for comments."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from google.protobuf.descriptor_pb2 import DescriptorProto, EnumDescriptorProto, FileDescriptorProto, FileDescriptorSet

ROOT = Path(__file__).parents[2]
PROTO = ROOT / "proto"
GENERATED = ROOT / "service"

# Field numbers within descriptor.proto, of which a source location's path is made.
FILE_MESSAGE, FILE_ENUM, FILE_SERVICE = 4, 5, 6
MESSAGE_FIELD, MESSAGE_NESTED, MESSAGE_ENUM = 2, 3, 4
ENUM_VALUE = 2
SERVICE_METHOD = 2

Location = tuple[int, ...]


def protoc(*options: str, root: Path = PROTO) -> None:
    sources = sorted(path.relative_to(root).as_posix() for path in root.rglob("*.proto"))
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I", str(root), *options, *sources]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr


def test_the_generated_code_is_fresh(tmp_path: Path) -> None:
    protoc(*(f"--{plugin}_out={tmp_path}" for plugin in ("python", "pyi", "grpc_python")))
    made = _contents(tmp_path)
    assert made, "protoc made nothing"
    assert _contents(GENERATED / "toolbelay" / "v1", below=GENERATED) == made, "stale: run `make proto`"


def test_buf_finds_nothing() -> None:
    buf = Path(sys.executable).with_name("buf")
    done = subprocess.run([buf, "lint", PROTO], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr


def test_everything_in_the_api_has_a_comment(tmp_path: Path) -> None:
    assert list(_undocumented(_describe(tmp_path))) == []


def test_a_missing_comment_is_found(tmp_path: Path) -> None:
    (tmp_path / "bare.proto").write_text(
        'syntax = "proto3"; package bare;\n'
        "// Has one.\nmessage M {\n  // Has one.\n  string a = 1;\n\n  string b = 2; // Has one behind it.\n\n"
        "  enum E { E_UNSPECIFIED = 0; }\n\n  message N { string c = 1; }\n}\n\n"
        "service S { rpc R(M) returns (M); }\n"
    )
    found = list(_undocumented(_describe(tmp_path, root=tmp_path)))
    assert found == ["M.E", "M.E.E_UNSPECIFIED", "M.N", "M.N.c", "S", "S.R"]


def _contents(directory: Path, below: Path | None = None) -> dict[str, str]:
    files = [path for path in directory.rglob("*_pb2*") if path.suffix in {".py", ".pyi"}]
    return {path.relative_to(below or directory).as_posix(): path.read_text() for path in files}


def _describe(directory: Path, root: Path = PROTO) -> FileDescriptorSet:
    target = directory / "descriptors.binpb"
    protoc("--include_source_info", f"--descriptor_set_out={target}", root=root)
    return FileDescriptorSet.FromString(target.read_bytes())


def _undocumented(files: FileDescriptorSet) -> Iterator[str]:
    for file in files.file:
        documented = {
            tuple(location.path)
            for location in file.source_code_info.location
            if location.leading_comments.strip() or location.trailing_comments.strip()
        }
        yield from (name for path, name in _elements(file) if path not in documented)


def _elements(file: FileDescriptorProto) -> Iterator[tuple[Location, str]]:
    for index, message in enumerate(file.message_type):
        yield from _message(message, (FILE_MESSAGE, index), message.name)
    yield from _enums(file.enum_type, (FILE_ENUM,), "")
    for index, service in enumerate(file.service):
        path = (FILE_SERVICE, index)
        yield path, service.name
        for number, method in enumerate(service.method):
            yield (*path, SERVICE_METHOD, number), f"{service.name}.{method.name}"


def _message(message: DescriptorProto, path: Location, name: str) -> Iterator[tuple[Location, str]]:
    if message.options.map_entry:
        return
    yield path, name
    for index, field in enumerate(message.field):
        yield (*path, MESSAGE_FIELD, index), f"{name}.{field.name}"
    yield from _enums(message.enum_type, (*path, MESSAGE_ENUM), f"{name}.")
    for index, nested in enumerate(message.nested_type):
        yield from _message(nested, (*path, MESSAGE_NESTED, index), f"{name}.{nested.name}")


def _enums(enums: Sequence[EnumDescriptorProto], path: Location, prefix: str) -> Iterator[tuple[Location, str]]:
    for index, enum in enumerate(enums):
        yield (*path, index), f"{prefix}{enum.name}"
        for number, value in enumerate(enum.value):
            yield (*path, index, ENUM_VALUE, number), f"{prefix}{enum.name}.{value.name}"
