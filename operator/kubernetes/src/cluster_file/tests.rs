use std::fs;

use operator::plan::Mistakes;

use super::{fixture::*, *};

fn description(plan: &str, cluster: &str) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let (plan_path, cluster_path) = (folder.path().join("plan.yaml"), folder.path().join("cluster.yaml"));
    fs::write(&plan_path, plan).unwrap();
    fs::write(&cluster_path, cluster).unwrap();
    let Err(Mistakes(mistakes)) = CheckedInputs::read(&plan_path, &cluster_path) else { return Vec::new() };
    let folder = format!("{}/", folder.path().display());
    mistakes.iter().map(|mistake| mistake.to_string().replace(&folder, "")).collect()
}

#[test]
fn the_charts_cluster_file_is_parsed() {
    assert_eq!(description(PLAN, CLUSTER), Vec::<String>::new());
    let inputs = inputs();
    let trial = &inputs.plan.trials()[0];
    assert_eq!(inputs.cluster.target(trial).unwrap().deployment, "wsl-wse-server");
    assert!(inputs.cluster.job(trial).unwrap().job.ends_with("-100-abcdef12"));
}

#[test]
fn mistakes_in_both_files_are_named_at_once() {
    let found = description(&PLAN.replace("tiers: [100]", "teirs: [100]"), &CLUSTER.replace("lease:", "leese:"));
    assert!(found.iter().any(|description| description.contains("did you mean `tiers`?")), "{found:?}");
    assert!(
        found.iter().any(|description| description.starts_with("cluster.yaml: ") && description.contains("leese")),
        "{found:?}"
    );
}

#[test]
fn a_tier_without_a_job_and_a_ladder_without_a_deployment_are_named() {
    let plan = PLAN.replace("tiers: [100]", "tiers: [100, 200]");
    let found = description(&plan, &CLUSTER.replace("variant: batch, deployment", "variant: dict, deployment"));
    assert_eq!(
        found,
        [
            "cluster.yaml: targets: no Deployment for wse-server in throughput/batch; is it enabled in the values?",
            "cluster.yaml: jobs: no Job for wse-server in throughput/batch, tier 200",
        ]
    );
}

/// The plan with a search in the place of its tiers.
fn with_search() -> String {
    PLAN.replace("tiers: [100]", "search: {from: 1, to: 9, final_trial_seconds: 1, duration_sum_seconds: 1}").replace(
        "load: {model: closed}",
        "load: {model: open, rate_per_second: 1}\n  objectives: [{figure: failed_share, at_most: 0}]",
    )
}

#[test]
fn the_job_of_a_search_serves_all_its_loads() {
    let text = CLUSTER.replace("tier: 100, ", "");
    assert_eq!(description(&with_search(), &text), Vec::<String>::new());
    let file: ClusterFile = serde_saphyr::from_str(&text).unwrap();
    for tier in [1, 7, 9] {
        let trial = TrialId { tier, ..inputs().plan.trials()[0].clone() };
        assert!(file.job(&trial).unwrap().job.ends_with("-100-abcdef12"));
        assert!(file.job(&TrialId { variant: Name::from_static("other"), ..trial }).is_none());
    }
}

#[test]
fn a_search_without_a_job_or_a_deployment_is_named() {
    let found =
        description(&with_search(), &CLUSTER.replace("tier: 100, ", "").replace("variant: batch", "variant: b"));
    assert_eq!(
        found,
        [
            "cluster.yaml: targets: no Deployment for wse-server in throughput/batch; is it enabled in the values?",
            "cluster.yaml: jobs: no Job for wse-server in throughput/batch, the search",
        ]
    );
}

#[test]
fn tiers_beside_a_search_are_refused_with_the_ladder_and_a_remedy() {
    let text = CLUSTER.replace("tier: 100, ", "");
    let found = description(&with_search().replace("  search:", "  tiers: [5]\n  search:"), &text);
    assert_eq!(
        found,
        [
            "plan.yaml: ladders[0].tiers: plan small has a search, so its run searches and climbs no tiers; give the tiers of \
          throughput/batch a plan and a run.id of their own"
        ]
    );
}

#[test]
fn replicas_are_as_many_in_both_files() {
    let plan = format!("workers: 2\n{PLAN}  replicas: 2\n");
    assert_eq!(description(&plan, &CLUSTER.replace("replicas: 1", "replicas: 2")), Vec::<String>::new());
    let expected = "cluster.yaml: targets: wse-server in throughput/batch has 1 replicas, but the plan has 2; chart and image \
                    must have the same version";
    assert_eq!(description(&plan, CLUSTER), [expected]);
    let found = description(PLAN, &CLUSTER.replace("replicas: 1", "replicas: 0"));
    assert_eq!(found[0], "cluster.yaml: targets[0].replicas: 0 pods; a trial needs at least 1");
}

#[test]
fn a_service_with_companions_has_one_pod() {
    let text = CLUSTER.replace("evidence: 9101 } }", WITH_COMPANIONS).replace("replicas: 1", "replicas: 2");
    let found = description(PLAN, &text);
    assert!(found[0].contains("targets[0].replicas: 2 pods of a service with companions, which know one"), "{found:?}");
}

const WITH_COMPANIONS: &str = "evidence: 9101 }, companions: [\
    { name: redis, deployment: wsl-redis, image: r, ports: { evidence: 9101 } }, \
    { name: publisher, deployment: wsl-publisher, image: p, ports: { metrics: 9100, evidence: 9101 } }] }";

