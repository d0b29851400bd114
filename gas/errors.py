"""Errors made for a person: ``str()`` of each is the whole sentence. Anything else that is raised is a bug of ours."""

from __future__ import annotations


class GasError(Exception):
    """The root of every error that this project raises on purpose.

    The sentence says where, what was expected, what was found and, where it is not obvious, what to do.
    ``exit_code`` is what a program that cannot go on because of this error exits with.
    """

    exit_code = 1
