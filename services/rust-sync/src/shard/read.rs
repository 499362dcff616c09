//! Inbound bytes: read in large pieces, which are nearly always runs of audio frames.

use std::time::Instant;

use rustix::{io::Errno, net::RecvFlags};

use super::{
    READ_BYTES, Shard,
    connection::{Connection, Phase},
};
use crate::{
    metrics::{CloseReason, DropReason},
    protocol::{
        self, Event, FRAME_BYTES, NOT_STARTED, Opcode, Refusal, TEXT_AFTER_START, WIRE_BYTES, WRONG_LENGTH,
        messages::is_start, put_control,
    },
};

/// Maximum of reads per visit. One read takes all that a default receive buffer holds; a client that sends faster waits
/// for the next visit.
const READS_PER_VISIT: usize = 4;

impl Shard {
    /// Reads available bytes and handles them.
    pub(super) fn read(&mut self, connection: &mut Connection, now: Instant) {
        let mut buffer = std::mem::take(&mut self.buffer);
        for _ in 0..READS_PER_VISIT {
            let kept = connection.pending.len();
            buffer[..kept].copy_from_slice(&connection.pending);
            let free = &mut buffer[kept..kept + READ_BYTES];
            match rustix::net::recv(&connection.socket, free, RecvFlags::empty()) {
                Ok((0, _)) => self.end(connection, CloseReason::Eof),
                Ok((read, _)) => {
                    connection.pending.clear();
                    self.take_bytes(connection, &mut buffer[..kept + read], read, now);
                    if read == READ_BYTES {
                        continue;
                    }
                }
                Err(Errno::AGAIN) => {}
                Err(Errno::INTR) => continue,
                Err(_) => self.end(connection, CloseReason::Error),
            }
            break;
        }
        self.buffer = buffer;
    }

    /// Handles bytes, the last `read` of which are new. An incomplete rest is kept in `pending`.
    fn take_bytes(&mut self, connection: &mut Connection, bytes: &mut [u8], read: usize, now: Instant) {
        if matches!(connection.phase, Phase::Open | Phase::Started(_)) {
            self.counters.bytes_received += read as u64;
        }
        let mut at = 0;
        loop {
            let rest = &mut bytes[at..];
            let taken = match connection.phase {
                Phase::Handshake { .. } => self.handle_request(connection, rest, now),
                Phase::Open => self.take_frame(connection, rest, now),
                Phase::Started(_) => match self.take_audio(connection, rest, now) {
                    0 => self.take_frame(connection, rest, now),
                    taken => taken,
                },
                Phase::Ending { .. } | Phase::Removed => return,
            };
            if taken == 0 {
                break;
            }
            at += taken;
        }
        // Bytes after a Close frame are not kept.
        if matches!(connection.phase, Phase::Handshake { .. } | Phase::Open | Phase::Started(_)) {
            connection.pending.extend_from_slice(&bytes[at..]);
        }
    }

    /// Handles the run of complete audio frames at the start of `bytes`. Returns its length in bytes.
    fn take_audio(&mut self, connection: &mut Connection, bytes: &[u8], now: Instant) -> usize {
        let Phase::Started(session) = &mut connection.phase else { return 0 };
        if connection.assembly.is_incomplete() {
            return 0;
        }
        let frames = protocol::audio_run(bytes);
        let run = &bytes[..frames * WIRE_BYTES];
        if frames > 0 {
            let dropped = session.take_run(run, self.shared.config.max_buffered_frames.get(), &mut self.pool, now);
            self.count_frames(frames as u64, dropped);
        }
        run.len()
    }

    fn count_frames(&mut self, frames: u64, dropped: u64) {
        let counters = &mut self.counters;
        counters.received += frames;
        counters.dropped[DropReason::Overflow as usize] += dropped;
        // Dropped frames may be from an earlier visit; adding first avoids an underflow.
        counters.queued = counters.queued + frames - dropped;
        counters.buffered_bytes = counters.buffered_bytes + frames * FRAME_BYTES as u64 - dropped * FRAME_BYTES as u64;
    }

    /// Handles one frame of any kind if it is complete. Returns its length in bytes, or 0.
    fn take_frame(&mut self, connection: &mut Connection, bytes: &mut [u8], now: Instant) -> usize {
        let mut assembly = std::mem::take(&mut connection.assembly);
        let taken = match protocol::take_frame(bytes, &mut assembly) {
            Ok(None) => 0,
            Ok(Some((taken, event))) => {
                self.handle_event(connection, event, now);
                taken
            }
            Err(refusal) => {
                self.refuse(connection, refusal, now);
                0
            }
        };
        connection.assembly = assembly;
        taken
    }

    fn handle_event(&mut self, connection: &mut Connection, event: Event<'_>, now: Instant) {
        let limit = self.shared.config.max_buffered_frames.get();
        match (event, &mut connection.phase) {
            (Event::Nothing, _) => {}
            (Event::Ping(payload), _) => self.send(connection, now, |out| put_control(out, Opcode::Pong, payload)),
            (Event::Close(code), _) => self.reply_to_close(connection, code, now),
            (Event::Binary(audio), Phase::Started(session)) if audio.len() == FRAME_BYTES => {
                let dropped = session.take_frame(audio, limit, &mut self.pool, now);
                self.count_frames(1, dropped);
            }
            (Event::Text(text), Phase::Open) if is_start(text) => {
                self.counters.received += 1;
                self.counters.consumed += 1;
                self.start(connection, now);
            }
            (Event::Text(_), Phase::Started(_)) => self.refuse_message(connection, TEXT_AFTER_START, now),
            (Event::Binary(_), Phase::Started(_)) => self.refuse_message(connection, WRONG_LENGTH, now),
            (Event::Text(_) | Event::Binary(_), _) => self.refuse_message(connection, NOT_STARTED, now),
        }
    }

    fn refuse_message(&mut self, connection: &mut Connection, refusal: Refusal, now: Instant) {
        self.counters.received += 1;
        self.counters.dropped[DropReason::Protocol as usize] += 1;
        self.refuse(connection, refusal, now);
    }
}
