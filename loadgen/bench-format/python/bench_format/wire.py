"""Converts parsed JSON to dataclasses, strictly, and back.

A missing, unknown or mistyped field is an error that names its place. The module knows no particular file. Readers
are built once for each type, because a bundle holds books of many thousand connections.
"""

from __future__ import annotations

import dataclasses
import json
import re
import types
import typing
from collections.abc import Callable, Mapping
from enum import Enum
from functools import cache
from typing import Any, TypeVar

T = TypeVar("T")
Read = Callable[[Any], Any]


class FormatError(ValueError):
    """A value that the format doesn't allow; the message names its place and the problem."""


class _MisfitError(Exception):
    """A problem with a value and its place, which grows outwards as the error passes the enclosing values."""

    def __init__(self, words: str, place: str = "") -> None:
        super().__init__(words)
        self.words, self.place = words, place

    def inside(self, place: str) -> _MisfitError:
        return _MisfitError(self.words, place + self.place)


def decode(kind: type[T], value: object, where: str) -> T:
    """The value as `kind`; `where` is its path inside the file, for error messages."""
    try:
        return typing.cast(T, _reader(typing.cast(Any, kind))(value))
    except _MisfitError as misfit:
        place = (where + misfit.place).removeprefix(".")
        raise FormatError(f"{place or 'the file'} {misfit.words}") from None


def to_json(value: object) -> str:
    """The value as JSON text; integers keep all their digits."""
    return json.dumps(to_wire(value), indent=1) + "\n"


