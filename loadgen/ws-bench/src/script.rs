//! The opening: what happens on a connection before load, step by step. Pure.

use bench_format::websocket::{Expect, OpeningStep};
use loadgen_core::workload::{Admission, Outbox};

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

/// A compiled opening.
#[derive(Clone, Debug, Default)]
pub struct Script {
    steps: Vec<Step>,
    /// Names of the captured values, in the order of their first capture.
    captured: Vec<String>,
}

#[derive(Clone, Debug)]
enum Step {
    Send(Template),
    Expect(Box<Expectation>),
}

#[derive(Clone, Debug)]
struct Expectation {
    when: Condition,
    refused: Option<Condition>,
    /// Positions of the values, and where they stand.
    capture: Vec<(usize, Extractor)>,
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
            match (&step.send, &step.expect) {
                (Some(frame), None) => {
                    let scope = Scope { captured: &self.captured, ..*scope };
                    let place = format!("{place}.send");
                    let template = Template::frame(frame.text.as_deref(), &frame.binary, &scope, &place, mistakes);
                    self.steps.extend(template.map(Step::Send));
                }
                (None, Some(expect)) => self.push_expectation(expect, &format!("{place}.expect"), mistakes),
                _ => mistakes.add(place, "set exactly one of send and expect"),
            }
        }
        self
    }

    fn push_expectation(&mut self, expect: &Expect, place: &str, mistakes: &mut Mistakes) {
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
        self.steps.push(Step::Expect(Box::new(Expectation { when, refused, capture })));
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
            return self.advance(constants, connection, outbox);
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

    /// Sends until a step waits.
    fn advance(&self, constants: &Constants, connection: &mut Connection, outbox: &mut Outbox) -> Admission {
        while let Some(Step::Send(template)) = self.steps.get(connection.step) {
            // Messages of the load count from 0; the numbers of the opening are at the other end.
            let sequence = u64::MAX - connection.step as u64;
            outbox.send(template.opcode(), template.bytes(&constants.values(connection, sequence, 0)));
            connection.step += 1;
        }
        match self.steps.get(connection.step) {
            Some(_) => Admission::Waiting,
            None => Admission::Ready { connection_id: String::new() },
        }
    }
}
