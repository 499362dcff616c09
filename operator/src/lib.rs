//! `ladder`: climbs a plan against services, checks the books and stores the results in a bundle.
//!
//! The modules, in the order in which data passes them:
//!
//! - [`plan`]: plan file → checked plan, with [`registry`] (services and protocols) and [`roles`] (CPUs)
//! - [`climb`]: runs the trials in sequence; [`step`] decides the next step, [`search`] the loads of a search, [`compare`]
//!   how many pairs a comparison takes, [`pilot`] which pilots a run makes
//! - [`backend`]: starts services and workers; [`outside`] handles a service that already runs
//! - [`driver`]: conducts one trial and serves its workers
//! - [`judge`]: computes validity and verdict of a trial (pure)
//! - [`store`]: writes the bundle
//! - [`mod@print`], [`watcher`], [`live`], [`report`] and [`mod@assert`]: output and exit codes
//!
//! [`secrets`] keeps secrets out of the bundle, [`resume`] checks a bundle that is resumed, and [`retry`] marks its failed
//! trials to be measured again.
//! [`rejudge`] judges a stored trial again, [`verify`] checks a whole bundle, and [`mod@sign`] signs one with the keys of
//! [`signing`]. [`search_trial`] reads the trials by which a search decides. [`contract`] calls the program that checks a
//! service's protocol.
//! [`mod@fixed_work`] compares the machine's speed with that of earlier trials.
//! [`evidence`] reads versions and the commit of a run. [`cli`] is the command line, [`signals`] handles SIGINT and
//! SIGTERM.

pub mod assert;
pub mod backend;
pub mod cli;
pub mod climb;
pub mod compare;
pub mod contract;
pub mod evidence;
pub mod fixed_work;
pub mod live;
pub mod outside;
pub mod pilot;
pub mod plan;
pub mod print;
pub mod registry;
pub mod rejudge;
pub mod report;
pub mod rest;
pub mod resume;
pub mod retry;
pub mod roles;
pub mod search;
pub mod search_trial;
pub mod secrets;
mod seed;
pub mod sign;
pub mod signals;
pub mod signing;
mod spelling;
pub mod step;
pub mod store;
pub mod verify;
pub mod watcher;
pub mod websocket;
