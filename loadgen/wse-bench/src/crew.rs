//! Several worker processes of one run by hand: this program starts itself and speaks with its copies over pipes, one
//! JSON line per message. The barrier is the parent's; results are merged exactly, as a coordinator's are.

use std::{
    io::{BufRead, BufReader, Write, stdin, stdout},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use anyhow::{Context, bail};
use bench_format::{
    result::WorkerResult,
    trial::{Assignment, Ready, Release},
};
use loadgen_core::{
    Error,
    trial::{Gate, StartAt},
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::workloads::Workload;

/// From parent to worker.
#[derive(Serialize, Deserialize)]
#[expect(clippy::large_enum_variant, reason = "one a trial; a box would only move the bytes")]
enum Order {
    Work(Assignment),
    Gate(Release),
}

/// From worker to parent.
#[derive(Serialize, Deserialize)]
enum Answer {
    Ready(Ready),
    Result(Box<WorkerResult>),
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
    /// Starts so many workers. The secret travels in the environment, where `ps` doesn't show it.
    ///
    /// # Errors
    /// When a process can't be started.
    pub fn start(workers: u32, secret: &str) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("failed to find this program's own file")?;
        let member = |_| {
            let mut process = Command::new(&program)
                .arg("--pipe")
                .env("WSE_BENCH_SECRET", secret)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .with_context(|| format!("failed to start a worker from {}", program.display()))?;
            let input = process.stdin.take().expect("standard input is piped");
            let output = BufReader::new(process.stdout.take().expect("standard output is piped"));
            Ok(Member { process, input, output })
        };
        Ok(Self((0..workers).map(member).collect::<anyhow::Result<_>>()?))
    }

    /// Runs one trial on all workers. `start` is asked for the start once all are ready.
    ///
    /// # Errors
    /// When a worker can't take part; the others are told that the trial is off.
    pub fn run(
        &mut self,
        assignments: &[Assignment],
        start: impl FnOnce(u32) -> u64,
    ) -> anyhow::Result<Vec<WorkerResult>> {
        for (member, assignment) in self.0.iter_mut().zip(assignments) {
            say(&mut member.input, &Order::Work(assignment.clone()))?;
        }
        let mut open = 0;
        let mut problems = Vec::new();
        for member in &mut self.0 {
            match hear(&mut member.output)? {
                Answer::Ready(Ready { problem: Some(problem), .. }) | Answer::Failed(problem) => problems.push(problem),
                Answer::Ready(ready) => open += ready.open,
                Answer::Result(_) => bail!("a worker sent its result before it was ready"),
            }
        }
        let gate = match problems.first() {
            None => Release::Start { start_at_unix_ns: start(open) },
            Some(reason) => Release::Abandoned { reason: reason.clone() },
        };
        for member in &mut self.0 {
            say(&mut member.input, &Order::Gate(gate.clone()))?;
        }
        let answers: Vec<_> = self.0.iter_mut().map(|member| hear(&mut member.output)).collect::<Result<_, _>>()?;
        answers
            .into_iter()
            .map(|answer| match answer {
                Answer::Result(result) => Ok(*result),
                Answer::Failed(reason) => bail!("{reason}"),
                Answer::Ready(_) => bail!("a worker reported ready twice"),
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
pub fn serve(secret: &str) -> anyhow::Result<()> {
    loop {
        // Its own statement, so that the lock is gone when the gate reads from the same input.
        let order = hear_if_any(&mut stdin().lock())?;
        let Some(order) = order else { return Ok(()) };
        let Order::Work(assignment) = order else { bail!("the parent opened a gate before there was work") };
        let mut gate = PipeGate { assignment: &assignment, asked: false };
        let result = Workload::find(&assignment.trial.workload)
            .and_then(|workload| workload.run(&assignment, secret, &mut gate));
        let asked = gate.asked;
        let answer = match result {
            Ok(result) => Answer::Result(Box::new(result)),
            Err(error) => Answer::Failed(format!("{error:#}")),
        };
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
        let abandoned = |error: anyhow::Error| Error::Abandoned { reason: format!("{error:#}") };
        say(&mut stdout().lock(), &Answer::Ready(ready)).map_err(abandoned)?;
        match hear(&mut stdin().lock()).map_err(abandoned)? {
            // Parent and workers share one clock.
            Order::Gate(Release::Start { start_at_unix_ns }) => {
                Ok(StartAt { unix_ns: start_at_unix_ns, clock_offset_ns: 0, clock_uncertainty_ns: 0 })
            }
            Order::Gate(Release::Abandoned { reason }) => Err(Error::Abandoned { reason }),
            _ => Err(Error::Abandoned { reason: "the parent answered with something else".into() }),
        }
    }
}

fn say(output: &mut impl Write, message: &impl Serialize) -> anyhow::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    output.write_all(&line).and_then(|()| output.flush()).context("failed to write to the other end of the pipe")
}

fn hear<T: DeserializeOwned>(input: &mut impl BufRead) -> anyhow::Result<T> {
    hear_if_any(input)?.context("the other end of the pipe is gone; its last words are above")
}

fn hear_if_any<T: DeserializeOwned>(input: &mut impl BufRead) -> anyhow::Result<Option<T>> {
    let mut line = String::new();
    if input.read_line(&mut line).context("failed to read from the other end of the pipe")? == 0 {
        return Ok(None);
    }
    Ok(Some(serde_json::from_str(&line).with_context(|| format!("failed to understand {line:?}"))?))
}
