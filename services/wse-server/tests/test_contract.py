"""The type stubs match the binary: all public names and signatures."""

import ast
import inspect
from pathlib import Path
from typing import Any

import pytest
import wse_server
from wse_server import _wse_accel

STUB = ast.parse(Path(_wse_accel.__file__ or "").with_name("_wse_accel.pyi").read_text())
CLASSES = {node.name: node for node in STUB.body if isinstance(node, ast.ClassDef)}
FUNCTIONS = {node.name: node for node in STUB.body if isinstance(node, ast.FunctionDef)}
PROTOCOL_METHODS = {"__buffer__", "__release_buffer__"}


def members(node: ast.ClassDef) -> dict[str, ast.FunctionDef]:
    """The functions and properties that the stubs declare for a class."""
    return {item.name: item for item in node.body if isinstance(item, ast.FunctionDef)}


def parameters(function: ast.FunctionDef) -> list[tuple[str, Any, str]]:
    """Name, default and kind of each parameter."""
    spec = function.args
    kinds = [(item, "positional") for item in spec.posonlyargs] + [(item, "either") for item in spec.args]
    padding: list[Any] = [inspect.Parameter.empty] * (len(kinds) - len(spec.defaults))
    defaults = padding + [ast.literal_eval(value) for value in spec.defaults]
    rows = [(item.arg, default, kind) for (item, kind), default in zip(kinds, defaults, strict=True)]
    for item, value in zip(spec.kwonlyargs, spec.kw_defaults, strict=True):
        rows.append((item.arg, inspect.Parameter.empty if value is None else ast.literal_eval(value), "keyword"))
    return rows


KINDS: dict[Any, str] = {
    inspect.Parameter.POSITIONAL_ONLY: "positional",
    inspect.Parameter.POSITIONAL_OR_KEYWORD: "either",
    inspect.Parameter.KEYWORD_ONLY: "keyword",
}


def test_the_binary_exports_exactly_the_names_of_the_contract() -> None:
    public = vars(_wse_accel)
    assert {name for name, value in public.items() if inspect.isclass(value)} == set(CLASSES)
    assert {name for name, value in public.items() if inspect.isbuiltin(value)} == set(FUNCTIONS)
    assert set(wse_server.__all__) == {*CLASSES, *FUNCTIONS, "__version__"}
    assert wse_server.__version__.count(".") == 2


@pytest.mark.parametrize("name", CLASSES)
def test_a_class_has_the_members_of_the_contract_and_no_others(name: str) -> None:
    declared = {member for member in members(CLASSES[name]) if not member.startswith("_")}
    actual = {member for member in vars(getattr(_wse_accel, name)) if not member.startswith("_")}
    assert actual == declared


@pytest.mark.parametrize(
    ("name", "member"), [(name, member) for name, node in CLASSES.items() for member in members(node)]
)
def test_a_signature_is_the_contracts(name: str, member: str) -> None:
    declared = members(CLASSES[name])[member]
    owner = getattr(_wse_accel, name)
    if member in PROTOCOL_METHODS:
        assert member not in vars(owner) or callable(vars(owner)[member])
        return
    actual = vars(owner)[member]
    is_property = any(isinstance(item, ast.Name) and item.id == "property" for item in declared.decorator_list)
    assert inspect.isgetsetdescriptor(actual) == is_property
    if is_property or (member.startswith("__") and member != "__new__"):
        return
    signature = inspect.signature(owner if member == "__new__" else actual)
    rows = [
        (item.name, item.default, KINDS[item.kind]) for item in signature.parameters.values() if item.name != "self"
    ]
    # The stub's first parameter is self or cls.
    assert rows == parameters(declared)[1:]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_is_the_contracts(name: str) -> None:
    signature = inspect.signature(getattr(_wse_accel, name))
    rows = [(item.name, item.default, KINDS[item.kind]) for item in signature.parameters.values()]
    assert rows == parameters(FUNCTIONS[name])


def test_a_class_that_only_the_server_creates_cannot_be_instantiated() -> None:
    for name in ("Message", "MessageBatch"):
        with pytest.raises(TypeError):
            getattr(_wse_accel, name)()
