//! Tests of `ladder compare --plan` as a process, against services of known response times: what it decides, what the
//! bundle has of it, and what it says where it can't.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use bench_format::{
    comparison::{ComparedFigure, Comparison, ComparisonEnd, ComparisonVerdict},
    run::{Run, RunState, TrialState},
};
use driver::fixture::write_program;
use fakes::{Checkout, output_text, wait_for};
use rustix::process::{Pid, Signal, kill_process};

mod fakes;

const OPTIONS: &str = "--figure p99-of-response --run-id r --report-command echo";

/// A checkout with the services `fast` (10 ms), `slow` (20 ms) and `fake`'s flawed ones, and a plan of two tiers.
fn checkout() -> Checkout {
    let checkout = Checkout::new();
    let path = checkout.path("services/services.toml");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replacen("workloads", "worker_env = [\"FAKE_RESPONSE_MS\"]\nworkloads", 1)).unwrap();
    for (name, response_ms) in [("fast", 10), ("slow", 20)] {
        register(&checkout, name, response_ms);
    }
    let plan = "schema: 1\nname: fake\nwhy: a test\nseed: 1\nservices: [honest]\nwarmup_seconds: 0\n\
                window_seconds: 0.1\ndrain_seconds: 2\nladders:\n- workload: throughput\n  tiers: [4, 8]\n  \
                load: {model: open, rate_per_second: 400}\n";
    fs::write(checkout.path("plans/fake.yaml"), plan).unwrap();
    checkout
}

/// Registers a service with a response time in milliseconds.
fn register(checkout: &Checkout, name: &str, response_ms: u32) {
    checkout.service(name, "honest");
    set_response(checkout, name, &response_ms.to_string());
}

fn set_response(checkout: &Checkout, name: &str, response_ms: &str) {
    let path = checkout.path("services/services.toml");
    let text = fs::read_to_string(&path).unwrap();
    let (before, own) = text.split_once(&format!("[services.{name}]")).unwrap();
    let (_, after) = own.split_once("FAKE_FLAW").unwrap();
    let (_, after) = after.split_once('}').unwrap();
    let env = format!("FAKE_FLAW = \"honest\", FAKE_RESPONSE_MS = \"{response_ms}\" }}");
    let head = own.split_once("FAKE_FLAW").unwrap().0;
    fs::write(&path, format!("{before}[services.{name}]{head}{env}{after}")).unwrap();
}

fn compare(checkout: &Checkout, sides: &str) -> Output {
    checkout.run(&format!("compare --plan fake --only throughput/standard/4 {OPTIONS} {sides}"))
}

fn comparison(run: &Run) -> &Comparison {
    run.comparison.as_ref().unwrap()
}

/// The only deciding figure's verdict, ratio and pairs.
fn decided(run: &Run) -> (ComparisonVerdict, f64, u32) {
    let look = comparison(run).progress.looks.last().unwrap();
    let [figure] = &look.figures[..] else { panic!("{look:?}") };
    assert_eq!(figure.figure, ComparedFigure::P99OfResponse);
    (figure.verdict, figure.ratio, figure.pairs)
}

fn git(folder: &Path, arguments: &[&str]) {
    let identity = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"];
    let output = Command::new("git").args(identity).args(arguments).current_dir(folder).output().unwrap();
    assert!(output.status.success(), "{}", output_text(&output));
}

