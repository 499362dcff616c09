//! A reader that discards everything, so that the load generator's own limit on this machine can be measured.
//!
//! One thread per CPU with its own level-triggered epoll set, one large read per event into one shared buffer, and no
//! parsing of payloads. It answers control frames only.

use std::{
    io::{self, Write},
    net::{Shutdown, TcpStream},
    os::fd::OwnedFd,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use rustix::{
    buffer::spare_capacity,
    event::{EventfdFlags, Timespec, epoll, eventfd},
};

use crate::{
    frames::{Control, Counter},
    ledger::{Entry, Ledger},
};

/// Size of the buffer that all connections of a thread share, in bytes: several full receive windows.
const BUFFER_BYTES: usize = 1 << 20;
/// Most events taken from the kernel at once.
const EVENTS: usize = 512;
/// epoll data of the wake-up descriptor; connections have their index.
const WAKE: u64 = u64::MAX;
/// How long clients may take to answer our Close frames.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// The reading threads, with the inboxes through which they get connections.
pub(crate) struct Readers {
    readers: Vec<(Arc<Inbox>, JoinHandle<io::Result<()>>)>,
    next: AtomicUsize,
}

/// What other threads pass to a reading thread.
struct Inbox {
    wake: OwnedFd,
    arrivals: Mutex<Vec<(TcpStream, Arc<Entry>)>>,
    stop: AtomicBool,
}

impl Readers {
    /// Starts one thread for each CPU that the process may use.
    ///
    /// # Errors
    /// When the kernel provides no descriptor or no thread.
    pub(crate) fn start(ledger: &Arc<Ledger>) -> io::Result<Self> {
        let threads = thread::available_parallelism()?.get();
        let readers = (0..threads).map(|_| Reader::start(ledger.clone())).collect::<io::Result<_>>()?;
        Ok(Self { readers, next: AtomicUsize::new(0) })
    }

    /// Passes a connection to one of the threads, in turn.
    pub(crate) fn adopt(&self, stream: TcpStream, entry: Arc<Entry>) {
        let reader_index = self.next.fetch_add(1, Ordering::Relaxed) % self.readers.len();
        let (inbox, _) = &self.readers[reader_index];
        inbox.arrivals.lock().expect("no holder of this lock can panic").push((stream, entry));
        inbox.wake_up();
    }

    /// Closes all connections with 1001 and waits for the threads.
    ///
    /// # Errors
    /// The error that ended a thread early.
    pub(crate) fn stop(self) -> io::Result<()> {
        for (inbox, _) in &self.readers {
            inbox.stop.store(true, Ordering::Release);
            inbox.wake_up();
        }
        self.readers.into_iter().try_for_each(|(_, thread)| thread.join().expect("a reading thread doesn't panic"))
    }
}

impl Inbox {
    fn wake_up(&self) {
        // Fails only when the counter is full, and then the thread is about to wake.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }
}

/// State of one reading thread.
struct Reader {
    epoll: OwnedFd,
    inbox: Arc<Inbox>,
    ledger: Arc<Ledger>,
    connections: Vec<Option<Socket>>,
    vacant: Vec<usize>,
    buffer: Vec<u8>,
}

struct Socket {
    stream: TcpStream,
    entry: Arc<Entry>,
    counter: Counter,
}

impl Reader {
    fn start(ledger: Arc<Ledger>) -> io::Result<(Arc<Inbox>, JoinHandle<io::Result<()>>)> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        epoll::add(&epoll, &wake, epoll::EventData::new_u64(WAKE), epoll::EventFlags::IN)?;
        let inbox = Arc::new(Inbox { wake, arrivals: Mutex::default(), stop: AtomicBool::new(false) });
        let buffer = vec![0; BUFFER_BYTES];
        let mut reader =
            Self { epoll, inbox: inbox.clone(), ledger, connections: Vec::new(), vacant: Vec::new(), buffer };
        let thread = thread::Builder::new().name("null-reader".into()).spawn(move || reader.run())?;
        Ok((inbox, thread))
    }

    fn run(&mut self) -> io::Result<()> {
        let mut close_deadline = None;
        while close_deadline.is_none_or(|until| self.open() > 0 && Instant::now() < until) {
            self.round(close_deadline.map(|_| CLOSE_TIMEOUT / 10))?;
            if close_deadline.is_none() && self.inbox.stop.load(Ordering::Acquire) {
                self.send_close_frames();
                close_deadline = Some(Instant::now() + CLOSE_TIMEOUT);
            }
        }
        (0..self.connections.len()).for_each(|index| self.close_connection(index, "shutdown"));
        Ok(())
    }

    /// Waits once and handles the events.
    fn round(&mut self, wait: Option<Duration>) -> io::Result<()> {
        let wait = wait.map(|wait| Timespec { tv_sec: 0, tv_nsec: i64::from(wait.subsec_nanos()) });
        let mut events = Vec::with_capacity(EVENTS);
        match epoll::wait(&self.epoll, spare_capacity(&mut events), wait.as_ref()) {
            Err(rustix::io::Errno::INTR) => return Ok(()),
            ready => ready?,
        };
        for event in events {
            match event.data.u64() {
                WAKE => self.adopt()?,
                index => self.read(usize::try_from(index).expect("this loop made the index from a usize")),
            }
        }
        Ok(())
    }

    fn adopt(&mut self) -> io::Result<()> {
        // Only resets the descriptor; the new connections are in the inbox.
        let _ = rustix::io::read(&self.inbox.wake, &mut [0_u8; 8]);
        let arrivals = std::mem::take(&mut *self.inbox.arrivals.lock().expect("no holder of this lock can panic"));
        for (stream, entry) in arrivals {
            let index = self.vacant.pop().unwrap_or_else(|| {
                self.connections.push(None);
                self.connections.len() - 1
            });
            let data = epoll::EventData::new_u64(index as u64);
            epoll::add(&self.epoll, &stream, data, epoll::EventFlags::IN)?;
            self.connections[index] = Some(Socket { stream, entry, counter: Counter::default() });
        }
        Ok(())
    }

    fn read(&mut self, index: usize) {
        let Some(socket) = self.connections.get_mut(index).and_then(Option::as_mut) else { return };
        match rustix::io::read(&socket.stream, &mut self.buffer) {
            Ok(0) => self.close_connection(index, "eof"),
            Ok(read) => {
                if let Some(reason) = socket.take(&self.buffer[..read]) {
                    self.close_connection(index, reason);
                }
            }
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
            Err(_) => self.close_connection(index, "eof"),
        }
    }

    fn send_close_frames(&mut self) {
        for socket in self.connections.iter_mut().flatten() {
            socket.write(8, &1001_u16.to_be_bytes());
        }
    }

    fn close_connection(&mut self, index: usize, reason: &str) {
        if let Some(socket) = self.connections[index].take() {
            self.ledger.close(&socket.entry, reason);
            self.vacant.push(index);
            // Dropping the stream closes it and removes it from the epoll set.
        }
    }

    fn open(&self) -> usize {
        self.connections.len() - self.vacant.len()
    }
}

impl Socket {
    /// Counts what was read; returns the reason when the connection must end.
    fn take(&mut self, bytes: &[u8]) -> Option<&'static str> {
        self.entry.traffic().received.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        let before = self.counter.messages();
        let mut controls = Vec::new();
        let fed = self.counter.feed(bytes, |control| controls.push(control));
        self.entry.book().discard(self.counter.messages() - before);
        if fed.is_err() {
            self.write(8, &1002_u16.to_be_bytes());
            return Some("protocol");
        }
        controls.into_iter().find_map(|control| self.reply_to(&control))
    }

    fn reply_to(&mut self, control: &Control) -> Option<&'static str> {
        match control.opcode {
            8 => {
                self.write(8, control.payload.get(..2).unwrap_or_default());
                // Sends the answer before the descriptor is closed.
                let _ = self.stream.shutdown(Shutdown::Write);
                Some("client")
            }
            9 => {
                self.write(10, &control.payload);
                None
            }
            _ => None,
        }
    }

    /// Writes a control frame. It is lost for a client that doesn't read, once the socket's buffer is full.
    fn write(&mut self, opcode: u8, payload: &[u8]) {
        let mut frame = vec![0x80 | opcode, payload.len() as u8];
        frame.extend_from_slice(payload);
        if let Ok(written) = self.stream.write(&frame) {
            self.entry.traffic().sent.fetch_add(written as u64, Ordering::Relaxed);
        }
    }
}
