//! A service that ladder did not start: parses its address, removes what a plan can't do with it, and checks it before
//! the climb.
//!
//! Its books are read like those of any service: without its counters nothing is measured. Its environment, its CPUs
//! and a fresh process are under the control of the party that starts it. A ladder that needs them is left out with a
//! message, and CPU time and memory are absent from the results unless an evidence agent beside the service reports
//! them ([`evidence_client`]).

use std::time::Duration;

use bench_format::{
    plan::{Figure, Objective, ServiceProcess, WireLadder, WirePlan},
    run::Outside,
};
use driver::{
    evidence_client::{self, EvidenceClient},
    service_client::{self, ServiceClient},
};
use reqwest::Url;
use tokio::{
    net::TcpStream,
    time::{Instant, sleep, timeout},
};

use crate::secrets::masked_urls;

pub mod counters;

/// Longest wait for a connection to the service, and for each response of its metrics port before the climb.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval between two checks whether the service is ready.
const POLL: Duration = Duration::from_millis(50);

/// Why a service that already runs can't be climbed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address can't be used.
    #[error("--url {text}: {reason}; give ws://HOST:PORT{path}")]
    Address {
        /// The address as given.
        text: String,
        /// What is wrong with it.
        reason: String,
        /// The path of the service's protocol.
        path: String,
    },
    /// The address belongs to one service, but the plan climbs none or several.
    #[error("--url is the address of one service, and the plan climbs {0}; name one with --service")]
    Services(String),
    /// The plan sets a fraction of a CPU, which ladder can't enforce for a service that already runs.
    #[error(
        "cpu.service.cpus {0}: ladder can't set the share of a service that already runs; give a whole number, and \
         set the share where the service is started"
    )]
    Share(f64),
    /// No ladder of the plan can be climbed.
    #[error("nothing is left to climb with --url: {0}")]
    NothingLeft(String),
    /// No connection to the service is possible.
    #[error("failed to reach {url}: {reason}; is the service started, and does it listen there?")]
    Unreachable {
        /// Address of the service.
        url: String,
        /// The error of the connection, or the exceeded deadline.
        reason: String,
    },
    /// The counters can't be read at the metrics address.
    #[error(
        "failed to read the counters of {url} at http://{metrics_address}: {reason}; give its METRICS_PORT with --metrics"
    )]
    Counters {
        /// Address of the service.
        url: String,
        /// The address from which the counters were requested.
        metrics_address: String,
        /// The error of the request, or the exceeded deadline.
        reason: String,
    },
    /// The metrics address of the service can't be determined.
    #[error(
        "failed to find the counters of {url}, without which nothing is measured: {reason}; give --metrics HOST:PORT"
    )]
    NoCounters {
        /// Address of the service.
        url: String,
        /// Why it can't be determined.
        reason: String,
    },
    /// The evidence agent doesn't report the service's CPU and memory.
    #[error("{0}; is `ladder evidence` started there, in the PID namespace of the service's process?")]
    Evidence(#[from] evidence_client::Error),
    /// The counters are those of another service.
    #[error(
        "the counters of {url} name the service {found}, not {expected}; give --service {found}, or the address of {expected}"
    )]
    OtherService {
        /// Address of the service.
        url: String,
        /// Name of the service in the counters.
        found: String,
        /// Name of the service that the plan climbs.
        expected: String,
    },
    /// The service reports no version. A service without a version is not measured.
    #[error("{0}: its /stats has no version, and a service without a version is not measured")]
    NoVersion(String),
}

/// Parses an address. A missing path is replaced by that of the service's protocol.
///
/// # Errors
/// [`Error::Address`] when it is not the address of a WebSocket service of that protocol, or has a part that workers
/// set themselves.
pub fn address(text: &str, path: &str) -> Result<Url, Error> {
    let wrong = |reason: String| Error::Address { text: masked_urls(text), reason, path: path.into() };
    let mut url = Url::parse(text).map_err(|error| wrong(format!("no address: {error}")))?;
    match url.scheme() {
        "ws" => {}
        "wss" => return Err(wrong("TLS is not supported".into())),
        other => return Err(wrong(format!("\"{other}\" is not WebSocket's scheme"))),
    }
    if url.host_str().is_none_or(str::is_empty) {
        return Err(wrong("it has no host".into()));
    }
    if !url.username().is_empty() || url.password().is_some() || url.query().is_some() || url.fragment().is_some() {
        return Err(wrong("user, password, query and fragment are set by the workers".into()));
    }
    if !["", "/", path].contains(&url.path()) {
        return Err(wrong(format!("services of this protocol have no endpoint at {}", url.path())));
    }
    url.set_path(path);
    Ok(url)
}

