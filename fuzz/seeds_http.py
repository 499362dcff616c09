"""Seeds of the targets that parse HTTP, and of those for a gateway's messages."""

from __future__ import annotations

from seed_values import HELLO, TEXT, Seeds, client, compact

PARTIAL = {
    "type": "partial",
    "oldest_frame_seq": 51,
    "newest_frame_seq": 100,
    "frames": 50,
    "rms": 4096.5,
    "zero_crossings": 321,
    "checksum": 4294967295,
    "samples": 64000,
    "transcript": "word word",
    "audio_bytes": 32000,
    "cpu_passes": 4,
    "model_delay_ms": 80,
    "flush_lateness_ms": 0.25,
    "inflight_model_jobs": 1,
}
ERROR = {
    "type": "error",
    "stage": "inference",
    "kind": "status",
    "message": "the inference said 503",
    "oldest_frame_seq": 51,
    "newest_frame_seq": 100,
    "frames": 50,
    "audio_bytes": 32000,
    "oldest_age_ms": 1000.0,
    "newest_age_ms": 20.0,
    "flush_lateness_ms": 0.0,
    "inference_elapsed_ms": 12.5,
    "inflight_gateway_batches": 0,
    "gateway_buffer_frames": 3,
    "inference_status": 503,
    "retryable": True,
}


def cookie() -> Seeds:
    return {
        "usual": b"a=b; session=1; theme=dark",
        "token-that-is-none": b"access_token=a.b.c; a=b",
        "empty-token": b"access_token=; a=b",
        "token-of-a-script": b"access_token=undefined",
        "quoted": b'access_token="a.b.c"',
        "name-as-a-suffix": b"my_access_token=a.b.c; xaccess_token=1",
        "spaces-and-semicolons": b" ;; = ;a= ; =b;",
        "bearer": b"Bearer a.b.c",
        "beyond-ascii": "n\u00e4me=w\u00e9rt; \u2028=x".encode(),
        "nothing": b"",
    }


def exposition() -> Seeds:
    """A selector and a page; of two texts the last byte is the length of the first."""
    pages = {
        "labels": ('a_total{way="in"}', 'a_total{way="in",shard="0"} 7\na_total{way="out"} 9 1395066363000\n'),
        "open-metrics": ("a_total", '# TYPE a counter\na_total 17 1520879607.789 # {trace_id="x"} 0.67\n# EOF\n'),
        "quoted-name": ('{"my.metric"}', '{"my.metric", "a b"="c"} 1e3\n'),
        "escapes": ('a{b="\\"\\\\\\n"}', 'a{b="\\"\\\\\\n"} 1\n'),
        "no-count": ("a", "a NaN\na -1\na 0.5\n"),
        "another-page": ("a", "<html>Not Found</html>"),
    }
    return {name: (text + page).encode() + bytes([len(text.encode())]) for name, (text, page) in pages.items()}


def gateway_message() -> Seeds:
    short = {key: value for key, value in ERROR.items() if key not in ("inference_elapsed_ms", "inference_status")}
    return {
        "partial": compact(PARTIAL),
        "partial-of-frames-covered-before": compact(PARTIAL | {"oldest_frame_seq": 1, "newest_frame_seq": 60}),
        "partial-beyond-what-was-sent": compact(PARTIAL | {"newest_frame_seq": 18446744073709551615}),
        "partial-with-escapes": compact(PARTIAL).replace(b"word word", rb"\u0077\n\ud83d\ude00"),
        "partial-of-nothing": compact(PARTIAL | {"frames": 0}),
        "partial-that-is-negative": compact(PARTIAL | {"rms": -0.5}),
        "partial-backwards": compact(PARTIAL | {"oldest_frame_seq": 101}),
        "error": compact(ERROR),
        "error-without-inference": compact(short),
        "error-with-a-further-key": compact(ERROR | {"more": 1}),
        "start": b'{"type":"start"}',
    }


def handshake() -> Seeds:
    usual = (
        b"Host: localhost:5006\r\nUpgrade: websocket\r\nConnection: keep-alive, Upgrade\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
    )
    # Signed with another key than the gate's.
    token = (
        b"eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiJ1IiwiZXhwIjo0MTAyNDQ0ODAwfQ"
        b".AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
    )
    get = b"GET /wse HTTP/1.1\r\n"
    return {
        "usual": get + usual + b"\r\n",
        "token-in-a-cookie": get + usual + b"Cookie: a=b; access_token=" + token + b"\r\n\r\n",
        "token-in-a-header": get + usual + b"Authorization: Bearer " + token + b"\r\n\r\n",
        "message-pack": b"GET /wse?format=msgpack HTTP/1.1\r\n" + usual + b"\r\n",
        "a-frame-behind-it": get + usual + b"\r\n" + client(TEXT, compact(HELLO)),
        "cut-off": get + usual,
        "no-key": get + usual.replace(b"Sec-WebSocket-Key", b"X-Key") + b"\r\n",
        "key-of-another-length": get + usual.replace(b"dGhlIHNhbXBsZSBub25jZQ==", b"dGhl") + b"\r\n",
        "another-version": get + usual.replace(b": 13", b": 8") + b"\r\n",
        "post": b"POST /wse HTTP/1.1\r\n" + usual + b"\r\n",
        "http-1.0": b"GET /wse HTTP/1.0\r\n" + usual + b"\r\n",
        "no-http": b"SSH-2.0-OpenSSH_9.2\r\n",
    }


def inference_response() -> Seeds:
    found = {
        "rms": 4096.5,
        "zero_crossings": 321,
        "checksum": 77,
        "samples": 2560,
        "transcript": "word",
        "audio_bytes": 1280,
    }
    body = compact(found)

    def response(body: bytes, head: bytes = b"", status: bytes = b"200 OK") -> bytes:
        length = b"content-length: " + str(len(body)).encode() + b"\r\n"
        return b"HTTP/1.1 " + status + b"\r\ncontent-type: application/json\r\n" + length + head + b"\r\n" + body

    return {
        "body": body,
        "body-with-an-empty-transcript": compact(found | {"transcript": ""}),
        "body-about-other-samples": compact(found | {"samples": 1}),
        "answer": response(body),
        "answer-that-closes": response(body, b"connection: close\r\n"),
        "answer-busy": response(b"busy", status=b"503 Service Unavailable"),
        "two-answers": response(body) * 2,
        "chunked": b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        "two-lengths": b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\n{} ",
        "length-beyond-the-limit": b"HTTP/1.1 200 OK\r\ncontent-length: 32768\r\n\r\n",
        "cut-off": response(body)[:-1],
    }
