//! Raw rows, one for each partial whose newest frame was due in the window, written by a separate thread.
//!
//! Load threads hand over batches and never wait: when the queue is full, the rows of a batch are counted as lost, and
//! the trial's result has their number. The header has the columns that existing readers of such files know.

use std::{
    borrow::Cow,
    io::{self, BufWriter, Write},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    },
    thread::{self, JoinHandle},
};

/// First line of a file of rows: the names of its columns.
pub const HEADER: &str = "sample_index,session_id,oldest_frame_seq,newest_frame_seq,frames,transcript,audio_bytes,\
                          newest_latency_ms,oldest_latency_ms,flush_lateness_ms,received_ms";
/// Rows that a load thread hands over at once.
const BATCH: usize = 256;
/// Most batches in the queue: about 16 MiB of rows.
const WAITING: usize = 512;
/// Compression level of zstd: the library's default.
const LEVEL: i32 = 3;

/// One row: a partial whose newest frame was due in the window.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Index of the session among those of all workers.
    pub session: u64,
    /// First frame of the batch.
    pub oldest: u64,
    /// Last frame of the batch.
    pub newest: u64,
    /// Frames in the batch.
    pub frames: u64,
    /// The transcript of the batch, from the partial.
    pub transcript: Cow<'static, str>,
    /// Bytes of audio in the batch.
    pub audio_bytes: u64,
    /// From when the last frame was due until the partial arrived, in nanoseconds.
    pub newest_ns: u64,
    /// From when the first frame was due until the partial arrived, in nanoseconds.
    pub oldest_ns: u64,
    /// How late the flush was by the gateway's clock, in nanoseconds.
    pub lateness_ns: u64,
    /// When the partial arrived, in nanoseconds from the window's start.
    pub received_ns: u64,
}

/// The sender of one load thread. Dropping it hands over the rest.
pub struct Feed {
    rows: Vec<Row>,
    batches: SyncSender<Vec<Row>>,
    overflow: Arc<AtomicU64>,
}

impl Feed {
    #[inline]
    pub(crate) fn push(&mut self, row: Row) {
        self.rows.push(row);
        if self.rows.len() == BATCH {
            self.send_batch();
        }
    }

    fn send_batch(&mut self) {
        let rows = std::mem::replace(&mut self.rows, Vec::with_capacity(BATCH));
        if let Err(TrySendError::Full(rows) | TrySendError::Disconnected(rows)) = self.batches.try_send(rows) {
            self.overflow.fetch_add(rows.len() as u64, Ordering::Relaxed);
        }
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        if !self.rows.is_empty() {
            self.send_batch();
        }
    }
}

/// A thread that writes rows.
pub struct Writer<W> {
    batches: SyncSender<Vec<Row>>,
    overflow: Arc<AtomicU64>,
    thread: JoinHandle<(Option<W>, u64, io::Result<()>)>,
}

/// The outcome of writing.
#[derive(Debug)]
pub struct Written<W> {
    /// What the rows were written to; absent when compression could not be completed.
    pub to: Option<W>,
    /// Number of rows that were written.
    pub rows: u64,
    /// Rows that were lost, because writing was too slow or had failed.
    pub overflow: u64,
    /// Why writing failed, if it did; what was written before remains.
    pub error: Option<io::Error>,
}

impl<W: Write + Send + 'static> Writer<W> {
    /// Starts the thread; `compress` writes zstd.
    ///
    /// # Errors
    /// When the thread can't be started.
    pub fn start(to: W, compress: bool) -> io::Result<Self> {
        let (batches, waiting) = sync_channel(WAITING);
        let thread = thread::Builder::new().name("samples".into()).spawn(move || {
            if compress {
                write_compressed(to, &waiting)
            } else {
                let mut out = BufWriter::with_capacity(1 << 16, to);
                let (rows, result) = write_rows(&mut out, &waiting);
                let result = result.and_then(|()| out.flush());
                (Some(out.into_parts().0), rows, result)
            }
        })?;
        Ok(Self { batches, overflow: Arc::default(), thread })
    }

    /// A sender for one load thread.
    pub fn feed(&self) -> Feed {
        Feed { rows: Vec::with_capacity(BATCH), batches: self.batches.clone(), overflow: Arc::clone(&self.overflow) }
    }

    /// Writes the rest of the queue; waits until all senders are dropped.
    pub fn finish(self) -> Written<W> {
        drop(self.batches);
        let (to, rows, result) = self.thread.join().expect("writing rows doesn't panic");
        Written { to, rows, overflow: self.overflow.load(Ordering::Relaxed), error: result.err() }
    }
}

