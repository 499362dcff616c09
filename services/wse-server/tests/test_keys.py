"""RS256, ES256 and key sets, with tokens and keys of independent implementations (PyJWT, cryptography)."""

import json
import re
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from harness import Running, message
from websockets.exceptions import ConnectionClosed
from wse_server import RustWSEServer

from bench_server import AUDIENCE, ISSUER, SECRET

CLAIMS = {"sub": "bench-user", "iss": ISSUER, "aud": AUDIENCE}


class Pair(NamedTuple):
    """An issuer's key pair."""

    algorithm: str
    private: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey

    def public_pem(self) -> bytes:
        return self.private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)

    def private_pem(self) -> bytes:
        return self.private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

    def jwk(self, kid: str) -> dict[str, Any]:
        library = jwt.get_algorithm_by_name(self.algorithm)
        return {**library.to_jwk(self.private.public_key(), as_dict=True), "kid": kid, "use": "sig"}

    def token(self, kid: str | None = None, **claims: Any) -> str:
        return signed(self.algorithm, self.private, kid, **claims)


def signed(algorithm: str, key: Any, kid: str | None = None, **claims: Any) -> str:
    headers = None if kid is None else {"kid": kid}
    return jwt.encode(CLAIMS | {"exp": int(time.time()) + 60} | claims, key, algorithm, headers)


RSA, OTHER_RSA = (Pair("RS256", rsa.generate_private_key(65537, 2048)) for _ in range(2))
CURVE, OTHER_CURVE = (Pair("ES256", ec.generate_private_key(ec.SECP256R1())) for _ in range(2))


def key_set(*keys: dict[str, Any]) -> str:
    return json.dumps({"keys": keys})


def admits(running: Running, token: str) -> bool:
    """Whether a client with this token is accepted; if not, it must get an error message and close code 4401."""
    with running.connect(cookie=f"access_token={token}") as connection:
        first = message(connection)
        if first["t"] == "server_ready":
            return bool(first["p"]["details"]["user_id"] == "bench-user")
        assert first["p"]["code"] == "AUTH_FAILED"
        with pytest.raises(ConnectionClosed) as closed:
            connection.recv(10)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 4401
        return False


@pytest.mark.parametrize(("pair", "other"), [(RSA, OTHER_RSA), (CURVE, OTHER_CURVE)], ids=["RS256", "ES256"])
def test_a_public_key_verifies_the_tokens_of_its_private_half(
    start: Callable[..., Running], pair: Pair, other: Pair
) -> None:
    running = start(jwt_secret=pair.public_pem(), jwt_algorithm=pair.algorithm)
    assert admits(running, pair.token())
    assert admits(running, pair.token("whatever"))
    for bad in (
        other.token(),
        pair.token(exp=int(time.time()) - 31),
        pair.token(iss="someone"),
        pair.token(aud="someone"),
        pair.token()[:-8] + "AAAAAAAA",
        signed("HS256", SECRET),
    ):
        assert not admits(running, bad)


@pytest.mark.parametrize("pair", [RSA, CURVE], ids=["RS256", "ES256"])
def test_a_public_key_is_not_a_secret(start: Callable[..., Running], pair: Pair) -> None:
    # PyJWT refuses to sign with a public key, so the forged signature is made with the bytes of the key.
    header, claims, _ = signed("HS256", SECRET).split(".")
    library = jwt.get_algorithm_by_name("HS256")
    signature = library.sign(f"{header}.{claims}".encode(), pair.public_pem())
    forged = f"{header}.{claims}.{jwt.utils.base64url_encode(signature).decode()}"
    assert not admits(start(jwt_secret=pair.public_pem(), jwt_algorithm=pair.algorithm), forged)


def test_the_previous_public_key_passes_and_the_current_one_needs_its_id(start: Callable[..., Running]) -> None:
    running = start(
        jwt_secret=CURVE.public_pem(),
        jwt_previous_secret=OTHER_CURVE.public_pem(),
        jwt_algorithm="ES256",
        jwt_key_id="new",
    )
    assert admits(running, CURVE.token("new"))
    assert admits(running, OTHER_CURVE.token("old"))
    assert not admits(running, CURVE.token("old"))


