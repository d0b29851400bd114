"""Kubelet's list of pods with every pod left encoded: what has not changed since the last list is not decoded again."""

from __future__ import annotations

from collections.abc import Sequence

# protobuf says nothing about the types of these.
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto  # type: ignore[import-untyped]
from google.protobuf.descriptor_pool import DescriptorPool  # type: ignore[import-untyped]
from google.protobuf.message_factory import GetMessageClass  # type: ignore[import-untyped]
from grpc import aio

from gas.plugin.kubelet_api import podresources_v1_pb2 as api

EncodedPods = Sequence[bytes]
"""Each is a ``PodResources``."""


def list_encoded(channel: aio.Channel) -> aio.UnaryUnaryMultiCallable[api.ListPodResourcesRequest, EncodedPods]:
    """``PodResourcesLister.List`` of kubelet behind this channel."""
    return channel.unary_unary(
        "/v1.PodResourcesLister/List",
        request_serializer=api.ListPodResourcesRequest.SerializeToString,
        response_deserializer=_encoded_pods,
    )


def _encoded_pods(answer: bytes) -> EncodedPods:
    pods: EncodedPods = _ENCODED_LISTING.FromString(answer).pods
    return pods


def _encoded_listing() -> FileDescriptorProto:
    """``ListPodResourcesResponse`` with bytes in the place of messages, which look the same on the wire."""
    file = FileDescriptorProto(name="gas/encoded_listing.proto", package="gas", syntax="proto3")
    file.message_type.add(name="EncodedListing").field.add(
        name="pods",
        number=api.ListPodResourcesResponse.POD_RESOURCES_FIELD_NUMBER,
        type=FieldDescriptorProto.TYPE_BYTES,
        label=FieldDescriptorProto.LABEL_REPEATED,
    )
    return file


_POOL = DescriptorPool()
_POOL.Add(_encoded_listing())
_ENCODED_LISTING = GetMessageClass(_POOL.FindMessageTypeByName("gas.EncodedListing"))
