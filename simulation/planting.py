"""Change one piece of the product's code, found by the name of a definition and a syntax pattern.

A pattern is Python code: an expression, statements that follow each other, or ``except`` with its statements. It fits
code with the same syntax tree. A single capital letter in it stands for any expression or name, and as a statement for
any number of statements; ``*A`` and ``**K`` of a call, and ``**K`` of a dict, stand for any number of arguments or
entries. Letters in the code that replaces it stand for what they fitted.
"""

import ast
import difflib
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cache
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple

from gas.values.errors import GasError

ROOT = Path(__file__).parents[1]


class CannotPlant(GasError):
    """A fault does not fit the product any more."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"planted fault {name!r}: {problem}. Change the fault in simulation/planted.py")


class ChangedModule(NamedTuple):
    name: str
    path: Path
    tree: ast.Module


@dataclass(frozen=True, slots=True)
class PlantedFault:
    name: str
    # the end of the dotted name of the function, class or constant that is changed; no other ends with it
    definition: str
    pattern: str  # the code that is replaced, which the definition has exactly once
    replacement: str = "None"  # without one, the code is left out
    within: int = 30  # number of seeds in which it must be found
    part: str = ""  # folder of the extender's part that the fault is about, if any

    def changed(self) -> ChangedModule:
        """Return the module with the fault. Raises CannotPlant."""
        module, path, tree, definition = self._find()
        pattern, replacement = _code(self.pattern), _code(self.replacement)
        if len(pattern) == len(replacement) == 1:
            match pattern[0], replacement[0]:
                case ast.Expr(value=old), ast.Expr(value=new):
                    pattern, replacement = [old], [new]
        places = list(_places(definition, pattern))
        if len(places) != 1:
            raise CannotPlant(
                self.name,
                f"{self.definition} in {module} has {len(places)} pieces of code like {self.pattern!r}, expected 1; "
                f"the most similar one is {_most_similar(definition, pattern)!r}",
            )
        places[0].put([_Fill(places[0].fitted).visit(each) for each in replacement])
        return ChangedModule(module, path, ast.fix_missing_locations(tree))

    def _find(self) -> tuple[str, Path, ast.Module, ast.AST]:
        """Return the module of the definition, its file, its code and the definition. Raises CannotPlant."""
        last = self.definition.rpartition(".")[2]
        word = re.compile(rf"^\s*(async def |def |class )?{last}\b", re.MULTILINE)
        found = []
        for path, text in _sources():
            if word.search(text):
                module, tree = ".".join(path.relative_to(ROOT).with_suffix("").parts), ast.parse(text)
                for name, definition in _definitions(tree, module):
                    if name.endswith(f".{self.definition}"):
                        found.append((name, (module, path, tree, definition)))
        if len(found) != 1:
            names = " and ".join(name for name, _ in found) or "none"
            raise CannotPlant(self.name, f"expected one definition {self.definition} in gas, found {names}")
        return found[0][1]


def plant(fault: PlantedFault) -> None:
    """Plant a fault in this process. Raises RuntimeError if its module has been imported already, and CannotPlant."""
    changed, get_code = fault.changed(), SourceFileLoader.get_code
    if changed.name in sys.modules:
        raise RuntimeError(f"{changed.name} has been imported already, so nothing can be planted in it")

    def with_fault(loader: SourceFileLoader, name: str) -> CodeType | None:
        return compile(changed.tree, str(changed.path), "exec") if name == changed.name else get_code(loader, name)

    SourceFileLoader.get_code = with_fault  # type: ignore[method-assign, assignment]


@cache
def _sources() -> tuple[tuple[Path, str], ...]:
    return tuple((path, path.read_text()) for path in sorted((ROOT / "gas").rglob("*.py")))


def _code(text: str) -> Sequence[ast.AST]:
    if text.startswith("except "):
        return ast.parse(f"try:\n    pass\n{text}").body[0].handlers  # type: ignore[attr-defined, no-any-return]
    return ast.parse(text).body


def _definitions(node: ast.AST, prefix: str) -> Iterator[tuple[str, ast.AST]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{prefix}.{child.name}"
            yield name, child
            yield from _definitions(child, name)
        elif isinstance(child, ast.Assign | ast.AnnAssign):
            targets = child.targets if isinstance(child, ast.Assign) else [child.target]
            yield from ((f"{prefix}.{each.id}", child) for each in targets if isinstance(each, ast.Name))
        elif isinstance(child, ast.stmt | ast.excepthandler):
            yield from _definitions(child, prefix)


Fitted = Mapping[str, Any]
"""By letter of a pattern, the expression, the name, or the list of expressions or statements that it fits."""


class _Place(NamedTuple):
    """Code that fits a pattern: neighbours in a list of statements or expressions, or one expression of a field."""

    owner: ast.AST
    field: str
    at: int | None
    code: list[ast.AST]
    fitted: Fitted

    def put(self, code: list[ast.AST]) -> None:
        if self.at is None:
            setattr(self.owner, self.field, code[0])
        else:
            getattr(self.owner, self.field)[self.at : self.at + len(self.code)] = code


def _places(definition: ast.AST, pattern: Sequence[ast.AST]) -> Iterator[_Place]:
    size = len(pattern)
    for owner in ast.walk(definition):
        for field, value in ast.iter_fields(owner):
            codes = value if isinstance(value, list) else [value]
            for at in range(len(codes) - size + 1):
                if (fitted := _fit_all(pattern, code := codes[at : at + size], {})) is not None:
                    yield _Place(owner, field, at if codes is value else None, code, fitted)


def _most_similar(definition: ast.AST, pattern: Sequence[ast.AST]) -> str:
    kind = next(each for each in (ast.expr, ast.stmt, ast.AST) if isinstance(pattern[0], each))
    wanted = difflib.SequenceMatcher(None, b="\n".join(map(ast.unparse, pattern)))

    def similarity(text: str) -> float:
        wanted.set_seq1(text)
        return wanted.ratio()

    texts = (ast.unparse(node) for node in ast.walk(definition) if isinstance(node, kind))
    return max(texts, key=similarity, default="")


def _letter(text: object) -> str | None:
    return text if isinstance(text, str) and len(text) == 1 and "A" <= text <= "Z" else None


def _letter_for_all(pattern: object) -> str | None:
    """Return the letter of a piece of a pattern that fits any number of pieces."""
    if isinstance(pattern, ast.Expr | ast.Starred) or (isinstance(pattern, ast.keyword) and pattern.arg is None):
        return _letter(pattern.value.id) if isinstance(pattern.value, ast.Name) else None
    return None


def _entries(node: ast.Dict) -> list[ast.expr]:
    """Return the entries of a dict as pairs, and those of ``**`` as they are in a list."""
    return [
        ast.Starred(value) if key is None else ast.Tuple([key, value])
        for key, value in zip(node.keys, node.values, strict=True)
    ]


def _fit(pattern: object, code: object, fitted: Fitted) -> Fitted | None:
    """Return the code of each letter if a piece of code fits a pattern, else None."""
    letter = _letter(pattern.id if isinstance(pattern, ast.Name) else pattern)
    if letter is not None and isinstance(code, ast.expr if isinstance(pattern, ast.Name) else str):
        return _bind(fitted, letter, code)
    if type(pattern) is not type(code):
        return None
    if isinstance(pattern, ast.Dict) and isinstance(code, ast.Dict):
        return _fit_all(_entries(pattern), _entries(code), fitted)
    if isinstance(pattern, list) and isinstance(code, list):
        return _fit_all(pattern, code, fitted)
    if isinstance(pattern, ast.Constant) or not isinstance(pattern, ast.AST):
        return fitted if _text(pattern) == _text(code) else None
    result: Fitted | None = fitted
    for field in pattern._fields:
        if field != "ctx" and result is not None:
            result = _fit(getattr(pattern, field, None), getattr(code, field, None), result)
    return result


def _fit_all(patterns: Sequence[object], codes: Sequence[object], fitted: Fitted) -> Fitted | None:
    """Return the code of each letter if pieces of code, in their order, fit the pieces of a pattern."""
    if not patterns:
        return None if codes else fitted
    first, others = patterns[0], patterns[1:]
    if (letter := _letter_for_all(first)) is None:
        found = _fit(first, codes[0], fitted) if codes else None
        return None if found is None else _fit_all(others, codes[1:], found)
    for count in range(len(codes) + 1):
        found = _bind(fitted, letter, list(codes[:count]))
        if found is not None and (found := _fit_all(others, codes[count:], found)) is not None:
            return found
    return None


def _bind(fitted: Fitted, letter: str, code: object) -> Fitted | None:
    """Return the letters with one more; None if that letter has other code already."""
    if letter in fitted and _text(fitted[letter]) != _text(code):
        return None
    return {**fitted, letter: code}


def _text(code: object) -> str:
    if isinstance(code, list):
        return repr([_text(each) for each in code])
    return ast.unparse(code) if isinstance(code, ast.AST) else repr(code)


class _Fill(ast.NodeTransformer):
    """Replace the letters in a replacement by the code that they fitted in the pattern."""

    def __init__(self, fitted: Fitted) -> None:
        self._fitted = fitted

    def visit(self, node: ast.AST) -> Any:
        """Return the piece of code with letters replaced, or the pieces for a letter that fits many."""
        if (letter := _letter_for_all(node)) is not None:
            return self._fitted[letter]
        if isinstance(node, ast.Name) and (letter := _letter(node.id)) is not None:
            fitted = copy(self._fitted[letter])
            fitted.ctx = node.ctx
            return fitted
        if isinstance(node, ast.Dict):
            return self._dict(node)
        for field, value in ast.iter_fields(node):
            if (letter := _letter(value)) is not None and not isinstance(node, ast.Constant):
                setattr(node, field, self._fitted[letter])
        return self.generic_visit(node)

    def _dict(self, node: ast.Dict) -> ast.Dict:
        entries: Any = self.generic_visit(ast.List(_entries(node)))
        pairs = [each.elts if isinstance(each, ast.Tuple) else (None, each.value) for each in entries.elts]
        return ast.Dict([key for key, _ in pairs], [value for _, value in pairs])
