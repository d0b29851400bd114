from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Permission:
    """A permission on the API server that a program's account should have."""

    verb: str
    resource: str  # with its subresource, ``pods/binding``
    group: str = ""
    namespace: str = ""  # empty for the whole cluster
    name: str = ""  # of the only object; empty for all
    needed: bool = True  # False if the program works without it, but reports less


def permissions_on(resource: str, *verbs: str, group: str = "") -> frozenset[Permission]:
    return frozenset(Permission(verb, resource, group) for verb in verbs)
