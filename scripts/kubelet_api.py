"""Generate the Python code of kubelet's gRPC services from the proto files beside it: ``make protos``.

python -m scripts.kubelet_api           generate the code again from the proto files that lie there
python -m scripts.kubelet_api --fetch   before that, fetch the proto files of RELEASE (needs Go)
"""

import argparse
import json
import subprocess
import sys
import tempfile
from importlib.resources import files
from pathlib import Path

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet  # type: ignore[import-untyped]

RELEASE = "v0.35.4"
"""Release of the Go module k8s.io/kubelet, from Kubernetes 1.35."""

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = Path("gas/plugin/kubelet_api")
PROTOS = {
    PACKAGE / "deviceplugin_v1beta1.proto": "pkg/apis/deviceplugin/v1beta1/api.proto",
    PACKAGE / "podresources_v1.proto": "pkg/apis/podresources/v1/api.proto",
}
"""Our file -> the file in the module. There both are called api.proto, and protobuf identifies files by their paths."""


def main() -> None:
    """Generate the code, from newly fetched proto files with --fetch."""
    parser = argparse.ArgumentParser(description="Generate the Python code of kubelet's gRPC services.")
    parser.add_argument("--fetch", action="store_true", help=f"fetch the proto files of k8s.io/kubelet {RELEASE} first")
    if parser.parse_args().fetch:
        fetch(ROOT)
    generate(ROOT)


def fetch(into: Path) -> None:
    """Copy the proto files of RELEASE, byte for byte, into the tree ``into``."""
    download = subprocess.run(  # noqa: S603 -- a fixed command
        ["go", "mod", "download", "-json", f"k8s.io/kubelet@{RELEASE}"],  # noqa: S607 -- the user's own Go
        check=True,
        stdout=subprocess.PIPE,
        cwd=tempfile.gettempdir(),
    )
    module = Path(json.loads(download.stdout)["Dir"])
    for ours, theirs in PROTOS.items():
        (into / ours).write_bytes((module / theirs).read_bytes())


def generate(into: Path) -> None:
    """Write messages, services and their types for every proto file into the tree ``into``."""
    from grpc_tools import protoc  # type: ignore[import-untyped]

    with tempfile.TemporaryDirectory() as directory:
        descriptors = Path(directory) / "descriptors"
        code = protoc.main(
            [
                "protoc",
                f"--proto_path={ROOT}",
                # What grpc_tools adds itself when it runs as a program.
                f"--proto_path={files('grpc_tools') / '_proto'}",
                f"--python_out={into}",
                f"--pyi_out={into}",
                f"--grpc_python_out={into}",
                f"--descriptor_set_out={descriptors}",
                *map(str, PROTOS),
            ]
        )
        if code != 0:
            sys.exit(f"protoc ended with exit code {code}")
        for described in FileDescriptorSet.FromString(descriptors.read_bytes()).file:
            path = into / Path(described.name).with_suffix("")
            path.with_name(path.name + "_pb2_grpc.pyi").write_text(service_types(described), encoding="ascii")


def service_types(described: FileDescriptorProto) -> str:
    """Return the type stubs of the services for asyncio, since gRPC's own generator writes none."""
    messages = Path(described.name).stem + "_pb2"
    package = Path(described.name).parent.as_posix().replace("/", ".")
    lines = [
        "from collections.abc import AsyncIterator",
        "",
        "from grpc import aio",
        "",
        f"from {package} import {messages} as messages",
    ]
    for service in described.service:
        called, served = [], []
        for method in service.method:
            request = f"messages.{method.input_type.rpartition('.')[2]}"
            response = f"messages.{method.output_type.rpartition('.')[2]}"
            kind, start, result = "UnaryUnary", "async def", response
            if method.server_streaming:
                kind, start, result = "UnaryStream", "def", f"AsyncIterator[{response}]"
            context = f"context: aio.ServicerContext[{request}, {response}]"
            called.append(f"    {method.name}: aio.{kind}MultiCallable[{request}, {response}]")
            served.append(f"    {start} {method.name}(self, request: {request}, {context}) -> {result}: ...")
        lines += [
            "",
            f"class {service.name}Stub:",
            "    def __init__(self, channel: aio.Channel) -> None: ...",
            *called,
        ]
        lines += ["", f"class {service.name}Servicer:", *served]
        arguments = f"servicer: {service.name}Servicer, server: aio.Server"
        lines += ["", f"def add_{service.name}Servicer_to_server({arguments}) -> None: ..."]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
