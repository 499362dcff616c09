//! The settings of a cluster, and the check that they make sense.

use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use wse_utilities::breaker::BreakerConfig;

use super::{
    host::split,
    secret::{ClusterSecret, ShortSecret},
};

/// The most instances in a cluster, and the most addresses that are remembered.
pub(super) const MAX_PEERS: usize = 256;

/// How an instance finds the others, and how they find it.
#[derive(Clone, Debug, Default)]
pub struct ClusterConfig {
    /// The addresses of the other instances' cluster ports: `HOST:PORT`, with names or IP addresses.
    pub peers: Vec<String>,
    /// Replaces `peers`: the addresses of some instances, which pass on those of the others.
    pub seeds: Vec<String>,
    /// The cluster port to listen on, at the server's host; with 0 the kernel picks one. Without it this instance only
    /// dials.
    pub port: Option<u16>,
    /// The address at which others reach this instance's cluster port, which is passed on to them: `HOST:PORT`, or a
    /// host alone for the port that is bound.
    pub address: Option<String>,
    /// The certificates that both sides of a link verify; without them links are not encrypted.
    pub tls: Option<TlsFiles>,
    /// The secret that all instances share. Without it and without TLS, links are possible on this machine only.
    pub secret: Option<ClusterSecret>,
    /// Intervals and time limits.
    pub timing: ClusterTiming,
}

/// The files of a cluster's TLS, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// This instance's certificate with its chain, used both as client and as server.
    pub certificate: PathBuf,
    /// The certificate's private key.
    pub key: PathBuf,
    /// The certificates of the authorities that sign the instances' certificates.
    pub authority: PathBuf,
}

impl TlsFiles {
    /// The three files as given, or if none is given, as the environment names them (`WSE_CLUSTER_TLS_CERT`, `_KEY` and
    /// `_CA`). `None` if neither names any.
    ///
    /// # Errors
    /// [`ClusterError::PartialTls`] if only some of the three are named.
    pub fn choose(
        certificate: Option<PathBuf>,
        key: Option<PathBuf>,
        authority: Option<PathBuf>,
        variable: impl Fn(&str) -> Option<PathBuf>,
    ) -> Result<Option<Self>, ClusterError> {
        let given = [certificate, key, authority];
        let named = match given.iter().all(Option::is_none) {
            true => ["WSE_CLUSTER_TLS_CERT", "WSE_CLUSTER_TLS_KEY", "WSE_CLUSTER_TLS_CA"].map(variable),
            false => given,
        };
        match named {
            [None, None, None] => Ok(None),
            [Some(certificate), Some(key), Some(authority)] => Ok(Some(Self { certificate, key, authority })),
            _ => Err(ClusterError::PartialTls),
        }
    }
}

/// The intervals and time limits of a cluster. The defaults are the protocol's; tests use shorter times.
#[derive(Clone, Debug)]
pub struct ClusterTiming {
    /// How long a new connection may take to send its hello, or a dialled address to answer.
    pub handshake: Duration,
    /// The interval between pings on a link.
    pub heartbeat: Duration,
    /// How long a link may receive nothing, or a write to it make no progress, before it is given up.
    pub link_timeout: Duration,
    /// How long the queue, the subscriptions and the users of a peer without a link are kept.
    pub keep: Duration,
    /// The interval at which the lists of subscriptions and addresses are sent again.
    pub resync: Duration,
    /// The first pause before an address is dialled again.
    pub first_pause: Duration,
    /// The longest pause before an address is dialled again.
    pub longest_pause: Duration,
    /// How long an address that failed repeatedly is not dialled.
    pub breaker_reset: Duration,
    /// How long queued frames may take to be written when the instance stops.
    pub stop_timeout: Duration,
}

impl Default for ClusterTiming {
    fn default() -> Self {
        Self {
            handshake: Duration::from_secs(5),
            heartbeat: Duration::from_secs(5),
            link_timeout: Duration::from_secs(15),
            keep: Duration::from_secs(15),
            resync: Duration::from_secs(60),
            first_pause: Duration::from_secs(1),
            longest_pause: Duration::from_secs(60),
            breaker_reset: Duration::from_secs(60),
            stop_timeout: Duration::from_secs(1),
        }
    }
}

