"""Reads the figures of our tiers that correspond to published ones, and decides which tiers correspond. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from bench_format import histogram
from bench_format.schemas import LoadClosed, TrialResult, Witness

from . import seeds, wording
from .cells import NONE, NOTHING, Cell, Tone
from .ladders import Getter, Ladder, Tier, figure
from .load import Trial
from .published import Count, Source
from .tables import AT_LEAST, over_repeats

_QUEUE = f"a closed loop's round trip is the length of a queue, and {seeds.THREADS} hardware threads worked off theirs"

growth = figure("service_bytes_per_connection")


@dataclass(frozen=True)
class Counterpart:
    """A tier's figures, what they count, the witness, and further reasons why they aren't comparable."""

    figures: tuple[Cell, ...]
    counted: Count
    witness: str
    reasons: tuple[str, ...] = ()


def delivered(tier: Tier) -> Counterpart:
    """Delivered per second with a witness; without one, received per second as a detail that is named as such."""
    together = dict.fromkeys(result.message.coalesce for result in tier.results)
    apart = tuple(f"ours went {wording.count(number)} to a write" for number in together if number != 1)
    if Witness.NONE not in tier.witnesses:
        return Counterpart(_rates(tier, figure("delivered_per_second")), Count.DELIVERED, _witness(tier), apart)
    received = tier.spread(figure("received_per_second"))
    description = f"{wording.rate(received.mean)} received" if received else ""
    cells = (Cell(NOTHING.text, description, Tone.MUTED), NOTHING)
    return Counterpart(cells, Count.RECEIVED, _witness(tier), apart)


def received(tier: Tier) -> Counterpart:
    """Rate at which receivers got the service's publications."""
    return Counterpart(_rates(tier, figure("delivered_per_second")), Count.NUMBERED, _witness(tier))


def accepted(tier: Tier) -> Counterpart:
    """Rate at which connections opened."""
    return Counterpart(_rates(tier, figure("accepted_per_second")), Count.OPENED, _witness(tier))


def waited(tier: Tier) -> Counterpart:
    """Percentiles of the response time, over the merged histograms of all valid trials."""
    values = tier.histograms.get("response_ns")
    found = [histogram.percentile_ns(values, at) if values else None for at in seeds.PERCENTILES]
    cells = tuple(NOTHING if one is None else Cell(wording.duration(one)) for one in found)
    return Counterpart(cells, Count.ROUND_TRIP, _witness(tier), (_QUEUE,))


def lasted(tier: Tier) -> Counterpart:
    """The share of connections that lasted, in the repeat with the fewest."""
    worst = min(tier.results, key=_lasting)
    failed = worst.messages.due - worst.messages.delivered - worst.messages.late
    pings = f"{wording.count(failed)} of {wording.count(worst.messages.due)} pings unanswered"
    whole = Cell(f"{wording.count(_lasting(worst))} of {wording.count(worst.connections.attempted)}", pings)
    held = Cell(wording.duration(worst.figures.window_seconds * 1e9))
    return Counterpart((whole, held), Count.LASTED, _witness(tier))


def reached(tier: Tier) -> Counterpart:
    """No figure of its own: the tier's number of connections is the figure."""
    return Counterpart((NONE,), Count.LASTED, _witness(tier))


def all_lasted(tier: Tier) -> bool:
    """Whether all connections opened, lasted and were answered, in every valid trial."""
    return bool(tier.results) and all(result.figures.failed_share == 0 for result in tier.results)


def grown(tier: Tier) -> Counterpart:
    """Growth of the service's resident memory per open connection."""
    found = tier.spread(growth)
    cell = Cell(wording.memory(found.mean), over_repeats(found, wording.memory)) if found else NOTHING
    return Counterpart((cell,), Count.GROWTH, "read from the kernel")


def _rates(tier: Tier, rate: Getter) -> tuple[Cell, Cell]:
    """A rate, and the rate per CPU that the service could use; its detail is the rate per CPU that both sides used."""
    whole, each, both = tier.spread(rate), tier.spread(_per_cpu(rate)), tier.spread(_per_cpu_of_both(rate))
    sign = AT_LEAST if tier.at_least else ""
    together = f"{wording.rate(both.mean)} per CPU of both sides" if both else ""
    return (
        Cell(sign + wording.rate(whole.mean), over_repeats(whole, wording.rate)) if whole else NOTHING,
        Cell(sign + wording.rate(each.mean), together) if each else Cell(NOTHING.text, together, Tone.MUTED),
    )


def _per_cpu(rate: Getter) -> Getter:
    """The rate per CPU that the service could use. With less than one CPU it would be a projection and is `None`."""

    def read(trial: Trial) -> float | None:
        value, cpus = rate(trial), _cpus(trial)
        return None if value is None or cpus is None or cpus < 1 else value / cpus

    return read


def _per_cpu_of_both(rate: Getter) -> Getter:
    """The rate per CPU that service and generator used; both shared the cores of the published machine, too."""

    def read(trial: Trial) -> float | None:
        value, result = rate(trial), trial.result
        service, worker = figure("service_cpu_seconds")(trial), figure("worker_cpu_seconds")(trial)
        if value is None or result is None or service is None or worker is None or service + worker <= 0:
            return None
        return value * result.figures.window_seconds / (service + worker)

    return read


def _cpus(trial: Trial) -> float | None:
    """CPUs that the service could use, as read back during the trial."""
    if trial.result is None:
        return None
    of = trial.result.service
    readings = (of.window_start, of.window_end, of.before, of.after)
    limits = [reading.cpu_limit for reading in readings if reading is not None and reading.cpu_limit is not None]
    return limits[0] if limits else None


def _lasting(result: TrialResult) -> int:
    return result.connections.open - sum(result.connections.closed_early.values())


def _witness(tier: Tier) -> str:
    return f"witness: {', '.join(tier.witnesses)}"


def program(ladder: Ladder) -> str:
    """The program that generated a ladder's load, without its version; empty without workers."""
    workers = ladder.sample.workers if ladder.sample else []
    return workers[0].program.partition(" ")[0] if workers else ""


def is_of(source: Source, ladder: Ladder, tier: Tier) -> bool:
    """Whether a tier's load came from the source's kind of client, with as many processes."""
    if source.program not in (None, program(ladder)):
        return False
    made = [trial.result for trial in tier.trials if trial.result is not None]
    processes = {len(one.workers) for one in made or filter(None, [ladder.sample])}
    return source.processes is None or processes == {source.processes}


def is_closed(ladder: Ladder) -> bool:
    """Whether the load is a closed loop, as in the published floods, storms and pings."""
    return ladder.sample is not None and isinstance(ladder.sample.load, LoadClosed)
