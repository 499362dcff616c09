//! Signs bundles with ed25519, and checks signatures. Keys are in the PEM files that OpenSSL writes and reads.
//!
//! What is signed is the list of a bundle's files ([`manifest`]), which has the digest of each. A private key is never
//! printed, neither in messages nor by `Debug`.

use std::{
    fmt,
    fs::{self, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use base64::{Engine, engine::general_purpose::STANDARD};
use pem::{EncodeConfig, LineEnding, Pem};

use crate::store::{files, manifest};

/// Tag of a PEM file with a private key (PKCS#8).
const PRIVATE: &str = "PRIVATE KEY";
/// Tag of a PEM file with a public key (SubjectPublicKeyInfo).
const PUBLIC: &str = "PUBLIC KEY";
/// The bytes before the key in the SubjectPublicKeyInfo of an ed25519 key (RFC 8410).
const PUBLIC_HEAD: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];
/// Largest key file that is read, in bytes.
const LARGEST_KEY: u64 = 64 << 10;
/// Access rights of a new private key: its owner alone.
const OWNER_ONLY: u32 = 0o600;

/// Why a key can't be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The file can't be read or written.
    #[error("failed to {verb} {path}")]
    File {
        /// The failed operation, as a verb for the message.
        verb: &'static str,
        /// Path of the file that should hold the key.
        path: PathBuf,
        /// The file system's error.
        source: io::Error,
    },
    /// The file holds no key of this kind.
    #[error("{path}: it has no {tag} of ed25519 in PEM; {way_out}")]
    NoKey {
        /// Path of the file that should hold the key.
        path: PathBuf,
        /// The PEM tag that is needed.
        tag: &'static str,
        /// How to make one.
        way_out: &'static str,
    },
    /// A new key would overwrite a file.
    #[error("{0} exists, and a lost key can't be made again; give another name")]
    Exists(PathBuf),
    /// The system has no random numbers.
    #[error("failed to make a key: the system gives no random numbers")]
    NoRandomness,
}

/// A private key of ed25519, which `Debug` doesn't print.
pub struct SigningKey(Ed25519KeyPair);

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SigningKey").field(&self.public().fingerprint()).finish()
    }
}

impl SigningKey {
    /// Reads a private key: PKCS#8 in PEM, as `openssl genpkey -algorithm ed25519` writes it.
    ///
    /// # Errors
    /// [`KeyError`] when the file can't be read or holds no such key.
    pub fn read(path: &Path) -> Result<Self, KeyError> {
        let contents = contents(path, PRIVATE);
        let key = contents.map(|contents| contents.and_then(|der| Ed25519KeyPair::from_pkcs8(&der).ok()))?;
        let way_out = "make one with `ladder sign --new-key FILE`, or `openssl genpkey -algorithm ed25519`";
        key.map(Self).ok_or_else(|| KeyError::NoKey { path: path.into(), tag: PRIVATE, way_out })
    }

    /// Makes a key and writes it to a new file that its owner alone may read.
    ///
    /// # Errors
    /// [`KeyError::Exists`] when the file exists, [`KeyError::File`] when it can't be written.
    pub fn create(path: &Path) -> Result<Self, KeyError> {
        let key = Ed25519KeyPair::generate().map_err(|_| KeyError::NoRandomness)?;
        let der = key.to_pkcs8v1().map_err(|_| KeyError::NoRandomness)?;
        let file = OpenOptions::new().write(true).create_new(true).mode(OWNER_ONLY).open(path);
        let failed = |source: io::Error| match source.kind() {
            io::ErrorKind::AlreadyExists => KeyError::Exists(path.into()),
            _ => KeyError::File { verb: "write", path: path.into(), source },
        };
        let mut file = file.map_err(failed)?;
        file.write_all(encoded(PRIVATE, der.as_ref()).as_bytes()).and_then(|()| file.sync_all()).map_err(failed)?;
        Ok(Self(key))
    }

    /// The public half of the key.
    pub fn public(&self) -> PublicKey {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(self.0.public_key().as_ref());
        PublicKey(bytes)
    }

    /// The signature of some bytes, as the file of a signature has it: base64 and a line break.
    pub fn sign(&self, bytes: &[u8]) -> String {
        format!("{}\n", STANDARD.encode(self.0.sign(bytes)))
    }
}

/// An ed25519 key that anyone may have, and that verifies what its private key signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublicKey([u8; 32]);

impl PublicKey {
    /// Reads a public key in PEM, as `openssl pkey -pubout` writes it.
    ///
    /// # Errors
    /// [`KeyError`] when the file can't be read or holds no such key.
    pub fn read(path: &Path) -> Result<Self, KeyError> {
        let key = contents(path, PUBLIC)?.and_then(|der| der.strip_prefix(&PUBLIC_HEAD)?.try_into().ok());
        let way_out = "`ladder sign --public-key-out FILE` writes one, and so does `openssl pkey -pubout`";
        key.map(Self).ok_or_else(|| KeyError::NoKey { path: path.into(), tag: PUBLIC, way_out })
    }