/// `host:port` of an address.
pub fn authority(url: &Url) -> String {
    // `ws` has a default port.
    format!("{}:{}", url.host_str().unwrap_or_default(), url.port_or_known_default().unwrap_or_default())
}

/// Removes from a plan what can't be done with a service that already runs. Returns a message for each change.
///
/// # Errors
/// When the plan doesn't climb exactly one service, sets a fraction of a CPU, or has no ladder left.
pub fn remove_unsupported(wire: &mut WirePlan, has_usage: bool) -> Result<Vec<String>, Error> {
    if wire.services.len() != 1 {
        return Err(Error::Services(wire.services.join(", ")));
    }
    let share = wire.cpu.service.cpus;
    if share.fract() != 0.0 {
        return Err(Error::Share(share));
    }
    let mut description = Vec::new();
    wire.ladders.retain(|ladder| {
        let reason = reason_to_leave_out(ladder, has_usage);
        description
            .extend(reason.map(|reason| format!("{}/{} is left out: {reason}", ladder.workload, ladder.variant)));
        reason.is_none()
    });
    if wire.ladders.is_empty() {
        return Err(Error::NothingLeft(description.join("; ")));
    }
    if wire.service_process == ServiceProcess::Repeat {
        wire.service_process = ServiceProcess::Tier;
        description.push("all repeats use the process that already runs, instead of a fresh one for each".into());
    }
    Ok(description)
}

/// Why a ladder can't be climbed with a service that already runs; `None` if it can.
fn reason_to_leave_out(ladder: &WireLadder, has_usage: bool) -> Option<&'static str> {
    let not_read = |objective: &Objective| {
        let of_usage = [Figure::ServiceCpuSecondsPerMillion, Figure::ServiceBytesPerConnection];
        !has_usage && of_usage.contains(&objective.figure)
    };
    if !ladder.service_env.is_empty() {
        return Some("its service_env can't be applied to a service that already runs");
    }
    if ladder.replicas != 1 {
        return Some("its replicas can't be applied to a service that already runs");
    }
    if !ladder.inference_env.is_empty() {
        return Some("its inference_env can't be applied to a service that already runs");
    }
    ladder.objectives.iter().any(not_read).then_some("it has an objective on CPU or memory, which are not read")
}

/// Waits until the service accepts connections and its counters name the expected service. Returns its version.
///
/// # Errors
/// When the service or its counters can't be reached, it is another service, it has no version, or it isn't ready.
pub async fn check_service(outside: &Outside, expected: &str) -> Result<String, Error> {
    let Outside { url, metrics_address, evidence_address } = outside;
    reach(url).await?;
    let counters =
        |reason: String| Error::Counters { url: url.clone(), metrics_address: metrics_address.clone(), reason };
    let client = ServiceClient::new(metrics_address);
    let stats = match timeout(RESPONSE_TIMEOUT, client.stats()).await {
        Ok(stats) => stats.map_err(|error: service_client::Error| counters(error.to_string()))?,
        Err(_) => return Err(counters(timeout_message("/stats did not respond"))),
    };
    if stats.service != expected {
        return Err(Error::OtherService { url: url.clone(), found: stats.service, expected: expected.into() });
    }
    if stats.version.is_empty() {
        return Err(Error::NoVersion(url.clone()));
    }
    let ready = async {
        while !client.ready().await {
            sleep(POLL).await;
        }
    };
    timeout(RESPONSE_TIMEOUT, ready).await.map_err(|_| counters(timeout_message("/readyz did not return 200")))?;
    if let Some(address) = evidence_address {
        EvidenceClient::new(address).usage().await?;
    }
    Ok(stats.version)
}

/// Repeats [`check_service`] until `retry_time` is over, as long as the service or its ports can't be reached: it may still be
/// starting.
///
/// # Errors
/// The error of the last attempt.
pub async fn check_with_retries(outside: &Outside, expected: &str, retry_time: Duration) -> Result<String, Error> {
    let deadline = Instant::now() + retry_time;
    loop {
        match check_service(outside, expected).await {
            Err(Error::Unreachable { .. } | Error::Counters { .. } | Error::Evidence(_))
                if Instant::now() < deadline =>
            {
                sleep(POLL).await;
            }
            checked => return checked,
        }
    }
}

/// Opens a TCP connection to the service and closes it.
async fn reach(url: &str) -> Result<(), Error> {
    let unreachable = |reason: String| Error::Unreachable { url: url.into(), reason };
    let parsed = Url::parse(url).map_err(|error| unreachable(error.to_string()))?;
    match timeout(RESPONSE_TIMEOUT, TcpStream::connect(authority(&parsed))).await {
        Ok(connected) => connected.map(drop).map_err(|error| unreachable(error.to_string())),
        Err(_) => Err(unreachable(timeout_message("it accepted no connection"))),
    }
}

