//! Tests of the local backend with small real processes: CPUs, quotas, CPU time, logs, and that no process outlives its
//! owner.

use std::{
    fs,
    path::PathBuf,
    time::{Duration, Instant},
};

use bench_format::plan::{CpuShape, CpuShapes};
use driver::stage::Stage;
use fakes::is_alive;
use operator::{
    backend::{
        Error,
        local::{
            Local,
            cgroup::{Cgroup, Hierarchy},
            process::{self, Launch, RunningProcess, Stdout},
        },
    },
    roles::Roles,
};
use tempfile::TempDir;

mod fakes;

fn launch(folder: &TempDir, script: &str) -> Launch {
    Launch {
        name: "sh".into(),
        program: "sh".into(),
        arguments: vec!["-c".into(), script.into()],
        env: [].into(),
        folder: folder.path().into(),
        cpus: vec![0],
        cgroup: None,
        log: folder.path().join("log"),
        stdout: Stdout::Lines,
    }
}

fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

#[tokio::test]
async fn a_process_runs_on_its_cpus_and_banners_before_the_json_line_are_skipped() {
    let folder = folder();
    let script = "echo a banner; echo \"{$(grep Cpus_allowed_list /proc/self/status)}\"; cat";
    let mut running = RunningProcess::start(launch(&folder, script)).unwrap();
    let line = running.first_json_line().await.unwrap().unwrap();
    assert_eq!(line.replace(['\t', ' '], ""), "{Cpus_allowed_list:0}");
    running.stop(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn a_process_that_ignores_sigterm_is_killed_with_its_group() {
    let folder = folder();
    let script = "trap '' TERM; sleep 1000 & echo \"{$!}\"; wait; wait";
    let mut running = RunningProcess::start(launch(&folder, script)).unwrap();
    let line = running.first_json_line().await.unwrap().unwrap();
    let grandchild: u32 = line.trim_matches(['{', '}']).parse().unwrap();
    assert!(is_alive(grandchild));
    running.stop(Duration::from_millis(50)).await;
    fakes::wait_for("the grandchild's death", || !is_alive(grandchild));
}

#[tokio::test]
async fn a_dropped_process_is_dead() {
    let folder = folder();
    let mut running = RunningProcess::start(launch(&folder, "echo \"{$$}\"; exec sleep 1000")).unwrap();
    let pid: u32 = running.first_json_line().await.unwrap().unwrap().trim_matches(['{', '}']).parse().unwrap();
    drop(running);
    fakes::wait_for("its death", || !is_alive(pid));
}

#[tokio::test]
async fn the_last_output_is_quoted_from_standard_error() {
    let folder = folder();
    let script = "for i in $(seq 30); do echo \"line $i\" >&2; done; exit 4";
    let mut running = RunningProcess::start(launch(&folder, script)).unwrap();
    assert_eq!(running.first_json_line().await.unwrap(), None);
    assert_eq!(running.exit_description().await, "exit status: 4");
    let quoted = running.last_output();
    assert!(quoted.contains("line 30") && quoted.contains("line 11") && !quoted.contains("line 10\n"), "{quoted}");
}

#[tokio::test]
async fn a_missing_program_is_named() {
    let folder = folder();
    let mut launch = launch(&folder, "");
    launch.program = "bin/nothing".into();
    let error = RunningProcess::start(launch).unwrap_err();
    assert!(matches!(&error, Error::Spawn { program, .. } if program == "bin/nothing"), "{error}");
}

#[tokio::test]
async fn cpu_time_is_the_kernels_and_counts_all_threads() {
    let folder = folder();
    let mut running = RunningProcess::start(launch(
        &folder,
        "echo \"{$$}\"; i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; exec sleep 100",
    ))
    .unwrap();
    let pid: u32 = running.first_json_line().await.unwrap().unwrap().trim_matches(['{', '}']).parse().unwrap();
    let first = process::cpu_ns(pid).unwrap();
    fakes::wait_for("some CPU", || process::cpu_ns(pid).unwrap() > first + 10_000_000);
    assert!(process::rss_bytes(pid).unwrap() > 100_000);
    running.stop(Duration::from_secs(5)).await;
    assert!(process::cpu_ns(pid).is_err());
    assert!(process::sum_over(&process::process_tree(pid), process::cpu_ns).is_err());
}

/// A quota can only be tested where cgroups are writable; elsewhere the test checks that the refusal has a reason.
#[tokio::test]
async fn a_fraction_of_a_cpu_is_enforced_by_a_quota_or_refused() {
    let hierarchy = match Hierarchy::detect() {
        Ok(hierarchy) => hierarchy,
        Err(reason) => return assert!(!reason.is_empty()),
    };
    let group: Box<dyn Cgroup> = hierarchy.create("test-quota", 0.2).unwrap();
    let cgroup_folder = PathBuf::from(group.procs_files()[0].parent().unwrap());
    let folder = folder();
    let mut launch = launch(&folder, "echo \"{}\"; while :; do :; done");
    launch.cgroup = Some(group);
    let mut running = RunningProcess::start(launch).unwrap();
    running.first_json_line().await.unwrap();
    let cpu_ns = |running: &RunningProcess| running.cgroup().unwrap().cpu_ns().unwrap();
    let (began, before) = (Instant::now(), cpu_ns(&running));
    tokio::time::sleep(Duration::from_secs(1)).await;
    let share = (cpu_ns(&running) - before) as f64 / began.elapsed().as_nanos() as f64;
    // The upper limit is strict; on a busy machine the share may be lower.
    assert!(share < 0.25, "it used {share} of a CPU");
    assert!(running.cgroup().unwrap().throttled_periods().unwrap() > 0);
    running.stop(Duration::from_secs(1)).await;
    assert!(!cgroup_folder.exists(), "{} was left behind", cgroup_folder.display());
}

#[test]
fn cgroups_of_ended_ladders_are_removed() {
    let parent = folder();
    let stale = parent.path().join("ws-ladder-4194305-service");
    let own = parent.path().join(format!("ws-ladder-{}-service", std::process::id()));
    let foreign = ["other-program", "ws-ladder-e2e-12"].map(|name| parent.path().join(name));
    [&stale, &own, &foreign[0], &foreign[1]].into_iter().for_each(|folder| fs::create_dir(folder).unwrap());
    Hierarchy::V2 { parent: parent.path().into() }.sweep();
    assert!(!stale.exists() && own.exists() && foreign.iter().all(|folder| folder.exists()));
}

#[test]
fn roles_follow_the_shapes() {
    let shapes = CpuShapes { service: CpuShape { cpus: 1.0 }, worker: CpuShape { cpus: 0.05 }, ..CpuShapes::default() };
    let roles = Roles::assign(&[0, 1], &shapes, None, 1);
    assert_eq!((roles.service, roles.workers), (vec![0], vec![vec![1]]));
}

/// The judge makes a trial with an `isolation` invalid, and charges shared CPUs to both sides.
#[test]
fn shared_cpus_are_a_reason_against_a_trial_unless_the_plan_allows_them() {
    let shares = |may_share| {
        let shapes = CpuShapes { service: CpuShape { cpus: 2.0 }, may_share, ..CpuShapes::default() };
        Local::new(PathBuf::new(), Roles::assign(&[0, 1], &shapes, None, 1), shapes).shares()
    };
    let refused = shares(false);
    assert_eq!(refused.isolation.as_deref(), Some("service and workers share CPU 1"));
    assert!(!refused.shared_with_service);
    let allowed = shares(true);
    assert_eq!((allowed.isolation, allowed.shared_with_service), (None, true));
}

#[tokio::test]
async fn child_processes_count_as_part_of_their_parent() {
    let folder = folder();
    // The process waits for a child that uses CPU, which has a child that sleeps.
    let script = "sh -c 'sleep 1000 & while :; do :; done' & echo \"{$!}\"; wait";
    let mut running = RunningProcess::start(launch(&folder, script)).unwrap();
    let line = running.first_json_line().await.unwrap().unwrap();
    let child: u32 = line.trim_matches(['{', '}']).parse().unwrap();
    let parent: u32 =
        fs::read_to_string(format!("/proc/{child}/stat")).unwrap().split(' ').nth(3).unwrap().parse().unwrap();
    fakes::wait_for("the grandchild", || process::process_tree(parent).len() == 3);
    let cpu_ns = || process::sum_over(&process::process_tree(parent), process::cpu_ns).unwrap();
    let first = cpu_ns();
    fakes::wait_for("the child's CPU", || cpu_ns() > first + 10_000_000);
    assert!(process::cpu_ns(parent).unwrap() < process::cpu_ns(child).unwrap());
    let process_tree = process::process_tree(parent);
    let each = process_tree.iter().map(|pid| process::rss_bytes(*pid).unwrap()).sum::<u64>();
    assert!(
        process::sum_over(&process_tree, process::rss_bytes).unwrap() >= each / 2
            && each > process::rss_bytes(parent).unwrap()
    );
    running.stop(Duration::from_secs(5)).await;
}
