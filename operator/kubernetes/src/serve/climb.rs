//! Runs the requested run: decides, begins or resumes it, climbs, and continues when a full volume has room again.

use std::path::Path;

use bench_format::{
    Name, SCHEMA,
    run::{Run, RunState, TrialEntry, TrialState},
};
use driver::{clock, http::chain};
use operator::{
    assert,
    backend::Backend,
    climb::{Climb, ClimbEnd, Error, RetryBudget},
    evidence,
    plan::{Mistakes, TrialFilter},
    resume, retry,
    store::{self, Store},
    watcher::Watcher,
};

use super::{
    Operator,
    decide::{Decision, decide, is_to_be_retried, superseded},
    describe_store_error, is_volume_error, prune, reject_with_mistakes,
};
use crate::{
    backend::Kubernetes,
    cluster_file::CheckedInputs,
    events::{EventWatcher, RunEvent},
    live::State,
    web::files::stored,
};

impl Operator<'_> {
    /// Executes the decision about the requested run.
    pub(super) async fn execute_decision(&mut self, backend: Kubernetes) -> anyhow::Result<()> {
        let inputs = self.inputs;
        let id = &inputs.cluster.run_id;
        let runs = stored(&self.options.results);
        let decision = decide(id, &inputs.cluster.retry, &inputs.plan.wire, &runs);
        for old in superseded(id, decision, &runs) {
            if let Err(error) = supersede(&self.options.results, old) {
                self.live.problem(&format!("failed to mark run {old} superseded: {}", describe_store_error(&error)));
            }
        }
        if let Some(run) = runs.iter().find(|run| run.id == *id) {
            self.publish(run);
        }
        self.prune(&runs);
        match decision {
            Decision::Begin | Decision::Resume | Decision::Retry => {
                return self.begin_or_resume(decision, backend).await;
            }
            Decision::Idle => self.live.set_status(State::Idle, "no run is requested; set run.id to climb"),
            Decision::Ended => {
                self.live.set_status(State::Finished, &format!("run {id} has ended; another run.id runs again"))
            }
            Decision::Superseded => {
                self.live.set_status(State::Idle, &format!("run {id} was superseded by a later one; set a new run.id"));
            }
            Decision::PlanChanged => {
                let description =
                    format!("run {id} was begun with another plan and is superseded; set a new run.id for this plan");
                self.live.problem(&description);
                self.live.set_status(State::Idle, &description);
            }
        }
        Ok(())
    }

    /// Removes the bundles that are beyond what is kept.
    fn prune(&self, runs: &[Run]) {
        let (results, keep) = (&self.options.results, self.options.keep);
        prune::clean(results);
        for id in prune::surplus(runs, keep, &self.inputs.cluster.run_id, clock::unix_ns()) {
            match prune::remove(results, id) {
                Ok(()) => eprintln!("ladder: removed the bundle of run {id}, which is beyond what is kept"),
                Err(error) => self.live.problem(&format!("failed to remove the bundle of run {id}: {error}")),
            }
        }
    }

    /// Publishes a stored run, with the figures of its trials.
    fn publish(&self, run: &Run) {
        let bundle = self.options.results.join(run.id.as_str());
        for entry in run.trials.iter().filter(|entry| matches!(entry.state, TrialState::Finished { .. })) {
            if let Ok(result) = store::read_result(&bundle, &entry.trial) {
                self.live.remember(&result);
            }
        }
        self.live.run(run);
    }

    async fn begin_or_resume(&mut self, decision: Decision, backend: Kubernetes) -> anyhow::Result<()> {
        let Some(id) = self.inputs.cluster.run() else { return Ok(()) };
        let (store, run) = loop {
            let opened = match decision {
                // The stored plan is this one without its secrets.
                Decision::Resume | Decision::Retry => self.reopen(&id),
                _ => {
                    let run = self.new_run(&id, &backend);
                    Store::create(&self.options.results, &run).map(|store| (store, run))
                }
            };
            match opened {
                Ok(opened) => break opened,
                Err(error) if is_volume_error(&error) => {
                    self.live.problem(&describe_store_error(&error));
                    if !self.wait_for_space(State::Blocked).await || !self.pause().await {
                        return Ok(());
                    }
                }
                Err(error) => {
                    reject_with_mistakes(self.live, vec![describe_store_error(&error)]);
                    return Ok(());
                }
            }
        };
        // Checks the plan that the run began with against the current cluster file.
        let path = store.folder().join("run.json");
        let (cluster, cluster_path) = (self.inputs.cluster.clone(), &self.options.cluster);
        let inputs = match CheckedInputs::check(run.plan.clone(), &path, cluster, cluster_path) {
            Ok(inputs) => inputs,
            Err(Mistakes(mistakes)) => {
                reject_with_mistakes(self.live, mistakes.iter().map(ToString::to_string).collect());
                return Ok(());
            }
        };
        if let Err(error) = resume::check_trials(&run, &inputs.plan) {
            reject_with_mistakes(self.live, vec![format!("{}: {error}", path.display())]);
            return Ok(());
        }
        self.climb(&inputs, backend, store, run).await
    }

    /// Opens a run to go on with it; if it is requested, with the trials that failed.
    fn reopen(&self, id: &Name) -> Result<(Store, Run), store::Error> {
        let (store, run) = Store::open(&self.options.results, id)?;
        let mut run = Run { plan: self.inputs.plan.wire.clone(), ..run };
        let request = &self.inputs.cluster.retry;
        if is_to_be_retried(&run, request) {
            let count = retry::failed_trials(&mut run);
            run.retries.push(request.clone());
            store.reopen(&run)?;
            eprintln!("ladder: run.retry={request}: {count} failed trials of run {id} are measured again");
        }
        Ok((store, run))
    }

    async fn climb(
        &mut self,
        inputs: &CheckedInputs,
        backend: Kubernetes,
        store: Store,
        run: Run,
    ) -> anyhow::Result<()> {
        let id = run.id.clone();
        let live = self.live;
        live.run(&run);
        let watcher = EventWatcher { live, events: self.events.clone(), searches: !run.searches.is_empty() };
        let mut stop = self.stop.clone();
        let mut climb = Climb {
            plan: &inputs.plan,
            registry: &inputs.registry,
            backend,
            coordinator: self.coordinator,
            store,
            run,
            reproduce_command: reproduce_command(inputs),
            watcher: &watcher,
            requested_at_unix_ns: self.requested_at_unix_ns,
            pilots: None,
            printed_rows: None,
            retry_budget: RetryBudget(self.options.retry_budget),
            unsaved: None,
        };
        loop {
            live.set_status(State::Climbing, &format!("climbing run {id}"));
            self.events.record(RunEvent::RunBegan { run: id.to_string() });
            self.coordinator.begin(&id);
            match climb.climb(&mut stop).await {
                Ok(ClimbEnd::Finished) => {
                    let standing = assert::of_run(&climb.run);
                    self.events.record(RunEvent::RunEnded { run: id.to_string(), standing });
                    live.set_status(State::Finished, &format!("run {id} has ended: {}", standing.as_str()));
                    self.prune(&stored(&self.options.results));
                    return Ok(());
                }
                Ok(ClimbEnd::Stopped(_)) => {
                    live.set_status(
                        State::Stopping,
                        &format!("run {id} is interrupted and will be resumed by the next start"),
                    );
                    return Ok(());
                }
                Err(Error::Store(error)) => live.problem(&describe_store_error(&error)),
                Err(error @ (Error::SearchTrial(_) | Error::NoDescriptors(_))) => live.problem(&chain(&error)),
                // A retry would fail in the same way.
                Err(error @ (Error::Diverged(_) | Error::OtherPairs(_) | Error::Pilots(_))) => {
                    reject_with_mistakes(live, vec![chain(&error)]);
                    return Ok(());
                }
            }
            if !self.wait_for_space(State::Blocked).await || !self.pause().await {
                return Ok(());
            }
            climb.requested_at_unix_ns = clock::unix_ns();
        }
    }

    fn new_run(&self, id: &Name, backend: &Kubernetes) -> Run {
        let CheckedInputs { cluster, plan, .. } = self.inputs;
        let placement = backend.placement();
        let version = env!("CARGO_PKG_VERSION");
        Run {
            schema: SCHEMA,
            id: id.clone(),
            started_at: clock::rfc3339(clock::unix_ns()),
            finished_at: None,
            state: RunState::Running,
            plan: plan.wire.clone(),
            command: format!(
                "helm upgrade {} --namespace {} --set run.id={}",
                cluster.release, cluster.namespace, cluster.run_id
            ),
            version: version.into(),
            commit: evidence::commit(Path::new(".")),
            versions: [("ladder".to_owned(), version.to_owned())].into(),
            // The image doesn't contain the sources.
            lines: Default::default(),
            machines: placement.machines,
            cpu_roles: placement.cpu_roles,
            usage: Default::default(),
            rest: None,
            outside: None,
            trials: plan.trials().into_iter().map(TrialEntry::pending).collect(),
            retries: vec![],
            searches: plan.searches(&TrialFilter::default()),
            comparison: None,
        }
    }
}

