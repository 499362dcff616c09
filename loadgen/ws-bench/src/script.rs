//! The opening: what happens on a connection before load, step by step. Pure.

use std::time::Duration;

use bench_format::websocket::{Expect, OpeningStep, Pause};
use loadgen_core::{
    connect::ATTEMPT_TIMEOUT,
    workload::{Admission, Outbox},
};

use crate::{
    condition::Condition,
    constants::Constants,
    extract::Extractor,
    mistakes::Mistakes,
    state::{Connection, LONGEST_CAPTURED},
    template::{Scope, Template},
};

/// Why a connection has failed when the service said so; a key in results.
const REFUSED: &str = "refused_by_service";
/// The service sent a value that is longer than any that is kept; a key in results.
const TOO_LONG: &str = "captured_too_long";
/// A message did not come within its time; in a key in results, behind the place of the step.
const EXPECT_TIMEOUT: &str = "expect_timeout";

/// The steps of an opening, compiled.
#[derive(Clone, Debug, Default)]
pub struct Script {
    steps: Vec<Step>,
    /// Names of the captured values, in the order of their first capture.
    captured: Vec<String>,
    /// All pauses together.
    paused: Duration,
}

#[derive(Clone, Debug)]
enum Step {
    Send(Template),
    Expect(Box<Expectation>),
    Wait(Duration),
}

#[derive(Clone, Debug)]
struct Expectation {
    when: Condition,
    refused: Option<Condition>,
    /// Positions of the values, and where they stand.
    capture: Vec<(usize, Extractor)>,
    /// How long the step may take, and why the connection has failed then; absent for as long as an attempt may take.
    within: Option<(Duration, String)>,
}

impl Script {
    /// Compiles the steps; their mistakes are added. A template knows the values that steps before it capture.
    pub fn compile(steps: &[OpeningStep], scope: &Scope<'_>, mistakes: &mut Mistakes) -> Self {
        Self::default().extended(steps, "open", scope, mistakes)
    }

    /// The opening with further steps, whose mistakes are added under `place`.
    pub fn extended(mut self, steps: &[OpeningStep], place: &str, scope: &Scope<'_>, mistakes: &mut Mistakes) -> Self {
        for (index, step) in steps.iter().enumerate() {
            let place = format!("{place}[{index}]");
            match (&step.send, &step.expect, &step.wait) {
                (Some(frame), None, None) => {
                    let scope = Scope { captured: &self.captured, ..*scope };
                    let place = format!("{place}.send");
                    let template = Template::frame(frame.text.as_deref(), &frame.binary, &scope, &place, mistakes);
                    self.steps.extend(template.map(Step::Send));
                }
                (None, Some(expect), None) => self.push_expectation(expect, &place, mistakes),
                (None, None, Some(pause)) => self.push_pause(pause, &format!("{place}.wait.seconds"), mistakes),
                _ => mistakes.add(place, "set exactly one of send, expect and wait"),
            }
        }
        self
    }

    fn push_pause(&mut self, pause: &Pause, place: &str, mistakes: &mut Mistakes) {
        let Some(pause) = duration(pause.seconds, place, mistakes) else { return };
        let before = self.paused;
        self.paused += pause;
        // Reported once, at the pause that is too much.
        if before < ATTEMPT_TIMEOUT && self.paused >= ATTEMPT_TIMEOUT {
            let (all, limit) = (self.paused.as_secs_f64(), ATTEMPT_TIMEOUT.as_secs());
            let message = format!(
                "the pauses up to here add up to {all} s, and an attempt fails with ready_timeout if the connection isn't \
                 ready after {limit} s; make them shorter"
            );
            mistakes.add(place, message);
        }
        self.steps.push(Step::Wait(pause));
    }

    fn push_expectation(&mut self, expect: &Expect, step: &str, mistakes: &mut Mistakes) {
        let place = format!("{step}.expect");
        let within = expect.within_seconds.and_then(|seconds| {
            let within = duration(seconds, &format!("{place}.within_seconds"), mistakes)?;
            Some((within, format!("{step}.{EXPECT_TIMEOUT}")))
        });
        let mut capture = Vec::new();
        for (name, extract) in &expect.capture {
            let place = format!("{place}.capture.{name}");
            let at = self.captured.iter().position(|known| known == name).unwrap_or_else(|| {
                self.captured.push(name.clone());
                self.captured.len() - 1
            });
            capture.extend(Extractor::compile(extract, &place, mistakes).map(|extractor| (at, extractor)));
        }
        let refused = expect.refused.as_ref();
        let refused = refused.map(|when| Condition::compile_narrow(when, &format!("{place}.refused"), mistakes));
        let when = Condition::compile(&expect.when, &format!("{place}.when"), mistakes);
        self.steps.push(Step::Expect(Box::new(Expectation { when, refused, capture, within })));
    }

    /// Names of all captured values.
    pub fn captured(&self) -> &[String] {
        &self.captured
    }

