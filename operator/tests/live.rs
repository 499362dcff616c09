//! Tests of the live part of `ladder` in a pseudo terminal, and of its absence elsewhere.

use std::{env, fs, path::PathBuf, process::Command};

use driver::live::Live;
use fakes::{
    Checkout, output_text,
    terminal::{Terminal, screen},
    wait_for,
};
use operator::{
    live::LiveTerminal,
    plan::{Plan, check::MachineLimits},
    registry::Registry,
};
use rustix::process::{Pid, Signal, kill_process};

mod fakes;

/// Columns of the terminal: enough for the line of a trial.
const COLUMNS: u16 = 1000;
const RUN: &str = "run fake --run-id r --no-report";

/// A checkout whose plan has two trials, each long enough to be looked at.
fn checkout() -> Checkout {
    let checkout = Checkout::new();
    checkout.plan("fake", "services: [honest]\nrepeats: 2\n", "  window_seconds: 2\n");
    checkout
}

fn signal(terminal: &Terminal, signal: Signal) {
    kill_process(Pid::from_raw(terminal.child.id() as i32).unwrap(), signal).unwrap();
}

/// Asserts that the screen shows what a run leaves, and nothing of the live part.
fn assert_final_text(lines: &[String]) {
    let text = lines.join("\n");
    assert!(lines[0].starts_with("r: 2 trials, bundle "), "{text}");
    for (line, repeat) in lines[1..].iter().zip(1..=2) {
        assert!(line.starts_with(&format!("honest/throughput/standard/4-p1-r{repeat}: valid, ")), "{text}");
    }
    assert!(lines[3].starts_with("trial ") && lines[3].contains("standing"), "{text}");
    assert!(lines[6].starts_with("overhead at most: "), "{text}");
    assert!(lines[7..].iter().all(String::is_empty), "{text}");
}

#[test]
fn a_terminal_shows_the_trial_that_runs_and_then_what_a_run_leaves() {
    let checkout = checkout();
    let terminal = Terminal::start(checkout.ladder(RUN), COLUMNS);
    terminal.wait_for("trial 1 of 2   about ");
    terminal.wait_for("honest/throughput/standard/4-p1-r1   window 1 of 2 s   █");
    terminal.wait_for("4 of 4 open");
    terminal.wait_for("response p50 ~");
    terminal.wait_for("CPU: service ");
    terminal.wait_for("trial 2 of 2   about ");
    let (status, written) = terminal.finish();
    assert_eq!(status.code(), Some(0), "{written}");
    assert_final_text(&screen(&written, COLUMNS.into()));
}

#[test]
fn a_worker_that_reports_nothing_shows_less() {
    let checkout = checkout();
    let mut command = checkout.ladder(RUN);
    command.env("FAKE_WORKER_FLAW", "old");
    let terminal = Terminal::start(command, COLUMNS);
    terminal.wait_for("the workers report nothing yet");
    terminal.wait_for("CPU: service ");
    let (status, written) = terminal.finish();
    assert_eq!(status.code(), Some(0), "{written}");
    assert!(!written.contains("response p50"), "{written}");
    assert_final_text(&screen(&written, COLUMNS.into()));
}

#[test]
fn without_a_terminal_and_with_quiet_there_is_one_line_for_each_trial() {
    let plain = |command: &mut Command| {
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", output_text(&output));
        output
    };
    let output = plain(&mut checkout().ladder(RUN));
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(errors.lines().count(), 3, "{errors}");
    assert!(!errors.contains('\u{1b}') && !errors.contains('\r'), "{errors}");
    let lines: Vec<String> = (errors + &String::from_utf8(output.stdout).unwrap()).lines().map(str::to_owned).collect();
    assert_final_text(&lines);

    for (flag, variable) in [(" --quiet", None), ("", Some(("NO_COLOR", "1"))), ("", Some(("TERM", "dumb")))] {
        let checkout = checkout();
        let mut command = checkout.ladder(&format!("{RUN}{flag}"));
        let mut shell = in_shell(&mut command, variable);
        shell.current_dir(checkout.folder.path());
        let (status, written) = Terminal::start(shell, COLUMNS).finish();
        assert_eq!(status.code(), Some(0), "{written}");
        assert!(!written.contains('\u{1b}') && !written.contains("about"), "{written}");
        assert_final_text(&screen(&written, COLUMNS.into()));
    }
}

/// The command, started by a shell that sets a variable: the terminal of these tests sets its own.
fn in_shell(command: &mut Command, variable: Option<(&str, &str)>) -> Command {
    let mut shell = Command::new("env");
    shell.args(variable.map(|(name, value)| format!("{name}={value}")));
    shell.arg(command.get_program()).args(command.get_args());
    shell.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    shell
}

#[test]
fn a_signal_leaves_no_trace_of_the_live_part() {
    let checkout = checkout();
    let terminal = Terminal::start(checkout.ladder(RUN), COLUMNS);
    terminal.wait_for("4 of 4 open");
    signal(&terminal, Signal::INT);
    let (status, written) = terminal.finish();
    assert_eq!(status.code(), Some(130), "{written}");
    let screen = screen(&written, COLUMNS.into());
    let last = screen.iter().rfind(|line| !line.is_empty()).unwrap();
    assert_eq!(last, "stopped; resume with: ladder run --resume r");
    assert!(!screen.iter().any(|line| line.contains("open") || line.contains("left")), "{screen:?}");
}

/// Panics while the live part is shown, when the test below starts this binary in a terminal.
#[test]
#[ignore = "a process for another test, not a test"]
fn panics_while_the_live_part_is_shown() {
    let checkout = Checkout::new();
    assert_eq!(checkout.run(RUN).status.code(), Some(0));
    let registry = Registry::load(&checkout.path("services/services.toml")).unwrap();
    let limits = MachineLimits { cpus: usize::MAX, no_fractions: None };
    let plan = Plan::load(&checkout.path("plans/fake.yaml"), &registry, &limits).unwrap();
    let _live = LiveTerminal::start(Live::default(), &plan, &checkout.run_file());
    // The test that started this process makes the file when it sees the live part.
    let file = PathBuf::from(env::var_os("PANIC_FILE").unwrap());
    wait_for("the file", || file.exists());
    panic!("as configured");
}

#[test]
fn a_panic_is_printed_where_the_live_part_was() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("panic");
    let mut command = Command::new(env::current_exe().unwrap());
    command.env("PANIC_FILE", &file);
    command.args(["--exact", "--ignored", "--nocapture", "panics_while_the_live_part_is_shown"]);
    let terminal = Terminal::start(command, COLUMNS);
    terminal.wait_for("trial 1 of 1");
    fs::write(file, "").unwrap();
    let (status, written) = terminal.finish();
    assert!(!status.success(), "{written}");
    let screen = screen(&written, COLUMNS.into());
    assert!(screen.iter().any(|line| line.contains("as configured")), "{screen:?}");
    assert!(!screen.iter().any(|line| line.contains("trial 1 of 1")), "{screen:?}");
}
