//! Masks tables for terminals and documents: keeps titles and sentences, and masks cells by their columns.

use super::{is_the_machines, numbers};

/// Columns whose cells may be `n/a`, depending on the machine and the run.
const CHANCE: [&str; 5] = ["bound by", "vs json", "CPU ns/msg", "own ns", "service ns"];
/// Beginnings of titles of columns that may have too few samples, because the load has no schedule.
const SAMPLED: [&str; 2] = ["age ", "delay "];

/// Columns of counts that are the same on every machine.
const COUNTED: [&str; 11] = [
    "addresses",
    "bytes",
    "connections",
    "duplicates",
    "ended",
    "failed",
    "lost",
    "open",
    "reorders",
    "size",
    "workers",
];

/// The tables without what depends on the machine, and whether the generator's problems are the only ones.
pub fn masked(printed: &str) -> (String, bool) {
    let mut titles: Vec<String> = Vec::new();
    let (mut lines, mut own_tables, mut other_tables) = (Vec::new(), Vec::new(), 0);
    let mut lines_left = printed.lines().peekable();
    while let Some(line) = lines_left.next() {
        let is_title = lines_left.peek().is_some_and(|next| next.starts_with("---") || next.starts_with("|---"));
        if is_title {
            titles = cells(line).into_iter().map(str::to_owned).collect();
            lines.push(title(line));
        } else if is_row(line) {
            lines.push(row(line, &titles));
        } else if line.starts_with("- ") {
            if is_the_machines(line) {
                own_tables.push(line)
            } else {
                other_tables += 1
            }
            lines.extend((!is_the_machines(line)).then(|| numbers(line)));
        } else {
            lines.push(mask_sentence(line));
        }
    }
    if !own_tables.is_empty() && other_tables == 0 {
        let heading = lines.iter().position(|line| line == "Not clean:").unwrap();
        // Together with the empty lines around it.
        lines.drain(heading - 1..=heading + 1);
    }
    if other_tables == 0 {
        lines.iter_mut().for_each(|line| *line = line.replace(" !", ""));
    }
    (lines.join("\n") + "\n", other_tables == 0)
}

fn is_row(line: &str) -> bool {
    line.trim_start_matches(['|', ' ']).starts_with(|first: char| first.is_ascii_digit())
}

fn cells(line: &str) -> Vec<&str> {
    let cells = line.split(if line.starts_with('|') { "|" } else { "  " });
    cells.map(str::trim).filter(|cell| !cell.is_empty()).collect()
}

fn row(line: &str, titles: &[String]) -> String {
    let mark = if line.contains(" !") { " !" } else { "" };
    let plain = line.replace(" !", "");
    let cells: Vec<_> = cells(&plain)
        .iter()
        .enumerate()
        .map(|(at, cell)| masked_cell(cell, titles.get(at).map_or("", String::as_str)))
        .collect();
    if line.starts_with('|') { format!("| {} |{mark}", cells.join(" | ")) } else { cells.join("  ") + mark }
}

fn masked_cell(cell: &str, title: &str) -> String {
    let by_chance = CHANCE.contains(&title) || SAMPLED.iter().any(|sampled| title.starts_with(sampled));
    // On a busy machine the machine binds a schedule.
    if by_chance {
        return "?".into();
    }
    if COUNTED.contains(&title) || title == "survival" {
        return cell.into();
    }
    // A lower bound depends on which side limited the load.
    numbers(cell.trim_start_matches(">= "))
}

/// The title of a matrix without padding, which depends on the width of its numbers.
fn title(line: &str) -> String {
    if line.contains("/s, bytes") { line.split_whitespace().collect::<Vec<_>>().join(" ") } else { line.to_owned() }
}

fn mask_sentence(line: &str) -> String {
    if line.starts_with("|---") {
        return "---:".repeat(line.matches(':').count());
    }
    if line.starts_with("Memory for each") || line.starts_with("Projected") {
        return numbers(line);
    }
    // The congestion control of this machine's kernel.
    line.split_once("TCP_NODELAY, ").map_or(line.to_owned(), |(before, _)| format!("{before}TCP_NODELAY, …"))
}
