//! Services that only a plan describes and that ladder did not start: the CPU time and memory that the plan names are theirs.

use std::fs;

use bench_format::{run::TrialState, service::Started};
use operator::backend::local::cgroup::Hierarchy;

use crate::{
    outside::StartedByTest,
    run::{Run, checkout, start_with, stats},
};

/// Climbs a service that runs, as fast as one CPU answers; `usage` is a line of the plan.
fn climb(service: &StartedByTest, usage: &str, variables: &[(&str, &str)]) -> Run {
    let folder = tempfile::tempdir().unwrap();
    let plan = folder.path().join("usage.yaml");
    let address = &service.started.address;
    let text = format!(
        r#"schema: 3
name: usage
why: the CPU time and memory of a service that ladder did not start
seed: 1
services: [measured]
warmup_seconds: 0
window_seconds: 1
drain_seconds: 1
websocket:
  services:
    measured:
      url: ws://{address}/wse
      version: "1"
      {usage}
  open:
    - expect: {{ when: {{ json: {{ /t: server_ready }} }}, capture: {{ id: {{ json: /p/details/connection_id }} }} }}
  messages:
    - text: '{{"p":{{"id":"{{{{captured.id}}}}","timestamp":{{{{sequence}}}}}},"t":"ping"}}'
  reply:
    when: {{ contains: '"t":"PONG"' }}
    by: sequence
    value: {{ json: /p/client_timestamp }}
ladders:
  - workload: request-reply
    tiers: [10]
    load: {{ model: closed }}
"#
    );
    fs::write(&plan, text).unwrap();
    start_with(&checkout(), plan.to_str().unwrap(), &[], variables).finish()
}

fn started() -> StartedByTest {
    StartedByTest::start("self-test-service", &["--seed", "4711"], &[])
}

/// Asserts that the figures are those of the service, and that bundle and terminal say so in the same sentence.
fn assert_read(run: &Run, service: &StartedByTest, sentence: &str) {
    let result = run.trial("measured", "standard");
    for reading in [&result.service.window_start, &result.service.window_end] {
        assert_eq!(reading.as_ref().unwrap().pid, Some(service.started.pid), "{}", run.output);
    }
    let figures = &result.figures;
    assert!(figures.service_cpu_seconds > Some(0.01) && figures.service_cpu_share > Some(0.001), "{figures:?}");
    assert!(figures.service_rss_bytes > Some(1_000_000), "{figures:?}");
    assert_eq!(run.file().usage["measured"], sentence);
    assert!(run.output.contains(&format!("measured: {sentence}")), "{}", run.output);
}

#[test]
fn a_process_is_read_by_its_id_its_file_its_command_line_and_its_port() {
    let service = started();
    let pid = service.started.pid;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("service.pid");
    fs::write(&file, format!("{pid}\n")).unwrap();
    let of_process = format!("CPU and memory are those of process {pid} (self-test-servi) and what it started");
    for usage in [
        format!("usage: {{ pid: {pid} }}"),
        format!("usage: {{ pid_file: {} }}", file.display()),
        "usage: { command: 'self-test-service --seed 4711$' }".into(),
    ] {
        assert_read(&climb(&service, &usage, &[]), &service, &of_process);
    }
    let listens = format!("CPU and memory are those of self-test-servi (process {pid}), which listens there");
    assert_read(&climb(&service, "", &[]), &service, &listens);
}

#[test]
fn connections_open_at_each_url_and_the_terminal_says_behind_which_the_usage_is_read() {
    let (service, other) = (started(), started());
    let run = climb(&service, &format!("more_urls: [ws://{}/wse]", other.started.address), &[]);
    let Started { pid, address, .. } = &service.started;
    let sentence = format!(
        "CPU and memory are those of self-test-servi (process {pid}), which listens at {address}; nothing is read behind the \
         service's other URLs, unless the same process listens there: name all with `usage` in the plan"
    );
    assert_read(&run, &service, &sentence);
    let accepted = [&service, &other].map(|one| stats(&one.started.metrics_address).unwrap().connections.accepted);
    assert_eq!(accepted, [5, 5], "{}", run.output);
    let missing = climb(&service, "more_urls: [\"ws://127.0.0.1:1/wse\"]", &[]);
    assert!(failure(&missing).contains("failed to reach ws://127.0.0.1:1/wse"), "{}", failure(&missing));
}

/// Where no cgroup can be made, there is none to be read either.
#[test]
fn a_cgroup_is_read_with_all_its_processes() {
    let Ok(hierarchy) = Hierarchy::detect() else { return };
    let group = hierarchy.create("test-usage", 2.0).unwrap();
    let service = started();
    for file in group.procs_files() {
        fs::write(file, service.started.pid.to_string()).unwrap();
    }
    let folder = group.procs_files().last().unwrap().parent().unwrap().to_path_buf();
    let run = climb(&service, &format!("usage: {{ cgroup: {} }}", folder.display()), &[]);
    let sentence = &run.file().usage["measured"];
    assert!(sentence.starts_with(&format!("CPU and memory are those of cgroup {}", folder.display())), "{sentence}");
    assert_read(&run, &service, sentence);
    drop(service);
    group.remove();
    assert!(!folder.exists());
}

fn failure(run: &Run) -> String {
    match &run.states()[..] {
        [TrialState::Failed { reason }] => reason.clone(),
        states => panic!("{states:?}\n{}", run.output),
    }
}

#[test]
fn a_container_that_no_program_can_inspect_is_an_error_with_the_way_out() {
    let service = started();
    let nothing = tempfile::tempdir().unwrap();
    let path = [("PATH", nothing.path().to_str().unwrap())];
    let reason = failure(&climb(&service, "usage: { container: web }", &path));
    let expected = "usage.container web: podman: it is not installed; docker: it is not installed; check the name and that it \
                    runs, or name what runs in it otherwise: `cgroup`, `pid_file`, `pid` or `command`";
    assert!(reason.ends_with(expected), "{reason}");
}

#[test]
fn figures_are_those_of_the_process_that_the_plan_names_and_not_of_the_one_that_listens() {
    let (service, silent) = (started(), started());
    let run = climb(&service, &format!("usage: {{ pid: {} }}", silent.started.pid), &[]);
    let result = run.trial("measured", "standard");
    assert_eq!(result.service.window_end.as_ref().unwrap().pid, Some(silent.started.pid));
    assert!(result.figures.service_cpu_seconds < Some(0.01), "{:?}", result.figures);
}
