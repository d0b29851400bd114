from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest

from gas.extender.wire import (
    LARGEST_POD,
    MOST_NODES,
    BadRequest,
    BindingArgs,
    Unreadable,
    decode_binding,
    decode_filter,
    encode_binding_result,
    encode_filter_result,
)

POD = {"metadata": {"name": "p", "namespace": "default", "uid": "u-1"}, "spec": {"containers": [{"name": "c"}]}}
BINDING = {"PodName": "p", "PodNamespace": "ns", "PodUID": "u-1", "Node": "n1"}


def as_json(**members: Any) -> bytes:
    return json.dumps(members).encode()


class TestDecodeFilter:
    def test_names(self) -> None:
        args = decode_filter(as_json(Pod=POD, Nodes=None, NodeNames=["n1", "n2"]))
        assert args.pod.key == "default/p"
        assert args.node_names == ["n1", "n2"]
        assert args.nodes is None

    def test_empty_and_repeated_names_are_kept(self) -> None:
        assert decode_filter(as_json(Pod=POD, NodeNames=["", "n", "n"])).node_names == ["", "n", "n"]

    def test_whole_nodes_keep_every_byte_they_were_sent_with(self) -> None:
        sent = b'{"metadata" : {"name":"n1","labels":{"a":"b"}}, "spec":{"podCIDR":"x"},"status":{"allocatable":{}}}'
        body = b'{"Pod":' + json.dumps(POD).encode() + b',"Nodes":{"metadata":{},"items":[' + sent + b"]}}"
        args = decode_filter(body)
        assert args.node_names is None
        assert args.nodes is not None
        assert args.nodes[0].node.name == "n1"
        assert args.nodes[0].node.labels == {"a": "b"}
        assert sent in encode_filter_result(nodes=args.nodes)

    def test_unknown_fields_are_skipped(self) -> None:
        pod = {**POD, "extra": [1, {"x": None}]}
        assert decode_filter(as_json(Pod=pod, NodeNames=["n"], More=1)).node_names == ["n"]

    @pytest.mark.parametrize("spelling", [str.lower, str.upper, str.title], ids=lambda each: each.__name__)
    def test_field_names_are_read_in_any_case_as_go_does(self, spelling: Any) -> None:
        args = decode_filter(as_json(**{spelling("Pod"): POD, spelling("NodeNames"): ["n1"]}))
        assert (args.pod.metadata.name, args.node_names) == ("p", ["n1"])

    @pytest.mark.parametrize(
        ("members", "sentence"),
        [
            pytest.param({"NodeNames": ["n"]}, "names no pod", id="no-pod"),
            pytest.param({"Pod": None, "NodeNames": ["n"]}, "names no pod", id="null-pod"),
            pytest.param({"Pod": POD}, "names no node", id="neither-form"),
            pytest.param({"Pod": POD, "Nodes": None, "NodeNames": None}, "names no node", id="both-null"),
            pytest.param({"Pod": POD, "NodeNames": []}, "names no node", id="no-names"),
            pytest.param({"Pod": POD, "Nodes": {"items": []}}, "names no node", id="no-nodes"),
            pytest.param({"Pod": POD, "Nodes": {"items": None}}, "names no node", id="null-items"),
            pytest.param({"Pod": POD, "Nodes": {"items": []}, "NodeNames": ["n"]}, "both", id="both-forms"),
            pytest.param({"Pod": 3, "NodeNames": ["n"]}, r"ExtenderArgs.Pod: Expected", id="pod-is-a-number"),
            pytest.param({"Pod": {}, "NodeNames": ["n"]}, "metadata", id="pod-without-metadata"),
            pytest.param(
                {"Pod": {"x": [{}] * LARGEST_POD}, "NodeNames": ["n"]},
                f"Pod has .* bytes, expected at most {LARGEST_POD}",
                id="pod-is-too-large",
            ),
            pytest.param(
                {"Pod": POD, "Nodes": {"items": [1] * (MOST_NODES + 1)}}, "names 100001 nodes", id="many-nodes"
            ),
            pytest.param({"Pod": POD, "NodeNames": ["n"] * (MOST_NODES + 1)}, "names 100001 nodes", id="many-names"),
            pytest.param({"Pod": POD, "NodeNames": ["n", 3]}, r"NodeNames\[", id="name-is-a-number"),
            pytest.param({"Pod": POD, "NodeNames": "n"}, "NodeNames", id="names-are-a-text"),
            pytest.param({"Pod": POD, "Nodes": {"items": [{"metadata": 3}]}}, r"items\[0\]", id="node-is-odd"),
            pytest.param({"Pod": POD, "Nodes": {"items": [None]}}, r"items\[0\]", id="node-is-null"),
            pytest.param(
                {"pod": 3, "nodenames": ["n"]},
                r"ExtenderArgs.Pod: Expected",
                id="wrong-type-under-a-name-in-other-case",
            ),
        ],
    )
    def test_json_without_a_filter_request_is_refused_with_a_sentence(self, members: Any, sentence: str) -> None:
        with pytest.raises(BadRequest, match=sentence):
            decode_filter(as_json(**members))

    @pytest.mark.parametrize("body", [b"null", b"[]", b"3", b'"x"'])
    def test_json_that_is_not_an_object_is_refused(self, body: bytes) -> None:
        with pytest.raises(BadRequest, match="not a valid ExtenderArgs"):
            decode_filter(body)

    @pytest.mark.parametrize(
        "body",
        [b"", b"{", b"\xff\xfe", b'{"Pod":', b"{}x", b"nonsense", b"\x00", b'{"NodeNames":["\xff"]}', b'{"\xff":1}'],
    )
    def test_a_body_that_is_not_json_is_unreadable(self, body: bytes) -> None:
        with pytest.raises(Unreadable, match="as JSON"):
            decode_filter(body)

    @pytest.mark.parametrize("where", ["Pod", "NodeNames", "Other"])
    def test_deep_nesting_is_refused(self, where: str) -> None:
        deep = b"[" * 100_000 + b"]" * 100_000
        with pytest.raises((BadRequest, Unreadable)):
            decode_filter(b'{"' + where.encode() + b'":' + deep + b"}")

    def test_deep_nesting_inside_a_node_is_refused(self) -> None:
        deep = b'{"metadata":{"name":"n"},"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
        with pytest.raises((BadRequest, Unreadable)):
            decode_filter(b'{"Pod":' + json.dumps(POD).encode() + b',"Nodes":{"items":[' + deep + b"]}}")

    def test_numbers_beyond_every_range_are_refused_or_read(self) -> None:
        for number in (b"1e999", b"9" * 400, b"-1e-999"):
            body = (
                b'{"Pod":{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","resources":{"requests":{"x":'
                + number
                + b'}}}]}},"NodeNames":["n"]}'
            )
            with contextlib.suppress(BadRequest, Unreadable):
                assert decode_filter(body).node_names == ["n"]


