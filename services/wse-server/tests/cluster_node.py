"""A clustered server (ours or the reference) as a process that is controlled through its standard input."""

import json
import socket
import sys
import time
from typing import Any

from wse_server import RustWSEServer


def main() -> None:
    """Starts the server, prints a ready line, answers each call (a line of JSON) with its result until end of input."""
    options: dict[str, Any] = json.loads(sys.argv[1])
    secret = options.get("secret")
    port = options.get("port", 0)
    server = RustWSEServer("127.0.0.1", port, jwt_secret=secret and secret.encode(), **options.get("server", {}))
    server.enable_drain_mode()
    server.start()
    # The reference starts to listen shortly after `start()` returns.
    while port and socket.socket().connect_ex(("127.0.0.1", port)):
        time.sleep(0.01)
    server.connect_cluster(**options["cluster"])
    ready = {"port": port or server.port, "cluster_port": options["cluster"]["cluster_port"] or server.cluster_port}
    print(json.dumps(ready), flush=True)
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        print(json.dumps(getattr(server, name)(*arguments)), flush=True)
    server.stop()


if __name__ == "__main__":
    main()