#[test]
fn deployments_of_companions_are_listed_in_the_order_of_their_start() {
    let text = CLUSTER.replace("evidence: 9101 } }", WITH_COMPANIONS);
    assert_eq!(description(PLAN, &text), Vec::<String>::new());
    let file: ClusterFile = serde_saphyr::from_str(&text).unwrap();
    assert_eq!(file.deployments().collect::<Vec<_>>(), ["wsl-redis", "wsl-publisher", "wsl-wse-server"]);
    assert_eq!(file.targets[0].companions[0].ports.metrics, None);
}

#[test]
fn a_duplicate_companion_and_one_named_like_a_path_are_refused() {
    let text = CLUSTER.replace("evidence: 9101 } }", WITH_COMPANIONS);
    let found = description(PLAN, &text.replace("name: publisher", "name: redis"));
    assert_eq!(found, ["cluster.yaml: targets[0].companions[1].name: listed twice: redis"]);
    let found = description(PLAN, &text.replace("name: redis", "name: ../redis"));
    assert!(found[0].starts_with("cluster.yaml: targets[0].companions[0].name: not a name"), "{found:?}");
}

#[test]
fn an_invalid_run_id_and_an_unsupported_schema_are_reported_together() {
    let found = description(PLAN, &CLUSTER.replace("\"r1\"", "\"../r1\"").replace("schema: 1", "schema: 2"));
    assert!(found[0].starts_with("cluster.yaml: schema: 2 is not"), "{found:?}");
    assert!(found[1].starts_with("cluster.yaml: run_id: \"../r1\" is not a name"), "{found:?}");
}

const DESCRIBED_PLAN: &str = "schema: 3\nname: chat\nwhy: a test\nseed: 1\nservices: [chat]\nwindow_seconds: 1\nwebsocket:\n\
    \x20 extends: echo\n  services:\n    chat: { url: \"ws://127.0.0.1:{port}/\", command: [node, chat.js, \"{port}\"], version: \"1\" }\n\
    ladders:\n- workload: request-reply\n  tiers: [10]\n  load: { model: closed }\n";

/// The chart's file for that plan, where TARGET stands for where the service is.
const DESCRIBED: &str = "schema: 1\nrelease: wsl\nnamespace: bench\nlease: l\ncoordinator_url: u\n\
    protocols: { websocket: { worker: ws-bench, workloads: [request-reply], formats: [], loads: [open, closed] } }\n\
    services: {}\ntargets: []\njobs: [{ service: chat, workload: request-reply, variant: standard, tier: 10, job: j }]\nTARGET\n";

fn described(target: &str) -> Vec<String> {
    description(DESCRIBED_PLAN, &DESCRIBED.replace("TARGET", target))
}

#[test]
fn a_plan_that_describes_its_service_is_climbed_where_the_target_is() {
    assert_eq!(described("described_target: { authority: \"127.0.0.1:80\" }"), Vec::<String>::new());
    let missing = described("");
    assert!(missing[0].contains("nothing says where it is: set target.url, or target.service.name"), "{missing:?}");
}

#[test]
fn a_target_at_a_public_address_is_refused_unless_the_values_name_its_host() {
    let refused = described("described_target: { url: \"ws://192.0.2.1:80/\" }");
    assert!(refused[0].ends_with("set target.iMayLoadThisHost to 192.0.2.1"), "{refused:?}");
    let allowed = described("described_target: { url: \"ws://192.0.2.1:80/\", may_load: 192.0.2.1 }");
    assert_eq!(allowed, Vec::<String>::new());
}

#[test]
fn a_preset_in_a_file_is_looked_for_among_the_files_of_the_user() {
    let plan = DESCRIBED_PLAN.replace("extends: echo", "extends: ./presets/own.yaml");
    let found =
        |target: &str| description(&plan, &DESCRIBED.replace("TARGET", &format!("described_target: {{ {target} }}")));
    let without = found("authority: \"127.0.0.1:80\"");
    assert!(without[0].contains("websocket.extends: ./presets/own.yaml is a file of your machine"), "{without:?}");
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("own.yaml"), "messages: [{ text: \"{{sequence}}\" }]\nreply: { by: same }\n")
        .unwrap();
    let with = found(&format!("authority: \"127.0.0.1:80\", files: \"{}\"", folder.path().display()));
    assert_eq!(with, Vec::<String>::new());
}

#[test]
fn an_isolation_that_can_not_be_judged_is_refused() {
    let found = |isolation: &str| {
        described(&format!("isolation: {isolation}\ndescribed_target: {{ authority: \"127.0.0.1:80\" }}"))
    };
    assert!(found("cpuset")[0].contains("the CPUs of a service that the release doesn't start are not known"));
    assert!(found("node")[0].contains("set target.pods.labels"));
    assert_eq!(found("none"), Vec::<String>::new());
}

#[test]
fn a_variable_that_no_secret_has_is_named_with_the_value_that_names_one() {
    let plan = DESCRIBED_PLAN
        .replace("  services:\n", "  connect: { headers: { X-Token: \"{{env.CHAT_TOKEN}}\" } }\n  services:\n");
    let target = DESCRIBED.replace("TARGET", "described_target: { authority: \"127.0.0.1:80\" }");
    let found = description(&plan, &target);
    assert!(found[0].contains("CHAT_TOKEN is a key of the Secret that target.envSecret names"), "{found:?}");
}
