"""Which tokens are accepted, and that others get an error message and close code 4401."""

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from harness import Running, message
from websockets.exceptions import ConnectionClosedError, InvalidStatus
from websockets.sync.client import connect

from bench_server import SECRET, token

NOW = int(time.time())
CLAIMS = {"sub": "bench-user", "iss": "wse-bench", "aud": "wse-bench", "exp": NOW + 600}
HEADER = {"alg": "HS256", "typ": "JWT"}


def signed(header: dict[str, Any] = HEADER, claims: dict[str, Any] = CLAIMS, secret: bytes = SECRET) -> str:
    """A token with the given header, claims and secret."""
    parts = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in (header, claims)]
    signature = hmac.digest(secret, b".".join(parts), hashlib.sha256)
    return b".".join([*parts, base64.urlsafe_b64encode(signature).rstrip(b"=")]).decode()


BAD = {
    "expired": signed(claims=CLAIMS | {"exp": NOW - 31}),
    "not yet valid": signed(claims=CLAIMS | {"nbf": NOW + 600}),
    "without expiry": signed(claims={key: CLAIMS[key] for key in ("sub", "iss", "aud")}),
    "forged": signed(secret=b"x" * 33),
    "unsigned": signed({"alg": "none"}).rpartition(".")[0] + ".",
    "of another algorithm": signed({"alg": "HS512", "typ": "JWT"}),
    "from another issuer": signed(claims=CLAIMS | {"iss": "someone"}),
    "for another audience": signed(claims=CLAIMS | {"aud": ["someone"]}),
    "without subject": signed(claims=CLAIMS | {"sub": ""}),
    "with a line break in its subject": signed(claims=CLAIMS | {"sub": "a\r\nb"}),
    "with critical extensions": signed(HEADER | {"crit": ["x"]}),
    "no token": "garbage",
    "huge": "a." + "b" * 9000 + ".c",
}


def refusal(running: Running, cookie: str) -> tuple[str, int, str]:
    """The code of the error message, the close code and its reason."""
    with running.connect(cookie=cookie) as connection:
        error = message(connection)
        with pytest.raises(ConnectionClosedError) as closed:
            connection.recv(10)
    assert error["t"] == "error"
    assert closed.value.rcvd is not None
    return error["p"]["code"], closed.value.rcvd.code, closed.value.rcvd.reason


@pytest.mark.parametrize("why", BAD)
def test_a_bad_token_is_refused(running: Running, why: str) -> None:
    assert refusal(running, f"access_token={BAD[why]}") == ("AUTH_FAILED", 4401, "Authentication failed")
    assert running.server.get_connection_count() == 0
    assert running.server.drain_inbound(10, 50) == []


@pytest.mark.parametrize("cookie", ["", "other=1", "access_token=", "access_token=undefined"])
def test_a_missing_token_is_refused(running: Running, cookie: str) -> None:
    assert refusal(running, cookie) == ("AUTH_REQUIRED", 4401, "Authentication failed")


@pytest.mark.parametrize("origin", ["https://evil.example", "null"])
def test_a_page_of_another_site_is_refused_with_the_users_cookie(running: Running, origin: str) -> None:
    with pytest.raises(InvalidStatus, match="HTTP 403"):
        running.connect(origin=origin)
    headers = {"Origin": origin, "Authorization": f"Bearer {token(NOW)}"}
    with connect(running.url(), additional_headers=headers) as other:
        assert message(other)["t"] == "server_ready"


def test_pages_of_the_same_host_and_of_listed_origins_get_in(start: Callable[..., Running]) -> None:
    running = start(allowed_origins=["https://app.example"])
    for origin in (f"http://127.0.0.1:{running.server.port}", "https://app.example"):
        with running.connect(origin=origin) as connection:
            assert message(connection)["t"] == "server_ready"
    with pytest.raises(
        ValueError, match=r"allowed_origins has \"app.example\", which is not an origin: give scheme, host"
    ):
        start(allowed_origins=["app.example"])


def test_a_connection_ends_with_its_token_where_configured(start: Callable[..., Running]) -> None:
    # Expired, but the clocks of issuer and server may differ by 30 seconds.
    expiring = signed(claims=CLAIMS | {"exp": int(time.time()) - 27})
    running = start(disconnect_at_expiry=True, idle_timeout=20, ping_interval=1)
    with running.connect(cookie=f"access_token={expiring}") as connection:
        assert message(connection)["t"] == "server_ready"
        running.wait(lambda: running.server.get_connection_count() == 0)
        # The iteration takes the pings that came before it.
        with pytest.raises(ConnectionClosedError) as closed:
            list(connection)
    assert closed.value.rcvd is not None
    assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (4401, "token expired")


@pytest.mark.parametrize("scheme", ["Bearer", "bearer"])
def test_a_bearer_token_is_accepted_like_a_cookie(running: Running, scheme: str) -> None:
    headers = {"Authorization": f"{scheme} {token(NOW)}"}
    with connect(running.url(), additional_headers=headers) as connection:
        assert message(connection)["p"]["details"]["user_id"] == "bench-user"


def test_the_previous_secret_and_another_cookie_work_where_configured(start: Callable[..., Running]) -> None:
    running = start(jwt_secret=b"n" * 32, jwt_previous_secret=SECRET, jwt_cookie_name="session")
    with running.connect(cookie=f"session={token(NOW)}") as connection:
        assert message(connection)["t"] == "server_ready"


def test_a_key_id_is_required_where_configured(start: Callable[..., Running]) -> None:
    running = start(jwt_key_id="k1")
    with running.connect(cookie=f"access_token={signed(HEADER | {'kid': 'k1'})}") as connection:
        assert message(connection)["t"] == "server_ready"
    assert refusal(running, f"access_token={signed(HEADER | {'kid': 'k2'})}")[:2] == ("AUTH_FAILED", 4401)
