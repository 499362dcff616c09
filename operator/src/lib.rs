//! `ladder`: climbs a plan, checks the books, keeps the results.
//!
//! In the order in which data walks: [`plan`] (file → checked plan, with [`registry`] and [`roles`]) → [`climb`] (the one
//! sequence; [`step`] says what comes next) → [`backend`] (services and workers; [`outside`]: a service that runs already)
//! → [`driver`] (one trial, and what its workers talk to) → [`judge`]
//! (what a trial is worth: pure) → [`store`] (the bundle) →
//! [`print`], [`watcher`], [`report`] and [`assert`]. [`rejudge`] judges again what the store kept; [`contract`] calls the program
//! that checks a service's protocol.

pub mod assert;
pub mod backend;
pub mod cli;
pub mod climb;
pub mod contract;
pub mod evidence;
pub mod outside;
pub mod plan;
pub mod print;
pub mod registry;
pub mod rejudge;
pub mod report;
pub mod roles;
pub mod search;
mod seed;
pub mod signals;
mod spelling;
pub mod step;
pub mod store;
pub mod watcher;
