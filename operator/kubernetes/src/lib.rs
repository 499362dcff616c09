//! `ladder-kubernetes`: climbs a plan inside a cluster, and accesses a run in a cluster from outside.
//!
//! The modules, in the order of the steps in a cluster:
//!
//! - [`serve`]: the sequence of the operator, from its files to the end of the climb
//! - [`cluster_file`]: reads and checks what the chart generated from the plan
//! - [`lease`]: allows only one operator to climb
//! - [`backend`]: starts services and workers; it changes the cluster through [`api`], observes it through [`caches`] and
//!   records its changes in the [`journal`]
//! - [`pod_end`], [`described_pod`], [`pod_failure`] and [`quantity`]: interpret the state of pods (pure)
//! - [`evidence`]: the evidence agent, which runs beside a service
//! - [`live`]: the status that [`web`] and [`metrics`] serve, [`trial_view`] the trial that runs; [`events`] writes
//!   Kubernetes Events
//!
//! [`remote`] holds the commands that access a release from outside.

pub mod api;
pub mod backend;
pub mod caches;
pub mod cli;
pub mod cluster_file;
pub mod described_pod;
pub mod events;
pub mod evidence;
pub mod journal;
pub mod lease;
pub mod live;
pub mod metrics;
pub mod pod_end;
pub mod pod_failure;
pub mod quantity;
pub mod remote;
pub mod serve;
pub mod trial_view;
pub mod web;
