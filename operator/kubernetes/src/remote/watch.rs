//! `ladder watch`: follows the run of a release to its end, with a line for each trial that ends. At a terminal, the
//! trial that runs stands below, second by second.

use std::{
    io::{self, IsTerminal, Write},
    time::Duration,
};

use anyhow::{Context, bail};
use clap::Args;
use console::Term;
use operator::{
    assert::Standing,
    live::render::{cpu, fitted, milliseconds, rates},
};
use tokio::time::{Instant, sleep};

use super::{
    options::ReleaseOptions,
    progress::{Printed, Progress, progress},
    reach::{Operator, OperatorAddress},
};
use crate::{
    live::Status,
    trial_view::{ObjectiveView, TrialView},
    web::stream::Second,
};

/// How long an operator may be away, such as one that restarts, before the command gives up.
const LONGEST_ABSENCE: Duration = Duration::from_secs(120);
/// Pause before the next attempt to reach it.
const PAUSE: Duration = Duration::from_secs(2);
/// Most bytes of an event.
const LARGEST_EVENT: usize = 1 << 20;

/// Arguments of `ladder watch`.
#[derive(Debug, Args)]
pub struct Watch {
    #[command(flatten)]
    location: ReleaseOptions,
    /// Print one line for each trial that ends and nothing while it runs, also at a terminal.
    #[arg(long)]
    quiet: bool,
}

/// Follows the requested run; exit code 0 when it has ended or none is requested. `ladder assert` judges it.
///
/// # Errors
/// When the operator can't be reached for two minutes, or the run can't be climbed.
pub async fn watch(arguments: &Watch) -> anyhow::Result<u8> {
    let location = arguments.location.location();
    let live_wanted = !arguments.quiet && io::stdout().is_terminal();
    let mut shown = Shown { live: live_wanted.then(Term::stdout), lines: 0, printed: Printed::default() };
    let mut seen = Instant::now();
    let mut first = true;
    loop {
        match follow(&location, &mut shown, &mut seen).await {
            Ok(()) => return Ok(Standing::Pass.exit_code()),
            Err(Failure::Ends(error)) => return Err(error),
            Err(Failure::Away(error)) if first || seen.elapsed() > LONGEST_ABSENCE => return Err(error),
            Err(Failure::Away(error)) => shown.line(&format!("ladder: {error:#}; trying again"))?,
        }
        first = false;
        sleep(PAUSE).await;
    }
}

/// Why the command no longer follows the run.
enum Failure {
    /// The operator doesn't answer, which may pass.
    Away(anyhow::Error),
    /// Another attempt would end in the same way.
    Ends(anyhow::Error),
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::Away(error)
    }
}

/// Follows until the run has ended; `seen` is the moment of the last answer.
async fn follow(location: &OperatorAddress, shown: &mut Shown, seen: &mut Instant) -> Result<(), Failure> {
    let operator = Operator::reach(location).await?;
    let mut events = Events { reply: operator.open("/api/live").await?, unread: Vec::new() };
    let mut ended = None;
    loop {
        let second: Second = events.next().await?;
        *seen = Instant::now();
        // The status is long, so it is requested only when something in it is new.
        let now = (second.ended, second.state, second.description.clone());
        if ended.as_ref() != Some(&now) {
            let status: Status = operator.get("/api/status").await?;
            let lines = shown.printed.new_lines(&status);
            lines.iter().try_for_each(|line| shown.line(line)).map_err(Failure::Ends)?;
            match progress(&status) {
                Progress::Running => {}
                Progress::NoRun => {
                    return shown.line("no run is requested; set run.id to climb").map_err(Failure::Ends);
                }
                Progress::Ended => return shown.line(&status.description).map_err(Failure::Ends),
                Progress::Stuck(description) => return Err(Failure::Ends(anyhow::anyhow!(description))),
            }
            ended = Some(now);
        }
        shown.second(&second).map_err(Failure::Ends)?;
    }
}

/// Server-sent events of one response.
struct Events {
    reply: reqwest::Response,
    unread: Vec<u8>,
}

