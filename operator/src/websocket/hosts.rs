//! Load goes only to hosts that are the user's own: this machine, private networks, and others that the command line
//! allows by name.

use std::net::{IpAddr, ToSocketAddrs};

use bench_format::websocket::WireWebsocket;

use reqwest::Url;

use super::{METRICS_PORT, PORT, address, parse};

/// A service at a public address whose host the command line doesn't allow.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{service}: {host} has the public address {ip}, and load on a host that isn't yours is an attack; if it is yours, \
     give --i-may-load-this-host {host}"
)]
pub struct ForeignHost {
    /// Name of the service in the plan.
    pub service: String,
    /// The host, as its URL has it.
    pub host: String,
    /// The first of its addresses that is public.
    pub ip: IpAddr,
}

/// Checks the hosts of a section's services. `allowed` are hosts whose owner allows the load.
///
/// # Errors
/// [`ForeignHost`] for the first service at a public address whose host isn't allowed. A host without an address is no
/// error here: the workers report it.
pub fn check_hosts(section: &WireWebsocket, allowed: &[String]) -> Result<(), ForeignHost> {
    for (service, described) in &section.services {
        // A page of counters may get a secret of the environment, so it is no other party's, either.
        let counters = described
            .counters
            .as_ref()
            .and_then(|counters| Url::parse(&counters.url.replace(PORT, "1").replace(METRICS_PORT, "1")).ok());
        let more = described.more_urls.iter().filter_map(|url| parse(&url.replace(PORT, "1")).ok());
        for url in address(described, 1).ok().into_iter().chain(more).chain(counters) {
            check(service, &url, allowed)?;
        }
    }
    Ok(())
}

fn check(service: &str, url: &Url, allowed: &[String]) -> Result<(), ForeignHost> {
    let Some(host) = url.host_str().filter(|host| !allowed.iter().any(|name| name == host)) else { return Ok(()) };
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let port = url.port_or_known_default().unwrap_or(80);
    let addresses = (bare, port).to_socket_addrs().into_iter().flatten();
    match addresses.into_iter().find(|address| is_public(address.ip())) {
        Some(address) => Err(ForeignHost { service: service.into(), host: host.into(), ip: address.ip() }),
        None => Ok(()),
    }
}

/// Whether an address belongs to neither this machine nor a private network (RFC 1918, 3927, 4193, 4291, 6598).
fn is_public(ip: IpAddr) -> bool {
    match ip.to_canonical() {
        IpAddr::V4(ip) => {
            let shared = ip.octets()[0] == 100 && ip.octets()[1] & 0xC0 == 64;
            !(ip.is_loopback() || ip.is_private() || ip.is_link_local() || ip.is_unspecified() || shared)
        }
        IpAddr::V6(ip) => {
            !(ip.is_loopback() || ip.is_unique_local() || ip.is_unicast_link_local() || ip.is_unspecified())
        }
    }
}

#[cfg(test)]
mod tests {
    use bench_format::websocket::{Counters, WebsocketService};

    use super::*;

    fn section(url: &str) -> WireWebsocket {
        let service = WebsocketService {
            url: url.into(),
            more_urls: vec![],
            command: vec![],
            folder: None,
            env: Default::default(),
            version: None,
            version_command: vec![],
            warmup_seconds: None,
            counters: None,
            usage: None,
        };
        WireWebsocket { services: [("chat".to_owned(), service)].into(), ..WireWebsocket::default() }
    }

    #[test]
    fn own_machines_and_private_networks_are_loaded_without_a_question() {
        for url in
            ["ws://127.0.0.1:{port}/", "ws://[::1]:1/", "ws://10.1.2.3:1/", "ws://192.168.0.9/", "ws://[fd00::1]/"]
        {
            assert_eq!(check_hosts(&section(url), &[]), Ok(()), "{url}");
        }
    }

    #[test]
    fn every_url_of_a_service_is_checked() {
        let mut section = section("ws://127.0.0.1:1/");
        section.services.get_mut("chat").unwrap().more_urls =
            vec!["ws://10.0.0.1:1/".into(), "ws://192.0.2.1:{port}/{{connection}}".into()];
        let error = check_hosts(&section, &[]).unwrap_err().to_string();
        assert!(error.starts_with("chat: 192.0.2.1 has the public address 192.0.2.1"), "{error}");
        assert_eq!(check_hosts(&section, &["192.0.2.1".into()]), Ok(()));
    }

    #[test]
    fn counters_on_a_public_host_need_its_name_too() {
        let mut section = section("ws://127.0.0.1:{port}/");
        let url = "http://192.0.2.1:{metrics_port}/{{env.TOKEN}}".into();
        section.services.get_mut("chat").unwrap().counters = Some(Counters { url, ..Counters::default() });
        assert!(check_hosts(&section, &[]).is_err());
        assert_eq!(check_hosts(&section, &["192.0.2.1".into()]), Ok(()));
    }

    #[test]
    fn a_public_address_needs_its_hosts_name_on_the_command_line() {
        for url in ["ws://192.0.2.1:80/", "ws://[2001:db8::1]:80/", "ws://[::ffff:192.0.2.1]:80/"] {
            let error = check_hosts(&section(url), &[]).unwrap_err().to_string();
            assert!(error.starts_with("chat: ") && error.contains("--i-may-load-this-host"), "{error}");
        }
        assert_eq!(check_hosts(&section("ws://192.0.2.1:80/"), &["192.0.2.1".into()]), Ok(()));
        assert!(check_hosts(&section("ws://192.0.2.1:80/"), &["192.0.2.2".into()]).is_err());
    }
}