#[test]
fn a_slower_side_differs_after_five_pairs_in_turned_order_and_sets_the_exit_code() {
    let checkout = checkout();
    let output = compare(&checkout, "fast slow");
    assert_eq!(output.status.code(), Some(1), "{}", output_text(&output));
    let run = checkout.run_file();
    let (verdict, ratio, pairs) = decided(&run);
    assert_eq!((verdict, pairs, run.state), (ComparisonVerdict::Differs, 5, RunState::Finished));
    assert!((ratio - 0.5).abs() < 0.01, "{ratio}");
    assert_eq!(comparison(&run).progress.end, Some(ComparisonEnd::Decided));
    let undisturbed = comparison(&run).progress.dropped.is_empty();
    let order: Vec<&str> = run.trials.iter().map(|entry| entry.trial.service.as_str()).collect();
    let turned = ["fast", "slow", "slow", "fast", "fast", "slow", "slow", "fast", "fast", "slow"];
    assert!(!undisturbed || order == turned, "{order:?}");
    let text = output_text(&output);
    assert!(text.contains("r: at most 60 pairs of 0.2 s under load, bundle "), "{text}");
    assert!(text.contains("pair 5 of at most 60: p99-of-response A/B 0.500"), "{text}");
    assert!(text.contains("p99-of-response        10.0 ms") && text.contains("differs: A is better"), "{text}");
    assert_eq!(
        checkout.results()[0].reproduce,
        "ladder compare --plan fake --only throughput/standard/4 --figure \
        p99-of-response fast slow"
    );

    // The bundle tells the same afterwards.
    checkout.verify();
    let again = checkout.run("compare results/r");
    assert_eq!((again.status.code(), output_text(&again).contains("differs: A is better")), (Some(1), true));
    assert_eq!(checkout.run("assert results/r").status.code(), Some(1));
    let mixed = output_text(&compare(&checkout, "results/r slow"));
    assert!(mixed.contains("A: results/r: it is a finished bundle; leave out --plan"), "{mixed}");
    let json = checkout.run("compare results/r --json");
    let value: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(
        (&value["b_is_worse"], &value["comparison"]["progress"]["end"]["end"]),
        (&true.into(), &"decided".into())
    );
}

#[test]
fn a_service_against_itself_is_the_same_and_json_is_all_of_standard_output() {
    let checkout = checkout();
    let output = compare(&checkout, "fast fast --json");
    assert_eq!(output.status.code(), Some(0), "{}", output_text(&output));
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(value["comparison"]["b"]["registered"], "fast");
    let run = checkout.run_file();
    assert_eq!(run.plan.services, ["fast-a", "fast-b"]);
    assert_eq!((decided(&run).0, decided(&run).2), (ComparisonVerdict::Same, 5));
    checkout.verify();
}

