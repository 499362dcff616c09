//! The hardware and kernel settings of a machine, read from `/proc`.

use std::fs;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One machine: the properties that influence a result.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Environment {
    /// Host name of the machine.
    pub host: String,
    /// Kernel release, as in `uname -r`.
    pub kernel: String,
    /// Model name of the CPU, from `/proc/cpuinfo`.
    pub cpu_model: String,
    /// Number of CPUs of the machine.
    pub cpus: u32,
    /// CPUs on which this process may run, as the kernel lists them (`0-1`).
    pub cpus_allowed: String,
    /// Total memory, in bytes.
    pub memory_bytes: u64,
    /// Whether a hypervisor runs below the kernel (CPU flag `hypervisor`).
    pub virtualised: bool,
    /// Default TCP congestion control (`net.ipv4.tcp_congestion_control`).
    pub congestion_control: String,
    /// Limit of a listen queue, `net.core.somaxconn`.
    pub somaxconn: String,
    /// Local ports of outgoing connections, `net.ipv4.ip_local_port_range`.
    pub port_range: String,
    /// Minimum, default and maximum TCP receive buffer in bytes, `net.ipv4.tcp_rmem`.
    pub tcp_rmem: String,
    /// Minimum, default and maximum TCP send buffer in bytes, `net.ipv4.tcp_wmem`.
    pub tcp_wmem: String,
    /// Hard limit of open files of this process.
    pub open_files: u64,
    /// Largest packet of the network interface with the default route, in bytes; absent without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// What the cluster says of the node that this machine is; absent outside a cluster, and where the operator may not read
    /// nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeFacts>,
}

/// A node as the cluster describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NodeFacts {
    /// Type of the machine, such as `c7g.2xlarge` (label `node.kubernetes.io/instance-type`); empty without one.
    pub instance_type: String,
    /// Zone (label `topology.kubernetes.io/zone`); empty without one.
    pub zone: String,
    /// Architecture of the CPU, as in `arm64`.
    pub architecture: String,
    /// Name of the operating system.
    pub os_image: String,
    /// Version of the kubelet.
    pub kubelet: String,
    /// Container runtime and its version.
    pub container_runtime: String,
    /// CPUs that pods may request; the rest is reserved.
    pub allocatable_cpus: String,
    /// Name of the network plugin, such as `cilium`, by the annotations of the node or the pods on it; empty if neither tells,
    /// and in older bundles.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub network_plugin: String,
    /// How the kubelet gives CPUs to pods: `static` where a service that asks for whole CPUs has them to itself, `none` where
    /// it has not; empty where none asks for whole CPUs, and in older bundles.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cpu_manager: String,
    /// The pods of others on the node when the run first used it, as `NAMESPACE/NAME`. The network plugin's is among them.
    pub neighbours: Vec<String>,
}

impl Environment {
    /// Reads the machine on which this process runs. A field is empty (or 0) if its file can't be read.
    pub fn read() -> Self {
        let cpuinfo = read("/proc/cpuinfo");
        let status = read("/proc/self/status");
        let limits = read("/proc/self/limits");
        Self {
            host: read("/proc/sys/kernel/hostname"),
            kernel: read("/proc/sys/kernel/osrelease"),
            cpu_model: field(&cpuinfo, "model name"),
            cpus: cpuinfo.lines().filter(|line| line.starts_with("processor")).count() as u32,
            cpus_allowed: field(&status, "Cpus_allowed_list"),
            memory_bytes: kibibytes(&field(&read("/proc/meminfo"), "MemTotal")),
            virtualised: field(&cpuinfo, "flags").split(' ').any(|flag| flag == "hypervisor"),
            congestion_control: read("/proc/sys/net/ipv4/tcp_congestion_control"),
            somaxconn: read("/proc/sys/net/core/somaxconn"),
            port_range: read("/proc/sys/net/ipv4/ip_local_port_range").replace('\t', " "),
            tcp_rmem: read("/proc/sys/net/ipv4/tcp_rmem").replace('\t', " "),
            tcp_wmem: read("/proc/sys/net/ipv4/tcp_wmem").replace('\t', " "),
            open_files: hard_limit(&limits, "Max open files"),
            mtu: default_interface(&read("/proc/net/route"))
                .and_then(|interface| read(&format!("/sys/class/net/{interface}/mtu")).parse().ok()),
            node: None,
        }
    }
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

/// The value of the first line `name: value`; empty if there is none.
fn field(text: &str, name: &str) -> String {
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(key, _)| key.trim() == name)
        .map(|(_, value)| value.trim().to_owned())
        .unwrap_or_default()
}

/// The interface of the default route in `/proc/net/route`: that of the network 0 with the mask 0.
fn default_interface(routes: &str) -> Option<&str> {
    routes.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [interface, network, .., mask, _, _, _] = fields.as_slice() else { return None };
        [*network, *mask].iter().all(|part| *part == "00000000").then_some(*interface)
    })
}

fn kibibytes(text: &str) -> u64 {
    text.split(' ').next().and_then(|number| number.parse::<u64>().ok()).unwrap_or(0) * 1024
}

/// The hard limit: the second number of a line of `/proc/self/limits`, or 0.
fn hard_limit(limits: &str, name: &str) -> u64 {
    limits
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .and_then(|fields| fields.split_whitespace().nth(1)?.parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_cpus_memory_and_a_kernel() {
        let environment = Environment::read();
        assert!(environment.cpus > 0 && environment.memory_bytes > 0 && !environment.kernel.is_empty());
    }

    #[test]
    fn the_interface_of_the_default_route_is_found() {
        let head = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n";
        let near = "pods\t0001D60A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n";
        let default = "eth0\t00000000\t0101D60A\t0003\t0\t0\t0\t00000000\t0\t0\t0\n";
        assert_eq!(default_interface(&format!("{head}{near}{default}")), Some("eth0"));
        assert_eq!(default_interface(&format!("{head}{near}")), None);
    }

    #[test]
    fn limits_are_read_from_the_hard_column() {
        let limits = "Limit  Soft Limit  Hard Limit  Units\nMax open files            1024                 20000                files\n";
        assert_eq!(hard_limit(limits, "Max open files"), 20_000);
    }
}
