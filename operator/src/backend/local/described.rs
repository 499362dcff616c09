//! A service that only the plan describes: started with a free port, or found where it runs already. It prints no ready
//! line and has no metrics port; it is ready when it accepts a connection.

use std::{
    collections::BTreeMap,
    io, iter,
    net::{Ipv4Addr, SocketAddr, TcpListener, ToSocketAddrs},
    path::Path,
    time::Duration,
};

use bench_format::{service::Started, websocket::WebsocketService};
use driver::{
    counters::MappedCounters,
    http::HttpClient,
    service_process::{AllowedCpus, ServiceProcess},
    stage::Usage,
};
use process_usage::cgroup::CpuCgroup;
use reqwest::Url;
use tokio::{
    net::TcpStream,
    time::{Instant, sleep, timeout},
};

use super::{Local, POLL, ReadyProcess, STOP_TIMEOUT, process::RunningProcess, usage::Watched};
use crate::{
    backend::{Error, ServiceSpec, local::process::Launch, local::process::Stdout, ready_deadline},
    evidence,
    outside::authority,
    websocket::{self, METRICS_PORT, PORT, folder},
};

/// Longest wait for one connection while the service starts.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// Longest wait for the page of the service's counters while it starts.
const PAGE_TIMEOUT: Duration = Duration::from_secs(5);

/// A service that ladder did not start. Its process is known only on this machine.
#[derive(Debug)]
pub(super) struct Found {
    process: Option<(ServiceProcess, AllowedCpus)>,
    /// Whether the service has further URLs, behind which nothing is read.
    has_more_urls: bool,
}

impl Found {
    /// CPU and memory of the process; `None` where it isn't known or has ended.
    pub(super) fn usage(&self) -> Option<Usage> {
        let (process, allowed_cpus) = self.process.as_ref()?;
        process.usage(*allowed_cpus)
    }

    /// The process on this machine.
    pub(super) fn process(&self) -> Option<&ServiceProcess> {
        self.process.as_ref().map(|(process, _)| process)
    }

    /// Whether it may run on CPUs of the workers, as far as that is known.
    pub(super) fn shares_cpus(&self) -> bool {
        self.process.as_ref().is_some_and(|(_, allowed_cpus)| allowed_cpus.shared)
    }
}

/// The version of a described service, by its name.
pub(super) fn versions(
    root: &Path,
    spec: &ServiceSpec,
    described: &WebsocketService,
) -> Result<BTreeMap<String, String>, evidence::Error> {
    let version = match &described.version {
        Some(version) => version.clone(),
        None => evidence::version(&folder(root, described), &spec.name, &described.version_command)?,
    };
    Ok([(spec.name.clone(), version)].into())
}

impl Local {
    /// Starts a described service, or finds the one that runs.
    pub(super) async fn start_described(
        &mut self,
        spec: &ServiceSpec,
        described: &WebsocketService,
    ) -> Result<(Started, Option<MappedCounters>), Error> {
        let not_ready = |reason: String| Error::NotReady { name: spec.name.clone(), reason, log: String::new() };
        let described = filled(described).map_err(not_ready)?;
        let ports = if described.command.is_empty() { Ok([0; 2]) } else { free_ports() };
        let ports = ports.map_err(|error| not_ready(format!("no port is free: {error}")))?;
        let url = websocket::address(&described, ports[0]).map_err(not_ready)?;
        let more_urls = websocket::more_addresses(&described, ports[0]).map_err(not_ready)?;
        let counters = websocket::mapped_counters(&described, ports)
            .map_err(|(field, reason)| not_ready(format!("counters.{field}: {reason}")))?;
        if described.command.is_empty() {
            let started = self.find(spec, &url, &more_urls).await?;
            has_counters(counters.as_ref(), Instant::now()).await.map_err(not_ready)?;
            self.watch(&described).await.map_err(not_ready)?;
            return Ok((started, counters));
        }
        let with_ports =
            |text: &String| text.replace(PORT, &ports[0].to_string()).replace(METRICS_PORT, &ports[1].to_string());
        let launch = Launch {
            name: spec.name.clone(),
            program: with_ports(&described.command[0]),
            arguments: described.command[1..].iter().map(with_ports).collect(),
            env: spec.env.iter().map(|(name, value)| (name.clone(), with_ports(value))).collect(),
            folder: folder(&self.root, &described),
            cpus: self.roles.service.clone(),
            cgroup: self.cgroup("service", self.shapes.service)?,
            log: spec.log.clone(),
            stdout: Stdout::Discarded,
        };
        let mut running = RunningProcess::start(launch)?;
        let deadline = Instant::now() + ready_deadline(self.shapes.service.cpus);
        let ready = async {
            for url in iter::once(&url).chain(&more_urls) {
                accepts(url, &mut running, deadline).await?;
            }
            has_counters(counters.as_ref(), deadline).await
        };
        if let Err(reason) = ready.await {
            let log = running.last_output();
            running.stop(STOP_TIMEOUT).await;
            return Err(Error::NotReady { name: spec.name.clone(), reason, log });
        }
        let pid = running.pid().unwrap_or_default();
        let outer_quota = CpuCgroup::of(&pid.to_string()).filter(|_| running.cgroup().is_none());
        self.service = Some(ReadyProcess { running, pid, outer_quota, metrics_address: String::new() });
        self.watch(&described).await.map_err(not_ready)?;
        Ok((started(&url, pid), counters))
    }

