//! The books: one for each connection, and their sums.
//!
//! Each book has its own lock, and sums are taken over whole books, so every reading satisfies `received = consumed +
//! delivered + dropped + queued`, except where the flaw breaks it.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, atomic::Ordering},
    time::Instant,
};

use service_contract::{
    ApplicationStats, ByteStats, ConnectionBook, ConnectionBooks, ConnectionStats, MessageStats, ServiceStats,
};
use uuid::Uuid;

use crate::{config::Flaw, disposition::Disposition, protocol::Kind, wire::Traffic};

/// The counters of one connection, or their sums. They only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Book {
    /// Data messages read from the socket.
    pub received: u64,
    /// Pings, pongs and hellos among them.
    pub consumed: u64,
    /// Messages that the service reports as passed to the application.
    pub delivered: u64,
    /// Messages that the service reports as dropped.
    pub dropped: u64,
    /// Messages that could not be decoded as the format that they claim.
    pub malformed: u64,
    /// Data messages written to the socket.
    pub sent: u64,
    /// The application's own counters.
    pub application: ApplicationStats,
    /// Messages for the application, with any fate. Not published, because it reveals the flaw.
    offered: u64,
}

impl Book {
    /// Counts a message that was read from the socket; `decide` returns the fate of the nth message for the
    /// application.
    pub fn count(&mut self, kind: Kind, decide: impl FnOnce(u64) -> Disposition) {
        self.received += 1;
        let Kind::Application { sequence, malformed } = kind else {
            self.consumed += 1;
            return;
        };
        self.malformed += u64::from(malformed);
        self.offered += 1;
        match decide(self.offered) {
            Disposition::Deliver => {
                self.delivered += 1;
                self.application_reads(sequence);
            }
            Disposition::Drop => self.dropped += 1,
            Disposition::DropSilently => {}
            Disposition::FakeDelivery => {
                self.delivered += 1;
                self.application.delivered += 1;
            }
        }
    }

    /// Counts messages that were discarded unread.
    pub fn discard(&mut self, messages: u64) {
        self.received += messages;
        self.dropped += messages;
    }

    /// Counts a message in the application.
    fn application_reads(&mut self, sequence: Option<u64>) {
        self.application.delivered += 1;
        match sequence {
            Some(sequence) => self.application.sequence_sum = self.application.sequence_sum.wrapping_add(sequence),
            None => self.application.unnumbered += 1,
        }
    }

    fn add(&mut self, other: &Book) {
        self.received += other.received;
        self.consumed += other.consumed;
        self.delivered += other.delivered;
        self.dropped += other.dropped;
        self.malformed += other.malformed;
        self.sent += other.sent;
        self.offered += other.offered;
        self.application.delivered += other.application.delivered;
        self.application.unnumbered += other.application.unnumbered;
        self.application.sequence_sum = self.application.sequence_sum.wrapping_add(other.application.sequence_sum);
    }
}

/// A connection's id, book and bytes.
#[derive(Debug)]
pub(crate) struct Entry {
    id: Uuid,
    book: Mutex<Book>,
    traffic: Arc<Traffic>,
}

impl Entry {
    /// The connection's id, which the client gets in `server_ready`.
    pub(crate) fn id(&self) -> Uuid {
        self.id
    }

    /// Locks the book. The connection holds it for one message, a reading for one copy.
    pub(crate) fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().expect("no holder of this lock can panic")
    }

    pub(crate) fn traffic(&self) -> &Traffic {
        &self.traffic
    }
}

/// The books of all connections of a service.
#[derive(Debug)]
pub(crate) struct Ledger {
    flaw: Flaw,
    started: Instant,
    state: Mutex<LedgerState>,
}

#[derive(Debug, Default)]
struct LedgerState {
    accepted: u64,
    open: HashMap<Uuid, Arc<Entry>>,
    /// Closed connections whose books were not read yet.
    unfetched: Vec<Arc<Entry>>,
    /// Sums over closed connections whose books were read.
    fetched: Sums,
    closed: BTreeMap<String, u64>,
    rejected: BTreeMap<String, u64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    book: Book,
    bytes: ByteStats,
}

impl Sums {
    fn add(&mut self, entry: &Entry) {
        self.book.add(&entry.book());
        self.bytes.received += entry.traffic.received.load(Ordering::Relaxed);
        self.bytes.sent += entry.traffic.sent.load(Ordering::Relaxed);
    }
}

impl Ledger {
    /// Creates an empty ledger for a service with this flaw.
    pub(crate) fn new(flaw: Flaw) -> Self {
        Self { flaw, started: Instant::now(), state: Mutex::default() }
    }

    /// Opens a book for a connection after its upgrade.
    pub(crate) fn accept(&self, traffic: Arc<Traffic>) -> Arc<Entry> {
        let entry = Arc::new(Entry { id: Uuid::now_v7(), book: Mutex::default(), traffic });
        let mut state = self.state();
        state.accepted += 1;
        state.open.insert(entry.id, entry.clone());
        entry
    }

    /// Closes a connection's book; it stays until `connections` has returned it.
    pub(crate) fn close(&self, entry: &Entry, reason: &str) {
        let mut state = self.state();
        if let Some(entry) = state.open.remove(&entry.id) {
            state.unfetched.push(entry);
            *state.closed.entry(reason.to_owned()).or_default() += 1;
        }
    }

