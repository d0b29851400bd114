"""The generated code matches the proto files."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import pytest

from gas.plugin.kubelet_api import deviceplugin_v1beta1_pb2
from scripts.kubelet_api import PACKAGE, PROTOS, ROOT, generate


def _generating_release() -> str:
    """Return the version of grpcio-tools that made the committed code; others may format it differently."""
    text = (ROOT / PACKAGE / "deviceplugin_v1beta1_pb2_grpc.py").read_text()
    return text.partition("GRPC_GENERATED_VERSION = '")[2].partition("'")[0]


def test_committed_code_is_what_the_proto_files_give(tmp_path: Path) -> None:
    pytest.importorskip("grpc_tools", reason="grpcio-tools, which generates the code, is not installed")
    if version("grpcio-tools") != _generating_release():
        pytest.skip(f"the code is of grpcio-tools {_generating_release()}; {version('grpcio-tools')} is installed")
    generate(tmp_path)
    generated = {path.name: path.read_text() for path in (tmp_path / PACKAGE).iterdir()}
    assert len(generated) == 4 * len(PROTOS)
    assert generated == {name: (ROOT / PACKAGE / name).read_text() for name in generated}


def test_the_package_of_messages_is_kubelets() -> None:
    # The names of methods on the wire follow from it: /v1beta1.DevicePlugin/Allocate.
    assert deviceplugin_v1beta1_pb2.AllocateRequest.DESCRIPTOR.full_name == "v1beta1.AllocateRequest"
