//! Several processes of a gateway count as one service in the books, and each is loaded by its own worker.

use crate::run::{Attempts, sound};

#[test]
fn two_processes_of_a_gateway_share_the_sessions_and_their_books_are_summed() {
    let mut attempts = Attempts::of("stt-replicas");
    let (result, run) = attempts.trial("self-test-gateway-none", "standard");
    // Each process has room for 12 of the 20 sessions.
    assert_eq!(sound(&result), Ok(()), "{}", run.output);
    assert!(result.messages.sent > 0 && result.messages.delivered == result.messages.sent, "{:?}", result.messages);
    let workers = run.workers("self-test-gateway-none", "standard");
    // Worker 0 checks the protocol before and after the load, each time on a connection of its own.
    assert_eq!(workers.iter().map(|worker| worker.books.len()).collect::<Vec<_>>(), [10 + 2, 10]);
    assert!(result.figures.service_cpu_seconds > Some(0.0), "{:?}", result.figures);
}