class TestDecodeBinding:
    def test_all_fields(self) -> None:
        args = decode_binding(as_json(**BINDING))
        assert args == BindingArgs(pod_name="p", pod_namespace="ns", pod_uid="u-1", node="n1")
        assert args.key == "ns/p"

    def test_an_empty_namespace_is_default(self) -> None:
        assert decode_binding(as_json(**{**BINDING, "PodNamespace": ""})).pod_namespace == "default"

    def test_field_names_are_read_in_any_case_as_go_does(self) -> None:
        lowered = {name.lower(): text for name, text in BINDING.items()}
        assert decode_binding(as_json(**lowered)) == decode_binding(as_json(**BINDING))

    @pytest.mark.parametrize("field", ["PodName", "PodUID", "Node"])
    def test_a_missing_name_is_refused_by_its_field(self, field: str) -> None:
        for members in ({**BINDING, field: ""}, {k: v for k, v in BINDING.items() if k != field}):
            with pytest.raises(BadRequest, match=f"no {field}:"):
                decode_binding(as_json(**members))

    @pytest.mark.parametrize("field", ["PodName", "PodNamespace", "PodUID", "Node"])
    @pytest.mark.parametrize(
        "text",
        ["..", ".", "a/b", "a%2fb", "a?b", "a#b", "a b", "a\nb", "a\x00b", "\u202eb", "x" * 254],
        ids=ascii,
    )
    def test_an_invalid_name_never_becomes_part_of_a_path(self, field: str, text: str) -> None:
        with pytest.raises(BadRequest, match=f"{field} is not a valid name") as refused:
            decode_binding(as_json(**{**BINDING, field: text}))
        assert str(refused.value).isprintable()

    def test_a_wrong_type_is_refused(self) -> None:
        with pytest.raises(BadRequest, match="PodUID"):
            decode_binding(as_json(**{**BINDING, "PodUID": 7}))


class TestEncode:
    def test_names_and_reasons(self) -> None:
        answer = json.loads(encode_filter_result(node_names=["n1"], failed={"n2": "no room"}))
        assert answer == {
            "Nodes": None,
            "NodeNames": ["n1"],
            "FailedNodes": {"n2": "no room"},
            "FailedAndUnresolvableNodes": {},
            "Error": "",
        }

    def test_an_empty_list_is_encoded_as_a_list_not_null(self) -> None:
        assert json.loads(encode_filter_result(node_names=[]))["NodeNames"] == []

    def test_whole_nodes(self) -> None:
        args = decode_filter(as_json(Pod=POD, Nodes={"items": [{"metadata": {"name": "n1"}, "x": 1}]}))
        answer = json.loads(encode_filter_result(nodes=args.nodes))
        assert answer["Nodes"] == {"items": [{"metadata": {"name": "n1"}, "x": 1}]}
        assert answer["NodeNames"] is None

    def test_unresolvable_nodes_and_error(self) -> None:
        answer = json.loads(encode_filter_result(unresolvable={"n": "never"}, error="not ready"))
        assert answer["FailedAndUnresolvableNodes"] == {"n": "never"}
        assert answer["Error"] == "not ready"

    # contract E10.5
    def test_binding_result_and_bare_error(self) -> None:
        assert json.loads(encode_binding_result()) == {"Error": ""}
        assert json.loads(encode_binding_result(error="gone")) == {"Error": "gone"}
