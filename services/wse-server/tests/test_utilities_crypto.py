"""Tokens, signatures and encrypted messages, in both directions against PyJWT, `cryptography`, `hmac` and `hashlib`."""

import hashlib
import hmac
import secrets
import time
from typing import Any

import jwt
import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from wse_server import (
    rust_aes_gcm_decrypt,
    rust_aes_gcm_encrypt,
    rust_ecdh_derive_shared_secret,
    rust_ecdh_generate_keypair,
    rust_hmac_sha256,
    rust_jwt_decode,
    rust_jwt_encode,
    rust_sha256,
    rust_sign_message,
)

SECRET = b"a secret of thirty-two bytes, at least"
OTHER = b"another secret of thirty-two bytes and more"


def claims(**more: Any) -> dict[str, Any]:
    return {"sub": "user", "iss": "me", "aud": "you", "exp": int(time.time()) + 60, "n": [1, 2.5, None, "é"]} | more


def decode(token: str, **options: Any) -> dict[str, Any] | None:
    return rust_jwt_decode(token, **{"secret": SECRET, "issuer": "me", "audience": "you"} | options)


def test_pyjwt_reads_our_tokens_and_we_read_its() -> None:
    expected = claims()
    ours = rust_jwt_encode(expected, SECRET, key_id="key")
    assert jwt.decode(ours, SECRET, ["HS256"], audience="you", issuer="me") == expected
    assert jwt.get_unverified_header(ours) == {"typ": "JWT", "alg": "HS256", "kid": "key"}
    assert decode(jwt.encode(expected, SECRET)) == expected


@pytest.mark.parametrize("algorithm", ["RS256", "ES256"])
def test_public_keys_verify_what_private_ones_signed_in_every_form(algorithm: str) -> None:
    private: Any = ec.generate_private_key(ec.SECP256R1())
    if algorithm == "RS256":
        private = rsa.generate_private_key(65537, 2048)
    public = private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    expected = claims()
    for form in (PrivateFormat.PKCS8, PrivateFormat.TraditionalOpenSSL):
        pem = private.private_bytes(Encoding.PEM, form, NoEncryption())
        token = rust_jwt_encode(expected, pem, algorithm)  # type: ignore[arg-type]
        assert jwt.decode(token, public, [algorithm], audience="you") == expected
        assert decode(jwt.encode(expected, pem, algorithm), secret=public, algorithm=algorithm) == expected
        # A public key is never accepted as a secret.
        assert rust_jwt_decode(rust_jwt_encode(expected, public), public, algorithm) is None  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "bad",
    [
        {"exp": 0},
        {"exp": None},
        {"nbf": 2**40},
        {"iss": "someone"},
        {"iss": None},
        {"aud": "someone"},
        {"aud": ["a", "b"]},
    ],
)
def test_an_unexpected_token_is_none(bad: dict[str, Any]) -> None:
    wrong = {name: value for name, value in claims(**bad).items() if value is not None}
    assert decode(jwt.encode(wrong, SECRET)) is None


def test_a_malformed_token_is_none() -> None:
    good = jwt.encode(claims(), SECRET)
    for bad in (
        "",
        "x",
        "a.b.c",
        good[:-10],
        good + "x" * 9000,
        jwt.encode(claims(), OTHER),
        jwt.encode({}, "", "none"),
    ):
        assert decode(bad) is None
    assert decode(jwt.encode(claims(), SECRET + SECRET, "HS512"), secret=SECRET + SECRET) is None


def test_clocks_may_differ_by_half_a_minute() -> None:
    now = int(time.time())
    assert decode(jwt.encode(claims(exp=now - 20, nbf=now + 20), SECRET)) is not None
    assert decode(jwt.encode(claims(exp=now - 35), SECRET)) is None
    assert decode(jwt.encode(claims(nbf=now + 60), SECRET)) is None


def test_issuer_and_audience_are_checked_only_where_they_are_given() -> None:
    token = jwt.encode(claims(), SECRET)
    assert rust_jwt_decode(token, SECRET) == rust_jwt_decode(token, SECRET, "HS256", "me", "you") != {}
    assert decode(jwt.encode(claims(aud=["other", "you"]), SECRET)) is not None


def test_the_previous_secret_matches_any_key_id() -> None:
    for key, kid, passes in (
        (SECRET, "new", True),
        (SECRET, "old", False),
        (SECRET, None, False),
        (OTHER, "old", True),
    ):
        token = rust_jwt_encode(claims(), key, "HS256", kid)
        assert (decode(token, previous_secret=OTHER, key_id="new") is not None) == passes
        assert (decode(token, key_id="new") is not None) == (passes and key == SECRET)


