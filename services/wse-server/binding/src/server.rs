//! `RustWSEServer`: the Python class of the server, with the names and defaults of the reference and this project's
//! engine.

mod receive;
mod send;

use std::{
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    thread::JoinHandle,
};

use pyo3::{
    exceptions::{PyRuntimeError, PyValueError},
    prelude::*,
};
use wse_engine::{CloseHandshake, Config, JwtConfig, PresenceConfig, RateLimit, RecoveryConfig, Server};

use crate::{
    application::Application,
    arguments,
    callbacks::{self, Callbacks},
    fork::Process,
    keys::{JwkSetDocument, JwtArguments},
    running::{Running, start_error, stop_at_exit},
};

/// A WebSocket server of the WSE protocol. It serves after `start()`, until `stop()`.
///
/// Methods can be called from any thread. Those that wait release the interpreter, and the drain methods check for
/// signals meanwhile. The constructor checks its arguments and raises ValueError if one is invalid.
#[pyclass(frozen, module = "wse_server")]
pub(crate) struct RustWSEServer {
    config: Config,
    application: Arc<Application>,
    state: Mutex<State>,
    /// The process of the first start.
    started_by: OnceLock<Process>,
}

/// The part of a server that changes after its construction.
#[derive(Default)]
struct State {
    /// `None` before the first start. It is kept after a stop, because messages that were received can still be
    /// drained.
    running: Option<Arc<Running>>,
    mode: Mode,
    dispatcher: Option<JoinHandle<()>>,
}

/// How the application receives its messages. The first call that chooses decides.
#[derive(Default)]
enum Mode {
    #[default]
    Undecided,
    Drain,
    Callbacks(Arc<Callbacks>),
}

impl RustWSEServer {
    fn state(&self) -> MutexGuard<'_, State> {
        // The lock is held for one read or assignment only and never while Python runs, so a panic can't leave it half
        // changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The server, if it was started; it may have stopped since.
    ///
    /// # Errors
    /// `RuntimeError` in a fork of the process that started it.
    pub(crate) fn running(&self) -> PyResult<Option<Arc<Running>>> {
        if self.is_elsewhere() {
            return Err(PyRuntimeError::new_err(
                "the server runs in the process that this one was forked from: start a server of your own here",
            ));
        }
        Ok(self.state().running.clone())
    }

    /// Whether the server was started by a process that this one was forked from. Asks no lock, because a thread of the
    /// other process may have held it.
    fn is_elsewhere(&self) -> bool {
        self.started_by.get().is_some_and(|process| process.is_gone())
    }

    pub(crate) fn started(&self) -> PyResult<Arc<Running>> {
        self.running()?.ok_or_else(|| PyRuntimeError::new_err("the server was never started: call start() first"))
    }

    fn is_server_running(&self) -> bool {
        self.running().ok().flatten().is_some_and(|running| running.server.is_running())
    }

    /// Stops the engine and the dispatcher thread. The caller must not be attached to the interpreter, because both
    /// threads may be waiting for it.
    fn shut_down(&self) {
        if self.is_elsewhere() {
            return;
        }
        let (running, dispatcher) = {
            let mut state = self.state();
            (state.running.clone(), state.dispatcher.take())
        };
        if let Some(running) = running {
            running.stop();
        }
        // A callback may call stop(). The dispatcher thread can't join itself; it ends when the callback returns.
        if let Some(thread) = dispatcher.filter(|thread| thread.thread().id() != std::thread::current().id()) {
            thread.join().expect("the dispatcher hands every error to Python and has no panics of its own");
        }
    }
}

impl Drop for RustWSEServer {
    fn drop(&mut self) {
        if self.is_elsewhere() {
            // Dropping them would join threads that this process doesn't have. Batches may hold the server too, but they
            // are not the last to do so.
            std::mem::forget(std::mem::take(&mut *self.state()));
        } else if self.is_server_running() {
            // `None` means that the interpreter is shutting down; the process ends with it.
            let _ = Python::try_attach(|py| py.detach(|| self.shut_down()));
        }
    }
}

