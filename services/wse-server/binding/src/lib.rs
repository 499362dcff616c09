//! The WSE engine for Python: types in, types out, the interpreter released while the engine works. No logic.
mod names;
mod values;

/// The module.
#[pyo3::pymodule]
mod _wse_accel {
    #[pymodule_export]
    #[allow(non_upper_case_globals)]
    const __version__: &str = env!("CARGO_PKG_VERSION");
}
