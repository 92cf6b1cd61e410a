//! Between Python's values and the core's: texts of the system, times, errors.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use ryecore_core::{Error, OsFailure};

/// OSError with errno and filename, or ValueError.
pub fn raise(error: Error) -> PyErr {
    match error {
        Error::Invalid(message) => PyValueError::new_err(message),
        Error::Os(failure) => raise_os(failure),
    }
}

pub fn raise_os(failure: OsFailure) -> PyErr {
    let text = format!("cannot {}: {}", failure.step, failure.reason());
    PyOSError::new_err((failure.errno, text, failure.path.into_os_string()))
}

/// ASCII, which is nearly every text, without the detour through the system's encoding.
fn ascii(value: &Bound<'_, PyAny>) -> Option<OsString> {
    let text = value.cast::<PyString>().ok()?.to_str().ok()?;
    text.is_ascii().then(|| text.into())
}

/// A text in the system's encoding.
pub fn os_text(value: &Bound<'_, PyAny>) -> PyResult<OsString> {
    ascii(value).map_or_else(|| value.extract(), Ok)
}

pub fn os_texts(values: &Bound<'_, PyAny>) -> PyResult<Vec<OsString>> {
    values.try_iter()?.map(|value| os_text(&value?)).collect()
}

/// The names and values of a mapping.
pub fn os_pairs(values: &Bound<'_, PyAny>) -> PyResult<Vec<(OsString, OsString)>> {
    if let Ok(values) = values.cast::<PyDict>() {
        let pairs = values.iter();
        return pairs
            .map(|(name, value)| Ok((os_text(&name)?, os_text(&value)?)))
            .collect();
    }
    let pairs = values.call_method0(intern!(values.py(), "items"))?;
    let pairs = pairs.try_iter()?.map(|pair| {
        let (name, value): (Bound<'_, PyAny>, Bound<'_, PyAny>) = pair?.extract()?;
        Ok((os_text(&name)?, os_text(&value)?))
    });
    pairs.collect()
}

/// A text, or anything with `__fspath__`.
pub fn path(value: &Bound<'_, PyAny>) -> PyResult<PathBuf> {
    ascii(value).map_or_else(|| value.extract(), |text| Ok(text.into()))
}

pub fn paths(values: &Bound<'_, PyAny>) -> PyResult<Vec<PathBuf>> {
    values.try_iter()?.map(|value| path(&value?)).collect()
}

/// A duration that isn't negative; infinity becomes the longest one.
pub fn duration(name: &str, seconds: f64) -> PyResult<Duration> {
    if seconds.is_nan() || seconds < 0.0 {
        let message = format!("{name} is {seconds}, and must not be negative");
        return Err(PyValueError::new_err(message));
    }
    Ok(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX))
}

/// A size that isn't negative.
pub fn size(name: &str, bytes: i64) -> PyResult<usize> {
    usize::try_from(bytes)
        .map_err(|_| PyValueError::new_err(format!("{name} is {bytes}, and must not be negative")))
}
