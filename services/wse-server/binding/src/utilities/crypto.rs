//! Encryption with AES-GCM, and keys derived by ECDH.

use pyo3::{
    exceptions::{PyRuntimeError, PyValueError},
    prelude::*,
    types::PyBytes,
};
use wse_utilities::crypto::{self, CryptoError, KEY_BYTES, PRIVATE_BYTES};

use super::{detached_if_long, value_error};

fn to_exception(error: CryptoError) -> PyErr {
    match error {
        CryptoError::Library => PyRuntimeError::new_err(error.to_string()),
        error => value_error(error),
    }
}

/// Checks that `bytes` has exactly `N` bytes.
fn exactly<'a, const N: usize>(name: &str, bytes: &'a [u8]) -> PyResult<&'a [u8; N]> {
    let given = bytes.len();
    bytes.try_into().map_err(|_| PyValueError::new_err(format!("{name} has {given} bytes: give {N}")))
}

/// Encrypts with AES-256-GCM. Returns a random 12-byte IV, the ciphertext and the 16-byte tag.
///
/// Raises ValueError if the key doesn't have 32 bytes.
#[pyfunction]
pub(crate) fn rust_aes_gcm_encrypt<'py>(
    py: Python<'py>,
    key: &[u8],
    plaintext: &[u8],
) -> PyResult<Bound<'py, PyBytes>> {
    let key: &[u8; KEY_BYTES] = exactly("key", key)?;
    let sealed = detached_if_long(py, plaintext.len(), || crypto::seal(key, plaintext)).map_err(to_exception)?;
    Ok(PyBytes::new(py, &sealed))
}

/// Decrypts what `rust_aes_gcm_encrypt()` returned.
///
/// Raises ValueError if the data was encrypted with another key, has been changed or is too short.
#[pyfunction]
pub(crate) fn rust_aes_gcm_decrypt<'py>(py: Python<'py>, key: &[u8], data: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
    let key: &[u8; KEY_BYTES] = exactly("key", key)?;
    let plain = detached_if_long(py, data.len(), || crypto::open(key, data)).map_err(to_exception)?;
    Ok(PyBytes::new(py, &plain))
}

/// Generates a key pair of P-256: the private key (32 bytes) and the public key (65 bytes, uncompressed).
#[pyfunction]
pub(crate) fn rust_ecdh_generate_keypair(py: Python<'_>) -> PyResult<(Bound<'_, PyBytes>, Bound<'_, PyBytes>)> {
    let (private, public) = py.detach(crypto::generate).map_err(to_exception)?;
    Ok((PyBytes::new(py, &private), PyBytes::new(py, &public)))
}

/// Derives the 32-byte encryption key that the owners of the two keys share, by ECDH on P-256 and HKDF-SHA256.
///
/// Raises ValueError if one of the two isn't a valid key.
#[pyfunction]
pub(crate) fn rust_ecdh_derive_shared_secret<'py>(
    py: Python<'py>,
    private_key: &[u8],
    peer_public_key: &[u8],
) -> PyResult<Bound<'py, PyBytes>> {
    let private: &[u8; PRIVATE_BYTES] = exactly("private_key", private_key)?;
    let key = py.detach(|| crypto::derive(private, peer_public_key)).map_err(to_exception)?;
    Ok(PyBytes::new(py, &key))
}
