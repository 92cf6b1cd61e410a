//! The pool of warm templates.

use std::ffi::CString;
use std::os::unix::ffi::OsStringExt;
use std::sync::Arc;
use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use ryecore_core::process::{self, Program, TemplateStanding, Warm};

use crate::convert::{os_text, raise, size};
use crate::witness::Witness;

/// KILL needs no grace, and a host that closes must not hang.
const PATIENCE: Duration = Duration::from_secs(5);

type Standing = (&'static str, i32, usize, u64, u64, u32, String);

#[pyclass(frozen, module = "ryecore._native")]
pub struct Pool(Arc<process::Pool>);

#[pymethods]
impl Pool {
    #[new]
    #[pyo3(signature = (memory_bytes, /))]
    fn new(memory_bytes: i64) -> PyResult<Self> {
        let bytes = size("memory_bytes", memory_bytes)?;
        Ok(Self(process::Pool::new(bytes as u64)))
    }

    fn close(&self, py: Python<'_>) -> bool {
        py.detach(|| self.0.close(PATIENCE))
    }

    fn stats(&self, py: Python<'_>) -> Vec<Standing> {
        let standings = py.detach(|| self.0.stats());
        standings.into_iter().map(to_tuple).collect()
    }
}

fn to_tuple(standing: TemplateStanding) -> Standing {
    (
        standing.state,
        standing.pid,
        standing.spares,
        standing.forks,
        standing.memory_bytes,
        standing.failures,
        standing.reason,
    )
}

/// The part of a spec that says how it is warm.
#[derive(FromPyObject)]
pub struct WarmStart<'py>(
    Bound<'py, Pool>,
    usize,
    Bound<'py, PyAny>,
    Bound<'py, PyBytes>,
    Bound<'py, PyBytes>,
    Option<Bound<'py, Witness>>,
);

impl WarmStart<'_> {
    pub fn on(&self, program: &Program) -> PyResult<Warm> {
        let Self(pool, arg_index, arg, script, settings, sealed) = self;
        let arg = CString::new(os_text(arg)?.into_vec())
            .map_err(|_| PyValueError::new_err("an argument contains a NUL character"))?;
        let (script, settings) = (script.as_bytes(), settings.as_bytes());
        let sealed = sealed.as_ref().map(|witness| witness.get().shared());
        let pool = &pool.get().0;
        Warm::new(pool, program, *arg_index, arg, script, settings, sealed).map_err(raise)
    }
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Pool>()
}
