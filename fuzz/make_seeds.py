"""Writes the seeds of the fuzz targets, seeds/TARGET/NAME: some meaningful inputs for each target.

Usage: make_seeds.py [FOLDER]. The files are committed; `./justw generated` fails when they differ from what this
module and those beside it produce. A target with more than one argument gets them as the crate `arbitrary` decodes
them: integers first, in little endian; of two texts the last byte is the length of the first.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import seeds_frames
import seeds_harness
import seeds_http
import seeds_messages

TARGETS = [
    seeds_frames.cluster_frame,
    seeds_frames.cluster_hello,
    seeds_frames.compressed_message,
    seeds_frames.frame,
    seeds_frames.service_frame,
    seeds_frames.stt_frame,
    seeds_harness.connections_cursor,
    seeds_harness.judged_upload,
    seeds_harness.plan,
    seeds_harness.run_file,
    seeds_harness.websocket_service,
    seeds_http.cookie,
    seeds_http.exposition,
    seeds_http.gateway_message,
    seeds_http.handshake,
    seeds_http.inference_response,
    seeds_messages.encrypted,
    seeds_messages.encrypted_frames,
    seeds_messages.event,
    seeds_messages.inflate,
    seeds_messages.json_scan,
    seeds_messages.msgpack,
    seeds_messages.presence_data,
    seeds_messages.recovery_position,
    seeds_messages.redis_message,
]


def main() -> int:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "seeds"
    shutil.rmtree(folder, ignore_errors=True)
    for make in TARGETS:
        target = folder / make.__name__
        target.mkdir(parents=True)
        for name, seed in make().items():
            (target / name).write_bytes(seed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
