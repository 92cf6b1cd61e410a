//! `ryecore._native`: registers what the modules of the same names make.

use pyo3::prelude::*;

mod clock;
mod convert;
mod digests;
mod processes;
mod runs;
mod schema;
mod store;
mod watch;
mod witness;

#[pymodule(name = "_native")]
fn native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    clock::register(module)?;
    digests::register(module)?;
    processes::register(module)?;
    runs::register(module)?;
    schema::register(module)?;
    store::register(module)?;
    watch::register(module)?;
    witness::register(module)
}