    /// Finds what the plan names as the service's CPU time and memory. What can't be found is the error.
    async fn watch(&mut self, described: &WebsocketService) -> Result<(), String> {
        let Some(source) = &described.usage else { return Ok(()) };
        let workers: Vec<u32> = self.workers.iter().filter_map(RunningProcess::pid).collect();
        self.watched = Some(Watched::find(source, &folder(&self.root, described), &workers).await?);
        Ok(())
    }

    /// Whose CPU time and memory are read for the described service at this address; `None` for the processes that ladder
    /// started.
    pub(super) fn usage_sentence(&self, address: &str) -> Option<String> {
        if let Some(watched) = &self.watched {
            return Some(watched.description().to_owned());
        }
        let found = self.found.as_ref()?;
        Some(match found.process() {
            Some(process) if found.has_more_urls => format!(
                "CPU and memory are those of {}, which listens at {address}; nothing is read behind the service's other \
                 URLs, unless the same process listens there: name all with `usage` in the plan",
                process.description()
            ),
            Some(process) => format!("CPU and memory are those of {}, which listens there", process.description()),
            None => format!(
                "CPU and memory are not read: no process of this machine that ladder may inspect listens at {address}; \
                 name what runs there with `usage` in the plan"
            ),
        })
    }

    /// Finds a service that runs already.
    async fn find(&mut self, spec: &ServiceSpec, url: &Url, more_urls: &[Url]) -> Result<Started, Error> {
        for url in iter::once(url).chain(more_urls) {
            if let Err(error) = connect(url).await {
                let reason = format!("failed to reach {url}: {error}; is it started, and does it listen there?");
                return Err(Error::NotReady { name: spec.name.clone(), reason, log: String::new() });
            }
        }
        let process = socket_address(url).and_then(ServiceProcess::listening);
        let process = process.and_then(|process| Some((process.clone(), process.allowed_cpus()?)));
        self.found = Some(Found { process, has_more_urls: !more_urls.is_empty() });
        Ok(started(url, 0))
    }
}

fn started(url: &Url, pid: u32) -> Started {
    Started { event: "ready".into(), address: authority(url), metrics_address: String::new(), pid }
}

/// The service with the variables of ladder's environment in its address.
fn filled(described: &WebsocketService) -> Result<WebsocketService, String> {
    let services = [("service".to_owned(), described.clone())].into();
    let section = bench_format::websocket::WireWebsocket { services, ..Default::default() };
    let mut filled = websocket::filled(&section, |name| std::env::var(name).ok()).map_err(|error| error.to_string())?;
    Ok(filled.services.remove("service").unwrap_or_else(|| described.clone()))
}

/// Two ports that nothing listens on, for the service and for its counters. Another program may take them before the
/// service does, which then doesn't start.
fn free_ports() -> io::Result<[u16; 2]> {
    let listen = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let listeners = [listen()?, listen()?];
    Ok([listeners[0].local_addr()?.port(), listeners[1].local_addr()?.port()])
}

/// Waits until the page of the service's counters can be read; the error says why it can't.
async fn has_counters(counters: Option<&MappedCounters>, deadline: Instant) -> Result<(), String> {
    let Some(counters) = counters else { return Ok(()) };
    let http = HttpClient::new(PAGE_TIMEOUT);
    loop {
        let Err(error) = counters.get(&http, Duration::ZERO).await else { return Ok(()) };
        if Instant::now() >= deadline {
            return Err(format!("failed to read its counters at {}: {error}; check counters.url", counters.url()));
        }
        sleep(POLL).await;
    }
}

fn socket_address(url: &Url) -> Option<SocketAddr> {
    authority(url).to_socket_addrs().ok()?.next()
}

async fn connect(url: &Url) -> Result<(), String> {
    match timeout(CONNECT_TIMEOUT, TcpStream::connect(authority(url))).await {
        Ok(connected) => connected.map(drop).map_err(|error| error.to_string()),
        Err(_) => Err(format!("it accepted no connection within {} s", CONNECT_TIMEOUT.as_secs())),
    }
}

/// Waits until the service accepts a connection; the error says what happened instead.
async fn accepts(url: &Url, running: &mut RunningProcess, deadline: Instant) -> Result<(), String> {
    let begun = Instant::now();
    loop {
        let Err(error) = connect(url).await else { return Ok(()) };
        if running.ended().is_some() {
            return Err(format!("it ended before it accepted a connection ({})", running.exit_description().await));
        }
        if Instant::now() >= deadline {
            return Err(format!("{}: {error}, for {} s", authority(url), begun.elapsed().as_secs()));
        }
        sleep(POLL).await;
    }
}
