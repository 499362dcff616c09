//! Drives one trial. It knows neither plans nor how a service is started.
//!
//! In the order in which a trial passes through: [`trial_plan`] (what to measure) → [`coordinator`] (the workers' HTTP
//! service) → [`measure`] (the sequence of a trial; `measure/assignments.rs` computes each worker's part) →
//! [`readings`] of the service, taken through [`service_client`] (its metrics port, or the page of its own [`counters`],
//! which [`exposition`] parses) and [`stage`] (the CPU, memory and end of its processes). [`evidence_client`] reads
//! processes in other containers. All use the client of [`http`], which bounds what they read; [`http_server`] bounds what
//! peers can take. [`clock`] formats wall-clock times. [`live`] has what a display shows of the trial that runs.
//!
//! [`by_hand`] does all of this for a program that is run by hand: against a running service (a [`service_process`] if
//! it runs on this machine), with the program itself as its [`workers`].

pub mod by_hand;
pub mod clock;
pub mod coordinator;
pub mod counters;
pub mod evidence_client;
pub mod exposition;
pub mod fixed_work;
#[cfg(feature = "fixture")]
pub mod fixture;
pub mod http;
pub mod http_server;
pub mod inference_client;
pub mod live;
pub mod machine;
pub mod measure;
pub mod nodes;
pub mod readings;
pub mod service_client;
pub mod service_process;
pub mod stage;
pub mod trial_plan;
pub mod workers;
