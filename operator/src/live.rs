//! The live part at the bottom of a terminal while a climb runs: what the trial does at the moment.
//!
//! [`figures`] computes what is shown, [`render`] makes lines of it; both are pure. A thread of its own draws them twice a
//! second, because a terminal may take its time; it runs on ladder's CPU, and nothing waits for it. There is no raw mode and
//! the cursor stays visible, so that a terminal needs no repair even after SIGKILL. The lines are removed at the end, on a
//! panic and at a second signal ([`remove`]).

use std::{
    cell::RefCell,
    env,
    io::{self, IsTerminal},
    panic,
    sync::{
        Mutex, MutexGuard, Once, PoisonError, TryLockError,
        mpsc::{self, RecvTimeoutError, Sender},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use bench_format::{
    comparison::Comparison,
    result::TrialResult,
    run::{CrashCause, Run, Search},
    timeline::TimelineStep,
    trial::TrialId,
};
use console::Term;
use driver::live::Live;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use self::render::{Course, lines};
use crate::{
    plan::Plan,
    step,
    watcher::{Terminal, Watcher},
};

pub mod figures;
pub mod render;

/// Interval between two drawings.
const INTERVAL: Duration = Duration::from_millis(500);
/// Drawings per second that the library lets through.
const MAX_HZ: u8 = 10;
/// How often the removal is tried while the lines are being drawn, and the pause between.
const REMOVAL_ATTEMPTS: u32 = 20;
const REMOVAL_PAUSE: Duration = Duration::from_millis(10);
/// Columns of a terminal that doesn't say how many it has.
const USUAL_WIDTH: usize = 80;

/// The live part of this process's terminal; `None` while there is none.
static SHOWN: Mutex<Option<ProgressBar>> = Mutex::new(None);
static ON_PANIC: Once = Once::new();

/// Whether the live part is shown: at a terminal that can move its cursor, unless the user wants plain lines.
pub fn is_wanted(quiet: bool) -> bool {
    let at_terminal = io::stderr().is_terminal() && io::stdout().is_terminal();
    at_terminal && !quiet && takes_live(|name| env::var(name).ok())
}

/// Whether the environment admits more than plain lines (`NO_COLOR`, see no-color.org, and `TERM`).
fn takes_live(variable: impl Fn(&str) -> Option<String>) -> bool {
    let is_plain = variable("NO_COLOR").is_some_and(|value| !value.is_empty());
    let is_dumb = variable("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    !is_plain && !is_dumb
}

/// Removes the live part, if there is one, so that the terminal is as if it had never been. Gives up after a moment where
/// the terminal takes no output or the caller itself panicked while it drew.
pub fn remove() {
    for _ in 0..REMOVAL_ATTEMPTS {
        let mut shown = match SHOWN.try_lock() {
            Ok(shown) => shown,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                thread::sleep(REMOVAL_PAUSE);
                continue;
            }
        };
        if let Some(bar) = shown.take() {
            bar.finish_and_clear();
        }
        return;
    }
}

fn shown() -> MutexGuard<'static, Option<ProgressBar>> {
    SHOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Shows the live part, and prints the lines of finished trials above it. Dropping it removes the live part.
#[derive(Debug)]
pub struct LiveTerminal {
    course: RefCell<CourseSoFar>,
    changes: Option<Sender<Course>>,
    drawing: Option<JoinHandle<()>>,
}

impl LiveTerminal {
    /// Begins to show a run of a plan; `live` has the trial that runs.
    pub fn start(live: Live, plan: &Plan, run: &Run) -> Self {
        ON_PANIC.call_once(|| {
            let before = panic::take_hook();
            panic::set_hook(Box::new(move |panic| {
                // A panic under the lock must not wait for it.
                // A thread that panics can't draw, so another one does.
                let _ = thread::spawn(remove).join();
                before(panic);
            }));
        });
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(MAX_HZ));
        bar.set_style(ProgressStyle::with_template("{msg}").expect("the template is a constant"));
        *shown() = Some(bar);
        let (changes, received) = mpsc::channel();
        let drawing = thread::Builder::new().name("live".into()).spawn(move || draw_all(&live, &received));
        let course = RefCell::new(CourseSoFar::new(plan, run));
        // Without the thread nothing is drawn, and lines are printed all the same.
        let shown = Self { course, changes: Some(changes), drawing: drawing.ok() };
        shown.change(|_| ());
        shown
    }

    fn change(&self, change: impl FnOnce(&mut CourseSoFar)) {
        let mut so_far = self.course.borrow_mut();
        change(&mut so_far);
        if let Some(changes) = &self.changes {
            let _ = changes.send(so_far.course());
        }
    }

    fn print(&self, line: &str) {
        match &*shown() {
            Some(bar) => bar.println(line),
            None => eprintln!("{line}"),
        }
    }
}

impl Drop for LiveTerminal {
    fn drop(&mut self) {
        // Ends the thread.
        self.changes = None;
        if let Some(drawing) = self.drawing.take() {
            let _ = drawing.join();
        }
        remove();
    }
}

/// Draws until the sender is gone, or the live part is removed.
fn draw_all(live: &Live, changes: &mpsc::Receiver<Course>) {
    let mut course = Course::default();
    let mut next = Instant::now();
    loop {
        match changes.recv_timeout(next.saturating_duration_since(Instant::now())) {
            Ok(changed) => course = changed,
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {
                next = Instant::now() + INTERVAL;
                let width = Term::stderr().size_checked().map_or(USUAL_WIDTH, |(_, columns)| columns.into());
                // The last column stays empty, because some terminals begin a new line in it.
                let drawn = lines(&course, live.trial().as_ref(), width.saturating_sub(1), Instant::now()).join("\n");
                match &*shown() {
                    Some(bar) => bar.set_message(drawn),
                    None => return,
                }
            }
        }
    }
}

impl Watcher for LiveTerminal {
    fn step(&self, step: TimelineStep, trial: Option<&TrialId>) {
        self.change(|course| course.step(step, trial));
    }

    fn run(&self, run: &Run) {
        self.change(|course| course.run(run));
    }

    fn result(&self, result: &TrialResult) {
        self.print(&Terminal::result_line(result));
    }

    fn failed(&self, trial: &TrialId, reason: &str) {
        self.print(&Terminal::failed_line(trial, reason));
    }

    fn crashed(&self, trial: &TrialId, cause: CrashCause, reason: &str) {
        self.print(&Terminal::crashed_line(trial, cause, reason));
    }

    fn found(&self, search: &Search) {
        self.print(&Terminal::found_line(search));
    }

    fn pair(&self, comparison: &Comparison) {
        self.print(&Terminal::pair_line(comparison));
    }

    fn interrupted(&self, trial: &TrialId, reason: &str) {
        self.print(&Terminal::interrupted_line(trial, reason));
    }
}

/// How far the climb is, and how long it takes.
#[derive(Debug)]
struct CourseSoFar {
    course: Course,
    /// Seconds under load of each trial of the run, by its index; empty where trials are added as the run goes on.
    seconds: Vec<f64>,
    began: Instant,
    /// Seconds under load that were done before this climb: those of a run that is resumed.
    done_before: f64,
}

impl CourseSoFar {
    fn new(plan: &Plan, run: &Run) -> Self {
        let grows = !run.searches.is_empty()
            || run.comparison.is_some()
            || run.trials.iter().any(|entry| entry.pilot.is_some());
        let seconds = |trial: &TrialId| {
            let ladder = plan.ladder_of(trial);
            ladder.map_or(0.0, |ladder| (ladder.warmup_of(&trial.service) + ladder.window).as_secs_f64())
        };
        let seconds = if grows { vec![] } else { run.trials.iter().map(|entry| seconds(&entry.trial)).collect() };
        let course =
            Course { run: run.id.to_string(), trials: (!grows).then_some(run.trials.len()), ..Course::default() };
        let mut so_far = Self { course, seconds, began: Instant::now(), done_before: 0.0 };
        so_far.run(run);
        so_far.done_before = so_far.done(run);
        so_far
    }

    /// Seconds under load of the finished trials.
    fn done(&self, run: &Run) -> f64 {
        let finished = run.trials.iter().zip(&self.seconds).filter(|(entry, _)| !step::is_open(&entry.state));
        finished.map(|(_, seconds)| seconds).sum()
    }

    fn run(&mut self, run: &Run) {
        let open = run.trials.iter().position(|entry| step::is_open(&entry.state));
        self.course.trial = open.map_or(run.trials.len(), |index| index + 1);
        let (all, done) = (self.seconds.iter().sum::<f64>(), self.done(run));
        let (elapsed, under_load) = (self.began.elapsed().as_secs_f64(), done - self.done_before);
        // Before the first trial has ended, only the load itself is known.
        let per_second = if under_load > 0.0 { elapsed / under_load } else { 1.0 };
        let left = Duration::try_from_secs_f64((all - done) * per_second).ok();
        self.course.ends = left.filter(|_| !self.seconds.is_empty()).map(|left| Instant::now() + left);
    }

    fn step(&mut self, step: TimelineStep, _trial: Option<&TrialId>) {
        self.course.step = match step {
            TimelineStep::Prepare => "preparing",
            TimelineStep::StartService => "starting the service",
            TimelineStep::StartWorkers => "starting the workers",
            TimelineStep::Trial => "between trials",
            TimelineStep::Interrupted => "interrupted",
            TimelineStep::StopWorkers => "stopping the workers",
            TimelineStep::StopService => "stopping the service",
        };
    }

    fn course(&self) -> Course {
        self.course.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_lines_are_printed_where_the_environment_asks_for_them() {
        let takes = |set: &[(&str, &str)]| {
            takes_live(|name| set.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned()))
        };
        assert!(takes(&[("TERM", "xterm")]) && takes(&[("TERM", "xterm"), ("NO_COLOR", "")]));
        for plain in [&[][..], &[("TERM", "dumb")], &[("TERM", "")], &[("TERM", "xterm"), ("NO_COLOR", "1")]] {
            assert!(!takes(plain), "{plain:?}");
        }
    }
}