impl ClusterTiming {
    pub(super) fn breaker(&self) -> BreakerConfig {
        BreakerConfig { failure_threshold: 10, reset_timeout: self.breaker_reset, success_threshold: 3 }
    }
}

/// Why TLS files can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TlsError {
    /// A file that can't be read, or doesn't hold what it should.
    #[error("{argument} ({path}) is refused: {reason}; give {expected}")]
    File {
        /// The argument that names the file.
        argument: &'static str,
        /// Path of the file that is refused.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
        /// What the file should hold.
        expected: &'static str,
    },
    /// The certificate and the key don't belong together.
    #[error(
        "tls_cert ({certificate}) and tls_key ({key}) are refused together: {reason}; give the key that the certificate was made for"
    )]
    Pair {
        /// Path of the certificate's file.
        certificate: PathBuf,
        /// Path of the key's file.
        key: PathBuf,
        /// What is wrong with them.
        reason: String,
    },
}

/// Why an instance can't be part of a cluster.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// The cluster is already connected.
    #[error("the cluster is connected already: an instance connects once")]
    Connected,
    /// The cluster is not connected.
    #[error("the cluster is not connected: call connect_cluster() first")]
    NotConnected,
    /// The server has stopped.
    #[error("the server has stopped: call start() first")]
    Stopped,
    /// There is no address to dial and no port to be dialled at.
    #[error("no peer to dial and no port to listen on: give peers or seeds, or a cluster_port")]
    NoPeers,
    /// Seeds are given, but no address for them to pass on.
    #[error("seeds announce the address of this instance to others: give cluster_addr as HOST:PORT")]
    NoAddress,
    /// An address to pass on is given, but no port to listen on.
    #[error("cluster_addr is the address at which other instances dial this one: give a cluster_port too")]
    NoPort,
    /// A text is not the address of a cluster port.
    #[error("{given:?} is not the address of a cluster port: give HOST:PORT, an IPv6 address in brackets")]
    Address {
        /// The text that was given.
        given: String,
    },
    /// More addresses than a mesh may have instances.
    #[error("a cluster has {MAX_PEERS} instances at most, {given} addresses were given")]
    TooManyPeers {
        /// The number of addresses.
        given: usize,
    },
    /// Only some of the three TLS files are named.
    #[error("TLS needs all three files or none: tls_cert, tls_key and tls_ca (or WSE_CLUSTER_TLS_CERT, _KEY and _CA)")]
    PartialTls,
    /// The TLS files can't be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// TLS files were given for a cluster that runs without TLS.
    #[error("the cluster was connected without TLS: stop, start, and connect with the three files")]
    WithoutTls,
    /// The secret is too short.
    #[error(transparent)]
    Secret(#[from] ShortSecret),
    /// The cluster port would be reachable from other machines, without TLS and without a secret.
    #[error(
        "a cluster port on {host} without TLS and without a secret would let every process that reaches it read and \
         publish everything: give cluster_secret (or WSE_CLUSTER_SECRET) or the three TLS files, or listen on 127.0.0.1"
    )]
    OpenPort {
        /// The host of the server.
        host: IpAddr,
    },
    /// A peer is on another machine, and there is neither TLS nor a secret.
    #[error(
        "a link with {address} without TLS and without a secret would trust every process that answers there: give \
         cluster_secret (or WSE_CLUSTER_SECRET) or the three TLS files, or an address of this machine"
    )]
    OpenPeer {
        /// The address of the peer.
        address: String,
    },
    /// The cluster port can't be bound.
    #[error("failed to listen on {address}, the cluster port: {source}")]
    Listen {
        /// The address that was configured for the cluster port.
        address: SocketAddr,
        /// The kernel's error, as it refused the address.
        source: std::io::Error,
    },
    /// The kernel refused another resource, for example a thread.
    #[error("failed to {step}: {source}")]
    Resource {
        /// What the cluster was doing, as the message continues after "failed to".
        step: &'static str,
        /// The kernel's error, as it refused the resource.
        source: std::io::Error,
    },
}

