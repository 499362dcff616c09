//! The options that every command on a release has.

use std::path::PathBuf;

use clap::Args;

use super::reach::Place;

/// Options that say where a release is.
#[derive(Debug, Args)]
pub(crate) struct Where {
    /// The operator's web port, as http://host:port; for use inside the cluster.
    #[arg(long, conflicts_with_all = ["release", "kubeconfig", "context"])]
    url: Option<String>,
    /// The Helm release; its operator is reached by a port-forward.
    #[arg(long, required_unless_present = "url")]
    release: Option<String>,
    /// Its namespace; by default the one of the context.
    #[arg(long, short)]
    namespace: Option<String>,
    /// In place of what kubectl would take.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// In place of the current one.
    #[arg(long)]
    context: Option<String>,
}

impl Where {
    /// The place that they say.
    pub(crate) fn place(&self) -> Place {
        match (&self.url, &self.release) {
            (Some(url), _) => Place::Url(url.trim_end_matches('/').into()),
            (None, release) => Place::Release {
                release: release.clone().unwrap_or_default(),
                namespace: self.namespace.clone(),
                kubeconfig: self.kubeconfig.clone(),
                context: self.context.clone(),
            },
        }
    }
}
