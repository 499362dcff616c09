"""Turns parsed JSON into dataclasses, strictly: a missing, unknown or mistyped field is an error that names its place.

Knows nothing of any particular file. A class with a `from_wire` method decodes itself (tagged unions do).
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from enum import Enum
from functools import cache
from typing import Any, TypeVar

T = TypeVar("T")

# A value that is passed through as it was parsed: long lists that are counted but not looked into.
Raw = Any


class FormatError(ValueError):
    """A value that the format doesn't allow; the text names where and what."""


def decode(kind: type[T], value: object, where: str) -> T:
    """The value as `kind`; `where` is its path inside the file, for error texts."""
    return typing.cast(T, _decode(kind, value, where))


def table(value: object, where: str) -> Mapping[str, object]:
    """The value as a JSON object."""
    if not isinstance(value, dict):
        raise FormatError(f"{where or 'the file'} should be an object and is {_shown(value)}")
    return value


def tagged(value: object, tag: str, where: str) -> tuple[str, dict[str, object]]:
    """Splits an internally tagged enum into its tag and its other fields."""
    fields = dict(table(value, where))
    name = fields.pop(tag, None)
    if not isinstance(name, str):
        raise FormatError(f"{where}.{tag} is missing")
    return name, fields


@cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _decode(kind: Any, value: object, where: str) -> object:
    if kind is Raw:
        return value
    if hasattr(kind, "from_wire"):
        return kind.from_wire(value, where)
    if dataclasses.is_dataclass(kind):
        return _dataclass(typing.cast(type, kind), value, where)
    origin = typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        return _optional(kind, value, where)
    if origin is not None:
        return _container(origin, typing.get_args(kind), value, where)
    if issubclass(kind, Enum):
        return _enum(kind, value, where)
    return _scalar(kind, value, where)


def _dataclass(kind: type, value: object, where: str) -> object:
    given, hints = table(value, where), _hints(kind)
    # A field whose name is a word of Python (`from`) ends in an underscore here.
    unknown = sorted(given.keys() - {name.removesuffix("_") for name in hints})
    if unknown:
        raise FormatError(f"{where or 'the file'} has fields that this program doesn't know: {', '.join(unknown)}")
    arguments: dict[str, object] = {}
    for field in dataclasses.fields(kind):
        name = field.name.removesuffix("_")
        place = f"{where}.{name}" if where else name
        if name in given:
            arguments[field.name] = _decode(hints[field.name], given[name], place)
        elif _is_optional(hints[field.name]):
            arguments[field.name] = None
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise FormatError(f"{place} is missing")
    return kind(**arguments)


def _is_optional(kind: Any) -> bool:
    return type(None) in typing.get_args(kind)


def _optional(kind: Any, value: object, where: str) -> object:
    if value is None and _is_optional(kind):
        return None
    options = [option for option in typing.get_args(kind) if option is not type(None)]
    return _decode(options[0], value, where)


def _container(origin: Any, arguments: tuple[Any, ...], value: object, where: str) -> object:
    if origin is dict:
        return {key: _decode(arguments[1], entry, f"{where}.{key}") for key, entry in table(value, where).items()}
    if not isinstance(value, list):
        raise FormatError(f"{where} should be a list and is {_shown(value)}")
    if origin is list:
        return [_decode(arguments[0], entry, f"{where}[{index}]") for index, entry in enumerate(value)]
    if len(value) != len(arguments):
        raise FormatError(f"{where} should have {len(arguments)} entries and has {len(value)}")
    return tuple(_decode(kind, entry, where) for kind, entry in zip(arguments, value, strict=True))


def _enum(kind: type[Enum], value: object, where: str) -> Enum:
    try:
        return kind(value)
    except ValueError:
        allowed = ", ".join(str(member.value) for member in kind)
        raise FormatError(f"{where} is {_shown(value)}; known are {allowed}") from None


def _scalar(kind: type, value: object, where: str) -> object:
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, kind) or (kind is not bool and isinstance(value, bool)):
        raise FormatError(f"{where} should be {kind.__name__} and is {_shown(value)}")
    return value


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
