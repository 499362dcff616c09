//! `ladder serve`: the operator, which climbs a plan inside a cluster.
//!
//! Its sequence: open the ports, read and check the plan and the cluster file, acquire the Lease, restore what an
//! earlier operator left changed, decide, climb. After the climb it keeps running, so that the results can be read.

use std::{io, net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use anyhow::Context;
use bench_format::environment::Environment;
use driver::{
    clock,
    coordinator::{Coordinator, Token},
    http::chain,
};
use kube::{Client, Config};
use operator::{backend::Backend, plan::Mistakes, signals::Stop};
use tokio::{
    net::TcpListener,
    sync::watch,
    time::{sleep, timeout},
};

use crate::{
    api::ClusterApi,
    backend::{Kubernetes, describe_volume_error},
    caches::Caches,
    cluster_file::CheckedInputs,
    events::{Events, OwnPod, Writer, events},
    journal::Journal,
    lease::Holder,
    live::{Live, State},
    trial_view::Trials,
    web::{self, Web},
};

mod climb;
mod decide;
mod prune;
mod volume;

pub use self::prune::Keep;

/// Interval between two attempts when the cluster or the volume refuses an operation.
const RETRY: Duration = Duration::from_secs(3);
/// Longest time between SIGTERM and the exit. It is shorter than the kubelet's grace period.
const STOPPING: Duration = Duration::from_secs(9);
/// Longest wait at the end for pending Events to be written.
const LAST_EVENTS: Duration = Duration::from_secs(1);
/// Longest wait for a connection to the API server.
const CONNECT: Duration = Duration::from_secs(5);

/// The options of `ladder serve`.
#[derive(Clone, Debug)]
pub struct Options {
    /// Path of the plan file.
    pub plan: PathBuf,
    /// Path of the cluster file that the chart generated.
    pub cluster: PathBuf,
    /// Folder in which bundles are written.
    pub results: PathBuf,
    /// The address on which all ports listen.
    pub host: String,
    /// Port on which the coordinator listens for workers.
    pub coordinator_port: u16,
    /// Port for the live page, probes and `ladder status|fetch|assert`.
    pub web_port: u16,
    /// Port of the operator's metrics, which Prometheus scrapes.
    pub metrics_port: u16,
    /// Longest wait for a pod to run or become ready.
    pub start_deadline: Duration,
    /// Which bundles are kept.
    pub keep: Keep,
    /// How long interruptions are waited for.
    pub retry_budget: Duration,
    /// Bearer token that workers must send.
    pub token: Token,
    /// Name of this pod, which identifies the holder of the Lease.
    pub pod: Option<String>,
    /// Unique id of this pod; without it no Events are written.
    pub pod_uid: Option<String>,
}

/// The state that the steps of the sequence share.
struct Operator<'a> {
    options: &'a Options,
    inputs: &'a CheckedInputs,
    live: &'a Live,
    events: Events,
    coordinator: &'a Coordinator,
    stop: Stop,
    requested_at_unix_ns: u64,
}

/// Runs the operator until a signal stops it.
///
/// # Errors
/// When a port can't be bound, or the Lease is lost.
pub async fn serve(options: Options) -> anyhow::Result<u8> {
    let requested_at_unix_ns = clock::unix_ns();
    let mut stop = Stop::listen().context("failed to listen for signals")?;
    let live = Live::new();
    let coordinator_port = bind(&options.host, options.coordinator_port, "coordinator").await?;
    let web_port = bind(&options.host, options.web_port, "web").await?;
    let metrics_port = bind(&options.host, options.metrics_port, "metrics").await?;
    let web = Web::new(live.clone(), options.results.clone());
    tokio::spawn(web::serve(web_port, web.clone()));
    tokio::spawn(web::serve_metrics(metrics_port, web.clone()));
    let inputs = match CheckedInputs::read(&options.plan, &options.cluster) {
        Ok(inputs) => inputs,
        Err(Mistakes(mistakes)) => {
            reject_with_mistakes(&live, mistakes.iter().map(ToString::to_string).collect());
            stop.wait().await;
            return Ok(0);
        }
    };
    let run = &inputs.cluster.run_id;
    let url = &inputs.cluster.coordinator_url;
    let coordinator = Coordinator::serve(coordinator_port, run, url, options.token.clone());
    web.show(Trials::new(coordinator.show(), inputs.plan.clone()));
    live.change(|status| {
        status.run_id.clone_from(run);
        status.plan.clone_from(&inputs.plan.wire.name);
    });
    let mut stop_signal = stop.clone();
    let (events, writer) = events();
    let operator = Operator {
        options: &options,
        inputs: &inputs,
        live: &live,
        events,
        coordinator: &coordinator,
        stop: stop.clone(),
        requested_at_unix_ns,
    };
    tokio::select! {
        done = operator.operate(writer) => done.map(|()| 0),
        () = async { stop_signal.wait().await; sleep(STOPPING).await } => {
            eprintln!("ladder: not everything was restored in time; the next start does it");
            Ok(0)
        }
    }
}