fn timeout_message(what: &str) -> String {
    format!("{what} within {} s", RESPONSE_TIMEOUT.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::check::fixture::minimal;

    fn refused(text: &str) -> String {
        address(text, "/ws/stt").unwrap_err().to_string()
    }

    #[test]
    fn the_path_may_be_left_out_and_the_port_if_it_is_80() {
        let read = |text: &str| address(text, "/ws/stt").map(|url| (url.to_string(), authority(&url))).unwrap();
        let complete = ("ws://127.0.0.1:8080/ws/stt".to_owned(), "127.0.0.1:8080".to_owned());
        for text in ["ws://127.0.0.1:8080/ws/stt", "ws://127.0.0.1:8080/", "ws://127.0.0.1:8080"] {
            assert_eq!(read(text), complete, "{text}");
        }
        assert_eq!(read("ws://gateway").1, "gateway:80");
        assert_eq!(read("ws://[::1]:9").1, "[::1]:9");
    }

    #[test]
    fn another_scheme_is_an_error_with_the_remedy() {
        assert_eq!(
            refused("http://a:1/ws/stt"),
            "--url http://a:1/ws/stt: \"http\" is not WebSocket's scheme; give ws://HOST:PORT/ws/stt"
        );
        assert!(refused("wss://a:1").contains("TLS is not supported"));
        assert!(refused("localhost:8080").contains("\"localhost\" is not WebSocket's scheme"));
        assert!(refused("127.0.0.1:8080").contains("no address: relative URL without a base"));
    }

    #[test]
    fn a_path_of_another_protocol_a_query_and_an_account_are_refused() {
        assert!(refused("ws://a:1/wse").contains("services of this protocol have no endpoint at /wse"));
        assert!(refused("ws://a:1/ws/stt?token=x").contains("are set by the workers"));
        assert!(refused("ws://me:word@a:1").contains("are set by the workers"));
    }

    #[test]
    fn an_address_belongs_to_one_service() {
        let mut wire = minimal();
        wire.services.push("theirs".into());
        assert!(
            remove_unsupported(&mut wire, false)
                .unwrap_err()
                .to_string()
                .contains("the plan climbs ours, theirs; name one with --service")
        );
    }

    #[test]
    fn settings_that_need_a_start_are_reported_as_left_out() {
        let mut wire = minimal();
        wire.service_process = ServiceProcess::Repeat;
        wire.ladders.push(wire.ladders[0].clone());
        wire.ladders[1].variant = "dict".into();
        wire.ladders[1].service_env = [("DELIVERY".into(), "dict".into())].into();
        let description = remove_unsupported(&mut wire, false).unwrap();
        assert_eq!(
            description[0],
            "throughput/dict is left out: its service_env can't be applied to a service that already runs"
        );
        assert!(description[1].contains("instead of a fresh one"), "{description:?}");
        let mut replicated = minimal();
        replicated.ladders[0].replicas = 2;
        let refused = remove_unsupported(&mut replicated, false).unwrap_err().to_string();
        assert!(refused.contains("standard is left out: its replicas can't be applied"), "{refused}");
        assert_eq!((wire.ladders.len(), wire.service_process), (1, ServiceProcess::Tier));
    }

    #[test]
    fn a_plan_without_usable_ladders_and_one_with_a_cpu_fraction_are_refused() {
        let mut wire = minimal();
        wire.ladders[0].inference_env = [("MODEL_DELAY_MS".into(), "0".into())].into();
        assert!(
            remove_unsupported(&mut wire, false)
                .unwrap_err()
                .to_string()
                .contains("throughput/standard is left out: its inference_env")
        );
        let mut wire = minimal();
        let figure = Figure::ServiceBytesPerConnection;
        wire.ladders[0].objectives = vec![Objective { figure, at_most: Some(1.0), at_least: None }];
        assert!(
            remove_unsupported(&mut wire.clone(), false)
                .unwrap_err()
                .to_string()
                .contains("it has an objective on CPU or memory")
        );
        assert!(
            remove_unsupported(&mut wire, true).unwrap().is_empty(),
            "an objective on a figure that is read was left out"
        );
        let mut wire = minimal();
        wire.cpu.service.cpus = 0.5;
        assert!(
            remove_unsupported(&mut wire, false)
                .unwrap_err()
                .to_string()
                .starts_with("cpu.service.cpus 0.5: ladder can't set the share of a service")
        );
    }
}
