//! The WSE engine for Python: types in, types out, the interpreter released while the engine works. No logic.
//!
//! [`server`] is the class that applications start, with what it publishes in [`topics`]; [`arguments`] and [`keys`] check
//! what it is given; [`running`] is what it starts, [`cluster`] and [`redis`] what it does with others. Messages leave by
//! [`batch`] (as views), by [`events`] (decoded, the reference's shape) or by [`callbacks`]; [`values`] decodes with the
//! strings of [`names`], [`shapes`] what looks like a message before, and [`outgoing`] writes the events that go to clients. [`application`] asks Python for its
//! books, [`health`] tells those of the engine. [`utilities`] are what applications need beside the server. The typed contract is
//! `python/wse_server/_wse_accel.pyi`.

mod application;
mod arguments;
mod batch;
mod callbacks;
mod cluster;
mod events;
mod health;
mod keys;
mod names;
mod outgoing;
mod redis;
mod running;
mod server;
mod shapes;
mod topics;
mod utilities;
mod values;

/// The module; the package `wse_server` gives its classes their public names.
#[pyo3::pymodule]
mod _wse_accel {
    #[pymodule_export]
    use super::utilities::{
        breaker::RustCircuitBreaker,
        bucket::RustTokenBucket,
        compression::{RustCompressionManager, rust_compress, rust_decompress, rust_should_compress},
        crypto::{
            rust_aes_gcm_decrypt, rust_aes_gcm_encrypt, rust_ecdh_derive_shared_secret, rust_ecdh_generate_keypair,
        },
        filter::rust_match_event,
        order::RustEventSequencer,
        priority::{RustPriorityMessageQueue, RustPriorityQueue},
        sequencer::RustSequencer,
        signing::{rust_hmac_sha256, rust_sha256, rust_sign_message},
        tokens::{rust_jwt_decode, rust_jwt_encode},
        transform::rust_transform_event,
    };
    #[pymodule_export]
    use super::{
        batch::{Message, MessageBatch},
        server::RustWSEServer,
    };

    #[pymodule_export]
    #[allow(non_upper_case_globals)]
    const __version__: &str = env!("CARGO_PKG_VERSION");
}
