//! Drives one trial; knows neither plans nor what starts a service.
//!
//! In the order in which a trial walks through it: [`trial_plan`] (what to measure) → [`coordinator`] (what workers talk
//! to) → [`measure`] (the one sequence; what each worker is told is worked out below it) → [`readings`] of the service,
//! taken through [`service_client`] (its metrics port) and [`stage`] (what its processes used, and how they ended).
//!
//! [`by_hand`] does all of it for a program that is run by hand: with a service that runs already (where that is on this
//! machine, as a [`service_process`]), and the program itself as its [`workers`].

pub mod by_hand;
pub mod clock;
pub mod coordinator;
pub mod evidence_client;
pub mod measure;
pub mod readings;
pub mod service_client;
pub mod service_process;
pub mod stage;
pub mod trial_plan;
pub mod workers;
