//! `ladder verify`: checks a bundle, and prints what was checked and what is wrong.

use std::path::PathBuf;

use clap::Args;

use crate::{signing::PublicKey, verify};

/// Exit code: the bundle is verified.
const VERIFIED: u8 = 0;
/// Exit code: something is wrong, or could not be checked.
const NOT_VERIFIED: u8 = 1;

/// Arguments of `ladder verify`.
#[derive(Debug, Args)]
pub(super) struct Verify {
    /// The bundle, a folder in results/ (also one that `ladder fetch` copied from a cluster).
    bundle: PathBuf,
    /// Require a signature by this key (PEM, as `ladder sign --public-key-out` and `openssl pkey -pubout` write it).
    #[arg(long, value_name = "FILE")]
    public_key: Option<PathBuf>,
    /// Print the report as JSON.
    #[arg(long)]
    json: bool,
}

/// Verifies, prints the report and returns the exit code.
pub(super) fn run(arguments: &Verify) -> anyhow::Result<u8> {
    let key = arguments.public_key.as_deref().map(PublicKey::read).transpose()?;
    let report = verify::bundle(&arguments.bundle, key.as_ref())?;
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print!("{}", report.text());
    }
    Ok(if report.verified() { VERIFIED } else { NOT_VERIFIED })
}
