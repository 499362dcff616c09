"""The WSE engine with an application that takes no messages, for measurements of what its clients notice.

It has the flags of `bench_server.py`.
"""

import time

from bench_server import Service, arguments, secret_of

LOOK_SECONDS = 0.05


class StandingService(Service):
    """A service whose application stands still until the end."""

    def _deliver_batch(self) -> int:
        if not self.stopping:
            time.sleep(LOOK_SECONDS)
        return 0


if __name__ == "__main__":
    parser = arguments()
    StandingService(parser.parse_args(), secret_of(parser)).run()
