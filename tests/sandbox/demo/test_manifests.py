"""Nodes and pods from files: dumps of real clusters, hand-written files and broken files."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.demo.manifests import BadManifest, read_manifests
from tests.sandbox.demo.manifest_files import node, pod, write


def test_dates_and_anchors_are_read_as_kubernetes_reads_them(tmp_path: Path) -> None:
    file = tmp_path / "dump.yaml"
    file.write_text(
        "kind: Pod\nmetadata: {name: a, labels: &labels {since: 2024-01-02}, creationTimestamp: 2024-01-02T03:04:05Z}\n"
        "spec: {nodeSelector: *labels}\n"
    )
    (found,) = read_manifests(file).pods
    assert found.written["spec"] == {"nodeSelector": {"since": "2024-01-02"}}
    assert found.typed.metadata.creation_timestamp == "2024-01-02T03:04:05Z"


def test_documents_lists_and_typed_lists_are_all_read_in_order(tmp_path: Path) -> None:
    file = tmp_path / "several.yaml"
    file.write_text(
        "kind: Node\nmetadata: {name: n1}\n---\n# nothing\n---\n"
        "kind: List\nitems:\n- {kind: Pod, metadata: {name: p1}}\n- {kind: Service, metadata: {name: s}}\n---\n"
        "kind: NodeList\nitems: [{metadata: {name: n2}}]\n---\nkind: PodList\nitems: null\n"
    )
    found = read_manifests(file)
    assert [node.typed.name for node in found.nodes] == ["n1", "n2"]
    assert [pod.typed.key for pod in found.pods] == ["default/p1"]
    assert found.ignored == {"Service": 1}
    assert found.unusable == []


@pytest.mark.parametrize("indent", [None, 1])
def test_json_is_read_too(tmp_path: Path, indent: int | None) -> None:
    file = write(tmp_path / "dump.json", node("n1"), pod("p1"))
    if indent:
        file.write_text(f"\n# {indent}\n{file.read_text()}")
    found = read_manifests(file)
    assert (len(found.nodes), len(found.pods)) == (1, 1)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        pytest.param("17", "document 1: expected a Kubernetes object, found 17", id="a number"),
        pytest.param("- 1\n- two", "document 1: expected a Kubernetes object, found a list", id="a list"),
        pytest.param("a: 1", "document 1: expected an object with a kind, found nothing", id="no kind"),
        pytest.param("kind: [a]", "document 1: expected an object with a kind, found a list", id="kind is a list"),
        pytest.param(
            "kind: List\nitems: 3", "document 1: expected a list in items, found 3", id="items are not a list"
        ),
        pytest.param(
            "kind: List\nitems: [5]",
            "document 1, items[0]: expected an object with a kind, found 5",
            id="an item is not an object",
        ),
        pytest.param(
            "kind: List\nitems: [{kind: Pod, metadata: {name: a}, spec: {containers: [{name: 3}]}}]",
            "document 1, items[0], Pod a: expected `str`, got `int` at `spec.containers[0].name`",
            id="a field of the wrong type",
        ),
        pytest.param(
            "kind: Node\nmetadata: {name: a, labels: {x: 1}}",
            "document 1, Node a: expected `str`, got `int` at `metadata.labels[...]`",
            id="a label that is a number",
        ),
        pytest.param(
            "kind: Pod\nmetadata: []",
            "document 1, Pod: expected `object`, got `array` at `metadata`",
            id="metadata that are a list",
        ),
    ],
)
def test_an_unusable_object_is_reported_and_the_others_are_read(tmp_path: Path, text: str, sentence: str) -> None:
    file = tmp_path / "f.yaml"
    file.write_text(f"{text}\n---\nkind: Pod\nmetadata: {{name: good}}\n")
    found = read_manifests(file)
    assert found.unusable == [f"{file}, {sentence}"]
    assert [pod.typed.key for pod in found.pods] == ["default/good"]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        pytest.param(None, "cannot be read: No such file or directory", id="missing"),
        pytest.param(b"kind: \xff", "not UTF-8 text: invalid start byte at byte 6", id="not text"),
        pytest.param(b"a: [b", "not YAML: while parsing a flow sequence", id="broken YAML"),
        pytest.param(b'{"kind": "Pod"', "not YAML: while parsing a flow mapping", id="broken JSON"),
        pytest.param(b"a: *b", "not YAML: found undefined alias", id="an unknown anchor"),
    ],
)
def test_an_unusable_file_is_refused_with_a_sentence(tmp_path: Path, content: bytes | None, sentence: str) -> None:
    file = tmp_path / "f.yaml"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(BadManifest) as refused:
        read_manifests(file)
    assert str(refused.value).startswith(f"{file}: {sentence}")


def test_an_empty_file_has_no_objects(tmp_path: Path) -> None:
    file = tmp_path / "f.yaml"
    file.write_text("")
    found = read_manifests(file)
    assert (found.nodes, found.pods, found.unusable) == ([], [], [])
