//! Tests the examples of `docs/ADD-A-SERVICE.md`: they parse as the contract's types, their counters satisfy its
//! equations, and the plan climbs the service of the registry entry.

use std::fs;

use bench_format::{
    result::Validity,
    run::TrialState,
    service::{ConnectionBooks, ServiceStats, Started},
};

use crate::run::{Attempts, Run, checkout, is_disturbed, start_in};

/// The fenced code blocks of one language in the document.
fn examples(language: &str) -> Vec<String> {
    let document = fs::read_to_string(checkout().join("docs/ADD-A-SERVICE.md")).unwrap();
    let fence = format!("```{language}\n");
    document.split(&fence).skip(1).map(|rest| rest.split("```").next().unwrap().to_owned()).collect()
}

#[test]
fn the_json_examples_parse_as_the_contracts_types_and_satisfy_its_equations() {
    let [started, stats, books] = <[String; 3]>::try_from(examples("json")).unwrap();
    assert_eq!(serde_json::from_str::<Started>(&started).unwrap().event, "ready");
    let ServiceStats { messages, application, .. } = serde_json::from_str(&stats).unwrap();
    let outcomes = messages.consumed + messages.delivered + messages.dropped.values().sum::<u64>() + messages.queued;
    assert_eq!(messages.received, outcomes);
    assert_eq!(messages.delivered, application.unwrap().delivered);
    for book in serde_json::from_str::<ConnectionBooks>(&books).unwrap().connections {
        assert_eq!(book.received, book.consumed + book.dropped + book.application.unwrap().delivered);
    }
}

#[test]
fn the_plan_climbs_the_service_of_the_registry_entry() {
    // A checkout that contains only a registry, in which the document's entry is the only service.
    let root = tempfile::tempdir().unwrap();
    let registry = fs::read_to_string(checkout().join("services/services.toml")).unwrap();
    let protocols = registry.split("[services.").next().unwrap();
    let [entry] = <[String; 1]>::try_from(examples("toml")).unwrap();
    let [plan] = <[String; 1]>::try_from(examples("yaml")).unwrap();
    fs::create_dir(root.path().join("services")).unwrap();
    fs::write(root.path().join("services/services.toml"), format!("{protocols}{entry}")).unwrap();
    fs::write(root.path().join("first-steps.yaml"), plan).unwrap();

    let climb = || start_in(root.path(), "first-steps.yaml", &["--registry", "services/services.toml"]).finish();
    let mut attempts = Attempts::with(climb);
    let of_a_trial = |run: &Run, at: usize| match run.states().swap_remove(at) {
        TrialState::Finished { validity, .. } => validity,
        other => panic!("{other:?}\n{}", run.output),
    };
    for at in 0..3 {
        let run = attempts.until(|run| !is_disturbed(&of_a_trial(run, at)));
        assert_eq!(run.states().len(), 3, "\n{}", run.output);
        assert_eq!(of_a_trial(run, at), Validity::Valid, "trial {at}\n{}", run.output);
    }
}