/// The commands that climb the plan of this release on another machine.
fn reproduce_command(inputs: &CheckedInputs) -> String {
    let (release, namespace) = (&inputs.cluster.release, &inputs.cluster.namespace);
    let command = if inputs.plan.ladders.iter().any(|ladder| ladder.search.is_some()) { "search" } else { "run" };
    format!(
        "kubectl -n {namespace} get configmap -l app.kubernetes.io/instance={release} \
         -o jsonpath='{{.items[*].data.plan\\.yaml}}' > plan.yaml && ladder {command} ./plan.yaml"
    )
}

fn supersede(results: &Path, id: &Name) -> Result<(), store::Error> {
    let (store, mut run) = Store::open(results, id)?;
    run.state = RunState::Superseded;
    run.finished_at = Some(clock::rfc3339(clock::unix_ns()));
    store.save_ended_run(&run)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_run_is_marked_superseded_and_keeps_its_trials() {
        let results = tempfile::tempdir().unwrap();
        let inputs = crate::cluster_file::fixture::inputs();
        let mut run: Run = serde_json::from_value(serde_json::json!({
            "schema": 1, "id": "old", "started_at": "", "finished_at": null, "state": "running",
            "plan": serde_json::to_value(&inputs.plan.wire).unwrap(), "command": "", "version": "", "commit": "",
            "versions": {}, "machines": [], "cpu_roles": {}, "trials": []
        }))
        .unwrap();
        run.trials.push(TrialEntry::pending(inputs.plan.trials()[0].clone()));
        drop(Store::create(results.path(), &run).unwrap());
        supersede(results.path(), &Name::from_static("old")).unwrap();
        let after = store::read_run(&results.path().join("old")).unwrap();
        assert_eq!((after.state, after.trials.len()), (RunState::Superseded, 1));
        assert!(store::read_list(&results.path().join("old")).unwrap().unwrap().0.contains_key("run.json"));
    }
}
