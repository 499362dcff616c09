//! TLS on one connection: plain bytes to the session, encrypted ones to the socket.
//!
//! The session counts frames as sent when the socket has accepted them. Encrypted bytes can't be counted in frames, so a
//! write is accepted in full or not at all: what the socket doesn't take is kept here, and the write is reported as
//! accepted once all of it is gone.

use std::{
    io::{self, Cursor, Read, Write},
    os::fd::AsFd,
    sync::Arc,
};

use rustix::io::Errno;
use rustls::{ClientConfig, ClientConnection, pki_types::ServerName};

/// Most encrypted bytes that are read at once.
const READ_BYTES: usize = 64 << 10;

/// How a workload's connections are encrypted.
#[derive(Clone, Debug)]
pub struct TlsClient {
    /// Authorities, own certificate and protocol versions.
    pub config: Arc<ClientConfig>,
    /// The name that the service's certificate must have.
    pub server_name: ServerName<'static>,
}

/// The encryption of one connection.
#[derive(Debug)]
pub(crate) struct Tls {
    connection: ClientConnection,
    /// Encrypted bytes that the socket hasn't accepted.
    pending: Vec<u8>,
    /// Plain bytes of the write whose encrypted bytes are pending; 0 without one.
    encrypted: usize,
    /// Encrypted bytes that were read from the socket and wait until the plain bytes before them are taken.
    received: Cursor<Vec<u8>>,
}

impl Tls {
    /// Starts a connection; its first bytes are sent with the first write.
    pub(crate) fn new(client: &TlsClient) -> Result<Self, rustls::Error> {
        let mut connection = ClientConnection::new(Arc::clone(&client.config), client.server_name.clone())?;
        // The session bounds what it writes; a limit here would cut a write short without a word.
        connection.set_buffer_limit(None);
        Ok(Self { connection, pending: Vec::new(), encrypted: 0, received: Cursor::default() })
    }

    /// Whether encrypted bytes wait for the socket.
    pub(crate) fn wants_write(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Encrypts a write and hands it to the socket. Returns the number of plain bytes that were accepted.
    ///
    /// # Errors
    /// [`Errno::AGAIN`] while the socket hasn't accepted all of it: the next call must begin with the same bytes. Other
    /// values are the kernel's errors.
    pub(crate) fn write(&mut self, socket: impl AsFd, bytes: &[u8]) -> Result<usize, Errno> {
        if self.encrypted == 0 {
            self.connection.writer().write_all(bytes).map_err(|_| Errno::CONNABORTED)?;
            self.encrypted = bytes.len();
        }
        self.flush(socket)?;
        if self.connection.is_handshaking() {
            // It is encrypted when the handshake is over.
            return Err(Errno::AGAIN);
        }
        Ok(std::mem::take(&mut self.encrypted))
    }

    /// Hands encrypted bytes to the socket.
    ///
    /// # Errors
    /// [`Errno::AGAIN`] while the socket hasn't accepted all of them, and the kernel's other errors.
    pub(crate) fn flush(&mut self, socket: impl AsFd) -> Result<(), Errno> {
        while self.connection.wants_write() {
            self.connection.write_tls(&mut self.pending).map_err(|_| Errno::CONNABORTED)?;
        }
        let mut accepted = 0;
        let result = loop {
            if accepted == self.pending.len() {
                break Ok(());
            }
            match rustix::io::write(&socket, &self.pending[accepted..]) {
                Ok(length) => accepted += length,
                Err(Errno::INTR) => {}
                Err(error) => break Err(error),
            }
        };
        self.pending.drain(..accepted);
        result
    }

    /// Reads plain bytes into `buffer`; 0 at the end of the stream. Between two calls encrypted bytes may be left here, so
    /// that a caller reads until [`Errno::AGAIN`].
    ///
    /// # Errors
    /// [`Errno::AGAIN`] if there are none, [`Errno::PROTO`] if the service's certificate or bytes are refused, and the
    /// kernel's errors.
    pub(crate) fn read(&mut self, socket: impl AsFd, buffer: &mut [u8]) -> Result<usize, Errno> {
        loop {
            match self.connection.reader().read(buffer) {
                Ok(length) => return Ok(length),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // Without a close_notify the stream was cut; the session reports it as its end.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
                Err(_) => return Err(Errno::CONNABORTED),
            }
            if self.received.get_ref().is_empty() {
                let mut encrypted = [0; READ_BYTES];
                let length = rustix::io::read(&socket, &mut encrypted)?;
                if length == 0 {
                    return self.end_of_stream();
                }
                self.received = Cursor::new(encrypted[..length].to_vec());
            }
            // The library decrypts no more than a few records until they are taken, so it isn't given everything at once.
            self.connection.read_tls(&mut self.received).map_err(|_| Errno::PROTO)?;
            if self.received.position() as usize == self.received.get_ref().len() {
                self.received = Cursor::default();
            }
            if self.connection.process_new_packets().is_err() {
                // The alert says why; a socket that doesn't take it changes nothing.
                let _ = self.flush(&socket);
                return Err(Errno::PROTO);
            }
            // The rest of a write goes with the next write, which reports it as accepted: its reply must not be read before.
            if self.encrypted == 0 || self.connection.is_handshaking() {
                match self.flush(&socket) {
                    Ok(()) | Err(Errno::AGAIN) => {}
                    Err(error) => return Err(error),
                }
            }
        }
    }

    /// Tells the connection that its stream has ended.
    fn end_of_stream(&mut self) -> Result<usize, Errno> {
        self.connection.read_tls(&mut io::empty()).map_err(|_| Errno::CONNABORTED)?;
        self.connection.process_new_packets().map(|_| 0).map_err(|_| Errno::PROTO)
    }
}