#[test]
fn a_stopped_comparison_goes_on_where_it_stopped() {
    let checkout = checkout();
    let sides = "compare --plan fake --only throughput/standard/4 --figure p99-of-response --run-id r --no-report \
                 --pairs-at-most 8 fast fast@.";
    let mut child = checkout.start(sides);
    let ended =
        |run: &Run| run.trials.iter().filter(|entry| matches!(entry.state, TrialState::Finished { .. })).count();
    wait_for("three trials", || {
        operator::store::read_run(&checkout.path("results/r")).is_ok_and(|run| ended(&run) >= 3)
    });
    kill_process(Pid::from_raw(child.id() as i32).unwrap(), Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let stopped = checkout.run_file();
    assert!(stopped.state == RunState::Running && comparison(&stopped).progress.end.is_none());

    let output = checkout.run("run --resume r --no-report");
    assert_eq!(output.status.code(), Some(0), "{}", output_text(&output));
    let run = checkout.run_file();
    assert_eq!(
        (decided(&run).0, comparison(&run).progress.end.clone()),
        (ComparisonVerdict::Same, Some(ComparisonEnd::Decided))
    );
    let before = ended(&stopped);
    assert_eq!(run.trials[..before], stopped.trials[..before], "finished trials are kept");
    checkout.verify();
}

#[test]
fn a_bundle_that_names_other_code_is_not_resumed() {
    let checkout = checkout();
    assert_eq!(compare(&checkout, "fast fast@.").status.code(), Some(0));
    let path = checkout.path("results/r/run.json");
    let text = fs::read_to_string(&path).unwrap();
    let inside = checkout.path("results/r/code");
    fs::create_dir(&inside).unwrap();
    let root = fs::canonicalize(checkout.folder.path()).unwrap();
    let source = |path: &Path| format!("\"path\": \"{}\"", path.display());
    let of_commit = "\"kind\": \"commit\", \"revision\": \"HEAD\"";
    let kind = format!("\"kind\": \"checkout\",\n        {}", source(&root));
    assert!(text.contains(&kind), "{text}");
    let cases = [
        (text.replace(&source(&root), &source(&inside)), "is inside the folder of bundles"),
        (text.replace(&source(&root), &source(Path::new("/nowhere"))), "failed to find /nowhere"),
        (text.replace(&kind, of_commit), "is neither a folder nor a commit of "),
        (
            text.replace("\"tier\": 4,\n    \"pairs", "\"tier\": 5,\n    \"pairs"),
            "are not the services and the tier of its plan",
        ),
    ];
    for (changed, reason) in cases {
        assert_ne!(changed, text, "{reason}");
        fs::write(
            &path,
            changed.replace("\"state\": \"finished\",\n  \"plan\"", "\"state\": \"running\",\n  \"plan\""),
        )
        .unwrap();
        let output = checkout.run("run --resume r --no-report");
        assert_eq!(output.status.code(), Some(2), "{}", output_text(&output));
        assert!(output_text(&output).contains(reason), "{reason}: {}", output_text(&output));
    }
}

#[test]
fn a_side_of_another_checkout_runs_there() {
    let (here, there) = (checkout(), checkout());
    set_response(&there, "fast", "40");
    // Its program is only there.
    fs::rename(there.path("bin/fake-service"), there.path("bin/other-service")).unwrap();
    let path = there.path("services/services.toml");
    let text = fs::read_to_string(&path).unwrap().replace("bin/fake-service", "bin/other-service");
    fs::write(&path, text).unwrap();
    let output = compare(&here, &format!("fast fast@{}", there.folder.path().display()));
    assert_eq!(output.status.code(), Some(1), "{}", output_text(&output));
    let (verdict, ratio, _) = decided(&here.run_file());
    assert!(verdict == ComparisonVerdict::Differs && (ratio - 0.25).abs() < 0.01, "{ratio}");
}

#[test]
fn sides_of_two_commits_are_checked_out_and_built_and_kept() {
    let checkout = checkout();
    let root = checkout.folder.path();
    fs::write(checkout.path(".gitignore"), "target\nresults\n").unwrap();
    let justw = "#!/bin/sh\n[ \"$*\" = 'build fast' ] || { echo 'no such thing'; exit 3; }\necho built >> ../built\n";
    write_program(&checkout.path("justw"), justw);
    git(root, &["init", "--quiet"]);
    for response_ms in ["10", "12"] {
        set_response(&checkout, "fast", response_ms);
        git(root, &["add", "--all"]);
        git(root, &["commit", "--quiet", "--message", response_ms]);
    }
    // What the checkout has by now plays no part.
    set_response(&checkout, "fast", "99");
    let output = compare(&checkout, "fast@HEAD fast@HEAD~1");
    assert_eq!(output.status.code(), Some(0), "{}", output_text(&output));
    let run = checkout.run_file();
    let (verdict, ratio, _) = decided(&run);
    assert!(verdict == ComparisonVerdict::Differs && (ratio - 1.2).abs() < 0.02, "{ratio}");
    let Comparison { a, b, .. } = comparison(&run);
    assert!(a.commit.len() == 40 && a.commit != b.commit && !a.commit.contains('+'), "{a:?}");
    assert_eq!(fs::read_to_string(checkout.path("target/compare/built")).unwrap().lines().count(), 2);

    fs::remove_dir_all(checkout.path("results/r")).unwrap();
    let output = compare(&checkout, "fast@HEAD fast@HEAD~1");
    assert_eq!(output.status.code(), Some(0), "{}", output_text(&output));
    let built = fs::read_to_string(checkout.path("target/compare/built")).unwrap();
    assert_eq!(built.lines().count(), 2, "what was built is kept for the next time");

    let output = compare(&checkout, "slow@HEAD fast");
    let text = output_text(&output);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(
        text.contains("A: slow@HEAD: `./justw build slow` failed in ") && text.contains("\n  no such thing"),
        "{text}"
    );
}

#[test]
fn a_side_that_never_counts_ends_the_comparison_with_the_reason() {
    let checkout = checkout();
    let output = compare(&checkout, "fast liar");
    let text = output_text(&output);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("can't be compared: 5 pairs in a row don't count; the last, of liar: "), "{text}");
    assert!(text.contains("pair 1 doesn't count, so it is measured again: liar: "), "{text}");
    checkout.verify();
}

