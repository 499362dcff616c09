//! The loads of the rounds: whole numbers, 1 % apart. Pure.

/// Ratio of adjacent loads.
const RATIO: f64 = 1.01;

/// The place on the grid that is nearest to a load.
pub(super) fn place(load: f64) -> i32 {
    (load.ln() / RATIO.ln()).round() as i32
}

/// The load at a place of the grid.
pub(super) fn on_grid(place: i32) -> u32 {
    RATIO.powi(place).round() as u32
}