async fn bind(host: &str, port: u16, what: &str) -> anyhow::Result<TcpListener> {
    let listener = TcpListener::bind((host, port)).await;
    let listener = listener.with_context(|| format!("failed to listen on {host}:{port} ({what})"))?;
    let address: SocketAddr = listener.local_addr()?;
    eprintln!("ladder: {what} port {address}");
    Ok(listener)
}

/// Marks the operator as not ready and publishes the mistakes; the process keeps running.
fn reject_with_mistakes(live: &Live, mistakes: Vec<String>) {
    mistakes.iter().for_each(|line| eprintln!("{line}"));
    live.set_status(
        State::Idle,
        &format!("{} mistakes in the plan or the cluster file; fix the values and upgrade", mistakes.len()),
    );
    live.set_not_ready(mistakes);
}

/// Another operator climbs. While this one waits it isn't ready, so that workers and clients reach the other.
fn wait_for_lease(live: &Live, description: String) {
    live.set_status(State::Waiting, &description);
    live.set_not_ready(vec![description]);
}

impl Operator<'_> {
    async fn operate(mut self, writer: Writer) -> anyhow::Result<()> {
        if !self.wait_for_space(State::Starting).await {
            return Ok(());
        }
        let Some(client) = self.connect().await else { return Ok(()) };
        let cluster = &self.inputs.cluster;
        let writing = self.own_pod().map(|pod| tokio::spawn(writer.write(client.clone(), pod)));
        let me =
            self.options.pod.clone().unwrap_or_else(|| format!("{}-{}", Environment::read().host, std::process::id()));
        let holder = Holder::new(&client, &cluster.namespace, &cluster.lease, &me);
        let live = self.live;
        let mut stop = self.stop.clone();
        tokio::select! {
            () = holder.acquire(|description| wait_for_lease(live, description)) => {}
            () = stop.wait() => return Ok(()),
        }
        live.set_not_ready(vec![]);
        let lost = watch::Sender::new(None);
        let mut loss = lost.subscribe();
        let renewal = tokio::spawn(holder.clone().renew(lost));
        let result = tokio::select! {
            result = self.run_as_holder(&client) => result,
            description = loss.wait_for(Option::is_some) => {
                let description = description.ok().and_then(|description| description.clone()).unwrap_or_default();
                // Nothing is restored here: the new holder of the Lease does that first.
                anyhow::bail!("stopped climbing: {description}");
            }
        };
        renewal.abort();
        holder.release().await;
        // Closes the queue of Events; those in it are still written.
        drop(self.events);
        if let Some(writing) = writing {
            let _ = timeout(LAST_EVENTS, writing).await;
        }
        result
    }

    /// The pod that Events refer to; `None` where the operator doesn't run in one.
    fn own_pod(&self) -> Option<OwnPod> {
        let (name, uid) = (self.options.pod.clone()?, self.options.pod_uid.clone()?);
        Some(OwnPod { namespace: self.inputs.cluster.namespace.clone(), name, uid })
    }

    /// The part that only the holder of the Lease runs: restore, climb, and wait for the stop signal.
    async fn run_as_holder(&mut self, client: &Client) -> anyhow::Result<()> {
        self.live.set_status(State::Starting, "reading the cluster");
        let Some(mut backend) = self.backend(client).await else { return Ok(()) };
        while let Err(error) = backend.put_back().await {
            self.live.problem(&format!("the changes of an earlier operator could not be restored: {error}"));
            if !self.pause().await {
                return Ok(());
            }
        }
        self.execute_decision(backend).await?;
        self.stop.wait().await;
        self.live.set_status(State::Stopping, "stopping");
        Ok(())
    }

    /// A client of the API server; retries until it succeeds. `None` when a signal stops the operator.
    async fn connect(&mut self) -> Option<Client> {
        loop {
            match client().await {
                Ok(client) => return Some(client),
                Err(description) => self.live.problem(&format!("failed to reach the cluster: {description}")),
            }
            if !self.pause().await {
                return None;
            }
        }
    }

    async fn backend(&mut self, client: &Client) -> Option<Kubernetes> {
        let cluster = Arc::new(self.inputs.cluster.clone());
        let api = ClusterApi::new(client, &cluster.namespace);
        loop {
            let described = cluster.described_target.as_ref().and_then(|target| target.pods.as_ref());
            let caches = Caches::start(client, (&cluster.namespace, &cluster.release), described).await;
            let journal = Journal::open(&self.options.results).map_err(|error| {
                format!("failed to read the journal of an earlier operator: {}", describe_volume_error(&error))
            });
            match caches.and_then(|caches| Ok((caches, journal?))) {
                Ok((caches, journal)) => {
                    let machine = self.machine(&api).await;
                    let deadline = self.options.start_deadline;
                    let events = self.events.clone();
                    return Some(Kubernetes::new(cluster, api, caches, journal, events, deadline, machine));
                }
                Err(description) => self.live.problem(&description),
            }
            if !self.pause().await {
                return None;
            }
        }
    }

    /// The machine on which the operator runs, named after its node if the pod can be read.
    async fn machine(&self, api: &ClusterApi) -> Environment {
        let own = Environment::read();
        let Some(pod) = &self.options.pod else { return own };
        let pod = api.pod(pod).await.ok();
        let node = pod.and_then(|pod| pod.spec?.node_name);
        Environment { host: node.unwrap_or_else(|| own.host.clone()), ..own }
    }

    /// Waits until the results can be written. Returns `false` when a signal stops the operator first.
    async fn wait_for_space(&mut self, waiting: State) -> bool {
        while let Err(error) = volume::probe(&self.options.results) {
            let description =
                format!("nothing is measured until results can be written: {}", describe_volume_error(&error));
            self.live.problem(&description);
            self.live.set_status(waiting, &description);
            self.live.set_not_ready(vec![description]);
            if !self.pause().await {
                return false;
            }
        }
        self.live.set_not_ready(vec![]);
        true
    }

    /// Waits before the next attempt. Returns `false` when a signal stops the operator.
    async fn pause(&mut self) -> bool {
        timeout(RETRY, self.stop.wait()).await.is_err()
    }
}

/// A client of the API server: with the pod's service account inside a cluster, elsewhere with the kubeconfig that
/// kubectl would use.
async fn client() -> Result<Client, String> {
    let mut config = match Config::incluster() {
        Ok(config) => config,
        Err(_) => Config::infer().await.map_err(|error| chain(&error))?,
    };
    // Retries are made by the operator: a climb can't wait for minutes inside one request.
    config.default_retry = false;
    config.connect_timeout = Some(CONNECT);
    Client::try_from(config).map_err(|error| chain(&error))
}

/// An error of the store as text for the live page.
fn describe_store_error(error: &operator::store::Error) -> String {
    match error {
        operator::store::Error::File { source, .. } => format!("{error}: {}", describe_volume_error(source)),
        other => chain(other),
    }
}

/// Whether a store's error is caused by the volume and may be temporary.
fn is_volume_error(error: &operator::store::Error) -> bool {
    match error {
        operator::store::Error::File { source, .. } => source.kind() != io::ErrorKind::NotFound,
        _ => false,
    }
}