#[test]
fn a_bundle_whose_comparison_was_changed_is_not_verified() {
    let checkout = checkout();
    assert_eq!(compare(&checkout, "fast slow").status.code(), Some(1));
    let path = checkout.path("results/r/run.json");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replacen("\"verdict\": \"differs\"", "\"verdict\": \"same\"", 1)).unwrap();
    let output = checkout.run("verify results/r");
    assert_eq!(output.status.code(), Some(1), "{}", output_text(&output));
    assert!(
        output_text(&output).contains("comparison.progress.looks[4].figures[0].verdict"),
        "{}",
        output_text(&output)
    );
}

#[test]
fn what_can_not_be_measured_is_said_with_the_value_and_the_way_out() {
    let checkout = checkout();
    fs::create_dir(checkout.path("empty")).unwrap();
    let cases = [
        ("fast slwo", "B: slwo: ", "has no service \"slwo\"; did you mean \"slow\"?"),
        ("fast@nowhere slow", "A: fast@nowhere: ", "nowhere is neither a folder nor a commit of "),
        ("fast@no/where slow", "A: fast@no/where: ", "there is no folder no/where"),
        ("fast slow@empty", "B: slow@empty: ", "has no services/services.toml, so it is no checkout"),
        ("@x fast", "A: @x: ", "write SERVICE@FOLDER or SERVICE@COMMIT"),
        ("fast", "--plan measures two sides", "name B, too"),
    ];
    for (sides, place, message) in cases {
        let output = compare(&checkout, sides);
        let text = output_text(&output);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains(place) && text.contains(message), "{sides}: {text}");
    }
    let cases = [
        (
            "compare --plan fake fast slow",
            "plans/fake.yaml has 2 tiers, and a comparison measures one; name one with --only: ",
        ),
        ("compare --plan fake --only throughput/standard/5 fast slow", "--only throughput/standard/5: "),
        ("compare --plan fkae fast slow", "did you mean \"fake\"?"),
        ("compare fast slow", "fast is a service and no bundle; to measure it, name what is climbed: --plan PLAN"),
        ("compare --plan fake --figure p98 fast slow", "p99-of-response"),
        ("compare --only x results/r", "--plan"),
        (
            "compare --plan fake --only throughput/standard/4 --figure received-per-second fast slow",
            "--figure received-per-second: the schedule of this load sets the rate",
        ),
    ];
    for (arguments, message) in cases {
        let output = checkout.run(arguments);
        let text = output_text(&output);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains(message), "{arguments}: {text}");
    }
    assert!(fs::read_dir(checkout.path("results")).unwrap().next().is_none(), "nothing was measured");
}

#[test]
fn a_side_that_is_not_built_is_said_before_anything_is_measured() {
    let checkout = checkout();
    checkout.service("unbuilt", "honest");
    let path = checkout.path("services/services.toml");
    let text = fs::read_to_string(&path).unwrap();
    let (before, own) = text.split_once("[services.unbuilt]").unwrap();
    fs::write(&path, format!("{before}[services.unbuilt]{}", own.replace("\"echo\"", "\"bin/none\""))).unwrap();
    let output = compare(&checkout, "fast unbuilt");
    let text = output_text(&output);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(
        text.contains("B: unbuilt: it can't be started; build it: cd ") && text.contains("./justw build unbuilt"),
        "{text}"
    );
}
