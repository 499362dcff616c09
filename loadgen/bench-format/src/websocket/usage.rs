//! Whose CPU time and memory are those of a described service.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is read as the service's CPU time and memory; exactly one of the fields is set. All of them are on the machine of
/// ladder.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UsageSource {
    /// A process with all its descendants, by its id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// The same, by a file that has the id; relative to the service's `folder`, or to the root of the checkout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid_file: Option<String>,
    /// All processes whose command line matches this regular expression, with their descendants. Arguments are
    /// separated by one space.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// A cgroup, of version 1 or 2: its path as `/proc/PID/cgroup` has it (`/system.slice/chat.service`), or that of
    /// its folder below `/sys/fs/cgroup`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<String>,
    /// A container of podman or docker, by its name or id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
}

impl UsageSource {
    /// Names of the fields that are set.
    pub fn given(&self) -> Vec<&'static str> {
        let Self { pid, pid_file, command, cgroup, container } = self;
        let all = [
            ("pid", pid.is_some()),
            ("pid_file", pid_file.is_some()),
            ("command", command.is_some()),
            ("cgroup", cgroup.is_some()),
            ("container", container.is_some()),
        ];
        all.into_iter().filter(|(_, is_set)| *is_set).map(|(name, _)| name).collect()
    }
}
