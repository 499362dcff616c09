//! `ladder-kubernetes`: climbs a plan inside a cluster, and reaches into one from outside.
//!
//! In the cluster, in the order in which things happen: [`serve`] (the sequence) reads [`cluster_file`], holds the [`lease`], and
//! climbs with [`backend`], which acts through [`api`], looks through [`seen`], notes what it changes in the [`journal`], and
//! judges what it sees by [`ends`] and [`trouble`] (pure, like [`quantity`]). [`evidence`] runs beside a service. [`live`] is
//! what [`web`] and [`metrics`] show, and [`events`] tells the cluster. From outside: [`remote`].

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
