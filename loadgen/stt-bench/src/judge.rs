//! From an answer to the outcome of its frames: are the contents right, and how long did they take.
//!
//! To know what a batch of an unusual size must sound like takes 64 000 dependent steps a second of audio, a tenth of a
//! millisecond, and a gateway at its limit has no usual sizes. So in the window such answers are put aside, and judged
//! when the load is over: a generator that thinks while frames come due is late, and would be the limit itself.

use std::borrow::Cow;

use crate::{
    audio::{FRAME_SAMPLES, phase},
    context::{Context, LoadState},
    expected::WORDS,
    load_thread::recorder,
    metrics::Metric,
    protocol::Partial,
    samples::Row,
    verify::wrong,
};

/// Steps of checksums that may be put aside; about five seconds of work. What comes after that is judged at once.
const MOST_STEPS: u64 = 4_000_000_000;

/// What an answer did to the frames of its session. Frames were sent, at the latest when it came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answered {
    /// Index of the session among those of all workers.
    pub(crate) session: u64,
    /// Frames that are answered by it for the first time.
    pub(crate) fresh: u64,
    /// Of those, answered later than their objective.
    pub(crate) late: u64,
    /// None where some of its frames had been answered before.
    pub(crate) times: Option<Times>,
    /// When it came.
    pub(crate) at_ns: u64,
}

/// Of a batch's first and last frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    pub(crate) oldest_due_ns: u64,
    pub(crate) oldest_sent_ns: u64,
    pub(crate) newest_due_ns: u64,
    pub(crate) newest_sent_ns: u64,
}

/// Answers that are not judged yet, in the order in which they came.
#[derive(Debug, Default)]
pub(crate) struct Aside {
    answers: Vec<(Partial<'static>, Answered)>,
    /// Steps that their checksums take.
    steps: u64,
}

impl Aside {
    /// Puts an answer aside, unless there is too much already.
    fn take(&mut self, partial: &Partial<'_>, answered: Answered, steps: u64) -> bool {
        let room = self.steps.saturating_add(steps) <= MOST_STEPS;
        if room {
            self.steps += steps;
            self.answers.push((partial.clone().into_owned(), answered));
        }
        room
    }
}

impl Context {
    /// Judges an answer, now if that is quick or nothing is being measured.
    #[inline]
    pub(crate) fn judge_or_defer(&mut self, partial: &Partial<'_>, answered: Answered) {
        let frames = partial.newest_frame_seq - partial.oldest_frame_seq + 1;
        let known = self.expected.knows(phase(answered.session, partial.oldest_frame_seq), frames);
        let measuring = || self.load.as_ref().is_some_and(|load| load.phases.in_window(answered.at_ns));
        if !known && measuring() {
            let steps = frames.saturating_mul(FRAME_SAMPLES).saturating_mul(u64::from(self.expected.passes()));
            if self.aside.take(partial, answered, steps) {
                return;
            }
        }
        self.judge(partial, &answered);
    }

    /// Judges what was put aside. Its values go to where they belong in the course of time.
    pub(crate) fn judge_rest(&mut self) {
        let Aside { answers, .. } = std::mem::take(&mut self.aside);
        let Some(load) = self.load.as_mut().filter(|_| !answers.is_empty()) else { return };
        // A recorder takes values in the order of time, and the first has seen the end of the window.
        let first = std::mem::replace(&mut load.recorder, recorder(&load.phases));
        for (partial, answered) in &answers {
            self.judge(partial, answered);
        }
        if let Some(load) = &mut self.load {
            load.recorded_aside = Some(std::mem::replace(&mut load.recorder, first).finish());
        }
    }

    fn judge(&mut self, partial: &Partial<'_>, answered: &Answered) {
        let Answered { session, fresh, late, times, at_ns } = *answered;
        let frames = partial.newest_frame_seq - partial.oldest_frame_seq + 1;
        let answer = self.expected.answer(phase(session, partial.oldest_frame_seq), frames);
        let fault = answer.and_then(|answer| wrong(partial, &answer, self.expected.passes()));
        if let Some(fault) = fault {
            self.fail(fault, at_ns);
            self.tally.wrong += fresh;
            return;
        }
        self.tally.late += late;
        self.tally.delivered += fresh - late;
        if let (Some(times), Some(load), 1..) = (times, &mut self.load, fresh) {
            load.measure(partial, session, &times, at_ns);
        }
    }
}

impl LoadState {
    fn measure(&mut self, partial: &Partial<'_>, session: u64, times: &Times, now_ns: u64) {
        if !self.phases.in_window(now_ns) {
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

/// A right transcript is one of few words, so that a row needs no memory of its own for it.
fn known_word(transcript: &str) -> Cow<'static, str> {
    let known = WORDS.iter().find(|word| **word == transcript);
    known.map_or_else(|| Cow::Owned(transcript.to_owned()), |word| Cow::Borrowed(*word))
}