fn write_compressed<W: Write>(to: W, batches: &Receiver<Vec<Row>>) -> (Option<W>, u64, io::Result<()>) {
    let mut out = match zstd::Encoder::new(to, LEVEL) {
        Ok(out) => out,
        Err(error) => unreachable!("zstd knows its default level: {error}"),
    };
    let (rows, result) = write_rows(&mut out, batches);
    match out.try_finish() {
        Ok(to) => (Some(to), rows, result),
        Err((_, error)) => (None, rows, result.and(Err(error))),
    }
}

fn write_rows(out: &mut impl Write, batches: &Receiver<Vec<Row>>) -> (u64, io::Result<()>) {
    let mut written = 0;
    let mut write = |out: &mut dyn Write| {
        writeln!(out, "{HEADER}")?;
        while let Ok(batch) = batches.recv() {
            for row in batch {
                write_row(out, written, &row)?;
                written += 1;
            }
        }
        Ok(())
    };
    let result = write(out);
    (written, result)
}

fn write_row(out: &mut dyn Write, index: u64, row: &Row) -> io::Result<()> {
    let Row { session, oldest, newest, frames, audio_bytes, .. } = row;
    let ms = |ns: u64| ns as f64 / 1e6;
    // Gateways measure their lateness to microseconds at most.
    let lateness_ms = (row.lateness_ns / 1000) as f64 / 1e3;
    writeln!(
        out,
        "{index},{session},{oldest},{newest},{frames},{},{audio_bytes},{:.3},{:.3},{lateness_ms:.3},{:.3}",
        csv_field(&row.transcript),
        ms(row.newest_ns),
        ms(row.oldest_ns),
        ms(row.received_ns),
    )
}

/// A field of CSV that may contain any text (RFC 4180).
fn csv_field(text: &str) -> Cow<'_, str> {
    if text.contains([',', '"', '\n', '\r']) {
        Cow::Owned(format!("\"{}\"", text.replace('"', "\"\"")))
    } else {
        Cow::Borrowed(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(session: u64, transcript: &'static str) -> Row {
        Row {
            session,
            oldest: 51,
            newest: 100,
            frames: 50,
            transcript: transcript.into(),
            audio_bytes: 32_000,
            newest_ns: 98_765_432,
            oldest_ns: 1_078_765_432,
            lateness_ns: 1_234_567,
            received_ns: 5_000_000_400,
        }
    }

    fn written(compress: bool, rows: u64) -> Vec<u8> {
        let writer = Writer::start(Vec::new(), compress).unwrap();
        let mut feed = writer.feed();
        (0..rows).for_each(|session| feed.push(row(session, "now")));
        drop(feed);
        let written = writer.finish();
        assert!(written.error.is_none() && written.overflow == 0);
        assert_eq!(written.rows, rows);
        written.to.unwrap()
    }

    #[test]
    fn a_file_has_the_known_header_and_a_line_for_each_row() {
        let text = String::from_utf8(written(false, 2)).unwrap();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], HEADER);
        assert_eq!(lines[2], "1,1,51,100,50,now,32000,98.765,1078.765,1.234,5000.000");
    }

    #[test]
    fn compressed_rows_are_the_same_rows() {
        assert_eq!(zstd::decode_all(&written(true, 1000)[..]).unwrap(), written(false, 1000));
    }

    #[test]
    fn a_full_disk_is_reported_and_the_run_continues() {
        struct Full;
        impl Write for Full {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::StorageFull.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        for compress in [false, true] {
            let writer = Writer::start(Full, compress).unwrap();
            let mut feed = writer.feed();
            (0..1_000_000).for_each(|session| feed.push(row(session, "now")));
            drop(feed);
            let written = writer.finish();
            assert_eq!(written.error.unwrap().kind(), io::ErrorKind::StorageFull);
            assert!(written.overflow > 0);
        }
    }

    #[test]
    fn texts_that_would_break_a_line_are_quoted() {
        assert_eq!(csv_field("a,\"b\""), "\"a,\"\"b\"\"\"");
        assert_eq!(csv_field("now"), "now");
    }
}