    /// Begins the opening of a connection: sends up to the first message to wait for.
    pub fn begin(&self, constants: &Constants, connection: &mut Connection, outbox: &mut Outbox) -> Admission {
        if !self.captured.is_empty() {
            connection.captured = vec![Box::default(); self.captured.len()];
        }
        self.advance(constants, connection, outbox)
    }

    /// Reads a message of the service. A message that isn't the one that the step waits for changes nothing.
    pub fn admit(
        &self,
        constants: &Constants,
        connection: &mut Connection,
        message: &[u8],
        outbox: &mut Outbox,
    ) -> Admission {
        let Some(Step::Expect(expectation)) = self.steps.get(connection.step) else {
            // Only the end of a pause ends it.
            return Admission::Waiting;
        };
        if expectation.refused.as_ref().is_some_and(|refused| refused.holds(message)) {
            return Admission::Refused(REFUSED.into());
        }
        if !expectation.when.holds(message) {
            return Admission::Waiting;
        }
        for (at, extractor) in &expectation.capture {
            // Without its value it isn't the message that is expected.
            let Some(value) = extractor.find(message) else { return Admission::Waiting };
            let value = value.text();
            if value.len() > LONGEST_CAPTURED {
                return Admission::Refused(TOO_LONG.into());
            }
            connection.captured[*at] = value.into();
        }
        connection.step += 1;
        self.advance(constants, connection, outbox)
    }

    /// Continues after a timer of the step with this number; it changes nothing if that step is over.
    pub fn elapsed(
        &self,
        constants: &Constants,
        connection: &mut Connection,
        step: u32,
        outbox: &mut Outbox,
    ) -> Admission {
        if connection.step != step as usize {
            return Admission::Waiting;
        }
        match self.steps.get(connection.step) {
            Some(Step::Expect(expectation)) => match &expectation.within {
                Some((_, reason)) => Admission::Refused(reason.clone()),
                None => Admission::Waiting,
            },
            Some(Step::Wait(_)) => {
                connection.step += 1;
                self.advance(constants, connection, outbox)
            }
            Some(Step::Send(_)) | None => Admission::Waiting,
        }
    }

    /// Sends until a step waits.
    fn advance(&self, constants: &Constants, connection: &mut Connection, outbox: &mut Outbox) -> Admission {
        while let Some(Step::Send(template)) = self.steps.get(connection.step) {
            // Messages of the load count from 0; the numbers of the opening are at the other end.
            let sequence = u64::MAX - connection.step as u64;
            outbox.send(template.opcode(), template.bytes(&constants.values(connection, sequence, 0)));
            connection.step += 1;
        }
        let timed = |after| Admission::Timed { timer: connection.step as u32, after };
        match self.steps.get(connection.step) {
            Some(Step::Wait(pause)) => timed(*pause),
            Some(Step::Expect(expectation)) => {
                expectation.within.as_ref().map_or(Admission::Waiting, |(within, _)| timed(*within))
            }
            Some(Step::Send(_)) => Admission::Waiting,
            None => Admission::Ready { connection_id: String::new() },
        }
    }
}

/// A time of a step, from a millisecond up to that of an attempt.
fn duration(seconds: f64, place: &str, mistakes: &mut Mistakes) -> Option<Duration> {
    let limit = ATTEMPT_TIMEOUT.as_secs();
    if !(0.001..=limit as f64).contains(&seconds) {
        mistakes.add(place, format!("{seconds} s is not from 0.001 to {limit} s, after which every attempt fails"));
        return None;
    }
    Some(Duration::from_secs_f64(seconds))
}

#[cfg(test)]
mod tests {
    use bench_format::websocket::{Extract, Frame, When};

    use super::*;
    use crate::template::{Kind, Payload};

    fn expect(starts_with: &str, capture: &[(&str, &str)]) -> OpeningStep {
        let when = |text: &str| When { starts_with: Some(text.into()), ..When::default() };
        let extract = |regex: &str| Extract { regex: Some(regex.into()), ..Extract::default() };
        let capture = capture.iter().map(|(name, regex)| ((*name).to_owned(), extract(regex))).collect();
        let expect = Expect { when: when(starts_with), refused: Some(when("no")), capture, within_seconds: None };
        OpeningStep { expect: Some(expect), ..OpeningStep::default() }
    }

    fn send(text: &str) -> OpeningStep {
        OpeningStep { send: Some(Frame { text: Some(text.into()), ..Frame::default() }), ..OpeningStep::default() }
    }

    fn wait(seconds: f64) -> OpeningStep {
        OpeningStep { wait: Some(Pause { seconds }), ..OpeningStep::default() }
    }

    fn within(seconds: f64, mut step: OpeningStep) -> OpeningStep {
        step.expect.as_mut().unwrap().within_seconds = Some(seconds);
        step
    }

    fn timed(timer: u32, seconds: f64) -> Admission {
        Admission::Timed { timer, after: Duration::from_secs_f64(seconds) }
    }

