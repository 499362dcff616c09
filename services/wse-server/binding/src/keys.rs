//! Converts the constructor's JWT arguments (a secret, its predecessor, a JSON Web Key Set) into keys of the engine.

use pyo3::{exceptions::PyValueError, prelude::*};
use wse_engine::{JwtAlgorithm, JwtKey, KeyError};

/// A JSON Web Key Set, as a Python `str` or `bytes`.
#[derive(FromPyObject)]
pub(crate) enum JwkSetDocument {
    Text(String),
    Bytes(Vec<u8>),
}

impl JwkSetDocument {
    pub(crate) fn keys(&self) -> PyResult<Vec<JwtKey>> {
        let bytes = match self {
            Self::Text(text) => text.as_bytes(),
            Self::Bytes(bytes) => bytes,
        };
        JwtKey::set(bytes).map_err(to_exception("jwt_keys"))
    }
}

/// The arguments of the constructor that concern keys.
pub(crate) struct JwtArguments<'a> {
    pub(crate) secret: Option<Vec<u8>>,
    pub(crate) previous_secret: Option<Vec<u8>>,
    pub(crate) key_id: Option<String>,
    pub(crate) algorithm: Option<&'a str>,
    pub(crate) private_key: Option<Vec<u8>>,
    pub(crate) set: Option<JwkSetDocument>,
}

impl JwtArguments<'_> {
    /// All keys, checked. `None` if there are none: tokens are then not checked.
    pub(crate) fn keys(self) -> PyResult<Option<Vec<JwtKey>>> {
        let name = self.algorithm.unwrap_or("HS256");
        let algorithm = JwtAlgorithm::named(name).ok_or_else(|| {
            PyValueError::new_err(format!("jwt_algorithm is {name:?}: give 'HS256', 'RS256' or 'ES256'"))
        })?;
        let mut keys = match &self.set {
            Some(set) => set.keys()?,
            None => Vec::new(),
        };
        match &self.secret {
            Some(secret) => {
                let key = JwtKey::for_algorithm(algorithm, secret).map_err(to_exception("jwt_secret"))?;
                if let Some(private) = &self.private_key {
                    key.check_private(private).map_err(to_exception("jwt_private_key"))?;
                }
                keys.push(key.with_id(self.key_id));
                if let Some(previous) = &self.previous_secret {
                    // As in the reference, the previous key is tried for every token, regardless of the key id in the
                    // token.
                    let previous = JwtKey::for_algorithm(algorithm, previous);
                    keys.push(previous.map_err(to_exception("jwt_previous_secret"))?);
                }
            }
            None => self.refuse_without_secret()?,
        }
        Ok((!keys.is_empty()).then_some(keys))
    }

    /// An argument that belongs to a secret is an error without one. Otherwise it would look as if tokens were checked.
    fn refuse_without_secret(&self) -> PyResult<()> {
        let given = [
            ("jwt_previous_secret", self.previous_secret.is_some()),
            ("jwt_key_id", self.key_id.is_some()),
            ("jwt_algorithm", self.algorithm.is_some()),
            ("jwt_private_key", self.private_key.is_some()),
        ];
        match given.into_iter().find(|(_, is_given)| *is_given) {
            Some((name, _)) => Err(PyValueError::new_err(format!("{name} is given without jwt_secret: give both"))),
            None => Ok(()),
        }
    }
}

fn to_exception(name: &'static str) -> impl Fn(KeyError) -> PyErr {
    move |error| PyValueError::new_err(format!("{name}: {error}"))
}
