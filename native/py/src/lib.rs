//! `ryecore._native`: registers the functions and classes of its modules.

use pyo3::exceptions::PyImportError;
use pyo3::ffi;
use pyo3::prelude::*;

mod clock;
mod convert;
mod digests;
mod first_use;
mod json_text;
mod processes;
mod runs;
mod schema;
mod signing;
mod store;
mod syncs;
mod text_pattern;
mod warm;
mod watch;
mod witness;

/// One native thread serves the process; its mailboxes and hooks belong to one interpreter.
fn refuse_subinterpreters() -> PyResult<()> {
    // SAFETY: an import holds the interpreter's lock, so there is a current interpreter.
    let interpreter = unsafe { ffi::PyInterpreterState_GetID(ffi::PyInterpreterState_Get()) };
    if interpreter == 0 {
        return Ok(());
    }
    Err(PyImportError::new_err(
        "ryecore works in the main interpreter alone, not in a subinterpreter: use threads, or a \
         process of its own",
    ))
}

#[pymodule(name = "_native")]
fn native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    refuse_subinterpreters()?;
    clock::register(module)?;
    digests::register(module)?;
    json_text::register(module)?;
    processes::register(module)?;
    runs::register(module)?;
    schema::register(module)?;
    signing::register(module)?;
    store::register(module)?;
    syncs::register(module)?;
    text_pattern::register(module)?;
    warm::register(module)?;
    watch::register(module)?;
    witness::register(module)?;
    first_use::fill_cells(module.py())
}