    /// The key in PEM.
    pub fn pem(&self) -> String {
        encoded(PUBLIC, &self.der())
    }

    /// Writes the key to a file in PEM; an existing file is replaced.
    ///
    /// # Errors
    /// [`KeyError::File`] when it can't be written.
    pub fn write(&self, path: &Path) -> Result<(), KeyError> {
        fs::write(path, self.pem()).map_err(|source| KeyError::File { verb: "write", path: path.into(), source })
    }

    /// SHA-256 of the key in DER, in hexadecimal: `openssl pkey -pubin -in FILE -outform DER | sha256sum` gives it, too.
    pub fn fingerprint(&self) -> String {
        let (sha256, _) = manifest::digest(&self.der()[..]).expect("reading memory can't fail");
        format!("sha256:{sha256}")
    }

    /// Whether a text, as [`SigningKey::sign`] returns it, is this key's signature of some bytes.
    pub fn has_signed(&self, bytes: &[u8], signature: &str) -> bool {
        let signature = signature.strip_suffix('\n').and_then(|text| STANDARD.decode(text).ok());
        let verified = |signature: Vec<u8>| UnparsedPublicKey::new(&ED25519, self.0).verify(bytes, &signature).is_ok();
        signature.is_some_and(verified)
    }

    fn der(&self) -> Vec<u8> {
        [&PUBLIC_HEAD[..], &self.0].concat()
    }
}

/// The content of a PEM file; `None` if it is not PEM or has another tag.
fn contents(path: &Path, tag: &str) -> Result<Option<Vec<u8>>, KeyError> {
    let text = files::read(path, LARGEST_KEY);
    let text = text.map_err(|source| KeyError::File { verb: "read", path: path.into(), source })?;
    Ok(pem::parse(text).ok().filter(|pem| pem.tag() == tag).map(Pem::into_contents))
}

fn encoded(tag: &str, der: &[u8]) -> String {
    pem::encode_config(&Pem::new(tag, der), EncodeConfig::new().set_line_ending(LineEnding::LF))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn new_key() -> (tempfile::TempDir, PathBuf, SigningKey) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key.pem");
        let key = SigningKey::create(&path).unwrap();
        (folder, path, key)
    }

    #[test]
    fn a_new_key_is_readable_by_its_owner_alone_and_never_overwritten() {
        let (_folder, path, key) = new_key();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(SigningKey::read(&path).unwrap().public(), key.public());
        let before = fs::read(&path).unwrap();
        assert!(SigningKey::create(&path).unwrap_err().to_string().contains("give another name"));
        assert_eq!(fs::read(&path).unwrap(), before);
    }

    #[test]
    fn only_the_signed_bytes_have_the_signature() {
        let (_folder, _, key) = new_key();
        let signature = key.sign(b"list");
        assert!(key.public().has_signed(b"list", &signature));
        assert!(!key.public().has_signed(b"lost", &signature));
        assert!(!new_key().2.public().has_signed(b"list", &signature));
        assert!(!key.public().has_signed(b"list", signature.trim_end()));
    }

    #[test]
    fn a_key_of_openssl_signs_and_its_own_verification_accepts_the_signature() {
        let folder = tempfile::tempdir().unwrap();
        let openssl = |arguments: &str| {
            let mut command = std::process::Command::new("openssl");
            command.args(arguments.split_whitespace()).current_dir(folder.path()).output().unwrap()
        };
        assert!(openssl("genpkey -algorithm ed25519 -out key.pem").status.success());
        let key = SigningKey::read(&folder.path().join("key.pem")).unwrap();
        key.public().write(&folder.path().join("key.pub")).unwrap();
        let public = openssl("pkey -in key.pem -pubout").stdout;
        assert_eq!(String::from_utf8(public).unwrap(), key.public().pem());
        fs::write(folder.path().join("list"), "list").unwrap();
        let signature = STANDARD.decode(key.sign(b"list").trim_end()).unwrap();
        fs::write(folder.path().join("signature"), signature).unwrap();
        let verified = openssl("pkeyutl -verify -pubin -inkey key.pub -rawin -in list -sigfile signature");
        assert!(verified.status.success(), "{verified:?}");
    }

    #[test]
    fn a_file_without_a_key_is_named_with_the_way_to_make_one() {
        let (folder, path, key) = new_key();
        let error = PublicKey::read(&path).unwrap_err().to_string();
        assert!(error.contains("key.pem: it has no PUBLIC KEY of ed25519 in PEM"), "{error}");
        let public = folder.path().join("key.pub");
        key.public().write(&public).unwrap();
        assert!(SigningKey::read(&public).unwrap_err().to_string().contains("ladder sign --new-key FILE"));
    }

    #[test]
    fn a_private_key_is_not_printed() {
        let (_folder, path, key) = new_key();
        let secret: String = fs::read_to_string(&path).unwrap().lines().nth(1).unwrap().into();
        let printed = format!("{key:?}");
        assert!(printed.contains("sha256:") && !printed.contains(&secret), "{printed}");
    }
}
