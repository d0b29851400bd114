from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Permission:
    """A permission on the API server that a program's account should have.

    resource   with its subresource, ``pods/binding``
    namespace  empty for the whole cluster
    name       of the only object; empty for all
    needed     False if the program works without it, but reports less
    """

    verb: str
    resource: str
    group: str = ""
    namespace: str = ""
    name: str = ""
    needed: bool = True


def permissions_on(resource: str, *verbs: str, group: str = "") -> frozenset[Permission]:
    return frozenset(Permission(verb, resource, group) for verb in verbs)