def test_a_set_of_keys_chooses_by_id_and_algorithm(start: Callable[..., Running]) -> None:
    secret = {"kty": "oct", "k": jwt.utils.base64url_encode(SECRET).decode(), "kid": "s"}
    running = start(jwt_secret=None, jwt_keys=key_set(RSA.jwk("r"), CURVE.jwk("e"), secret))
    for good in (RSA.token("r"), CURVE.token("e"), signed("HS256", SECRET, "s")):
        assert admits(running, good)
    for bad in (RSA.token("e"), CURVE.token("r"), RSA.token(), OTHER_RSA.token("r"), signed("HS256", SECRET, "r")):
        assert not admits(running, bad)


def test_keys_are_rotated_while_clients_are_connected(start: Callable[..., Running]) -> None:
    running = start(jwt_secret=None, jwt_keys=key_set(RSA.jwk("1")).encode())
    inside = running.connect(cookie=f"access_token={RSA.token('1')}")
    assert message(inside)["t"] == "server_ready"
    assert not admits(running, CURVE.token("2"))
    running.server.set_jwt_keys(key_set(RSA.jwk("1"), CURVE.jwk("2")))
    assert admits(running, RSA.token("1"))
    assert admits(running, CURVE.token("2"))
    running.server.set_jwt_keys(key_set(CURVE.jwk("2")))
    assert not admits(running, RSA.token("1"))
    with pytest.raises(ValueError, match="none of the set's 1 keys"):
        running.server.set_jwt_keys(key_set(RSA.jwk("1") | {"use": "enc"}))
    assert admits(running, CURVE.token("2"))
    inside.send('{"t":"ping","p":{"timestamp":1}}')
    assert message(inside)["t"] == "PONG"


def test_the_private_key_of_the_reference_is_checked(start: Callable[..., Running]) -> None:
    for pair in (RSA, CURVE):
        options = {"jwt_secret": pair.public_pem(), "jwt_algorithm": pair.algorithm}
        assert admits(start(**options, jwt_private_key=pair.private_pem()), pair.token())
        with pytest.raises(ValueError, match=r"jwt_private_key: .* does not belong to the public one"):
            start(**options, jwt_private_key=OTHER_CURVE.private_pem())


WEAK = Pair("RS256", rsa.generate_private_key(65537, 1024))
P384 = Pair("ES384", ec.generate_private_key(ec.SECP384R1()))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"jwt_algorithm": "none"}, "jwt_algorithm is \"none\": give 'HS256', 'RS256' or 'ES256'"),
        ({"jwt_algorithm": "RS256"}, "jwt_secret: not a public key for RS256: give it as PEM"),
        ({"jwt_secret": RSA.public_pem()}, 'is not a secret for HS256: set jwt_algorithm to "RS256"'),
        ({"jwt_previous_secret": CURVE.public_pem()}, "jwt_previous_secret: the PEM of a key of the curve P-256"),
        ({"jwt_secret": key_set(RSA.jwk("1")).encode()}, "is not a secret for HS256: give the set as jwt_keys"),
        ({"jwt_algorithm": "RS256", "jwt_secret": RSA.private_pem()}, "jwt_secret: not a public key for RS256"),
        ({"jwt_algorithm": "ES256", "jwt_secret": RSA.public_pem()}, "jwt_secret: the public key is not one for ES256"),
        ({"jwt_algorithm": "ES256", "jwt_secret": P384.public_pem()}, "takes one of the curve P-256"),
        ({"jwt_algorithm": "RS256", "jwt_secret": WEAK.public_pem()}, "takes an RSA key of 2048 to 8192 bits"),
        ({"jwt_secret": b"short"}, "jwt_secret: 5 bytes are too short for a secret: HS256 needs at least 32"),
        ({"jwt_previous_secret": b"short"}, "jwt_previous_secret: 5 bytes"),
        ({"jwt_secret": None, "jwt_algorithm": "ES256"}, "jwt_algorithm is given without jwt_secret"),
        ({"jwt_keys": "[]"}, "jwt_keys: not a JSON Web Key Set"),
        ({"jwt_secret": None, "jwt_keys": key_set(WEAK.jwk("w"))}, "jwt_keys: none of the set's 1 keys"),
    ],
)
def test_unusable_keys_are_refused_at_once(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=re.escape(says)):
        RustWSEServer("127.0.0.1", 0, **({"jwt_secret": SECRET} | options))


def test_two_keys_with_one_id_are_refused() -> None:
    with pytest.raises(ValueError, match='there are two RS256 keys with the id "r": give each its own'):
        RustWSEServer("127.0.0.1", 0, jwt_keys=key_set(RSA.jwk("r"), OTHER_RSA.jwk("r")))