impl ClusterConfig {
    /// Checks that the values make sense together, for a server that listens on `host`.
    ///
    /// # Errors
    /// A [`ClusterError`] for the first rule that is broken.
    pub(super) fn validate(&self, host: IpAddr) -> Result<(), ClusterError> {
        let dialled = self.dialled();
        if dialled.is_empty() && self.port.is_none() {
            return Err(ClusterError::NoPeers);
        }
        if !self.seeds.is_empty() && self.address.is_none() {
            return Err(ClusterError::NoAddress);
        }
        if self.address.is_some() && self.port.is_none() {
            return Err(ClusterError::NoPort);
        }
        if dialled.len() > MAX_PEERS {
            return Err(ClusterError::TooManyPeers { given: dialled.len() });
        }
        if let Some(given) = dialled.iter().find(|address| split(address).is_none()) {
            return Err(ClusterError::Address { given: given.clone() });
        }
        if self.has_credential() {
            return Ok(());
        }
        if self.port.is_some() && !is_local(host) {
            return Err(ClusterError::OpenPort { host });
        }
        let distant = dialled.iter().find(|address| !is_named_local(address));
        distant.map_or(Ok(()), |address| Err(ClusterError::OpenPeer { address: address.clone() }))
    }

    /// Whether peers have to prove who they are. Without that, there are only links on this machine.
    pub(super) fn has_credential(&self) -> bool {
        self.tls.is_some() || self.secret.is_some()
    }

    /// The addresses to dial: the seeds if there are any, else the peers.
    pub(super) fn dialled(&self) -> &[String] {
        if self.seeds.is_empty() { &self.peers } else { &self.seeds }
    }

    /// The address to pass on to others, now that the port is bound; `None` if none is configured or no port is bound.
    ///
    /// # Errors
    /// [`ClusterError::Address`] if it is not a valid address.
    pub(super) fn advertised(&self, bound: Option<SocketAddr>) -> Result<Option<String>, ClusterError> {
        let (Some(given), Some(bound)) = (&self.address, bound) else { return Ok(None) };
        let advertised = match given.strip_suffix(":0") {
            Some(host) => format!("{host}:{}", bound.port()),
            None if split(given).is_some() => given.clone(),
            None => format!("{given}:{}", bound.port()),
        };
        match split(&advertised) {
            Some(_) => Ok(Some(advertised)),
            None => Err(ClusterError::Address { given: given.clone() }),
        }
    }
}

