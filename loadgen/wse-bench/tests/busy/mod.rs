//! Exit codes on a busy machine: problems that only the machine causes don't fail a test.

// Each test file uses only a part of this module.
#![allow(dead_code, unreachable_pub)]

use serde_json::Value;

/// The exit code that the program would have had on a quiet machine, from its actual code and its problems.
pub fn code_but_for_it<'a>(code: Option<i32>, problems: impl IntoIterator<Item = &'a str>) -> Option<i32> {
    let mut problems = problems.into_iter().peekable();
    let only_its = problems.peek().is_some() && problems.all(is_the_machines);
    if only_its { Some(0) } else { code }
}

/// The problems in results of JSON.
pub fn of_results(results: &[Value]) -> impl Iterator<Item = &str> {
    results.iter().flat_map(|result| result["problems"].as_array().unwrap()).map(|problem| problem.as_str().unwrap())
}

/// The problems in printed tables.
pub fn of_text(text: &str) -> impl Iterator<Item = &str> {
    text.lines().skip_while(|line| *line != "Not clean:").filter(|line| line.starts_with("- "))
}

/// Whether a problem is caused by the machine: on a busy one the generator starts late or sends late, and the service
/// is read late.
pub fn is_the_machines(problem: &str) -> bool {
    ["start_skew", "generator_late", "generator_cpu", "send_rate", "reading_late"]
        .iter()
        .any(|kind| problem.contains(kind))
}