impl Events {
    /// The next event. The stream has one `data` line for each, and comments.
    async fn next(&mut self) -> anyhow::Result<Second> {
        loop {
            while let Some(end) = self.unread.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.unread.drain(..=end).collect();
                if let Some(data) = line.strip_prefix(b"data:") {
                    return serde_json::from_slice(data.trim_ascii())
                        .context("this version of ladder can't parse what the operator sends");
                }
            }
            if self.unread.len() > LARGEST_EVENT {
                bail!("the operator sends an event of more than {LARGEST_EVENT} bytes");
            }
            match self.reply.chunk().await.context("the operator stopped sending")? {
                Some(chunk) => self.unread.extend_from_slice(&chunk),
                None => bail!("the operator closed the connection"),
            }
        }
    }
}

/// What stands in the terminal.
struct Shown {
    /// The terminal with the live part; absent where only lines are printed.
    live: Option<Term>,
    /// Number of lines of the live part that stand there.
    lines: usize,
    printed: Printed,
}

impl Shown {
    /// Prints a line above the live part.
    fn line(&mut self, line: &str) -> anyhow::Result<()> {
        self.clear()?;
        println!("{line}");
        Ok(())
    }

    /// Replaces the live part.
    fn second(&mut self, second: &Second) -> anyhow::Result<()> {
        self.clear()?;
        let Some(term) = &mut self.live else { return Ok(()) };
        let width = usize::from(term.size().1).saturating_sub(1);
        let lines = lines(second, width);
        for line in &lines {
            writeln!(term, "{line}").context("failed to write to the terminal")?;
        }
        self.lines = lines.len();
        Ok(())
    }

    fn clear(&mut self) -> anyhow::Result<()> {
        if let Some(term) = &self.live {
            term.clear_last_lines(self.lines).context("failed to write to the terminal")?;
        }
        self.lines = 0;
        Ok(())
    }
}

/// The live part, each line of at most `width` columns; what doesn't fit is left out, the last parts first.
fn lines(second: &Second, width: usize) -> Vec<String> {
    let trials = format!("{} of {} trials ended", second.ended, second.trials);
    let mut lines = vec![vec![second.description.clone(), second.search.clone().unwrap_or(trials)]];
    if let Some(trial) = &second.trial {
        let per_second = [trial.rates.due, trial.rates.sent, trial.rates.answered, trial.rates.opened];
        lines.extend([place(trial), rates(per_second, trial.messages.errors, trial.open, trial.connections)]);
        lines.extend(latencies(trial));
        lines.extend(cpu(trial.service_cpu, trial.workers_cpu));
        lines.extend(trial.objectives.iter().map(objective));
    }
    lines.iter().map(|parts| fitted(parts, width)).collect()
}

fn place(trial: &TrialView) -> Vec<String> {
    let of = trial.of_seconds.map(|whole| format!(" of {whole:.0}")).unwrap_or_default();
    vec![format!("  {}", trial.trial), format!("{} {:.0}{of} s", trial.phase, trial.seconds)]
}

fn latencies(trial: &TrialView) -> Option<Vec<String>> {
    let at = |name: &str, ms: Option<f64>| Some(format!("{name} ~{} ms", milliseconds((ms? * 1e6) as u64)));
    let first = at(&format!("  {} p50", trial.latency), trial.p50_ms)?;
    Some([Some(first), at("p95", trial.p95_ms), at("p99", trial.p99_ms)].into_iter().flatten().collect())
}

fn objective(objective: &ObjectiveView) -> Vec<String> {
    let state = match objective.used {
        None => "known after the trial".to_owned(),
        Some(used) if used > 1.0 => "missed so far".to_owned(),
        Some(used) => format!("{:.0} % of the bound", used * 100.0),
    };
    vec![format!("  {}", objective.objective), state]
}

#[cfg(test)]
mod tests {
    use tokio::{net::TcpListener, task::JoinHandle};

    use super::*;
    use crate::{
        live::{Live, State},
        trial_view::{Messages, fixture},
        web::{self, Web},
    };

