"""The table of the pods that took part in a run in a cluster. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from bench_format.schemas import Pod, TrialResult

from . import wording
from .cells import NOTHING, Cell, Column, Table, Tone

# The QoS class of pods whose CPU limits equal their requests; all other classes are marked in the table.
_PROMISED = "Guaranteed"
# Leading characters of an image digest that are printed; enough to tell digests apart.
_DIGEST = 12


def pods(results: Iterable[TrialResult]) -> Table | None:
    """The pods of all trials; those that differ only by name share a row. `None` when no trial has pods."""
    alike: dict[str, dict[str, Pod]] = {}
    throttled: dict[str, list[int]] = {}
    for result in results:
        for pod in result.pods:
            # As text, because a pod has maps, which can't be keys.
            kind = repr(replace(pod, name="", worker=None, restarts=0, throttled_periods=None))
            known = alike.setdefault(kind, {})
            before = known.get(pod.name, pod)
            known[pod.name] = max(before, pod, key=lambda one: one.restarts)
            if pod.throttled_periods is not None:
                throttled.setdefault(kind, []).append(pod.throttled_periods)
    if not alike:
        return None
    titles = ("role", "pods", "node", "quality of service", "CPUs", "image", "digest", "restarts", "throttled periods")
    rows = (_row(list(known.values()), throttled.get(kind)) for kind, known in alike.items())
    return Table("Pods", tuple(Column(title, number=False) for title in titles), tuple(rows))


def _row(known: list[Pod], throttled: list[int] | None) -> tuple[Cell, ...]:
    kind = known[0]
    restarts = sum(pod.restarts for pod in known)
    promised = kind.qos_class == _PROMISED
    digest = kind.image_digest.rpartition("@")[2].rpartition(":")[2]
    return (
        Cell(f"{kind.role.value} {kind.companion}" if kind.companion else kind.role.value),
        Cell(wording.count(len(known))),
        _text(kind.node),
        Cell(kind.qos_class, tone=Tone.PLAIN if promised else Tone.WARN) if kind.qos_class else NOTHING,
        _text(kind.cpus_allowed),
        _text(kind.image),
        _text(digest[:_DIGEST]),
        Cell(wording.count(restarts), tone=Tone.WARN if restarts else Tone.PLAIN),
        NOTHING if throttled is None else Cell(wording.count(sum(throttled))),
    )


def _text(text: str) -> Cell:
    return Cell(text) if text else NOTHING
