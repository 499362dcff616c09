//! A worker of a coordinator, which takes everything but its settings from assignments.

use std::io::Write;

use bench_format::{
    result::{Failures, SAMPLES_LOST},
    trial::Assignment,
};
use loadgen_core::{
    coordinator::{self, Coordinator},
    trial::Gate,
};

use crate::{
    samples::{Writer, Written},
    trial::{PROGRAM, Settings, WORKLOAD, Worker, terms},
};

/// Carries out assignments until the run is over, then closes the connections.
///
/// # Errors
/// When the coordinator can't be reached or refuses, or an assignment can't be carried out.
pub fn work(url: &str, worker: u32, token: Option<String>, settings: Settings) -> anyhow::Result<()> {
    let coordinator = Coordinator::new(url, worker)?.with_token(token);
    let registration = coordinator.registration(PROGRAM, [(WORKLOAD.to_owned(), terms())].into());
    let mut generator = Worker::new(settings);
    coordinator::work(&coordinator, &registration, |assignment, gate| {
        run_assignment(&mut generator, assignment, gate)
    })?;
    generator.close()?;
    Ok(())
}

fn run_assignment(
    generator: &mut Worker,
    assignment: &Assignment,
    gate: &mut dyn Gate,
) -> anyhow::Result<coordinator::WorkerOutput> {
    if !assignment.samples {
        return Ok(generator.run(assignment, gate, || None)?.result.into());
    }
    let writer = Writer::start(Vec::new(), true)?;
    let mut result = generator.run(assignment, gate, || Some(writer.feed()))?.result;
    let written = writer.finish();
    count_lost(&mut result.failures, &written);
    Ok(coordinator::WorkerOutput { result, samples: written.to })
}

/// Puts the number of rows that are missing from the samples into the result. They are the generator's failure and not
/// the gateway's, so they stay outside of the window, which objectives use.
fn count_lost<W: Write>(failures: &mut Failures, written: &Written<W>) {
    if written.overflow > 0 {
        failures.outside.insert(SAMPLES_LOST.into(), written.overflow);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_had_no_room_are_in_the_result_and_no_failure_of_the_gateway() {
        let counted = |overflow| {
            let mut failures = Failures::default();
            count_lost(&mut failures, &Written { to: Some(Vec::new()), rows: 7, overflow, error: None });
            assert!(failures.window.is_empty());
            failures.outside.into_iter().collect::<Vec<_>>()
        };
        assert_eq!(counted(0), []);
        assert_eq!(counted(512), [("samples/overflow".to_owned(), 512)]);
    }
}
