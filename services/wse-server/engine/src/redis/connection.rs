//! One connection to Redis: connecting and reconnecting, and reading and writing without waiting.

use std::{io::ErrorKind, time::Instant};

use bytes::{Buf, BytesMut};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{sleep, timeout},
};
use wse_utilities::breaker::Breaker;

use super::{
    RedisTiming,
    address::Address,
    resp::{self, Malformed, RedisReply},
};
use crate::links::backoff::{Pauses, jittered};

/// Bytes of buffer space that are reserved before each read.
const READ_BYTES: usize = 64 << 10;
/// Bytes that are read before they are processed.
const ROUND_BYTES: usize = 256 << 10;
/// How many characters of an error reply are logged.
const LOGGED_CHARACTERS: usize = 200;

/// What went wrong, for the log. It contains no credentials.
pub(super) type Problem = String;

/// A connection that is logged in and has its database selected.
pub(super) struct Connection {
    pub(super) stream: TcpStream,
    pub(super) incoming: BytesMut,
}

impl Connection {
    async fn open(address: &Address, name: &str) -> Result<Self, Problem> {
        let stream = TcpStream::connect((address.host.as_str(), address.port)).await;
        let stream = stream.map_err(|error| format!("failed to connect: {error}"))?;
        stream.set_nodelay(true).map_err(|error| format!("failed to set up the socket: {error}"))?;
        let mut connection = Self { stream, incoming: BytesMut::new() };
        connection.authenticate(address, name).await?;
        Ok(connection)
    }

    /// Logs in, selects the database and sets the connection's name, and checks the replies.
    async fn authenticate(&mut self, address: &Address, name: &str) -> Result<(), Problem> {
        let database = address.database.to_string();
        let mut out = Vec::new();
        let mut command =
            |arguments: &[&str]| resp::put_command(&mut out, arguments.iter().map(|argument| argument.as_bytes()));
        match (&address.user, &address.password) {
            (Some(user), password) => command(&["AUTH", user, password.as_deref().unwrap_or_default()]),
            (None, Some(password)) => command(&["AUTH", password]),
            (None, None) => {}
        }
        command(&["SELECT", &database]);
        command(&["CLIENT", "SETNAME", name]);
        command(&["PING"]);
        self.stream.write_all(&out).await.map_err(|error| format!("failed to write: {error}"))?;
        if address.user.is_some() || address.password.is_some() {
            // Only the first word: a server that doesn't know AUTH repeats its arguments in the error.
            let code = |error: String| error.split(' ').next().unwrap_or_default().to_owned();
            self.read_status()
                .await?
                .map_err(|error| format!("the user or the password was refused: {}", code(error)))?;
        }
        self.read_status().await?.map_err(|error| format!("database {database} was refused: {error}"))?;
        // The name is for operators; a user that may not set one works without it.
        let _ = self.read_status().await?;
        self.read_status().await?.map_err(|error| format!("PING was refused: {error}"))
    }

    /// Waits for a reply. The inner error is the text of an error reply, the outer one a failure of the connection.
    async fn read_status(&mut self) -> Result<Result<(), String>, Problem> {
        loop {
            let read = resp::reply(&self.incoming).map_err(|error| error.to_string())?;
            if let Some((reply, used)) = read {
                let reply = error_text(&reply).map_or(Ok(()), Err);
                self.incoming.advance(used);
                return Ok(reply);
            }
            let read = self.stream.read_buf(&mut self.incoming).await;
            if read.map_err(|error| format!("failed to read: {error}"))? == 0 {
                return Err("Redis closed the connection".into());
            }
        }
    }

    /// Reads what has arrived, up to [`ROUND_BYTES`] or slightly more. Returns whether anything was read.
    pub(super) fn read(&mut self) -> Result<bool, Problem> {
        let mut read = 0;
        while read < ROUND_BYTES {
            self.incoming.reserve(READ_BYTES);
            match self.stream.try_read_buf(&mut self.incoming) {
                Ok(bytes @ 1..) => read += bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                // What was read before the error is processed first; the next read returns the error again.
                _ if read > 0 => break,
                Ok(0) => return Err("Redis closed the connection".into()),
                Err(error) => return Err(format!("failed to read: {error}")),
            }
        }
        Ok(read > 0)
    }

    /// Drops `used` bytes from the front of the buffer, and its memory if a very large message made it grow.
    pub(super) fn used(&mut self, used: usize) {
        self.incoming.advance(used);
        if self.incoming.is_empty() && self.incoming.capacity() > 4 * ROUND_BYTES {
            self.incoming = BytesMut::new();
        }
    }

    /// Writes as much as the socket takes, and returns the number of bytes; 0 if it takes none now.
    pub(super) fn write(&self, parts: &[std::io::IoSlice<'_>]) -> Result<usize, Problem> {
        match self.stream.try_write_vectored(parts) {
            Ok(written) => Ok(written),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(0),
            Err(error) => Err(format!("failed to write: {error}")),
        }
    }
}

/// The text of an error reply, shortened; `None` for any other reply.
pub(super) fn error_text(reply: &RedisReply<'_>) -> Option<String> {
    let RedisReply::Error(error) = reply else { return None };
    Some(String::from_utf8_lossy(error).chars().take(LOGGED_CHARACTERS).collect())
}

impl From<Malformed> for Problem {
    fn from(malformed: Malformed) -> Self {
        malformed.to_string()
    }
}

/// Connects and reconnects, with longer pauses and a circuit breaker while attempts fail.
pub(super) struct Dialer<'a> {
    address: &'a Address,
    times: &'a RedisTiming,
    /// The name of the connection, in Redis and in the log.
    name: String,
    breaker: Breaker,
    started: Instant,
    pauses: Pauses,
}

impl<'a> Dialer<'a> {
    pub(super) fn new(address: &'a Address, times: &'a RedisTiming, name: String) -> Self {
        Self {
            address,
            times,
            name,
            breaker: Breaker::new(times.breaker),
            started: Instant::now(),
            pauses: Pauses::new(times.first_retry, times.longest_retry),
        }
    }

    /// Tries to connect until an attempt succeeds.
    pub(super) async fn dial(&mut self) -> Connection {
        loop {
            let refused = self.breaker.refuses_for(self.started.elapsed());
            if !refused.is_zero() || !self.breaker.allow(self.started.elapsed()) {
                sleep(refused.max(self.times.first_retry)).await;
                continue;
            }
            let opened = timeout(self.times.connect, Connection::open(self.address, &self.name)).await;
            match opened.unwrap_or_else(|_| Err(format!("no reply within {:?}", self.times.connect))) {
                Ok(connection) => {
                    tracing::info!(address = %self.address, name = self.name, "connected to Redis");
                    self.breaker.success(self.started.elapsed());
                    return connection;
                }
                Err(problem) => self.failed(&problem).await,
            }
        }
    }

    /// Reports that an attempt or a connection failed, and waits for the pause before the next attempt.
    pub(super) async fn failed(&mut self, problem: &str) {
        self.breaker.failure(self.started.elapsed());
        let pause = jittered(self.pauses.after_failure());
        tracing::warn!(address = %self.address, name = self.name, problem, retry_in = ?pause, "no connection to Redis");
        sleep(pause).await;
    }

    /// Reports that a connection worked: the pauses start from the shortest one again.
    pub(super) fn succeeded(&mut self) {
        self.pauses.reset();
    }
}
