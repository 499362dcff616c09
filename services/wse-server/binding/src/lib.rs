//! The WSE engine for Python: types in, types out, the interpreter released while the engine works. No logic.
//!
//! [`server`] is the class that applications start, with what it publishes in [`topics`]; [`arguments`] and [`keys`] check what it is given; [`running`] is what
//! it starts. Messages leave by [`batch`] and [`message`] (views), by [`events`] (decoded, the reference's shape) or by
//! [`callbacks`]; [`values`] decodes with the strings of [`names`], [`shapes`] what looks like a message before.
//! [`outgoing`] writes the events that leave.
//! [`application`] asks Python for its books. The typed contract is `python/wse_server/_wse_accel.pyi`.

mod application;
mod arguments;
mod batch;
mod callbacks;
mod events;
mod keys;
mod message;
mod names;
mod outgoing;
mod running;
mod server;
mod shapes;
mod topics;
mod values;

/// The module; the package `wse_server` gives its classes their public names.
#[pyo3::pymodule]
mod _wse_accel {
    #[pymodule_export]
    use super::{batch::MessageBatch, message::Message, server::RustWSEServer};

    #[pymodule_export]
    #[allow(non_upper_case_globals)]
    const __version__: &str = env!("CARGO_PKG_VERSION");
}
