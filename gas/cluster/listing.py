"""List all objects of a kind, page by page, decoded straight from bytes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec

from gas.cluster.errors import ApiRefused, ApiUnavailable
from gas.values.errors import UNDECODABLE

if TYPE_CHECKING:
    from gas.cluster.reader import Reads

T = TypeVar("T")
K = TypeVar("K")
logger = logging.getLogger(__name__)

PAGE_SIZE = 500
_PAGE_TIMEOUT = 60.0
_EXPIRED_BEFORE_WHOLE = 2  # how often a paged list may expire before it is requested in one piece, which cannot expire


class _ListMeta(msgspec.Struct, rename="camel", frozen=True):
    resource_version: str = ""
    continue_: str | None = msgspec.field(default=None, name="continue")


class _Page(msgspec.Struct, Generic[T], frozen=True):
    metadata: _ListMeta
    items: list[T] | None = None


@dataclass(frozen=True, slots=True)
class Listing(Generic[K]):
    """The objects of a kind at one moment, as far as the lister keeps them, or what is remembered of them."""

    version: str  # resourceVersion from which a watch continues
    objects: list[K] = field(repr=False)
    undecodable: int = 0  # number of objects left out because they could not be decoded


class Lister(Generic[T]):
    """List the objects of one kind; `selection` is the part of a query that selects by fields and labels."""

    def __init__(
        self,
        api: Reads,
        path: str,  # of the collection
        object_type: type[T],
        *,
        page_size: int = PAGE_SIZE,
        field_selector: str | None = None,  # in the API's syntax, ``spec.nodeName!=``
        label_selector: str | None = None,  # in the API's syntax, ``app=web``
        # selects objects; the others are dropped page by page, so that they never fill the memory
        keep: Callable[[T], bool] | None = None,
    ) -> None:
        self.api = api
        self.path = path
        self.object_type = object_type
        self.keep = keep
        selectors = {"fieldSelector": field_selector, "labelSelector": label_selector}
        self.selection = {name: text for name, text in selectors.items() if text}
        self._page_size = page_size
        self._page = msgspec.json.Decoder(_Page[object_type])  # type: ignore[valid-type]  # a type of run time
        self._raw_page = msgspec.json.Decoder(_Page[msgspec.Raw])

    async def fetch(self) -> Listing[T]:
        """Return one consistent list. Raises ApiRefused, Forbidden, ApiUnavailable."""
        return await self.fetch_paged(lambda objects: objects)

    async def fetch_paged(self, take: Callable[[list[T]], list[K]]) -> Listing[K]:
        """Process one consistent list page by page. Raises ApiRefused, Forbidden, ApiUnavailable.

        If a page has expired (410), the list starts again with its first page.

        take  called with the objects of each page; returns what to remember of them
        """
        for page_size in (self._page_size,) * _EXPIRED_BEFORE_WHOLE:
            try:
                return await self._fetch_all(page_size, take)
            except ApiRefused as error:
                if error.status != 410:
                    raise
                logger.info("the list of %s expired before its last page; it is requested again", self.path)
        return await self._fetch_all(0, take)

    async def _fetch_all(self, page_size: int, take: Callable[[list[T]], list[K]]) -> Listing[K]:
        remembered: list[K] = []
        undecodable = 0
        query = self.selection | ({"limit": str(page_size)} if page_size else {})
        page = self._request(query)
        try:
            while True:
                body = await page
                metadata = self._metadata(body)
                if metadata.continue_:  # the API server prepares the next page while this one is processed
                    page = self._request(query | {"continue": metadata.continue_})
                    await asyncio.sleep(0)
                items, unread = self._decode(body)
                remembered += take(items if self.keep is None else list(filter(self.keep, items)))
                undecodable += unread
                if not metadata.continue_:
                    return Listing(metadata.resource_version, remembered, undecodable)
                del body, items  # the next page takes their memory
        finally:
            page.cancel()

    def _request(self, query: Mapping[str, str]) -> asyncio.Task[bytes]:
        return asyncio.create_task(self.api.request("GET", self.path, query=query, timeout=_PAGE_TIMEOUT))

    def _metadata(self, body: bytes) -> _ListMeta:
        """Return the metadata of a page, without reading the objects if they come last, as API servers write them."""
        try:
            return self._raw_page.decode(body[: body.find(b',"items":[')] + b"}").metadata
        except UNDECODABLE:
            return self._raw(body).metadata

    def _raw(self, body: bytes) -> _Page[msgspec.Raw]:
        try:
            return self._raw_page.decode(body)
        except UNDECODABLE as error:
            raise ApiUnavailable(f"expected a list from GET {self.path}, found something else: {error}") from error

    def _decode(self, body: bytes) -> tuple[list[T], int]:
        try:
            return self._page.decode(body).items or [], 0
        except UNDECODABLE:
            items: list[T] = []
        unread = 0
        for raw in self._raw(body).items or []:
            try:
                items.append(msgspec.json.decode(raw, type=self.object_type))
            except UNDECODABLE as error:
                unread += 1
                logger.warning("an object in the list of %s cannot be decoded and is left out: %s", self.path, error)
        return items, unread
