"""The file by which a kubelet still knows after its restart which container has which devices."""

from __future__ import annotations

from pathlib import Path

import msgspec

from gas.sandbox.device_books import Allotment, DeviceBooks

NAME = "kubelet_internal_checkpoint"


class _Entry(msgspec.Struct):
    uid: str
    container: str
    resource: str
    ids: list[str]
    answer: bytes


class _Checkpoint(msgspec.Struct):
    entries: list[_Entry]
    resources: list[str]


def write_checkpoint(file: Path, books: DeviceBooks) -> None:
    entries = [
        _Entry(uid, container, resource, sorted(allotment.ids), allotment.answer)
        for uid, containers in books.allotments.items()
        for container, allotments in containers.items()
        for resource, allotment in allotments.items()
    ]
    unfinished = file.with_suffix(".new")
    unfinished.write_bytes(msgspec.json.encode(_Checkpoint(entries, sorted(books.resources))))
    unfinished.replace(file)


def read_checkpoint(file: Path) -> DeviceBooks:
    """The books as they were, without any healthy device: plugins have to tell of those again."""
    books = DeviceBooks()
    if not file.exists():
        return books
    checkpoint = msgspec.json.decode(file.read_bytes(), type=_Checkpoint)
    for resource in checkpoint.resources:
        books.tell(resource, {}, {})
    for entry in checkpoint.entries:
        books.give(entry.uid, entry.container, entry.resource, Allotment(frozenset(entry.ids), entry.answer))
    return books
