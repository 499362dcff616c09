//! Messages that aren't one plain frame: compressed ones (RFC 7692), and those with attachments. Connections without them never
//! come here.

use super::{Extra, Session};
use crate::{
    context::Context,
    deflate::{Deflate, Negotiated, Shared},
    frame::{self, Batch, Opcode, Violation, append, append_compressed},
    session::receive::LARGEST_MESSAGE,
    workload::{Messages, Workload},
};

impl Session {
    /// Keeps how messages may be compressed, and counts it, if compression was offered.
    pub(super) fn negotiated<W: Workload>(&mut self, cx: &mut Context<W>, deflate: Option<Negotiated>) {
        let Some(offer) = cx.workload.deflate() else { return };
        let compresses_sent = offer.compress_sent;
        let name = deflate.map_or_else(|| "none".to_owned(), |negotiated| negotiated.to_string());
        *cx.connections.extensions.entry(name).or_default() += 1;
        if let Some(negotiated) = deflate {
            self.extra().deflate = Some(Box::new(Deflate::new(negotiated, compresses_sent)));
        }
    }

    /// Composes a message with its attachments, and compresses it if that was agreed on.
    #[cold]
    pub(super) fn compose_special<W: Workload>(&mut self, cx: &mut Context<W>, sequence: u64, unix_us: u64) {
        let Context { messages, protocol, batch, deflate, masks, .. } = cx;
        let connection = &protocol[self.slot as usize];
        let (opcode, payload) = messages.message(connection, sequence, unix_us);
        push(&mut self.extra, deflate, batch, opcode, payload, masks.next_mask());
        for nth in 0..cx.frames_per_message - 1 {
            let payload = messages.attachment(connection, sequence, unix_us, nth as usize);
            push(&mut self.extra, deflate, batch, Opcode::Binary, payload, masks.next_mask());
        }
    }

    /// Appends a message without a sequence number to frames that wait, compressed if that was agreed on.
    pub(super) fn append_message<W: Workload>(
        &mut self,
        cx: &mut Context<W>,
        frames: &mut Vec<u8>,
        opcode: Opcode,
        payload: &[u8],
    ) {
        let mask = cx.masks.next_mask();
        match compressing(&mut self.extra) {
            Some(deflate) => append_compressed(frames, opcode, deflate.deflate(&mut cx.deflate, payload), mask),
            None => append(frames, opcode, payload, mask),
        }
    }

    /// The number of messages that so many numbered frames of a partial write complete, with those of the writes before.
    pub(super) fn completed<W: Workload>(&mut self, cx: &Context<W>, frames: u64) -> u64 {
        if cx.frames_per_message == 1 {
            return frames;
        }
        let extra = self.extra();
        let frames = extra.frames_of_message + frames;
        extra.frames_of_message = frames % cx.frames_per_message;
        frames / cx.frames_per_message
    }

    /// Handles bytes that aren't a plain frame: the first frame of a compressed message, or the end of the connection.
    /// Returns the number of bytes handled; 0 while the frame is incomplete.
    #[cold]
    pub(super) fn on_special_frame<W: Workload>(
        &mut self,
        cx: &mut Context<W>,
        bytes: &[u8],
        violation: Violation,
        now_ns: u64,
    ) -> usize {
        let deflates = self.extra.as_ref().is_some_and(|extra| extra.deflate.is_some());
        if violation != Violation::Reserved || !deflates {
            self.end(cx, "protocol");
            return 0;
        }
        match frame::parse_compressed(bytes) {
            Ok(None) => 0,
            Ok(Some(frame)) => {
                match self.assembly.take(&frame, LARGEST_MESSAGE) {
                    Ok(Some((opcode, payload))) => self.on_compressed_message(cx, opcode, &payload, now_ns),
                    Ok(None) => {
                        self.set_assembling_compressed(true);
                    }
                    Err(_) => self.end(cx, "protocol"),
                }
                frame.length
            }
            Err(_) => {
                self.end(cx, "protocol");
                0
            }
        }
    }

    /// Handles a further frame of a message.
    pub(super) fn on_continuation<W: Workload>(&mut self, cx: &mut Context<W>, frame: &frame::Frame<'_>, now_ns: u64) {
        match self.assembly.take(frame, LARGEST_MESSAGE) {
            Ok(Some((opcode, payload))) if self.set_assembling_compressed(false) => {
                self.on_compressed_message(cx, opcode, &payload, now_ns);
            }
            Ok(Some((opcode, payload))) => self.on_message(cx, opcode, &payload, now_ns),
            Ok(None) => {}
            Err(_) => self.end(cx, "protocol"),
        }
    }

    /// Notes whether the incomplete message is compressed; returns whether it was.
    fn set_assembling_compressed(&mut self, is_compressed: bool) -> bool {
        let deflate = self.extra.as_mut().and_then(|extra| extra.deflate.as_mut());
        deflate.is_some_and(|deflate| std::mem::replace(&mut deflate.is_assembling, is_compressed))
    }

    fn on_compressed_message<W: Workload>(&mut self, cx: &mut Context<W>, opcode: Opcode, payload: &[u8], now_ns: u64) {
        let Some(deflate) = self.extra.as_mut().and_then(|extra| extra.deflate.as_mut()) else { return };
        match deflate.inflate(&mut cx.deflate, payload, LARGEST_MESSAGE) {
            Ok(()) => {
                let inflated = std::mem::take(&mut cx.deflate.inflated);
                self.on_message(cx, opcode, &inflated, now_ns);
                cx.deflate.inflated = inflated;
            }
            Err(uninflatable) => self.end(cx, uninflatable.0),
        }
        cx.deflate.shrink();
    }
}

/// The compression of a connection that compresses what it sends.
fn compressing(extra: &mut Option<Box<Extra>>) -> Option<&mut Deflate> {
    extra.as_mut()?.deflate.as_deref_mut().filter(|deflate| deflate.compresses_sent)
}

fn push(
    extra: &mut Option<Box<Extra>>,
    shared: &mut Shared,
    batch: &mut Batch,
    opcode: Opcode,
    payload: &[u8],
    mask: [u8; 4],
) {
    match compressing(extra) {
        Some(deflate) => batch.push_compressed(opcode, deflate.deflate(shared, payload), mask),
        None => batch.push(opcode, payload, mask),
    }
}