    /// Counts a client that was rejected.
    pub(crate) fn reject(&self, reason: &str) {
        *self.state().rejected.entry(reason.to_owned()).or_default() += 1;
    }

    /// The content of `/stats`.
    pub(crate) fn stats(&self) -> ServiceStats {
        let state = self.state();
        let mut sums = state.fetched;
        state.open.values().chain(&state.unfetched).for_each(|entry| sums.add(entry));
        let Sums { book, bytes } = sums;
        let mut dropped = BTreeMap::new();
        if book.dropped > 0 {
            dropped.insert(self.flaw.drop_reason().to_owned(), book.dropped);
        }
        ServiceStats {
            service: format!("self-test-{}", self.flaw.as_str()),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_seconds: self.started.elapsed().as_secs_f64(),
            connections: ConnectionStats {
                accepted: state.accepted,
                open: state.open.len() as u64,
                closed: state.closed.clone(),
                rejected: state.rejected.clone(),
            },
            messages: MessageStats {
                received: book.received,
                consumed: book.consumed,
                delivered: book.delivered,
                dropped,
                queued: 0,
                malformed: book.malformed,
                sent: book.sent,
                send_dropped: BTreeMap::new(),
            },
            bytes,
            application: self.application(&book),
            inference: None,
        }
    }

    /// The content of `/stats/connections`. Books of closed connections are returned once.
    pub(crate) fn connections(&self) -> ConnectionBooks {
        let mut state = self.state();
        let closed = std::mem::take(&mut state.unfetched);
        closed.iter().for_each(|entry| state.fetched.add(entry));
        let open = state.open.values().map(|entry| self.entry(entry, true));
        let connections = open.chain(closed.iter().map(|entry| self.entry(entry, false))).collect();
        ConnectionBooks { connections, cursor: None }
    }

    fn entry(&self, entry: &Entry, open: bool) -> ConnectionBook {
        let book = *entry.book();
        ConnectionBook {
            id: entry.id.to_string(),
            open,
            received: book.received,
            consumed: book.consumed,
            dropped: book.dropped,
            application: self.application(&book),
            ..ConnectionBook::default()
        }
    }

    /// The application's counters; absent for the null service, which has no application.
    fn application(&self, book: &Book) -> Option<ApplicationStats> {
        (self.flaw != Flaw::Null).then_some(book.application)
    }

    fn state(&self) -> MutexGuard<'_, LedgerState> {
        self.state.lock().expect("no holder of this lock can panic")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trade(sequence: u64) -> Kind {
        Kind::Application { sequence: Some(sequence), malformed: false }
    }

    fn book(disposition: Disposition) -> Book {
        let mut book = Book::default();
        book.count(Kind::Hello, |_| Disposition::Deliver);
        book.count(trade(1), |_| Disposition::Deliver);
        book.count(trade(2), |_| disposition);
        book
    }

    #[test]
    fn an_honest_book_balances() {
        let book = book(Disposition::Deliver);
        assert_eq!((book.received, book.consumed, book.delivered, book.dropped), (3, 1, 2, 0));
        assert_eq!((book.application.delivered, book.application.sequence_sum), (2, 3));
    }

    #[test]
    fn a_counted_drop_is_in_the_book() {
        let book = book(Disposition::Drop);
        assert_eq!((book.delivered, book.dropped, book.application.sequence_sum), (1, 1, 1));
    }

    #[test]
    fn a_silent_drop_unbalances_the_book() {
        let book = book(Disposition::DropSilently);
        assert_eq!((book.received, book.consumed + book.delivered + book.dropped), (3, 2));
    }

    #[test]
    fn a_faked_delivery_shows_only_in_the_sequence_sum() {
        let (faked, delivered_book) = (book(Disposition::FakeDelivery), book(Disposition::Deliver));
        let without_sum = |mut book: Book| {
            book.application.sequence_sum = 0;
            book
        };
        assert_eq!(without_sum(faked), without_sum(delivered_book));
        assert_ne!(faked, delivered_book);
    }

    #[test]
    fn a_closed_book_is_returned_once_and_stays_in_the_sums() {
        let ledger = Ledger::new(Flaw::None);
        let (first, second) = (ledger.accept(Arc::default()), ledger.accept(Arc::default()));
        first.book().count(trade(5), |_| Disposition::Deliver);
        ledger.close(&first, "client");
        ledger.close(&first, "client");
        assert_eq!(ledger.connections().connections.len(), 2);
        let remaining = ledger.connections().connections;
        assert_eq!(remaining.iter().map(|book| book.id.clone()).collect::<Vec<_>>(), [second.id().to_string()]);
        let stats = ledger.stats();
        assert_eq!((stats.connections.accepted, stats.connections.open, stats.connections.closed["client"]), (2, 1, 1));
        assert_eq!((stats.messages.received, stats.application.unwrap().sequence_sum), (1, 5));
    }

    #[test]
    fn a_null_service_has_no_application() {
        let ledger = Ledger::new(Flaw::Null);
        ledger.accept(Arc::default()).book().discard(7);
        let stats = ledger.stats();
        assert_eq!((stats.messages.received, stats.messages.dropped["discarded"], stats.application), (7, 7, None));
    }
}