/// Whether an address is reached from this machine only.
pub(super) fn is_local(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

/// Whether the text of an address names this machine: `localhost`, or a loopback address.
pub(super) fn is_named_local(address: &str) -> bool {
    split(address).is_some_and(|(host, _)| host.eq_ignore_ascii_case("localhost") || host.parse().is_ok_and(is_local))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCAL: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn secret() -> Option<ClusterSecret> {
        Some(ClusterSecret::new(&[b'x'; 32]).unwrap())
    }

    fn config(peers: &[&str]) -> ClusterConfig {
        ClusterConfig { peers: peers.iter().map(|peer| (*peer).to_owned()).collect(), ..ClusterConfig::default() }
    }

    #[test]
    fn names_and_addresses_with_ports_are_addresses() {
        assert_eq!(split("node-1.wse:7006"), Some(("node-1.wse", 7006)));
        assert_eq!(split("[::1]:7006"), Some(("::1", 7006)));
        for wrong in [
            "node",
            "node:",
            "node:0",
            "node:70000",
            "node:+1",
            "[::1]:+1",
            ":7006",
            "::1:7006",
            "[a]:1",
            "a b:1",
            "a\n:1",
            "[::1:1",
        ] {
            assert_eq!(split(wrong), None, "{wrong}");
        }
        assert_eq!(split(&format!("{}:1", "x".repeat(300))), None);
    }

    #[test]
    fn an_instance_needs_a_peer_or_a_port() {
        assert!(matches!(config(&[]).validate(LOCAL), Err(ClusterError::NoPeers)));
        assert!(config(&["[::1]:1"]).validate(LOCAL).is_ok());
        assert!(ClusterConfig { port: Some(0), ..config(&[]) }.validate(LOCAL).is_ok());
        assert!(matches!(config(&["a"]).validate(LOCAL), Err(ClusterError::Address { .. })));
        assert!(matches!(config(&["a:1"; 300]).validate(LOCAL), Err(ClusterError::TooManyPeers { given: 300 })));
    }

    #[test]
    fn without_tls_and_without_a_secret_links_are_on_this_machine_only() {
        let (open, any) = (ClusterConfig { port: Some(0), ..config(&[]) }, "0.0.0.0".parse().unwrap());
        let error = open.validate(any).unwrap_err().to_string();
        assert!(
            error.contains("0.0.0.0") && error.contains("cluster_secret") && error.contains("127.0.0.1"),
            "{error}"
        );
        assert!(ClusterConfig { secret: secret(), ..open.clone() }.validate(any).is_ok());
        assert!(open.validate("::1".parse().unwrap()).is_ok());
        assert!(config(&["localhost:1", "127.0.0.9:1", "[::1]:1", "[::ffff:127.0.0.1]:1"]).validate(any).is_ok());
        for distant in ["10.0.0.1:1", "node-1:1", "localhost.example:1", "0.0.0.0:1", "[::ffff:10.0.0.1]:1"] {
            let peers = config(&["localhost:1", distant]);
            let Err(ClusterError::OpenPeer { address }) = peers.validate(LOCAL) else { panic!("{distant}") };
            assert_eq!(address, distant);
            assert!(ClusterConfig { secret: secret(), ..peers }.validate(LOCAL).is_ok());
        }
    }

    #[test]
    fn seeds_need_an_advertised_address_and_that_needs_a_port() {
        let seeds = ClusterConfig { seeds: vec!["localhost:1".into()], ..config(&[]) };
        assert!(matches!(seeds.validate(LOCAL), Err(ClusterError::NoAddress)));
        let unreachable = ClusterConfig { address: Some("b:1".into()), ..seeds.clone() };
        assert!(matches!(unreachable.validate(LOCAL), Err(ClusterError::NoPort)));
        assert!(ClusterConfig { port: Some(0), ..unreachable }.validate(LOCAL).is_ok());
    }

    #[test]
    fn an_address_without_a_port_gets_the_bound_one() {
        let advertised = |address: &str| {
            let config = ClusterConfig { address: Some(address.into()), ..config(&[]) };
            config.advertised(Some("127.0.0.1:7006".parse().unwrap())).ok().flatten()
        };
        assert_eq!(advertised("localhost").as_deref(), Some("localhost:7006"));
        assert_eq!(advertised("localhost:0").as_deref(), Some("localhost:7006"));
        assert_eq!(advertised("other:80").as_deref(), Some("other:80"));
        assert_eq!(advertised("a b"), None);
    }

    #[test]
    fn tls_files_are_all_given_or_none_and_the_environment_is_the_fallback() {
        let environment = |name: &str| Some(PathBuf::from(name));
        let file = |name: &str| Some(PathBuf::from(name));
        let chosen = TlsFiles::choose(file("c"), file("k"), file("a"), environment).unwrap().unwrap();
        assert_eq!(chosen.key, PathBuf::from("k"));
        let chosen = TlsFiles::choose(None, None, None, environment).unwrap().unwrap();
        assert_eq!(chosen.authority, PathBuf::from("WSE_CLUSTER_TLS_CA"));
        assert_eq!(TlsFiles::choose(None, None, None, |_| None).unwrap(), None);
        assert!(matches!(TlsFiles::choose(file("c"), None, None, environment), Err(ClusterError::PartialTls)));
    }
}
