//! Creates and verifies JSON Web Tokens.

use pyo3::{prelude::*, types::PyDict};
use serde_json::value::RawValue;
use wse_utilities::tokens::{self, SignatureAlgorithm, TokenVerifier};

use super::{
    encode::{Encoder, Format},
    value_error, with_names,
};
use crate::values::{Decoder, Integers, Malformed};

/// Creates a signed JSON Web Token. `secret` is the secret of HS256 (at least 32 bytes), or a private key in PEM for
/// RS256 and ES256. `key_id` becomes the header's `kid`.
///
/// Raises ValueError if the algorithm is unknown, the key is too short or of another type, or the token would have more
/// than 8192 bytes.
#[pyfunction]
#[pyo3(signature = (claims, secret, algorithm = "HS256", key_id = None))]
pub(crate) fn rust_jwt_encode(
    claims: &Bound<'_, PyDict>,
    secret: &[u8],
    algorithm: &str,
    key_id: Option<&str>,
) -> PyResult<String> {
    let signature = SignatureAlgorithm::named(algorithm).map_err(value_error)?;
    Encoder::encode(claims, Format::Json, |claims| tokens::make(claims, secret, signature, key_id))?
        .map_err(value_error)
}

/// The claims of a JSON Web Token; None if it isn't valid. The claim `exp` is required and `nbf` is checked, with 30
/// seconds of tolerance. `issuer` and `audience` are required if they are given.
///
/// Tokens signed with `secret` must have the `kid` that `key_id` gives; those signed with `previous_secret` may have
/// any.
///
/// Raises ValueError if the algorithm is unknown, or a key is too short or of another type.
#[pyfunction]
#[pyo3(signature = (
    token, secret, algorithm = "HS256", issuer = None, audience = None, previous_secret = None, key_id = None
))]
// The arguments and their order are the reference's.
#[allow(clippy::too_many_arguments)]
pub(crate) fn rust_jwt_decode<'py>(
    py: Python<'py>,
    token: &str,
    secret: &[u8],
    algorithm: &str,
    issuer: Option<&str>,
    audience: Option<&str>,
    previous_secret: Option<&[u8]>,
    key_id: Option<&str>,
) -> PyResult<Option<Bound<'py, PyDict>>> {
    let signature = SignatureAlgorithm::named(algorithm).map_err(value_error)?;
    let expected = TokenVerifier { key: secret, signature, issuer, audience, previous_key: previous_secret, key_id };
    let Some(claims) = expected.read::<Box<RawValue>>(token).map_err(value_error)? else { return Ok(None) };
    let decoded = with_names(|names| Decoder::new(py, names, Integers::Exact).json_value(claims.get().as_bytes()));
    // Claims that aren't an object count as no claims: `None`.
    decoded.map_err(|Malformed(why)| value_error(why)).map(|claims| claims.cast_into().ok())
}