    fn second(trial: Option<TrialView>) -> Second {
        Second {
            state: State::Climbing,
            description: "climbing run r1".into(),
            run_id: "r1".into(),
            trials: 12,
            ended: 3,
            search: None,
            trial,
        }
    }

    fn trial() -> TrialView {
        TrialView {
            seconds: 4.2,
            of_seconds: Some(10.0),
            messages: Messages { due: 10, sent: 10, answered: 9, errors: 1 },
            p50_ms: Some(0.25),
            p95_ms: Some(1.0),
            p99_ms: Some(12.0),
            service_cpu: Some(0.75),
            objectives: vec![
                ObjectiveView { objective: "response p99 <= 50 ms".into(), value: Some(12.0), used: Some(0.24) },
                ObjectiveView { objective: "failed_share <= 0".into(), value: Some(0.1), used: Some(f64::MAX) },
                ObjectiveView { objective: "late_share <= 0.1".into(), value: None, used: None },
            ],
            ..fixture::view("honest/request-reply/standard/50-p1-r1")
        }
    }

    fn shown() -> Shown {
        Shown { live: None, lines: 0, printed: Printed::default() }
    }

    /// An operator with this status, and where it is reached.
    async fn operator(change: impl FnOnce(&mut Status)) -> (OperatorAddress, JoinHandle<()>) {
        let live = Live::new();
        live.change(change);
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let server = tokio::spawn(web::serve(listener, Web::new(live, "/nonexistent".into())));
        (OperatorAddress::Url(url), server)
    }

    #[tokio::test]
    async fn following_ends_with_the_run() {
        let (address, _server) = operator(|status| {
            (status.run_id, status.state, status.ready) = ("r1".into(), State::Finished, true);
        })
        .await;
        let mut shown = shown();
        assert!(follow(&address, &mut shown, &mut Instant::now()).await.is_ok());
        assert_eq!(shown.printed.run.as_deref(), Some("r1"));
    }

    #[tokio::test]
    async fn a_run_that_can_not_be_climbed_ends_it_with_the_reason() {
        let (address, _server) = operator(|status| {
            (status.state, status.not_ready) = (State::Idle, vec!["plan.yaml: why: empty".into()]);
        })
        .await;
        match follow(&address, &mut shown(), &mut Instant::now()).await {
            Err(Failure::Ends(error)) => assert_eq!(error.to_string(), "plan.yaml: why: empty"),
            _ => panic!("it goes on"),
        }
    }

    #[tokio::test]
    async fn an_operator_that_does_not_answer_may_come_back() {
        let (address, server) = operator(|_| ()).await;
        server.abort();
        let _ = server.await;
        assert!(matches!(follow(&address, &mut shown(), &mut Instant::now()).await, Err(Failure::Away(_))));
    }

    #[test]
    fn a_trial_has_its_place_its_rates_and_how_close_its_objectives_are() {
        assert_eq!(
            lines(&second(Some(trial())), 100),
            [
                "climbing run r1   3 of 12 trials ended",
                "  honest/request-reply/standard/50-p1-r1   window 4 of 10 s",
                "  errors 1   50 of 50 open",
                "  response p50 ~0.25 ms   p95 ~1.0 ms   p99 ~12 ms",
                "  CPU: service 75 %",
                "  response p99 <= 50 ms   24 % of the bound",
                "  failed_share <= 0   missed so far",
                "  late_share <= 0.1   known after the trial",
            ]
        );
    }

    #[test]
    fn a_search_has_what_it_found_so_far_instead_of_a_number_of_trials() {
        let search = Some("rounds, 3 trials ended, passed up to 40".to_owned());
        let lines = lines(&Second { search, ..second(None) }, 100);
        assert_eq!(lines, ["climbing run r1   rounds, 3 trials ended, passed up to 40"]);
    }

    #[test]
    fn lines_fit_a_narrow_terminal() {
        assert!(lines(&second(Some(trial())), 30).iter().all(|line| line.chars().count() <= 30));
        assert_eq!(lines(&second(None), 20), ["climbing run r1"]);
    }
}
