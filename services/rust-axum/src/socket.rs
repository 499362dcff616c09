//! Non-blocking reads and writes, for sockets that are registered with Tokio's reactor and for those that are not.

use std::{
    cell::RefCell,
    io::{self, Read, Write},
    net,
};

use tokio::net::TcpStream;

/// Size of the read buffer in bytes; many times the audio of one visit.
const READ_BYTES: usize = 64 << 10;

thread_local! {
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ_BYTES].into());
}

/// Runs `read` with the thread's read buffer, which all its sessions share. Panics if calls are nested.
pub(crate) fn with_scratch<T>(read: impl FnOnce(&mut [u8]) -> T) -> T {
    SCRATCH.with_borrow_mut(|scratch| read(scratch))
}

/// A non-blocking socket, registered with the reactor or not.
pub(crate) trait Socket {
    /// Reads available bytes; `WouldBlock` if there are none.
    fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize>;
    /// Writes as many bytes as the send buffer takes; `WouldBlock` if it is full.
    fn try_write(&self, bytes: &[u8]) -> io::Result<usize>;
}

impl Socket for TcpStream {
    fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.try_read(buffer)
    }

    fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.try_write(bytes)
    }
}

/// Sockets that come from Tokio are in non-blocking mode.
impl Socket for net::TcpStream {
    fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buffer)
    }

    fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        (&*self).write(bytes)
    }
}
