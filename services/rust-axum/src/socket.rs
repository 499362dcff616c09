//! Reading and writing without waiting, whether tokio watches the socket or not.

use std::{
    cell::RefCell,
    io::{self, Read, Write},
    net,
};

use tokio::net::TcpStream;

/// Bytes of one read: the audio of a visit fits many times.
const READ_BYTES: usize = 64 << 10;

thread_local! {
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ_BYTES].into());
}

/// Lends the buffer that reads of all sessions of this thread go into first. It can't be lent twice at once.
pub(crate) fn with_scratch<T>(read: impl FnOnce(&mut [u8]) -> T) -> T {
    SCRATCH.with_borrow_mut(|scratch| read(scratch))
}

/// A socket in the reactor or outside of it: neither call waits.
pub(crate) trait Socket {
    /// Reads what is there; `WouldBlock` if nothing is.
    fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize>;
    /// Writes what there is space for; `WouldBlock` if there is none.
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

/// Sockets that come from tokio don't block.
impl Socket for net::TcpStream {
    fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buffer)
    }

    fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        (&*self).write(bytes)
    }
}
