"""Measures Python's encoders: test 5 of the published suite, which sends nothing. Prints microseconds per message.

Each figure is the fastest of five rounds, because slower rounds were disturbed by other work.
"""

import json
import sys
import timeit
import zlib
from collections.abc import Callable

import msgpack  # type: ignore[import-untyped]

MESSAGES = 20_000
ROUNDS = 5
US_PER_SECOND = 1e6
TRADE = {
    "p": {
        "account": "acc_01HQ3",
        "price": 5234.75,
        "qty": 2,
        "score": 0.87,
        "side": "buy",
        "symbol": "ES",
        "tags": ["momentum", "breakout"],
        "ts": "2026-02-23T14:30:00.123Z",
    },
    "t": "trade_update",
}
COMPACT = (",", ":")
ENCODERS: dict[str, Callable[[], bytes]] = {
    "json, as it comes": lambda: json.dumps(TRADE).encode(),
    "json, compact": lambda: json.dumps(TRADE, separators=COMPACT).encode(),
    "msgpack": lambda: b"M:" + msgpack.packb(TRADE),
    "json and zlib": lambda: b"C:" + zlib.compress(json.dumps(TRADE, separators=COMPACT).encode()),
}


def main() -> int:
    """Prints one line per encoder: its name, the size of its message and the time per message."""
    for name, encode in ENCODERS.items():
        best = min(timeit.repeat(encode, number=MESSAGES, repeat=ROUNDS)) / MESSAGES * US_PER_SECOND
        print(f"{name:18} {len(encode()):4} bytes  {best:6.2f} µs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
