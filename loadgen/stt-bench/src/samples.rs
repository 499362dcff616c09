//! Raw rows, one for each partial of the window, written by a thread of their own.
//!
//! Load threads hand over batches and never wait: a batch for which there is no room is counted, and the trial is told
//! of it. The header is the one that readers of such files know.

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

/// First line of a file.
pub const HEADER: &str = "sample_index,session_id,oldest_frame_seq,newest_frame_seq,frames,transcript,audio_bytes,\
                          newest_latency_ms,oldest_latency_ms,flush_lateness_ms,received_ms";
/// Rows handed over at once.
const BATCH: usize = 256;
/// Batches that may wait: some 16 MiB of rows.
const WAITING: usize = 512;
/// zstd's own default.
const LEVEL: i32 = 3;

/// A partial of the window.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The session, by its index among those of all workers.
    pub session: u64,
    /// First frame of the batch.
    pub oldest: u64,
    /// Last frame of the batch.
    pub newest: u64,
    /// Frames in the batch.
    pub frames: u64,
    /// What was understood.
    pub transcript: Cow<'static, str>,
    /// Bytes of audio.
    pub audio_bytes: u64,
    /// From when the last frame was due, in nanoseconds.
    pub newest_ns: u64,
    /// From when the first frame was due.
    pub oldest_ns: u64,
    /// How late the flush was, says the gateway.
    pub lateness_ns: u64,
    /// When it arrived, in nanoseconds from the window's start.
    pub received_ns: u64,
}

/// The end of the rows that a load thread holds.
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
            self.hand_over();
        }
    }

    fn hand_over(&mut self) {
        let rows = std::mem::replace(&mut self.rows, Vec::with_capacity(BATCH));
        if let Err(TrySendError::Full(rows) | TrySendError::Disconnected(rows)) = self.batches.try_send(rows) {
            self.overflow.fetch_add(rows.len() as u64, Ordering::Relaxed);
        }
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        if !self.rows.is_empty() {
            self.hand_over();
        }
    }
}

/// A thread that writes rows.
pub struct Writer<W> {
    batches: SyncSender<Vec<Row>>,
    overflow: Arc<AtomicU64>,
    thread: JoinHandle<(Option<W>, u64, io::Result<()>)>,
}

/// What became of the rows.
#[derive(Debug)]
pub struct Written<W> {
    /// Where they were written; gone when a compressed file could not be ended.
    pub to: Option<W>,
    /// Rows that were written.
    pub rows: u64,
    /// Rows for which there was no room, because writing didn't keep up or had failed.
    pub overflow: u64,
    /// Why writing failed, if it did; what was written before stands.
    pub error: Option<io::Error>,
}

impl<W: Write + Send + 'static> Writer<W> {
    /// Starts the thread; `compress` makes it zstd.
    ///
    /// # Errors
    /// When there is no thread to be had or no compressor.
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

    /// A load thread's end.
    pub fn feed(&self) -> Feed {
        Feed { rows: Vec::with_capacity(BATCH), batches: self.batches.clone(), overflow: Arc::clone(&self.overflow) }
    }

    /// Writes what waits, once all load threads have let go of their ends.
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
    // The gateway measures its lateness to no more than microseconds.
    let lateness_ms = (row.lateness_ns / 1000) as f64 / 1e3;
    writeln!(
        out,
        "{index},{session},{oldest},{newest},{frames},{},{audio_bytes},{:.3},{:.3},{lateness_ms:.3},{:.3}",
        quoted(&row.transcript),
        ms(row.newest_ns),
        ms(row.oldest_ns),
        ms(row.received_ns),
    )
}

/// As CSV wants a text that may contain anything (RFC 4180).
fn quoted(text: &str) -> Cow<'_, str> {
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
    fn a_full_disk_is_told_and_stops_nobody() {
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
        assert_eq!(quoted("a,\"b\""), "\"a,\"\"b\"\"\"");
        assert_eq!(quoted("now"), "now");
    }
}
