"""A WebSocket engine in Rust, driven from Python, and what its applications need beside it.

Everything is in the compiled module `_wse_accel`, whose contract is `_wse_accel.pyi`; this package only gives it its
public name.
"""

from wse_server._wse_accel import (
    Message,
    MessageBatch,
    RustCompressionManager,
    RustEventSequencer,
    RustPriorityMessageQueue,
    RustPriorityQueue,
    RustSequencer,
    RustTokenBucket,
    RustWSEServer,
    __version__,
    rust_aes_gcm_decrypt,
    rust_aes_gcm_encrypt,
    rust_compress,
    rust_decompress,
    rust_ecdh_derive_shared_secret,
    rust_ecdh_generate_keypair,
    rust_hmac_sha256,
    rust_jwt_decode,
    rust_jwt_encode,
    rust_match_event,
    rust_sha256,
    rust_should_compress,
    rust_sign_message,
    rust_transform_event,
)

__all__ = [
    "Message",
    "MessageBatch",
    "RustCompressionManager",
    "RustEventSequencer",
    "RustPriorityMessageQueue",
    "RustPriorityQueue",
    "RustSequencer",
    "RustTokenBucket",
    "RustWSEServer",
    "__version__",
    "rust_aes_gcm_decrypt",
    "rust_aes_gcm_encrypt",
    "rust_compress",
    "rust_decompress",
    "rust_ecdh_derive_shared_secret",
    "rust_ecdh_generate_keypair",
    "rust_hmac_sha256",
    "rust_jwt_decode",
    "rust_jwt_encode",
    "rust_match_event",
    "rust_sha256",
    "rust_should_compress",
    "rust_sign_message",
    "rust_transform_event",
]
