//! From an answer to the outcome of its frames: whether the contents are right, and how long they took.

use std::borrow::Cow;

use super::{Context, LoadState};
use crate::{
    audio::{FRAME_NS, FRAME_SAMPLES, phase},
    deferred::{Deferred, FrameResult, Times},
    expected::WORDS,
    metrics::{Metric, recorder},
    protocol::Partial,
    samples::Row,
    verify::wrong,
};

impl Context {
    /// Judges an answer at once if its expected result is known or no frame comes due any more; else defers it.
    #[inline]
    pub(crate) fn judge_or_defer(&mut self, partial: &Partial<'_>, answered: FrameResult) {
        let frames = partial.newest_frame_seq - partial.oldest_frame_seq + 1;
        let known = self.expected.knows(phase(answered.session, partial.oldest_frame_seq), frames);
        let measuring = || self.load.as_ref().is_some_and(|load| load.phases.in_window(answered.at_ns));
        if !known && measuring() {
            let steps = frames.saturating_mul(FRAME_SAMPLES).saturating_mul(u64::from(self.expected.passes()));
            if self.deferred.add(partial, answered, steps) {
                return;
            }
        }
        self.judge(partial, &answered);
    }

    /// Judges the deferred answers. Their values enter the recorder's intervals by when the answers arrived.
    pub(crate) fn judge_deferred(&mut self) {
        let Deferred { partials, .. } = std::mem::take(&mut self.deferred);
        let Some(load) = self.load.as_mut().filter(|_| !partials.is_empty()) else { return };
        // A recorder takes values in the order of time, and this one is already at the end of the window.
        let first = std::mem::replace(&mut load.recorder, recorder(&load.phases, &self.live));
        for (partial, answered) in &partials {
            self.judge(partial, answered);
        }
        if let Some(load) = &mut self.load {
            load.recorded_deferred = Some(std::mem::replace(&mut load.recorder, first).finish());
        }
    }

    fn judge(&mut self, partial: &Partial<'_>, answered: &FrameResult) {
        let FrameResult { session, newly_covered, late, times, newest_due_ns, at_ns } = *answered;
        let frames = partial.newest_frame_seq - partial.oldest_frame_seq + 1;
        let answer = self.expected.answer(phase(session, partial.oldest_frame_seq), frames);
        let fault = answer.and_then(|answer| wrong(partial, &answer, self.expected.passes()));
        if let Some(fault) = fault {
            self.fail(session, fault, at_ns);
            self.tally.wrong += newly_covered;
            return;
        }
        self.tally.late += late;
        self.tally.delivered += newly_covered - late;
        let (Some(load), 1..) = (&mut self.load, newly_covered) else { return };
        load.measure_frames(newest_due_ns, newly_covered, at_ns);
        if let Some(times) = times {
            load.measure(partial, session, &times, at_ns);
        }
    }
}

impl LoadState {
    /// Records the ages of the `newly_covered` frames that an answer covers, as far as they were due in the window.
    ///
    /// When a frame was due decides, not when its answer came: otherwise a gateway that answers nothing in the window
    /// has no slow answer in it.
    fn measure_frames(&mut self, newest_due_ns: u64, newly_covered: u64, now_ns: u64) {
        for due_ns in (0..newly_covered).map(|earlier| newest_due_ns.saturating_sub(earlier * FRAME_NS)) {
            if self.phases.in_window(due_ns) {
                self.recorder.record(Metric::Frame, now_ns.saturating_sub(due_ns), now_ns);
            }
        }
    }

    /// Records the ages of an answer whose last frame, and the frame after it, were due in the window. The batch with the
    /// last frame of all was cut by the end of the load, and not by the gateway: nothing newer came until its flush.
    fn measure(&mut self, partial: &Partial<'_>, session: u64, times: &Times, now_ns: u64) {
        if !self.phases.in_window(times.newest_due_ns) || !self.phases.in_window(times.newest_due_ns + FRAME_NS) {
            return;
        }
        let since = |then_ns: u64| now_ns.saturating_sub(then_ns);
        let lateness_ns = (partial.flush_lateness_ms * 1e6) as u64;
        for (metric, value_ns) in [
            (Metric::Newest, since(times.newest_due_ns)),
            (Metric::Oldest, since(times.oldest_due_ns)),
            (Metric::NewestService, since(times.newest_sent_ns)),
            (Metric::OldestService, since(times.oldest_sent_ns)),
            (Metric::FlushLateness, lateness_ns),
        ] {
            self.recorder.record(metric, value_ns, now_ns);
        }
        if let Some(rows) = &mut self.rows {
            rows.push(Row {
                session,
                oldest: partial.oldest_frame_seq,
                newest: partial.newest_frame_seq,
                frames: partial.frames,
                transcript: known_word(&partial.transcript),
                audio_bytes: partial.audio_bytes,
                newest_ns: since(times.newest_due_ns),
                oldest_ns: since(times.oldest_due_ns),
                lateness_ns,
                received_ns: now_ns - self.phases.window_start_ns,
            });
        }
    }
}

/// A correct transcript is one of a few words, for which a row needs no memory of its own.
fn known_word(transcript: &str) -> Cow<'static, str> {
    let known = WORDS.iter().find(|word| **word == transcript);
    known.map_or_else(|| Cow::Owned(transcript.to_owned()), |word| Cow::Borrowed(*word))
}
