//! The WSE engine as a Python extension module. It converts types and errors, and it detaches from the interpreter
//! while the engine works. It has no logic of its own.
//!
//! [`server`] is the class that applications start, with its methods that receive and send; [`topics`] has its methods
//! for topics and [`health`] those for its state. [`fork`] notices forks of the process. [`arguments`] and [`keys`]
//! check the constructor's arguments. [`running`] is a started server; [`cluster`] and [`redis`] connect it with other
//! processes. Messages reach the application through [`batch`] (as views),
//! [`events`] (decoded, with the data format of the reference implementation) or [`callbacks`]. [`values`] decodes them
//! with the strings of [`names`], and [`shapes`] speeds up messages that resemble an earlier one. [`outgoing`] encodes
//! the events that go to clients, and [`application`] reads the application's own counters from Python. [`utilities`]
//! has functions and classes that applications use beside the server.
//!
//! The typed interface is `python/wse_server/_wse_accel.pyi`. "The reference" in this crate is the original WSE server,
//! whose names, defaults and data format this one keeps.

mod application;
mod arguments;
mod batch;
mod callbacks;
mod cluster;
mod events;
mod fork;
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

/// The extension module. The package `wse_server` exports its classes and functions under their public names.
#[pyo3::pymodule]
mod _wse_accel {
    use pyo3::prelude::*;

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

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        super::fork::count_forks(module.py())
    }
}
