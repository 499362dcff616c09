"""The explanations and the glossary that a report prints. Text only: no code and no figures."""

from __future__ import annotations

READING = (
    "A row of a ladder is a tier. Its figures are geometric means over the service’s processes, and percentiles of all "
    "values together; the smaller line is the range over the valid trials.",
    "“delivered” is what the witness confirms. “written” is what clients handed to their sockets; it is shown "
    "beside it and is never a throughput figure.",
    "An invalid trial is in no figure, chart or ratio. It is listed with its reason, and its own figures stand "
    "greyed under “Every trial”.",
    "Under an open load, latency counts from the moment a message was due, so a stall of the service shows in "
    "every message that was due during it. A closed load waits for the service and measures capacity or a round "
    "trip, not the latency that users would see; “load” says which it was.",
    "n/a: there is no such figure. A percentile needs enough samples behind it: 459 for p99, 4\u202f603 for p99.9,"
    " 46\u202f050 for p99.99. Fewer can’t carry the claim at 99 % confidence.",
    ">= marks a rate that the generator bound: the service can do at least this. Only a rate bound by the service"
    " is its capacity.",
    "Services take turns, so that process 1 of one and process 1 of the other are a pair. A ratio has an interval from "
    "five pairs on: Student’s t on the logarithms of the pairs’ ratios; for a percentile, leaving out one pair each. "
    "An interval that holds 1 shows no difference. The more rows a table has, the wider its intervals are, so that of "
    "the rows that claim a difference at most one in twenty is expected to be wrong.",
    "When both sides run on one machine, the kernel charges the receiver’s share of loopback traffic to the "
    "sender. So CPU per million is given for the service, and for both sides together.",
    "Histograms of workers and repeats are added, never averaged. A value is exact to three digits.",
)

GATEWAYS = (
    "CPU per frame falls with the load, since wake-ups are shared: gateways are compared at one number of sessions, "
    "taking turns in one run, and as a ratio to the one that is written as its framework’s documentation shows it.",
    "The published figures are sessions that a CPU of another machine carried inside the objective; as a ratio to the "
    "published axum’s they may stand beside ours. “measured” are those whose published code was run on a machine of "
    "this kind. What some of ours read lazily, those read at once: a gateway that takes many frames for one wake-up is "
    "cheaper for that reason before any other. Each gateway’s README says what it does and what that gave.",
    "Lines of code are neither blank nor only a comment, without tests, counted in the folders of this run; for the "
    "others they are as published.",
)

WAYS = (
    "One instance publishes and has no connections, the other has them all; between them is Redis, or a connection of "
    "theirs. The service’s CPU and memory are those of both, of that Redis and of what started them: what a way costs "
    "is what all of these cost. The last tables say which of them.",
    "A flood through a link may run ahead of its subscribers no further than one in a single instance may: its "
    "publisher looks at how far the other instance is.",
)

BESIDE = (
    "What others published for the same kind of load and as many connections, what that really counted, and what this "
    "run has beside it. The published figures can’t be repeated here: they are of one large machine that client and "
    "server shared. So a rate stands per core of that machine, and ours per CPU that the service had; latency, memory "
    "and numbers of connections have no figure per core.",
    "A CPU here is what the kernel calls one. Where that is a hardware thread, the smaller line per hardware thread is "
    "the one to read; and since the published cores did the client’s work too, so is ours per CPU of both sides.",
    "There is no ratio in this section. Most of these figures count different things, and a ratio that means something "
    "needs both services in one run.",
)

GLOSSARY = (
    ("service", "the system under test"),
    ("workload", "a kind of load, such as connection-storm, ping-latency or throughput"),
    ("variant", "what else tells two ladders of a workload apart: format, size, delivery mode, rate"),
    ("tier", "a load level: how many connections, sessions or subscribers"),
    ("ladder", "the tiers of one workload against one service, in order"),
    ("plan", "the file that says what to climb"),
    ("run", "one execution of a plan; it leaves one bundle"),
    ("trial", "one measured window at one tier"),
    ("worker", "one load generator process"),
    ("connection", "one WebSocket from open to close"),
    ("outcome", "how one message ended: delivered, late, wrong, dropped, lost or unsent"),
    (
        "witness",
        "who says that a message arrived: the application counted it, a reply proves it, its receiver got it, nobody",
    ),
    ("response", "time from when a message was due to its reply"),
    ("service time", "time from when a message was sent to its reply; “service” in the latency tables"),
    ("age", "how old a message is that a service publishes as fast as it can: its backlog, and no latency"),
    ("delay", "time from when a message was due to when it was sent: the generator’s own lateness"),
    ("handshake", "time from the start of a connection to the protocol’s “ready”"),
    ("attempt lateness", "time from when a connection was due to its attempt: the generator’s own lateness"),
    ("reconnected", "time from the cut of all connections until one of them was ready again"),
    ("objective", "what a trial must reach to pass"),
    ("verdict", "pass or fail against the objectives; borderline when repeats disagree"),
    ("validity", "valid, or invalid with its reasons; an invalid trial has no verdict"),
    ("bound by", "what limited a closed load: the service, the generator, both or neither"),
    ("capacity", "the load at which a trial on a fresh process meets the objective with probability 0.5"),
    ("spread", "the standard deviation, between processes, of the load at which a trial begins to fail"),
    ("link", "what carries publications from the instance that publishes to another: Redis, or a cluster’s connection"),
    ("books", "the equations that account for every message"),
)
