//! Connections that come and go: what a service does wrong with them shows in the trial, and in its verdict.

use std::process::Command;

use bench_format::{
    plan::Figure,
    result::{TrialResult, Validity},
};

use crate::run::{Attempts, Check, Checked, assert_only_own_passes, ensure, is_disturbed, programs, sound};

/// Connections that come in the window of the plan.
const COMING: u64 = 160;

/// Whether the objectives on these figures are missed and no others.
fn missed(result: &TrialResult, figures: &[&str]) -> Checked {
    let verdict = result.verdict.as_ref().ok_or("it has no verdict")?;
    let name = |figure: &Figure| match figure {
        Figure::PercentileMs { histogram, .. } => histogram.clone(),
        Figure::ReconnectedMs { .. } => "reconnected".into(),
        other => format!("{other:?}"),
    };
    let missed: Vec<String> = verdict
        .objectives
        .iter()
        .filter(|judged| !judged.passed)
        .map(|judged| name(&judged.objective.figure))
        .collect();
    ensure(missed == figures, || format!("{missed:?} are missed, not {figures:?}: {verdict:?}"))
}

fn honest(result: &TrialResult) -> Checked {
    let turnover = result.turnover.as_ref().ok_or("it has no turnover")?;
    sound(result)?;
    ensure((turnover.due, turnover.ready) == (COMING, COMING), || format!("{turnover:?}"))?;
    ensure((turnover.unanswered_closes, turnover.unanswered_messages) == (0, 0), || format!("{turnover:?}"))?;
    ensure(result.messages.lost == 0 && result.failures.window.is_empty(), || format!("{:?}", result.failures))?;
    missed(result, &[])
}

fn refusing(result: &TrialResult) -> Checked {
    let turnover = result.turnover.as_ref().ok_or("it has no turnover")?;
    sound(result)?;
    let refused = turnover.refused.get("http_503").copied().unwrap_or(0);
    ensure(turnover.due == COMING && refused == COMING / 10, || format!("{turnover:?}"))?;
    ensure(result.failures.window.get("handshake/http_503") == Some(&refused), || format!("{:?}", result.failures))?;
    ensure(result.messages.lost == 0, || format!("{:?}", result.messages))?;
    // One in ten handshakes has no end, so that the 95th percentile has no value.
    missed(result, &["handshake"])
}

fn forgetful(result: &TrialResult) -> Checked {
    let turnover = result.turnover.as_ref().ok_or("it has no turnover")?;
    sound(result)?;
    ensure(turnover.unanswered_messages > 2 * COMING, || format!("{turnover:?}"))?;
    ensure(turnover.refused.is_empty() && turnover.failed.is_empty(), || format!("{turnover:?}"))?;
    ensure(result.messages.lost >= turnover.unanswered_messages, || format!("{:?}", result.messages))?;
    missed(result, &["response", "ErrorShare"])
}

#[test]
fn connections_that_are_refused_and_messages_that_are_dropped_before_a_close_show_in_a_churn() {
    let mut attempts = Attempts::of("turnover");
    let checks: [(&str, Check); 3] = [("honest", honest), ("refusing", refusing), ("forgetful", forgetful)];
    let all = [("honest", "churn"), ("refusing", "churn"), ("forgetful", "churn"), ("honest", "reconnect")];
    let run =
        attempts.until(|run| all.iter().all(|(service, variant)| !is_disturbed(&run.trial(service, variant).validity)));
    for (own, _) in &checks {
        let result = run.trial(own, "churn");
        assert_only_own_passes(own, &result, &checks, run);
    }

    assert_eq!(all_back(&run.trial("honest", "reconnect")), Ok(()), "\n{}", run.output);
    let refusing = run.trial("refusing", "reconnect");
    assert!(all_back(&refusing).is_err(), "a service that refuses one in ten passes");
    assert_eq!(some_refused(&refusing), Ok(()), "\n{}", run.output);

    // Both can be judged and verified again as they are.
    let folder = run.trial_folder("honest", "churn");
    let bundle = folder.ancestors().nth(5).expect("a trial is inside a bundle");
    let verified = Command::new(programs().join("ladder")).arg("verify").arg(bundle).output().unwrap();
    let text = String::from_utf8_lossy(&verified.stdout).into_owned() + &String::from_utf8_lossy(&verified.stderr);
    assert!(verified.status.success(), "{text}");
}

fn all_back(result: &TrialResult) -> Checked {
    let turnover = result.turnover.as_ref().ok_or("it has no turnover")?;
    sound(result)?;
    ensure((turnover.due, turnover.ready, turnover.closed) == (100, 100, 100), || format!("{turnover:?}"))?;
    let figures = &result.figures;
    let times = [
        figures.reconnected_first_ms,
        figures.reconnected_half_ms,
        figures.reconnected_99_percent_ms,
        figures.reconnected_all_ms,
    ];
    ensure(times.iter().all(Option::is_some) && times.is_sorted(), || format!("{times:?}"))?;
    missed(result, &[])
}

fn some_refused(result: &TrialResult) -> Checked {
    let turnover = result.turnover.as_ref().ok_or("it has no turnover")?;
    ensure(result.validity == Validity::Valid, || format!("{:?}", result.validity))?;
    // One in ten of the first connections was refused as well, and what isn't open isn't cut.
    ensure(turnover.due == 90 && turnover.refused.get("http_503") == Some(&9), || format!("{turnover:?}"))?;
    let figures = &result.figures;
    ensure(figures.reconnected_half_ms.is_some() && figures.reconnected_99_percent_ms.is_none(), || {
        format!("{figures:?}")
    })?;
    missed(result, &["reconnected"])
}
