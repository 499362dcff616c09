"""What a Python application gets out of a WSE service, accounted for message by message.

Data walks one way: `cli.py` and `profiles.py` (what to offer) → `crew.py` (worker processes, one start) → `worker.py`
with `connection.py`, `flood.py`, `pings.py` (one trial in one process) → `service.py` (the other side's counters) →
`judge.py` (`ladder judge`: the rules are in Rust) → `bundle.py`, `tables.py`. Types are those of the package
`bench_format`.
"""

__version__ = "0.1.0"
PROGRAM = f"wse-py-bench {__version__}"
