//! Tests of `ladder plan new`: answers from flags, at a terminal, and missing ones.

use std::{fs, process::Command};

use fakes::{Checkout, output_text, terminal::Terminal};

mod fakes;

const ALL: [&str; 14] = [
    "plan",
    "new",
    "chat.yaml",
    "--command",
    "node chat.mjs {port}",
    "--preset",
    "socket.io",
    "--workload",
    "request-reply",
    "--rate",
    "2000",
    "--tiers",
    "10,100",
    "--p99-ms=50",
];

fn command(checkout: &Checkout, arguments: &[&str]) -> Command {
    let mut command = checkout.with_rest("");
    command.args(arguments);
    command
}

fn refused(checkout: &Checkout, arguments: &[&str]) -> String {
    let output = command(checkout, arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", output_text(&output));
    output_text(&output)
}

/// The arguments with the value of a flag replaced.
fn with<'a>(flag: &str, value: &'a str) -> Vec<&'a str> {
    let mut arguments: Vec<&'a str> = ALL.to_vec();
    let at = arguments.iter().position(|argument| *argument == flag).unwrap();
    arguments[at + 1] = value;
    arguments.extend(["--url", "ws://127.0.0.1:{port}/"]);
    arguments
}

#[test]
fn every_answer_is_a_flag_and_the_plan_has_no_mistakes() {
    let checkout = Checkout::new();
    let arguments = with("--command", "node chat.mjs {port}");
    let output = command(&checkout, &arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", output_text(&output));
    assert!(output_text(&output).contains("ladder run chat.yaml"), "{}", output_text(&output));
    let text = fs::read_to_string(checkout.path("chat.yaml")).unwrap();
    for part in [
        "# Written by `ladder plan new`, for you to change. docs/YOUR-SERVICE.md explains each part.\n",
        "name: \"chat\"\n",
        "  extends: \"socket.io\"\n",
        "      command: [\"node\", \"chat.mjs\", \"{port}\"]\n      url: \"ws://127.0.0.1:{port}/\"\n",
        "  # Messages at a rate: latency counts from the time at which each is due",
        "    tiers: [10, 100]\n    load: { model: open, rate_per_second: 2000 }\n",
        "        at_most: 50\n",
        "ladder search chat.yaml",
    ] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
    let output = checkout.run("plan check chat.yaml");
    assert_eq!(output.status.code(), Some(0), "{}", output_text(&output));
    assert!(output_text(&output).starts_with("chat.yaml: 2 trials"), "{}", output_text(&output));
}

#[test]
fn without_a_terminal_a_missing_answer_is_an_error_that_names_its_flag() {
    let checkout = Checkout::new();
    let text = refused(&checkout, &["plan", "new"]);
    assert!(
        text.contains(
            "give --command or --running, --url, --preset, --workload, --rate, --tiers, --p99-ms; or --defaults"
        ),
        "{text}"
    );
    let text = refused(&checkout, &["plan", "new", "--running", "--defaults"]);
    assert!(text.contains("no default: give --url"), "{text}");
    assert!(!checkout.path("plan.yaml").exists());
}

#[test]
fn defaults_answer_what_no_flag_does() {
    let checkout = Checkout::new();
    for workload in ["request-reply", "uplink", "connection-storm", "idle", "churn", "reconnect"] {
        let file = format!("{workload}.yaml");
        let url = "ws://127.0.0.1:3000/x?y=1";
        let arguments = ["plan", "new", &file, "--running", "--url", url, "--workload", workload, "--defaults"];
        let output = command(&checkout, &arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", output_text(&output));
        let output = checkout.run(&format!("plan check {file}"));
        assert_eq!(output.status.code(), Some(0), "{}", output_text(&output));
    }
}

#[test]
fn a_wrong_answer_is_refused_with_its_flag_and_the_reason() {
    let checkout = Checkout::new();
    for (flag, value, reason) in [
        ("--preset", "socketio", "--preset socketio: no preset \"socketio\"; did you mean \"socket.io\"?"),
        ("--workload", "request", "--workload request: there is no such workload; did you mean request-reply?"),
        ("--workload", "stream", "--workload stream: stream has replies in parts"),
        ("--rate", "fast", "--rate fast: it is neither a whole number from 1 on nor `closed`"),
        ("--tiers", "10,10", "--tiers 10,10: give whole numbers from 1 on, each larger than the one before"),
        ("--command", "node chat.mjs", "the command doesn't have {port}; put it there, or give the port here"),
    ] {
        let text = refused(&checkout, &with(flag, value));
        assert!(text.contains(reason), "{text}");
    }
    let mut arguments = with("--rate", "10");
    arguments[13] = "--p99-ms=0";
    assert!(refused(&checkout, &arguments).contains("--p99-ms 0: it is neither a number above 0 nor `none`"));
    let text = refused(&checkout, &["plan", "new", "--running", "--url", "http://127.0.0.1/", "--defaults"]);
    assert!(text.contains("--url http://127.0.0.1/: \"http\" is not WebSocket's scheme"), "{text}");
    assert!(!checkout.path("chat.yaml").exists() && !checkout.path("plan.yaml").exists());
}

#[test]
fn a_file_is_replaced_only_with_force() {
    let checkout = Checkout::new();
    fs::write(checkout.path("plan.yaml"), "mine").unwrap();
    let flags = ["plan", "new", "--running", "--url", "ws://127.0.0.1:1/", "--defaults"];
    assert!(refused(&checkout, &flags).contains("plan.yaml exists; name another file, or replace it with --force"));
    assert_eq!(fs::read_to_string(checkout.path("plan.yaml")).unwrap(), "mine");
    let output = command(&checkout, &flags).arg("--force").output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", output_text(&output));
    assert!(fs::read_to_string(checkout.path("plan.yaml")).unwrap().starts_with("# Written by `ladder plan new`"));
    assert!(refused(&checkout, &["plan", "new", "no/such/plan.yaml"]).contains("there is no folder no/such"));
    assert!(refused(&checkout, &["plan", "new", "a b.yaml"]).contains("the name of the file is that of the plan"));
}

#[test]
fn a_terminal_asks_with_defaults_and_asks_again_after_a_wrong_answer() {
    let checkout = Checkout::new();
    let mut terminal = Terminal::start(command(&checkout, &["plan", "new", "--preset", "echo"]), 200);
    let mut answer = |question: &str, line: &str| {
        terminal.wait_for(question);
        terminal.type_line(line);
    };
    answer("empty if the service runs already: ", "");
    answer("Address of the service, ws://HOST:PORT/PATH: ", "127.0.0.1:3000");
    answer("is not an address", "ws://127.0.0.1:3000/");
    answer("request-reply, uplink, connection-storm, idle, churn, reconnect [request-reply]: ", "");
    answer("each next message after the reply [500]: ", "300");
    answer("one tier each [50]: ", "");
    answer("in milliseconds, or none [100]: ", "none");
    let (status, written) = terminal.finish();
    assert_eq!(status.code(), Some(0), "{written}");
    assert!(!written.contains("How it is spoken to"), "a flag has the answer: {written}");
    let text = fs::read_to_string(checkout.path("plan.yaml")).unwrap();
    assert!(text.contains("tiers: [50]\n    load: { model: open, rate_per_second: 300 }\n"), "{text}");
    assert!(!text.contains("objectives"), "{text}");
}

#[test]
fn the_end_of_the_input_writes_nothing() {
    let checkout = Checkout::new();
    let mut terminal = Terminal::start(command(&checkout, &["plan", "new"]), 200);
    terminal.wait_for("runs already: ");
    terminal.type_line("\u{4}");
    let (status, written) = terminal.finish();
    assert_eq!(status.code(), Some(2), "{written}");
    assert!(written.contains("standard input ended; nothing was written"), "{written}");
    assert!(!checkout.path("plan.yaml").exists());
}
