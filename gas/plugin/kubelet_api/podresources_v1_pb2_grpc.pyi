from collections.abc import AsyncIterator

from grpc import aio

from gas.plugin.kubelet_api import podresources_v1_pb2 as messages

class PodResourcesListerStub:
    def __init__(self, channel: aio.Channel) -> None: ...
    List: aio.UnaryUnaryMultiCallable[messages.ListPodResourcesRequest, messages.ListPodResourcesResponse]
    GetAllocatableResources: aio.UnaryUnaryMultiCallable[messages.AllocatableResourcesRequest, messages.AllocatableResourcesResponse]
    Get: aio.UnaryUnaryMultiCallable[messages.GetPodResourcesRequest, messages.GetPodResourcesResponse]

class PodResourcesListerServicer:
    async def List(self, request: messages.ListPodResourcesRequest, context: aio.ServicerContext[messages.ListPodResourcesRequest, messages.ListPodResourcesResponse]) -> messages.ListPodResourcesResponse: ...
    async def GetAllocatableResources(self, request: messages.AllocatableResourcesRequest, context: aio.ServicerContext[messages.AllocatableResourcesRequest, messages.AllocatableResourcesResponse]) -> messages.AllocatableResourcesResponse: ...
    async def Get(self, request: messages.GetPodResourcesRequest, context: aio.ServicerContext[messages.GetPodResourcesRequest, messages.GetPodResourcesResponse]) -> messages.GetPodResourcesResponse: ...

def add_PodResourcesListerServicer_to_server(servicer: PodResourcesListerServicer, server: aio.Server) -> None: ...
