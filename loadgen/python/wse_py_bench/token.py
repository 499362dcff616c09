"""The access token (JWT, HS256) with the claims of the published benchmarks."""

import base64
import hashlib
import hmac
import json

# The default secret of the bench servers; it is public and protects nothing.
BENCH_SECRET = "bench-secret-key-for-testing-only"
TOKEN_SECONDS = 3600


def sign(secret: str, now: int) -> str:
    """Signs a token that is valid for one hour from `now`, in seconds since the Unix epoch."""
    claims = {"sub": "bench-user", "iss": "wse-bench", "aud": "wse-bench", "exp": now + TOKEN_SECONDS, "iat": now}
    signed = b".".join(_base64url(json.dumps(part).encode()) for part in ({"alg": "HS256", "typ": "JWT"}, claims))
    return b".".join([signed, _base64url(hmac.digest(secret.encode(), signed, hashlib.sha256))]).decode()


def _base64url(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")