    /// A connection in the middle of its opening.
    struct Opening {
        script: Script,
        connection: Connection,
        outbox: Outbox,
    }

    impl Opening {
        fn begin(steps: &[OpeningStep]) -> (Self, Admission) {
            let payload = Payload::default();
            let kinds = &[Kind::Captured, Kind::Connection, Kind::Random];
            let scope = Scope { kinds, captured: &[], columns: Some(&[]), payload: &payload };
            let mut mistakes = Mistakes::default();
            let script = Script::compile(steps, &scope, &mut mistakes);
            assert_eq!(mistakes.into_list(), []);
            let mut opening = Self { script, connection: Connection::default(), outbox: Outbox::default() };
            let admission = opening.script.begin(&Constants::default(), &mut opening.connection, &mut opening.outbox);
            (opening, admission)
        }

        fn receive(&mut self, message: &str) -> Admission {
            let Self { script, connection, outbox } = self;
            script.admit(&Constants::default(), connection, message.as_bytes(), outbox)
        }

        fn elapse(&mut self, timer: u32) -> Admission {
            let Self { script, connection, outbox } = self;
            script.elapsed(&Constants::default(), connection, timer, outbox)
        }

        fn sent(&mut self) -> Vec<String> {
            self.outbox.take().map(|(_, bytes)| String::from_utf8(bytes).unwrap()).collect()
        }
    }

    fn ready() -> Admission {
        Admission::Ready { connection_id: String::new() }
    }

    #[test]
    fn without_steps_a_connection_is_ready_at_once() {
        assert_eq!(Opening::begin(&[]).1, ready());
    }

    #[test]
    fn steps_follow_one_another_and_other_messages_are_ignored() {
        let steps = [send("a"), send("b"), expect("x", &[("id", "x(.)")]), send("c {{captured.id}}"), expect("y", &[])];
        let (mut opening, admission) = Opening::begin(&steps);
        assert_eq!((admission, opening.sent()), (Admission::Waiting, vec!["a".to_owned(), "b".into()]));
        assert_eq!(opening.receive("y"), Admission::Waiting);
        assert_eq!(opening.receive("x"), Admission::Waiting, "without its value it isn't the message");
        assert_eq!(opening.sent(), [""; 0]);
        assert_eq!((opening.receive("x7"), opening.sent()), (Admission::Waiting, vec!["c 7".to_owned()]));
        assert_eq!(opening.receive("y"), ready());
    }

    #[test]
    fn a_name_that_is_captured_twice_has_the_later_value() {
        let steps = [expect("x", &[("id", "x(.)")]), expect("x", &[("id", "x(.)")]), send("{{captured.id}}")];
        let (mut opening, _) = Opening::begin(&steps);
        opening.receive("x1");
        assert_eq!((opening.receive("x2"), opening.sent()), (ready(), vec!["2".to_owned()]));
    }

    #[test]
    fn a_pause_ignores_messages_and_ends_by_its_timer_only() {
        let (mut opening, admission) = Opening::begin(&[send("a"), wait(0.5), send("b"), expect("x", &[])]);
        assert_eq!((admission, opening.sent()), (timed(1, 0.5), vec!["a".to_owned()]));
        assert_eq!((opening.receive("x"), opening.sent()), (Admission::Waiting, vec![]));
        assert_eq!((opening.elapse(1), opening.sent()), (Admission::Waiting, vec!["b".to_owned()]));
        assert_eq!((opening.elapse(1), opening.sent()), (Admission::Waiting, vec![]), "a timer counts once");
        assert_eq!(opening.receive("x"), ready());
        assert_eq!(Opening::begin(&[wait(0.5)]).0.elapse(0), ready(), "a pause may be the last step");
    }

    #[test]
    fn a_message_that_does_not_come_within_its_time_is_a_failure_with_its_step() {
        let steps = [within(2.0, expect("x", &[])), send("a"), within(0.25, expect("y", &[]))];
        let (mut opening, admission) = Opening::begin(&steps);
        assert_eq!(admission, timed(0, 2.0));
        assert_eq!(opening.receive("other"), Admission::Waiting);
        assert_eq!(opening.receive("x"), timed(2, 0.25));
        assert_eq!(opening.elapse(0), Admission::Waiting, "the message has come");
        assert_eq!(opening.elapse(2), Admission::Refused("open[2].expect_timeout".into()));
        assert_eq!(opening.receive("y"), ready());
    }

    #[test]
    fn a_refusal_and_a_value_without_end_are_failures() {
        let (mut opening, _) = Opening::begin(&[expect("x", &[("id", "x(.*)")])]);
        assert_eq!(opening.receive("no"), Admission::Refused("refused_by_service".into()));
        let longest = format!("x{}", "1".repeat(LONGEST_CAPTURED));
        assert_eq!(opening.receive(&format!("{longest}1")), Admission::Refused("captured_too_long".into()));
        assert_eq!(opening.receive(&longest), ready());
    }
}