def test_a_key_or_an_algorithm_that_cannot_work_raises() -> None:
    for call in (
        lambda: rust_jwt_encode(claims(), b"short"),
        lambda: rust_jwt_decode("x", b"short"),
        lambda: rust_jwt_decode("x", SECRET, previous_secret=b"short"),
    ):
        with pytest.raises(ValueError, match="5 bytes are too short"):
            call()
    for algorithm in ("none", "HS512", "hs256"):
        with pytest.raises(ValueError, match=f'algorithm is "{algorithm}"'):
            rust_jwt_decode("x", SECRET, algorithm)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match=f'algorithm is "{algorithm}"'):
            rust_jwt_encode({}, SECRET, algorithm)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="give its public key as PEM"):
        rust_jwt_decode("x", SECRET, "RS256")
    with pytest.raises(ValueError, match="give its private key as PEM"):
        rust_jwt_encode({}, SECRET, "ES256")


def test_claims_that_cannot_be_a_token_raise() -> None:
    with pytest.raises(ValueError, match="leave claims out"):
        rust_jwt_encode({"x": "y" * 9000}, SECRET)
    with pytest.raises(ValueError, match="beyond 64 bits"):
        rust_jwt_encode({"x": 2**70}, SECRET)
    with pytest.raises(TypeError):
        rust_jwt_encode([1], SECRET)  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 1000, 100_000])
def test_digests_and_signatures_are_those_of_the_standard_library(size: int) -> None:
    key, data = secrets.token_bytes(size % 200), secrets.token_bytes(size)
    assert rust_sha256(data) == hashlib.sha256(data).hexdigest()
    assert rust_hmac_sha256(key, data) == hmac.digest(key, data, "sha256")
    text = data.hex()
    digest = hashlib.sha256(text.encode()).hexdigest()
    assert rust_sign_message(text, key) == hmac.new(key, digest.encode(), "sha256").hexdigest()


def test_bytes_and_text_are_not_confused() -> None:
    with pytest.raises(TypeError):
        rust_sha256("text")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        rust_sign_message(b"bytes", b"")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        rust_aes_gcm_encrypt("x" * 32, b"")  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [0, 1, 1000, 100_000])
def test_sealed_messages_open_in_both_libraries(size: int) -> None:
    key, plain = secrets.token_bytes(32), secrets.token_bytes(size)
    sealed = rust_aes_gcm_encrypt(key, plain)
    assert len(sealed) == size + 28
    assert AESGCM(key).decrypt(sealed[:12], sealed[12:], None) == plain
    iv = secrets.token_bytes(12)
    assert rust_aes_gcm_decrypt(key, iv + AESGCM(key).encrypt(iv, plain, None)) == plain


def test_a_message_is_sealed_with_another_iv_each_time() -> None:
    key = secrets.token_bytes(32)
    assert len({rust_aes_gcm_encrypt(key, b"x")[:12] for _ in range(100)}) == 100


def test_changed_messages_are_not_decrypted() -> None:
    key = secrets.token_bytes(32)
    sealed = bytearray(rust_aes_gcm_encrypt(key, b"hello"))
    for at in range(len(sealed)):
        sealed[at] ^= 1
        with pytest.raises(ValueError, match="another key, or changed"):
            rust_aes_gcm_decrypt(key, bytes(sealed))
        with pytest.raises(InvalidTag):
            AESGCM(key).decrypt(bytes(sealed[:12]), bytes(sealed[12:]), None)
        sealed[at] ^= 1
    with pytest.raises(ValueError, match="3 bytes are too short"):
        rust_aes_gcm_decrypt(key, b"abc")
    with pytest.raises(ValueError, match="key has 31 bytes: give 32"):
        rust_aes_gcm_encrypt(key[1:], b"")


def test_both_libraries_agree_on_a_key() -> None:
    private, public = rust_ecdh_generate_keypair()
    assert (len(private), len(public), public[0]) == (32, 65, 4)
    theirs = ec.generate_private_key(ec.SECP256R1())
    their_public = theirs.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
    secret = theirs.exchange(ec.ECDH(), ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), public))
    expected = HKDF(SHA256(), 32, None, b"wse-encryption/aes-gcm-key").derive(secret)
    assert rust_ecdh_derive_shared_secret(private, their_public) == expected
    numbers = theirs.private_numbers().private_value
    assert rust_ecdh_derive_shared_secret(numbers.to_bytes(32), public) == expected


def test_an_invalid_public_key_is_refused() -> None:
    private, public = rust_ecdh_generate_keypair()
    with pytest.raises(ValueError, match="private_key has 31 bytes: give 32"):
        rust_ecdh_derive_shared_secret(private[1:], public)
    with pytest.raises(ValueError, match="the private key is not valid for P-256"):
        rust_ecdh_derive_shared_secret(bytes(32), public)
    for bad in (b"", public[:-1], bytes([2]) + public[1:33], bytes(65)):
        with pytest.raises(ValueError, match=f"public key of {len(bad)} bytes"):
            rust_ecdh_derive_shared_secret(private, bad)
