//! The options that all commands for a release share.

use std::path::PathBuf;

use clap::Args;

use super::reach::OperatorAddress;

/// Options that locate a release.
#[derive(Debug, Args)]
pub(crate) struct ReleaseOptions {
    /// The operator's web port, as http://host:port; for use inside the cluster.
    #[arg(long, conflicts_with_all = ["release", "kubeconfig", "context"])]
    url: Option<String>,
    /// The Helm release; its operator is reached through a port-forward.
    #[arg(long, required_unless_present = "url")]
    release: Option<String>,
    /// Namespace of the release; defaults to that of the context.
    #[arg(long, short)]
    namespace: Option<String>,
    /// The kubeconfig file, instead of the one that kubectl would use.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig, instead of the current one.
    #[arg(long)]
    context: Option<String>,
}

impl ReleaseOptions {
    /// The location that the options select.
    pub(crate) fn location(&self) -> OperatorAddress {
        match (&self.url, &self.release) {
            (Some(url), _) => OperatorAddress::Url(url.trim_end_matches('/').into()),
            (None, release) => OperatorAddress::Release {
                release: release.clone().unwrap_or_default(),
                namespace: self.namespace.clone(),
                kubeconfig: self.kubeconfig.clone(),
                context: self.context.clone(),
            },
        }
    }
}
