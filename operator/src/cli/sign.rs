//! `ladder sign`: makes keys, and signs bundles.

use std::path::PathBuf;

use clap::Args;

use crate::{
    sign::{List, sign},
    signing::SigningKey,
};

/// Arguments of `ladder sign`.
#[derive(Debug, Args)]
pub(super) struct Sign {
    /// The bundle, a folder in results/ whose run has ended.
    #[arg(required_unless_present = "new_key")]
    bundle: Option<PathBuf>,
    /// The private key: ed25519, PKCS#8 in PEM (`openssl genpkey -algorithm ed25519` writes one). It is never printed.
    #[arg(long, value_name = "FILE", required_unless_present = "new_key")]
    key: Option<PathBuf>,
    /// Make a private key and write it to this new file, which its owner alone may read.
    #[arg(long, value_name = "FILE", conflicts_with = "key")]
    new_key: Option<PathBuf>,
    /// Write the public key to this file, in PEM, for those who verify.
    #[arg(long, value_name = "FILE")]
    public_key_out: Option<PathBuf>,
}

/// Makes or reads the key, signs the bundle if there is one, and prints what was done.
pub(super) fn run(arguments: &Sign) -> anyhow::Result<u8> {
    let key = match (&arguments.new_key, &arguments.key) {
        (Some(path), _) => {
            let key = SigningKey::create(path)?;
            println!("{}: new key {}", path.display(), key.public().fingerprint());
            key
        }
        (None, Some(path)) => SigningKey::read(path)?,
        (None, None) => anyhow::bail!("no key; give --key or --new-key"),
    };
    if let Some(path) = &arguments.public_key_out {
        key.public().write(path)?;
    }
    if let Some(bundle) = &arguments.bundle {
        let list = sign(bundle, &key)?;
        if list == List::WrittenNow {
            println!(
                "{}: it had no MANIFEST.sha256, which is written now; whether files were altered before can't be said",
                bundle.display()
            );
        }
        println!("{}: signed by {}", bundle.display(), key.public().fingerprint());
    }
    Ok(0)
}
