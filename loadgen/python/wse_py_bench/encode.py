"""The types of `bench_format` as JSON: the way back from what its `wire` module decodes."""

import json
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

from ws_ladder_analysis.bench_format.plan import Load
from ws_ladder_analysis.bench_format.result import Validity


def to_json(value: object) -> str:
    """As text, whole numbers with all of their digits."""
    return json.dumps(to_wire(value), indent=1) + "\n"


def to_wire(value: object) -> Any:
    """As what JSON knows. Absent figures are `null`."""
    if isinstance(value, Load):
        return {"model": value.name, **to_wire(value.model)}
    if isinstance(value, Validity):
        return {"state": "valid"} if value.valid else {"state": "invalid", "reasons": to_wire(list(value.reasons))}
    if isinstance(value, Enum):
        return value.value
    if is_dataclass(value) and not isinstance(value, type):
        # A field whose name is a word of Python ends in an underscore there.
        return {field.name.removesuffix("_"): to_wire(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, dict):
        return {key: to_wire(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_wire(one) for one in value]
    return value