#[pymethods]
impl RustWSEServer {
    // The arguments and their order are the reference's.
    #[allow(clippy::too_many_arguments)]
    #[new]
    #[pyo3(signature = (
        host, port, max_connections = 1000, jwt_secret = None, jwt_issuer = None, jwt_audience = None, jwt_cookie_name = None,
        jwt_previous_secret = None, jwt_key_id = None, jwt_algorithm = None, jwt_private_key = None, *, jwt_keys = None,
        allowed_origins = None, disconnect_at_expiry = false,
        max_inbound_queue_size = 131_072, max_message_size = 1_048_576, ping_interval = 25, idle_timeout = 60,
        max_outbound_queue_bytes = 16_777_216, max_outbound_bytes = 268_435_456, max_partial_bytes = 67_108_864,
        rate_limit_capacity = 100_000.0, rate_limit_refill = 10_000.0,
        handshake_timeout = 10, max_handshakes = 4096, max_handshakes_per_peer = 0, inbound_overflow = "wait",
        max_inbound_per_connection = 0, inbound_rate_limit_capacity = 0.0, inbound_rate_limit_refill = 0.0,
        delivery = "queue", share_port = false, shards = None, metrics_port = None, metrics_host = "127.0.0.1",
        max_subscriptions_per_connection = 0, max_publish_backlog_bytes = 0, send_buffer_bytes = 131_072,
        recovery_enabled = false, recovery_buffer_size = 128, recovery_ttl = 300, recovery_max_messages = 500, recovery_memory_budget = 268_435_456,
        presence_enabled = false, presence_max_data_size = 4096, presence_max_members = 0,
    ))]
    fn new(
        host: &str,
        port: i64,
        max_connections: i64,
        jwt_secret: Option<Vec<u8>>,
        jwt_issuer: Option<String>,
        jwt_audience: Option<String>,
        jwt_cookie_name: Option<String>,
        jwt_previous_secret: Option<Vec<u8>>,
        jwt_key_id: Option<String>,
        jwt_algorithm: Option<&str>,
        jwt_private_key: Option<Vec<u8>>,
        jwt_keys: Option<JwkSetDocument>,
        allowed_origins: Option<Vec<String>>,
        disconnect_at_expiry: bool,
        max_inbound_queue_size: i64,
        max_message_size: i64,
        ping_interval: i64,
        idle_timeout: i64,
        max_outbound_queue_bytes: i64,
        max_outbound_bytes: i64,
        max_partial_bytes: i64,
        rate_limit_capacity: f64,
        rate_limit_refill: f64,
        handshake_timeout: i64,
        max_handshakes: i64,
        max_handshakes_per_peer: i64,
        inbound_overflow: &str,
        max_inbound_per_connection: i64,
        inbound_rate_limit_capacity: f64,
        inbound_rate_limit_refill: f64,
        delivery: &str,
        share_port: bool,
        shards: Option<i64>,
        metrics_port: Option<i64>,
        metrics_host: &str,
        max_subscriptions_per_connection: i64,
        max_publish_backlog_bytes: i64,
        send_buffer_bytes: i64,
        recovery_enabled: bool,
        recovery_buffer_size: i64,
        recovery_ttl: i64,
        recovery_max_messages: i64,
        recovery_memory_budget: i64,
        presence_enabled: bool,
        presence_max_data_size: i64,
        presence_max_members: i64,
    ) -> PyResult<Self> {
        let jwt_arguments = JwtArguments {
            secret: jwt_secret,
            previous_secret: jwt_previous_secret,
            key_id: jwt_key_id,
            algorithm: jwt_algorithm,
            private_key: jwt_private_key,
            set: jwt_keys,
        };
        let jwt = jwt_arguments.keys()?.map(|keys| {
            let defaults = JwtConfig::new(keys);
            let cookie_name = jwt_cookie_name.unwrap_or(defaults.cookie_name);
            JwtConfig { issuer: jwt_issuer, audience: jwt_audience, cookie_name, keys: defaults.keys }
        });
        let recovery = RecoveryConfig {
            buffer_size: arguments::size("recovery_buffer_size", recovery_buffer_size)?,
            ttl: arguments::seconds("recovery_ttl", recovery_ttl)?,
            max_messages: arguments::size("recovery_max_messages", recovery_max_messages)?,
            memory_budget: arguments::size("recovery_memory_budget", recovery_memory_budget)?,
        };
        let presence = PresenceConfig {
            max_data_size: arguments::size("presence_max_data_size", presence_max_data_size)?,
            max_members: arguments::size("presence_max_members", presence_max_members)?,
        };
        let metrics_address = arguments::address("metrics_host", metrics_host)?;
        let metrics_port = metrics_port.map(|port| arguments::port("metrics_port", port)).transpose()?;
        let config = Config {
            host: arguments::address("host", host)?,
            port: arguments::port("port", port)?,
            max_connections: arguments::size("max_connections", max_connections)?,
            jwt,
            allowed_origins: allowed_origins.unwrap_or_default(),
            disconnect_at_expiry,
            delivery: arguments::delivery(delivery)?,
            inbound_overflow: arguments::overflow(inbound_overflow)?,
            max_inbound_queue_size: arguments::size("max_inbound_queue_size", max_inbound_queue_size)?,
            max_inbound_per_connection: arguments::size("max_inbound_per_connection", max_inbound_per_connection)?,
            inbound_rate_limit: arguments::inbound_rate_limit(inbound_rate_limit_capacity, inbound_rate_limit_refill),
            max_message_size: arguments::size("max_message_size", max_message_size)?,
            ping_interval: arguments::seconds("ping_interval", ping_interval)?,
            idle_timeout: arguments::seconds("idle_timeout", idle_timeout)?,
            handshake_timeout: arguments::seconds("handshake_timeout", handshake_timeout)?,
            max_handshakes: arguments::size("max_handshakes", max_handshakes)?,
            max_handshakes_per_peer: arguments::size("max_handshakes_per_peer", max_handshakes_per_peer)?,
            max_partial_bytes: arguments::size("max_partial_bytes", max_partial_bytes)?,
            max_outbound_queue_bytes: arguments::size("max_outbound_queue_bytes", max_outbound_queue_bytes)?,
            max_outbound_bytes: arguments::size("max_outbound_bytes", max_outbound_bytes)?,
            rate_limit: RateLimit { capacity: rate_limit_capacity, refill_per_second: rate_limit_refill },
            max_subscriptions_per_connection: arguments::size(
                "max_subscriptions_per_connection",
                max_subscriptions_per_connection,
            )?,
            max_publish_backlog_bytes: arguments::size("max_publish_backlog_bytes", max_publish_backlog_bytes)?,
            send_buffer_bytes: arguments::size("send_buffer_bytes", send_buffer_bytes)?,
            recovery: recovery_enabled.then_some(recovery),
            presence: presence_enabled.then_some(presence),
            share_port,
            shards: shards.map(|shards| arguments::size("shards", shards)).transpose()?,
            metrics: metrics_port.map(|port| (metrics_address, port)),
            ..Config::default()
        };
        config.validate().map_err(|error| PyValueError::new_err(error.to_string()))?;
        Ok(Self { config, application: Arc::default(), state: Mutex::default(), started_by: OnceLock::new() })
    }

    /// Binds the port and serves connections in the server's own threads.
    ///
    /// Raises OSError if an address can't be bound, and RuntimeError if the server is running or runs in the process that
    /// this one was forked from.
    fn start(&self, py: Python<'_>) -> PyResult<()> {
        if self.running()?.is_some_and(|running| running.server.is_running()) {
            return Err(PyRuntimeError::new_err("the server is running: call stop() first"));
        }
        let server = py.detach(|| Server::start(self.config.clone())).map_err(start_error)?;
        server.set_application_stats(self.application.clone());
        let running = Running::new(server);
        let _ = self.started_by.set(Process::this());
        let mode = {
            let mut state = self.state();
            state.running = Some(running.clone());
            match &state.mode {
                Mode::Callbacks(callbacks) => Some(callbacks.clone()),
                Mode::Undecided | Mode::Drain => None,
            }
        };
        stop_at_exit(py, &running)?;
        if let Some(callbacks) = mode {
            self.state().dispatcher = Some(callbacks::dispatch(running, callbacks)?);
        }
        Ok(())
    }

    /// Closes every connection with code 1001, writes what is waiting for up to two seconds, and joins all threads. A
    /// second call has no effect, and none in a fork of the process that started the server.
    ///
    /// Messages that were received and not drained can still be drained.
    fn stop(&self, py: Python<'_>) {
        py.detach(|| self.shut_down());
    }

    /// Whether the server accepts connections and serves them; false also after it has failed.
    fn is_running(&self) -> bool {
        self.is_server_running() && self.failure().is_ok_and(|failure| failure.is_none())
    }

    /// Whether clients are admitted and all threads of the server run. `/readyz` reports the same.
    fn is_ready(&self) -> bool {
        self.running().ok().flatten().is_some_and(|running| running.server.is_ready())
    }

    /// Why the server has failed; None if it hasn't. It has failed when one of its threads that serve connections has
    /// ended: the drain methods then raise RuntimeError until `stop()`, and new clients and `/readyz` get status 503.
    /// With callbacks the error goes to `sys.unraisablehook`. End the process with an error, so that it is started
    /// again.
    fn failure(&self) -> PyResult<Option<String>> {
        Ok(self.running()?.and_then(|running| running.server.failure().map(str::to_owned)))
    }

    /// Stops accepting connections and sends every client a Close frame behind what waits for it. Returns at once.
    ///
    /// New requests and `/readyz` get status 503. Call `stop()` when all clients have gone. `timeout` is in seconds; a
    /// client that has not gone after it is cut off.
    ///
    /// Raises ValueError if a Close frame can't carry the code or the reason, and RuntimeError before the first start.
    #[pyo3(signature = (close_code = 4300, close_reason = "", timeout = 30))]
    fn drain(&self, close_code: i64, close_reason: &str, timeout: i64) -> PyResult<()> {
        let code = u16::try_from(close_code).map_err(|_| {
            PyValueError::new_err(format!(
                "close_code is {close_code}: give 1000, 1001, 1008, 1011, 1012, 1013, or one from 3000 to 4999"
            ))
        })?;
        let timeout = arguments::seconds("timeout", timeout)?;
        let close_handshake = CloseHandshake { code, reason: close_reason.into(), timeout };
        let drained = self.started()?.server.drain(close_handshake);
        drained.map_err(|error| PyValueError::new_err(error.to_string()))
    }

    /// The address and the port on which the server listens; None before the first start.
    #[getter]
    fn address(&self) -> PyResult<Option<(String, u16)>> {
        let address = self.running()?.map(|running| running.server.address());
        Ok(address.map(|address| (address.ip().to_string(), address.port())))
    }

    /// The port on which the server listens; the configured one before the first start.
    #[getter]
    fn port(&self) -> PyResult<u16> {
        Ok(self.running()?.map_or(self.config.port, |running| running.server.address().port()))
    }

    /// The port of the metrics; the configured one before the first start, None without metrics.
    #[getter]
    fn metrics_port(&self) -> PyResult<Option<u16>> {
        let bound = self.running()?.and_then(|running| running.server.metrics_address());
        Ok(bound.map(|address| address.port()).or(self.config.metrics.map(|(_, port)| port)))
    }

    /// Closes a connection. Returns False if there is no such connection.
    fn disconnect(&self, py: Python<'_>, connection_id: &str) -> PyResult<bool> {
        Ok(self.running()?.is_some_and(|running| py.detach(|| running.server.disconnect(connection_id))))
    }

    /// The number of open connections.
    fn get_connection_count(&self) -> PyResult<usize> {
        Ok(self.running()?.map_or(0, |running| running.server.connection_count()))
    }

    /// The ids of all open connections.
    fn get_connections(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        Ok(self.running()?.map_or_else(Vec::new, |running| py.detach(|| running.server.connections())))
    }

    /// Replaces the keys that verify tokens by those of a JSON Web Key Set, from the next handshake on. Open
    /// connections are kept.
    ///
    /// Raises ValueError if the set is refused (the old keys stay in use) or the server checks no tokens, and
    /// RuntimeError before the first start.
    fn set_jwt_keys(&self, py: Python<'_>, keys: JwkSetDocument) -> PyResult<()> {
        let keys = keys.keys()?;
        let running = self.started()?;
        let replaced = py.detach(|| running.server.replace_jwt_keys(&keys));
        replaced.map_err(|error| PyValueError::new_err(error.to_string()))
    }

    /// Sets the functions that return the application's own counters for `/stats` and `/stats/connections`.
    ///
    /// `totals` returns a tuple: delivered messages, the sum of their sequence numbers, and messages without a number.
    /// `connections` returns a mapping from connection ids to such tuples. Exceptions go to `sys.unraisablehook`.
    fn set_application_stats(&self, totals: Option<Py<PyAny>>, connections: Option<Py<PyAny>>) {
        self.application.set(totals, connections);
    }
}
