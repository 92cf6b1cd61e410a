//! The pool of warm templates.

use std::ffi::CString;
use std::os::unix::ffi::OsStringExt;
use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use ryecore_core::process::{self, Program, TemplateSpec, TemplateStats, Warm};

use crate::convert::{os_text, raise, size};
use crate::witness::Witness;

/// KILL needs no grace, and a host that closes must not hang.
const PATIENCE: Duration = Duration::from_secs(5);

#[pyclass(frozen, module = "ryecore._native")]
pub struct Pool(process::Pool);

impl Pool {
    pub fn with_bytes(bytes: u64) -> Self {
        Self(process::Pool::new(bytes))
    }
}

#[pymethods]
impl Pool {
    #[new]
    #[pyo3(signature = (memory_bytes, /))]
    fn new(memory_bytes: i64) -> PyResult<Self> {
        let bytes = size("memory_bytes", memory_bytes)?;
        Ok(Self::with_bytes(bytes as u64))
    }

    fn close(&self, py: Python<'_>) -> bool {
        py.detach(|| self.0.close(PATIENCE))
    }

    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let stats = py.detach(|| self.0.stats());
        stats.into_iter().map(|one| stats_dict(py, one)).collect()
    }
}

/// The fields of a `ryecore.lillux.processes.TemplateStats`, by name.
fn stats_dict(py: Python<'_>, stats: TemplateStats) -> PyResult<Bound<'_, PyDict>> {
    let fields = PyDict::new(py);
    fields.set_item(intern!(py, "state"), stats.state)?;
    fields.set_item(intern!(py, "pid"), stats.pid)?;
    fields.set_item(intern!(py, "spares"), stats.spares)?;
    fields.set_item(intern!(py, "forks"), stats.forks)?;
    fields.set_item(intern!(py, "memory_bytes"), stats.memory_bytes)?;
    fields.set_item(intern!(py, "failures"), stats.failures)?;
    fields.set_item(intern!(py, "reason"), stats.reason)?;
    Ok(fields)
}

/// See `first_use`.
pub fn fill_stats_cells(py: Python<'_>) -> PyResult<()> {
    stats_dict(py, TemplateStats::default()).map(drop)
}

/// A `ryecore.lillux.processes.WarmStart`, read attribute by attribute.
#[derive(FromPyObject)]
pub struct WarmStart<'py> {
    pool: WarmPool<'py>,
    arg_index: usize,
    arg: Bound<'py, PyAny>,
    program: Bound<'py, PyBytes>,
    settings: Bound<'py, PyBytes>,
    sealed: Option<WitnessRef<'py>>,
}

/// A `ryecore.lillux.processes.WarmPool`.
#[derive(FromPyObject)]
struct WarmPool<'py> {
    #[pyo3(attribute("_native"))]
    native: Bound<'py, Pool>,
}

/// A `ryecore.lillux.witness.Witness`.
#[derive(FromPyObject)]
struct WitnessRef<'py> {
    #[pyo3(attribute("_native"))]
    native: Bound<'py, Witness>,
}

impl WarmStart<'_> {
    pub fn on(&self, program: &Program) -> PyResult<Warm> {
        let arg = CString::new(os_text(&self.arg)?.into_vec())
            .map_err(|_| PyValueError::new_err("an argument contains a NUL character"))?;
        let sealed = self.sealed.as_ref();
        let spec = TemplateSpec {
            arg_index: self.arg_index,
            arg,
            program: self.program.as_bytes(),
            settings: self.settings.as_bytes(),
            sealed: sealed.map(|witness| witness.native.get().shared()),
        };
        let pool = &self.pool.native.get().0;
        pool.start(program, spec).map_err(raise)
    }
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Pool>()
}
