"""What a tier of ours has to set beside a published figure, and which tier corresponds to which figure. Pure."""

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
    """What a tier has: its figures, what they count and who says so, and what else sets them apart."""

    figures: tuple[Cell, ...]
    counted: Count
    witness: str
    reasons: tuple[str, ...] = ()


def delivered(tier: Tier) -> Counterpart:
    """Only what a witness saw is a throughput; what a service says that it read is named as that."""
    together = dict.fromkeys(result.message.coalesce for result in tier.results)
    apart = tuple(f"ours went {wording.count(number)} to a write" for number in together if number != 1)
    if Witness.NONE not in tier.witnesses:
        return Counterpart(_rates(tier, figure("delivered_per_second")), Count.DELIVERED, _witness(tier), apart)
    received = tier.spread(figure("received_per_second"))
    words = f"{wording.rate(received.median)} received" if received else ""
    cells = (Cell(NOTHING.text, words, Tone.MUTED), NOTHING)
    return Counterpart(cells, Count.RECEIVED, _witness(tier), apart)


def received(tier: Tier) -> Counterpart:
    """What receivers got of what a service published."""
    return Counterpart(_rates(tier, figure("delivered_per_second")), Count.NUMBERED, _witness(tier))


def accepted(tier: Tier) -> Counterpart:
    """How fast connections opened."""
    return Counterpart(_rates(tier, figure("accepted_per_second")), Count.OPENED, _witness(tier))


def waited(tier: Tier) -> Counterpart:
    """Percentiles of all valid trials together."""
    values = tier.histograms.get("response_ns")
    found = [histogram.percentile_ns(values, at) if values else None for at in seeds.PERCENTILES]
    cells = tuple(NOTHING if one is None else Cell(wording.duration(one)) for one in found)
    return Counterpart(cells, Count.ROUND_TRIP, _witness(tier), (_QUEUE,))


def lasted(tier: Tier) -> Counterpart:
    """How many connections lasted, in the repeat in which that were the fewest."""
    worst = min(tier.results, key=_lasting)
    failed = worst.messages.due - worst.messages.delivered - worst.messages.late
    pings = f"{wording.count(failed)} of {wording.count(worst.messages.due)} pings unanswered"
    whole = Cell(f"{wording.count(_lasting(worst))} of {wording.count(worst.connections.attempted)}", pings)
    held = Cell(wording.duration(worst.figures.window_seconds * 1e9))
    return Counterpart((whole, held), Count.LASTED, _witness(tier))


def reached(tier: Tier) -> Counterpart:
    """A tier's connections themselves are the figure."""
    return Counterpart((NONE,), Count.LASTED, _witness(tier))


def all_lasted(tier: Tier) -> bool:
    """Whether all connections opened, lasted and were answered, in every valid trial."""
    return bool(tier.results) and all(result.figures.failed_share == 0 for result in tier.results)


def grown(tier: Tier) -> Counterpart:
    """Memory of an open connection."""
    found = tier.spread(growth)
    cell = Cell(wording.memory(found.median), over_repeats(found, wording.memory)) if found else NOTHING
    return Counterpart((cell,), Count.GROWTH, "read from the kernel")


def _rates(tier: Tier, rate: Getter) -> tuple[Cell, Cell]:
    """A rate, and that for each CPU that the service could use; below it, for each that both sides did use."""
    whole, each, both = tier.spread(rate), tier.spread(_per_cpu(rate)), tier.spread(_per_cpu_of_both(rate))
    sign = AT_LEAST if tier.at_least else ""
    together = f"{wording.rate(both.median)} per CPU of both sides" if both else ""
    return (
        Cell(sign + wording.rate(whole.median), over_repeats(whole, wording.rate)) if whole else NOTHING,
        Cell(sign + wording.rate(each.median), together) if each else Cell(NOTHING.text, together, Tone.MUTED),
    )


def _per_cpu(rate: Getter) -> Getter:
    """By the CPUs that the service could use. From a fraction of one it would be a projection, so there is none."""

    def read(trial: Trial) -> float | None:
        value, cpus = rate(trial), _cpus(trial)
        return None if value is None or cpus is None or cpus < 1 else value / cpus

    return read


def _per_cpu_of_both(rate: Getter) -> Getter:
    """By the CPU time that service and generator used; the published machine's cores were shared by both, too."""

    def read(trial: Trial) -> float | None:
        value, result = rate(trial), trial.result
        service, worker = figure("service_cpu_seconds")(trial), figure("worker_cpu_seconds")(trial)
        if value is None or result is None or service is None or worker is None or service + worker <= 0:
            return None
        return value * result.figures.window_seconds / (service + worker)

    return read


def _cpus(trial: Trial) -> float | None:
    """CPUs that the service could use, as they were read back."""
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
    """The program that offered a ladder's load, without its version."""
    workers = ladder.sample.workers if ladder.sample else []
    return workers[0].program.partition(" ")[0] if workers else ""


def is_of(source: Source, ladder: Ladder, tier: Tier) -> bool:
    """Whether a tier was offered by the kind of client that a source is about, in as many processes."""
    if source.program not in (None, program(ladder)):
        return False
    made = [trial.result for trial in tier.trials if trial.result is not None]
    processes = {len(one.workers) for one in made or filter(None, [ladder.sample])}
    return source.processes is None or processes == {source.processes}


def is_closed(ladder: Ladder) -> bool:
    """Whether the service set the pace, as it did in the published floods, storms and pings."""
    return ladder.sample is not None and isinstance(ladder.sample.load, LoadClosed)
