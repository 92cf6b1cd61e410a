use std::ffi::OsString;
use std::os::fd::AsRawFd;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use ryecore_core::watch;

use crate::convert::{duration, paths, raise};

/// The time between two checks for signals of the calling thread.
const SLICE: Duration = Duration::from_millis(50);

#[pyclass(frozen, module = "ryecore._native")]
struct Watcher(Mutex<Option<watch::Watcher>>);

impl Watcher {
    fn lock(&self) -> MutexGuard<'_, Option<watch::Watcher>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn closed() -> PyErr {
    PyValueError::new_err("the watcher is closed")
}

#[pymethods]
impl Watcher {
    #[new]
    #[pyo3(signature = (paths, /))]
    fn new(paths: &Bound<'_, PyAny>) -> PyResult<Self> {
        let watcher = watch::Watcher::new(self::paths(paths)?).map_err(raise)?;
        Ok(Self(Mutex::new(Some(watcher))))
    }

    #[getter]
    fn fd(&self) -> PyResult<i32> {
        self.lock()
            .as_ref()
            .map(|watcher| watcher.fd().as_raw_fd())
            .ok_or_else(closed)
    }

    fn changes(&self) -> PyResult<Vec<OsString>> {
        let changed = self
            .lock()
            .as_mut()
            .ok_or_else(closed)?
            .changes()
            .map_err(raise)?;
        Ok(changed.into_iter().map(Into::into).collect())
    }

    #[pyo3(signature = (timeout_s, /))]
    fn wait(&self, py: Python<'_>, timeout_s: Option<f64>) -> PyResult<Vec<OsString>> {
        let patience = timeout_s.map_or(Ok(Duration::MAX), |time| duration("timeout_s", time))?;
        let begun = Instant::now();
        loop {
            let left = patience.saturating_sub(begun.elapsed());
            let waited = py.detach(|| {
                let mut watcher = self.lock();
                watcher
                    .as_mut()
                    .map(|watcher| watcher.wait(left.min(SLICE)))
            });
            let changed = waited.ok_or_else(closed)?.map_err(raise)?;
            if !changed.is_empty() || left.is_zero() {
                return Ok(changed.into_iter().map(Into::into).collect());
            }
            py.check_signals()?;
        }
    }

    fn close(&self) {
        let watcher = self.lock().take();
        // The kernel lets go of a watch after all processors have passed a point at which nobody
        // reads it any more, which takes about 10 ms: nobody waits for that. Where no thread can be
        // made, its closure is dropped here, and with it the watcher.
        let _ = std::thread::Builder::new().spawn(move || drop(watcher));
    }
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Watcher>()
}
