//! The books of closed connections, and the cursors by which readers ask for those that they haven't seen.
//!
//! Reading changes nothing, so any number of readers can follow, each with a cursor of its own. Only the newest books
//! are kept: memory stays bounded without a reader.

use std::{collections::VecDeque, fmt, str::FromStr};

use super::Book;

/// The most books that each shard keeps: some 5 MiB.
const KEPT: usize = 65_536;

/// The newest books of a shard's closed connections, oldest first, each with its number.
#[derive(Debug, Default)]
pub(crate) struct ClosedBooks(VecDeque<(u64, Book)>);

impl ClosedBooks {
    /// Adds a book. Numbers only grow. Returns false if the oldest book was dropped for it.
    pub(crate) fn push(&mut self, number: u64, book: Book) -> bool {
        let has_room = self.0.len() < KEPT;
        if !has_room {
            self.0.pop_front();
        }
        self.0.push_back((number, book));
        has_room
    }

    /// The books with this number or a higher one.
    pub(crate) fn since(&self, number: u64) -> impl Iterator<Item = Book> {
        let first = self.0.partition_point(|(other, _)| *other < number);
        self.0.range(first..).map(|(_, book)| *book)
    }
}

/// Up to where a reader knows the closed connections of a server: all with a lower number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cursor {
    /// When the server started, in milliseconds since the Unix epoch. A reader of the server before it knows nothing.
    pub(crate) started_millis: u64,
    /// The number of the next closed connection.
    pub(crate) next: u64,
}

impl fmt::Display for Cursor {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:x}.{}", self.started_millis, self.next)
    }
}

/// A text is not a cursor.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("since is {given:?}, which is not a cursor: give the cursor of an earlier reading, or nothing for all books")]
pub struct CursorError {
    /// The beginning of the text as it was given.
    pub given: String,
}

impl FromStr for Cursor {
    type Err = CursorError;

    fn from_str(text: &str) -> Result<Self, CursorError> {
        let parsed = text.split_once('.').and_then(|(started, next)| {
            let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
            let cursor = Self { started_millis: u64::from_str_radix(started, 16).ok()?, next: next.parse().ok()? };
            (is_plain(started) && is_plain(next)).then_some(cursor)
        });
        parsed.ok_or_else(|| CursorError { given: text.chars().take(80).collect() })
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn book(number: u64) -> Book {
        let id = Uuid::from_u64_pair(0, number);
        Book { id, open: false, received: 0, consumed: 0, dropped: 0, sent: 0, send_dropped: 0 }
    }

    #[test]
    fn the_newest_books_are_kept_and_read_any_number_of_times() {
        let mut books = ClosedBooks::default();
        let pushed = (0..KEPT as u64 + 10).filter(|number| books.push(2 * number, book(*number))).count();
        assert_eq!(pushed, KEPT, "ten times the oldest made way");
        for _ in 0..2 {
            assert_eq!((books.since(0).count(), books.since(2 * KEPT as u64).count()), (KEPT, 10));
        }
        // A number that another shard used lies between two of this one's.
        assert_eq!(books.since(21).next().unwrap().id, book(11).id);
    }

    #[test]
    fn a_cursor_survives_its_text_and_nothing_else_is_one() {
        let cursor = Cursor { started_millis: 0x18f3_a2b4, next: 17 };
        assert_eq!(cursor.to_string().parse(), Ok(cursor));
        for text in ["", ".", "1", "1.", ".1", "1.x", "g.1", "1.1.1", "+1.+1", "-1.1", "1.99999999999999999999"] {
            let error = text.parse::<Cursor>().unwrap_err();
            assert!(error.to_string().starts_with(&format!("since is {text:?}")), "{error}");
        }
    }
}
