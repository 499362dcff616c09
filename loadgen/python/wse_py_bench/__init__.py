"""Measures a WSE service from Python clients and accounts for every message.

The modules, in the order in which data passes them: `cli.py` and `profiles.py` (the load) → `worker_pool.py` (worker
processes with a common start) → `worker.py` with `connection.py`, `flood.py`, `pings.py` (one trial in one process) →
`service.py` (the service's counters) → `judge.py` (`ladder judge`: the rules are in Rust) → `bundle.py`, `tables.py`.
The types of files are in the package `bench_format`.
"""

__version__ = "0.1.0"
PROGRAM = f"wse-py-bench {__version__}"
