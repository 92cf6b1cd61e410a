//! Syncs of logs, whose ends arrive in a mailbox.

use std::os::fd::AsRawFd;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyList;
use ryecore_core::OsFailure;
use ryecore_core::disk::{Synced, start_sync};
use ryecore_core::mailbox::{Mailbox, Token};

use crate::convert::{path, raise_os};

#[pyclass(frozen, module = "ryecore._native")]
struct SyncMailbox(Arc<Mailbox<Synced>>);

#[pymethods]
impl SyncMailbox {
    #[new]
    fn new() -> PyResult<Self> {
        let failed = |errno| raise_os(OsFailure::new("make", "a mailbox", errno));
        Ok(Self(Arc::new(Mailbox::new().map_err(failed)?)))
    }

    #[getter]
    fn fd(&self) -> i32 {
        self.0.fd().as_raw_fd()
    }

    #[pyo3(signature = (log, mark, /))]
    fn start(&self, log: &Bound<'_, PyAny>, mark: &Bound<'_, PyAny>) -> PyResult<Token> {
        start_sync(path(log)?, path(mark)?, Arc::clone(&self.0)).map_err(raise_os)
    }

    fn drain<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(py);
        for (token, synced) in self.0.drain() {
            match synced {
                Ok(is_on_disk) => list.append((token, is_on_disk))?,
                Err(failure) => list.append((token, raise_os(failure).into_value(py)))?,
            }
        }
        Ok(list)
    }
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<SyncMailbox>()
}