def to_wire(value: object) -> Any:
    """The value as types that JSON has; an absent field becomes `null`."""
    if isinstance(value, Enum):
        return value.value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {_wire_name(field.name): to_wire(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {key: to_wire(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_wire(one) for one in value]
    return value


def _wire_name(name: str) -> str:
    """The field's name in JSON. A name that is a Python keyword (`from`) ends in an underscore in Python."""
    return name.removesuffix("_")


@cache
def _reader(kind: Any) -> Read:
    if dataclasses.is_dataclass(kind):
        # Made when it is first needed: a type may contain itself.
        return lambda value: _object(typing.cast(type, kind))(value)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        options = [option for option in arguments if option is not types.NoneType]
        read = _union(options) if len(options) > 1 else _reader(options[0])
        return read if len(options) == len(arguments) else lambda value: None if value is None else read(value)
    if origin is typing.Literal:
        return _one_of(lambda value: value if value in arguments else None, arguments)
    if origin is typing.Annotated:
        return _text(re.compile(arguments[1]))
    if origin is dict:
        return _map(_reader(arguments[0]), _reader(arguments[1]))
    if origin is list:
        return _list(_reader(arguments[0]))
    if origin is tuple:
        return _tuple([_reader(argument) for argument in arguments])
    if issubclass(kind, Enum):
        members = {member.value: member for member in kind}
        return _one_of(members.get, tuple(members))
    return _scalar(kind)


@cache
def _object(kind: type) -> Read:
    hints = typing.get_type_hints(kind, include_extras=True)
    fields = dataclasses.fields(kind)
    readers = {_wire_name(field.name): (field.name, _reader(hints[field.name])) for field in fields}
    needed = [
        _wire_name(field.name)
        for field in fields
        if (field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING)
        or typing.get_origin(hints[field.name]) is typing.Literal
    ]

    def read(value: Any) -> Any:
        if not isinstance(value, dict):
            raise _unlike("an object", value)
        if unknown := value.keys() - readers.keys():
            raise _MisfitError(f"has fields that this program doesn't know: {', '.join(sorted(unknown))}")
        arguments = {}
        for name, one in value.items():
            field, reader = readers[name]
            try:
                arguments[field] = reader(one)
            except _MisfitError as misfit:
                raise misfit.inside(f".{name}") from None
        for name in needed:
            if name not in value:
                raise _MisfitError("is missing", f".{name}")
        return kind(**arguments)

    return read


def _union(options: list[Any]) -> Read:
    """Reads one of several types: objects that a tag or their only field distinguishes, beside a plain string."""
    plain = next((_reader(option) for option in options if not dataclasses.is_dataclass(option)), None)
    objects = [option for option in options if dataclasses.is_dataclass(option)]
    if len(objects) > 1 and not any(map(_has_tag, objects)):
        return _named(objects, plain)
    tag, variants = _tagged(objects)

    def read(value: Any) -> Any:
        if plain and not isinstance(value, dict):
            return plain(value)
        if not isinstance(value, dict):
            raise _unlike("an object", value)
        if tag is None:
            return variants[tag](value)
        if tag not in value:
            raise _MisfitError("is missing", f".{tag}")
        if value[tag] not in variants:
            raise _MisfitError(f"is {_shown(value[tag])}; known are {', '.join(variants)}", f".{tag}")
        return variants[value[tag]](value)

    return read


def _has_tag(kind: Any) -> bool:
    return any(typing.get_origin(hint) is typing.Literal for hint in typing.get_type_hints(kind).values())


def _named(options: list[Any], plain: Read | None) -> Read:
    """Reads one of several object types with one field each, whose name distinguishes them."""
    variants = {_wire_name(dataclasses.fields(option)[0].name): _reader(option) for option in options}

    def read(value: Any) -> Any:
        if plain and not isinstance(value, dict):
            return plain(value)
        if not isinstance(value, dict):
            raise _unlike("an object", value)
        known = [name for name in value if name in variants]
        if len(known) != 1:
            raise _MisfitError(f"has {', '.join(value) or 'no field'}; known are {', '.join(variants)}")
        return variants[known[0]](value)

    return read


def _tagged(options: list[Any]) -> tuple[str | None, dict[Any, Read]]:
    """The field that distinguishes the objects, and the reader for each of its values; no field if there is one object
    type.
    """
    if len(options) == 1:
        return None, {None: _reader(options[0])}
    tags = {
        (name, typing.get_args(hint)[0]): option
        for option in options
        for name, hint in typing.get_type_hints(option).items()
        if typing.get_origin(hint) is typing.Literal
    }
    return next(iter(tags))[0], {value: _reader(option) for (_, value), option in tags.items()}


def _map(key_reader: Read, reader: Read) -> Read:
    def read(value: Any) -> Any:
        if not isinstance(value, dict):
            raise _unlike("an object", value)
        return {_at("'s key", key_reader, key): _at(f".{key}", reader, one) for key, one in value.items()}

    return read


def _list(reader: Read) -> Read:
    def read(value: Any) -> Any:
        if not isinstance(value, list):
            raise _unlike("a list", value)
        return [_at(f"[{index}]", reader, one) for index, one in enumerate(value)]

    return read


def _tuple(readers: list[Read]) -> Read:
    def read(value: Any) -> Any:
        if not isinstance(value, list):
            raise _unlike("a list", value)
        if len(value) != len(readers):
            raise _MisfitError(f"should have {len(readers)} entries and has {len(value)}")
        return tuple(reader(one) for reader, one in zip(readers, value, strict=True))

    return read


def _at(place: str, reader: Read, value: Any) -> Any:
    try:
        return reader(value)
    except _MisfitError as misfit:
        raise misfit.inside(place) from None


def _one_of(found: Callable[[Any], Any], known: tuple[Any, ...]) -> Read:
    def read(value: Any) -> Any:
        member = found(value) if isinstance(value, str) else None
        if member is None:
            raise _MisfitError(f"is {_shown(value)}; known are {', '.join(known)}")
        return member

    return read


def _text(pattern: re.Pattern[str]) -> Read:
    def read(value: Any) -> Any:
        # `$` of the pattern would also match before a newline at the end.
        if not isinstance(value, str) or not pattern.fullmatch(value) or value.endswith("\n"):
            raise _unlike(f"text that matches {pattern.pattern}", value)
        return value

    return read


def _scalar(kind: type) -> Read:
    def read(value: Any) -> Any:
        if type(value) is kind:
            return value
        if kind is float and type(value) is int:
            return float(value)
        raise _unlike(kind.__name__, value)

    return read


def _unlike(what: str, value: Any) -> _MisfitError:
    return _MisfitError(f"should be {what} and is {_shown(value)}")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
