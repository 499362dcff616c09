//! `ladder-kubernetes`: climbs a plan inside a cluster, and accesses a run in a cluster from outside.
//!
//! In the cluster, in the order of the steps: [`serve`] (the sequence) reads [`cluster_file`], holds the [`lease`], and
//! climbs with [`backend`]. The backend changes the cluster through [`api`], observes it through [`seen`], records its
//! changes in the [`journal`], and classifies what it observes with [`ends`] and [`trouble`] (pure, like [`quantity`]).
//! [`evidence`] runs beside a service. [`live`] holds the status that [`web`] and [`metrics`] serve, and [`events`]
//! writes Kubernetes Events. From outside: [`remote`].

pub mod api;
pub mod backend;
pub mod cli;
pub mod cluster_file;
pub mod ends;
pub mod events;
pub mod evidence;
pub mod journal;
pub mod lease;
pub mod live;
pub mod metrics;
pub mod quantity;
pub mod remote;
pub mod seen;
pub mod serve;
pub mod trouble;
pub mod web;
