use bench_format::plan::ServiceProcess;

use super::*;
use crate::plan::check::fixture::{machine_limits, minimal, registry};

fn order(change: impl FnOnce(&mut WirePlan)) -> Vec<String> {
    let mut wire = minimal();
    change(&mut wire);
    let plan = Plan::check(wire, Path::new("plan.yaml"), &registry(), &machine_limits()).unwrap();
    plan.trials().iter().map(TrialId::to_string).collect()
}

#[test]
fn services_take_turns_in_turned_order_when_each_repeat_has_a_fresh_process() {
    let order = order(|plan| {
        plan.services = vec!["ours".into(), "theirs".into()];
        plan.repeats = 2;
        plan.service_process = ServiceProcess::Repeat;
        plan.ladders[0].tiers = vec![10];
    });
    assert_eq!(
        order,
        [
            "ours/throughput/standard/10-p1-r1",
            "theirs/throughput/standard/10-p1-r1",
            "theirs/throughput/standard/10-p2-r1",
            "ours/throughput/standard/10-p2-r1",
        ]
    );
}

/// Two ladders of one load, with another number of processes of the service, and a third one with another load.
fn variants(plan: &mut WirePlan) {
    plan.services = vec!["ours".into(), "theirs".into()];
    (plan.repeats, plan.workers) = (2, 2);
    plan.ladders[0].tiers = vec![10];
    let twice = WireLadder { variant: "twice".into(), replicas: 2, ..plan.ladders[0].clone() };
    let mut loaded = WireLadder { variant: "loaded".into(), ..plan.ladders[0].clone() };
    loaded.message.size_bytes += 1;
    plan.ladders.extend([twice, loaded]);
}

#[test]
fn variants_of_one_load_take_turns_service_by_service() {
    let order = order(|plan| {
        variants(plan);
        plan.service_process = ServiceProcess::Repeat;
    });
    assert_eq!(
        order,
        [
            "ours/throughput/standard/10-p1-r1",
            "ours/throughput/twice/10-p1-r1",
            "theirs/throughput/standard/10-p1-r1",
            "theirs/throughput/twice/10-p1-r1",
            "theirs/throughput/twice/10-p2-r1",
            "theirs/throughput/standard/10-p2-r1",
            "ours/throughput/twice/10-p2-r1",
            "ours/throughput/standard/10-p2-r1",
            "ours/throughput/loaded/10-p1-r1",
            "theirs/throughput/loaded/10-p1-r1",
            "theirs/throughput/loaded/10-p2-r1",
            "ours/throughput/loaded/10-p2-r1",
        ]
    );
}

#[test]
fn ladders_follow_each_other_when_a_process_lasts_a_tier() {
    let order = order(variants);
    let ladders: Vec<&str> = order.iter().map(|trial| trial.split('/').nth(2).unwrap()).collect();
    let expected = ["standard", "twice", "loaded"].map(|ladder| [ladder; 4]);
    assert_eq!(ladders, expected.concat());
}

#[test]
fn repeats_stay_on_one_process_when_the_process_lasts_a_tier() {
    let order = order(|plan| {
        plan.repeats = 2;
        plan.ladders[0].tiers = vec![10, 20];
    });
    let tiers = ["10-p1-r1", "10-p1-r2", "20-p1-r1", "20-p1-r2"];
    assert_eq!(order, tiers.map(|tier| format!("ours/throughput/standard/{tier}")));
}

#[test]
fn a_ladder_may_have_repeats_of_its_own() {
    let order = order(|plan| {
        plan.repeats = 2;
        plan.ladders[0].tiers = vec![10];
        plan.ladders[0].repeats = Some(3);
        let plain = WireLadder { variant: "plain".into(), repeats: None, ..plan.ladders[0].clone() };
        plan.ladders.push(plain);
    });
    let [own, plans] = ["standard", "plain"].map(|variant| format!("ours/throughput/{variant}/10-p1-r"));
    let own = (1..=3).map(|repeat| format!("{own}{repeat}"));
    assert_eq!(order, own.chain((1..=2).map(|repeat| format!("{plans}{repeat}"))).collect::<Vec<_>>());
}

#[test]
fn a_services_longer_warm_up_replaces_the_plans() {
    let warmups = |seconds: Option<f64>, change: fn(&mut WirePlan)| {
        let mut registry = registry();
        registry.services.get_mut("theirs").unwrap().warmup_seconds = seconds;
        let mut wire = minimal();
        wire.services = vec!["ours".into(), "theirs".into()];
        wire.warmup_seconds = 2.0;
        change(&mut wire);
        let plan = Plan::check(wire, Path::new("plan.yaml"), &registry, &machine_limits()).unwrap();
        let of = |service| plan.ladders[0].warmup_of(service).as_secs_f64();
        (of("ours"), of("theirs"), plan.seconds())
    };
    assert_eq!(warmups(None, |_| ()), (2.0, 2.0, 6.0));
    assert_eq!(warmups(Some(10.0), |_| ()), (2.0, 10.0, 14.0));
    assert_eq!(warmups(Some(1.0), |_| ()), (2.0, 2.0, 6.0));
    let counted = |wire: &mut WirePlan| {
        wire.warmup_seconds = 0.0;
        wire.ladders[0].load = Load::Closed { messages_per_connection: Some(10), in_flight: 1 };
    };
    assert_eq!(warmups(Some(10.0), counted), (0.0, 0.0, 2.0));
    // As a connection storm has it.
    assert_eq!(warmups(Some(10.0), |wire| wire.ladders[0].warmup_seconds = Some(0.0)), (0.0, 0.0, 2.0));
}

#[test]
fn a_ladder_keeps_only_the_services_that_remain_in_the_plan() {
    let mut wire = minimal();
    wire.ladders.push(wire.ladders[0].clone());
    wire.ladders[1].services = vec!["ours".into()];
    replace_services(&mut wire, &["theirs".into()]);
    assert_eq!((wire.services, wire.ladders.len()), (vec!["theirs".to_owned()], 1));
}

#[test]
fn only_matches_complete_path_segments() {
    let trial = TrialId {
        service: bench_format::Name::from_static("ours"),
        workload: bench_format::Name::from_static("throughput"),
        variant: bench_format::Name::from_static("batch"),
        tier: 100,
        process: 1,
        repeat: 1,
    };
    let selects = |only: &str| TrialFilter(vec![only.into()]).selects(&trial);
    assert!(selects("throughput") && selects("throughput/batch") && selects("throughput/batch/100"));
    assert!(!selects("through") && !selects("throughput/bat") && !selects("throughput/batch/10"));
}
