//! Several worker processes of one run by hand: this program starts itself and speaks with its copies over pipes, one
//! JSON line per message. The barrier is the parent's; results are merged exactly, as a coordinator's are.

use std::{
    fmt::Display,
    io::{BufRead, BufReader, Write, stdin, stdout},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use bench_format::trial::{Assignment, Ready, Release};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    error::Error,
    trial::{Gate, StartAt},
};

/// From parent to worker.
#[derive(Serialize, Deserialize)]
#[expect(clippy::large_enum_variant, reason = "one a trial; a box would only move the bytes")]
enum Order {
    Work(Assignment),
    Gate(Release),
}

/// From worker to parent.
#[derive(Serialize, Deserialize)]
enum Answer<T> {
    Ready(Ready),
    Result(Box<T>),
    Failed(String),
}

/// The parent's side: the running workers.
pub struct Crew(Vec<Member>);

struct Member {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Crew {
    /// Starts so many copies of this program with `--pipe`; `equip` adds what else they need. A secret belongs into the
    /// environment, where `ps` doesn't show it.
    ///
    /// # Errors
    /// When a process can't be started.
    pub fn start(workers: u32, equip: impl Fn(&mut Command)) -> Result<Self, Error> {
        let kernel = |what| move |source| Error::Kernel { what, source };
        let program = std::env::current_exe().map_err(kernel("find this program's own file"))?;
        let member = |_| {
            let mut command = Command::new(&program);
            command.arg("--pipe").stdin(Stdio::piped()).stdout(Stdio::piped());
            equip(&mut command);
            let mut process = command.spawn().map_err(kernel("start a worker from this program's own file"))?;
            let input = process.stdin.take().expect("standard input is piped");
            let output = BufReader::new(process.stdout.take().expect("standard output is piped"));
            Ok(Member { process, input, output })
        };
        Ok(Self((0..workers).map(member).collect::<Result<_, Error>>()?))
    }

    /// Runs one trial on all workers. `start` is asked for the start once all are ready.
    ///
    /// # Errors
    /// When a worker can't take part; the others are told that the trial is off.
    pub fn run<T: DeserializeOwned>(
        &mut self,
        assignments: &[Assignment],
        start: impl FnOnce(u32) -> u64,
    ) -> Result<Vec<T>, Error> {
        self.run_if(assignments, |open, problem| match problem {
            None => Release::Start { start_at_unix_ns: start(open) },
            Some(reason) => Release::Abandoned { reason },
        })
    }

