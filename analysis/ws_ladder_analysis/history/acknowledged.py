"""The acknowledgement file: changes for the worse that are known and accepted, each with the reason.

It is YAML, a list of entries:

    - plan: stt
      figure: CPU per million messages
      commits: 8f07ac637740..1775e00b039b    # the last commit before the change, the first one after it
      series: rust-axum/sessions/standard/1000    # optional: only this service, workload, variant and tier
      why: partials carry a checksum since then
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from .changes import APART, Change
from .points import Series

_REQUIRED, _OPTIONAL = ("plan", "figure", "commits", "why"), ("series",)
# A commit is named by at least so many digits.
_LEAST_DIGITS = 7


class AcknowledgementError(Exception):
    """The file can't be read; the text names the entry and what is wrong with it."""


@dataclass(frozen=True)
class Acknowledged:
    """One entry of the file."""

    plan: str
    figure: str
    # The commit before the change and that after it, or their first digits.
    first: str
    last: str
    why: str
    # Service, workload, variant and tier; empty for all.
    series: str = ""

    def names(self, series: Series, change: Change) -> bool:
        """Whether the entry is about this change: it lies between the two commits, or at most as far beside them as the
        detectors may place it."""
        place = series.place
        if (self.plan, self.figure) != (place.plan, place.figure) or self.series not in ("", place.name):
            return False
        commits = [point.commit for point in series.points]
        before = [index for index, commit in enumerate(commits) if commit.startswith(self.first)]
        after = [index for index, commit in enumerate(commits) if commit.startswith(self.last)]
        if not before or not after:
            return False
        return before[-1] - APART < change.index <= after[0] + APART


def read(file: Path) -> tuple[Acknowledged, ...]:
    """Reads the file. Raises `AcknowledgementError` if it can't be read or an entry lacks something."""
    try:
        found = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise AcknowledgementError(f"failed to read {file}: {error}") from error
    except yaml.YAMLError as error:
        raise AcknowledgementError(f"{file} is not YAML: {' '.join(str(error).split())}") from error
    if found is None:
        return ()
    if not isinstance(found, list):
        raise AcknowledgementError(f"{file}: it must be a list of entries with {', '.join(_REQUIRED)}")
    return tuple(_entry(one, f"{file}: entry {number}") for number, one in enumerate(found, 1))


def _entry(value: object, where: str) -> Acknowledged:
    if not isinstance(value, dict):
        raise AcknowledgementError(f"{where} has no keys; it needs {', '.join(_REQUIRED)}")
    unknown = [str(key) for key in value if key not in (*_REQUIRED, *_OPTIONAL)]
    if unknown:
        known = ", ".join((*_REQUIRED, *_OPTIONAL))
        raise AcknowledgementError(f"{where}: no key {', '.join(unknown)}; there are {known}")
    texts = {key: value[key] for key in value}
    # YAML reads a commit of digits alone as a number.
    wrong = [key for key in _REQUIRED if not isinstance(texts.get(key), str) or not texts[key].strip()]
    wrong += [key for key in _OPTIONAL if key in texts and not isinstance(texts[key], str)]
    if wrong:
        raise AcknowledgementError(f"{where}: {', '.join(wrong)} must be a text")
    first, dots, last = (part.strip() for part in str(texts.pop("commits")).partition(".."))
    if not dots or min(len(first), len(last)) < _LEAST_DIGITS:
        raise AcknowledgementError(f"{where}: commits must be BEFORE..AFTER, each with at least {_LEAST_DIGITS} digits")
    return Acknowledged(first=first, last=last, **texts)


def unmatched(entries: Sequence[Acknowledged], used: Sequence[Acknowledged]) -> tuple[Acknowledged, ...]:
    """Entries that name no change: their commits may be mistyped, or the change is no longer seen."""
    return tuple(one for one in entries if one not in used)