    /// Runs one trial on all workers. Once each has said how far it is, `decide` is asked what comes next: with the
    /// connections that are open, and what kept a worker from opening any.
    ///
    /// # Errors
    /// When a worker can't carry out its assignment or `decide` calls the trial off; the others are told so.
    pub fn run_if<T: DeserializeOwned>(
        &mut self,
        assignments: &[Assignment],
        decide: impl FnOnce(u32, Option<String>) -> Release,
    ) -> Result<Vec<T>, Error> {
        for (member, assignment) in self.0.iter_mut().zip(assignments) {
            say(&mut member.input, &Order::Work(assignment.clone()))?;
        }
        let mut open = 0;
        let (mut problem, mut failure) = (None, None);
        for member in &mut self.0 {
            match hear::<Answer<T>>(&mut member.output)? {
                Answer::Ready(ready) => {
                    open += ready.open;
                    problem = problem.or(ready.problem);
                }
                Answer::Failed(reason) => failure = failure.or(Some(reason)),
                Answer::Result(_) => return Err(nonsense("a worker sent its result before it was ready")),
            }
        }
        let gate = match failure {
            None => decide(open, problem),
            Some(reason) => Release::Abandoned { reason },
        };
        for member in &mut self.0 {
            say(&mut member.input, &Order::Gate(gate.clone()))?;
        }
        let answers: Vec<Answer<T>> =
            self.0.iter_mut().map(|member| hear(&mut member.output)).collect::<Result<_, _>>()?;
        answers
            .into_iter()
            .map(|answer| match answer {
                Answer::Result(result) => Ok(*result),
                Answer::Failed(reason) => Err(Error::Abandoned { reason }),
                Answer::Ready(_) => Err(nonsense("a worker reported ready twice")),
            })
            .collect()
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        for Member { process, input, output } in self.0.drain(..) {
            // The end of its input ends a worker; one that has not noticed is not waited for.
            drop((input, output));
            let mut process = process;
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// The worker's side: carries out assignments until its input ends.
///
/// # Errors
/// When the parent doesn't make sense.
pub fn serve<T: Serialize, E: Display>(
    mut carry_out: impl FnMut(&Assignment, &mut dyn Gate) -> Result<T, E>,
) -> Result<(), Error> {
    loop {
        // Its own statement, so that the lock is gone when the gate reads from the same input.
        let order = hear_if_any(&mut stdin().lock())?;
        let Some(order) = order else { return Ok(()) };
        let Order::Work(assignment) = order else {
            return Err(nonsense("the parent opened a gate before there was work"));
        };
        let mut gate = PipeGate { assignment: &assignment, asked: false };
        let answer = match carry_out(&assignment, &mut gate) {
            Ok(result) => Answer::Result(Box::new(result)),
            Err(error) => Answer::Failed(format!("{error:#}")),
        };
        let asked = gate.asked;
        say(&mut stdout().lock(), &answer)?;
        if !asked {
            // The parent hears of the failure in place of "ready", sends its decision, and expects an end to the trial.
            hear_if_any::<Order>(&mut stdin().lock())?;
            say(&mut stdout().lock(), &answer)?;
        }
    }
}

struct PipeGate<'a> {
    assignment: &'a Assignment,
    asked: bool,
}

impl Gate for PipeGate<'_> {
    fn ready(&mut self, open: u32, problem: Option<String>) -> Result<StartAt, Error> {
        self.asked = true;
        let Assignment { run, trial, attempt, .. } = self.assignment;
        let ready = Ready { run: run.clone(), trial: trial.clone(), attempt: *attempt, open, problem };
        say(&mut stdout().lock(), &Answer::<()>::Ready(ready))?;
        match hear(&mut stdin().lock())? {
            // Parent and workers share one clock.
            Order::Gate(Release::Start { start_at_unix_ns }) => {
                Ok(StartAt { unix_ns: start_at_unix_ns, clock_offset_ns: 0, clock_uncertainty_ns: 0 })
            }
            Order::Gate(Release::Abandoned { reason }) => Err(Error::Abandoned { reason }),
            _ => Err(Error::Abandoned { reason: "the parent answered with something else".into() }),
        }
    }
}

fn nonsense(words: &str) -> Error {
    Error::Abandoned { reason: words.to_owned() }
}

fn say(output: &mut impl Write, message: &impl Serialize) -> Result<(), Error> {
    let mut line = serde_json::to_vec(message).expect("what is said over a pipe is plain data");
    line.push(b'\n');
    let kernel = |source| Error::Kernel { what: "write to the other end of the pipe", source };
    output.write_all(&line).and_then(|()| output.flush()).map_err(kernel)
}

fn hear<T: DeserializeOwned>(input: &mut impl BufRead) -> Result<T, Error> {
    hear_if_any(input)?.ok_or_else(|| nonsense("the other end of the pipe is gone; its last words are above"))
}

fn hear_if_any<T: DeserializeOwned>(input: &mut impl BufRead) -> Result<Option<T>, Error> {
    let mut line = String::new();
    let kernel = |source| Error::Kernel { what: "read from the other end of the pipe", source };
    if input.read_line(&mut line).map_err(kernel)? == 0 {
        return Ok(None);
    }
    let message = serde_json::from_str(&line);
    message.map(Some).map_err(|error| nonsense(&format!("failed to understand {line:?}: {error}")))
}
