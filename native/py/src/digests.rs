use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use ryecore_core::digest::{self, to_hex};
use ryecore_core::tree::{self, Filter, Kind};

use crate::convert::{path, paths, raise};

type Content<'py> = (Bound<'py, PyBytes>, String);

/// Below this many bytes, hashing takes less than giving up the interpreter's lock.
const HASHED_AT_ONCE: usize = 2048;

#[pyfunction]
#[pyo3(signature = (*parts))]
fn sha256_hex(py: Python<'_>, parts: Vec<Bound<'_, PyBytes>>) -> String {
    let parts: Vec<&[u8]> = parts.iter().map(|part| part.as_bytes()).collect();
    let size: usize = parts.iter().map(|part| part.len()).sum();
    let digest = if size < HASHED_AT_ONCE {
        digest::sha256_of(&parts)
    } else {
        py.detach(|| digest::sha256_of(&parts))
    };
    to_hex(&digest)
}

#[pyfunction]
#[pyo3(signature = (path, /))]
fn sha256_file(py: Python<'_>, path: &Bound<'_, PyAny>) -> PyResult<String> {
    let path = self::path(path)?;
    let digest = py.detach(|| digest::sha256_file(&path));
    Ok(to_hex(&digest.map_err(raise)?))
}

#[pyfunction]
#[pyo3(signature = (path, max_bytes, /))]
fn read_digest<'py>(
    py: Python<'py>,
    path: &Bound<'py, PyAny>,
    max_bytes: u64,
) -> PyResult<Content<'py>> {
    let path = self::path(path)?;
    let read = py.detach(|| digest::read_digest(&path, max_bytes));
    let (bytes, digest) = read.map_err(raise)?;
    Ok((PyBytes::new(py, &bytes), to_hex(&digest)))
}

#[pyfunction]
#[pyo3(signature = (paths, max_bytes, /))]
fn read_files<'py>(
    py: Python<'py>,
    paths: &Bound<'py, PyAny>,
    max_bytes: u64,
) -> PyResult<Vec<Content<'py>>> {
    let paths = self::paths(paths)?;
    let read = py.detach(|| digest::read_files(&paths, max_bytes));
    let contents = read.map_err(raise)?.into_iter();
    Ok(contents
        .map(|(bytes, digest)| (PyBytes::new(py, &bytes), to_hex(&digest)))
        .collect())
}

fn rel(bytes: Vec<u8>) -> OsString {
    OsString::from_vec(bytes)
}

#[pyfunction]
#[pyo3(signature = (root, extensions, exclude_dirs, recursive, /))]
fn list_tree(
    py: Python<'_>,
    root: &Bound<'_, PyAny>,
    extensions: Option<Vec<String>>,
    exclude_dirs: Vec<String>,
    recursive: bool,
) -> PyResult<Vec<(OsString, &'static str)>> {
    let (root, filter) = (
        path(root)?,
        Filter::new(extensions, exclude_dirs, recursive),
    );
    let entries = py
        .detach(|| tree::list_tree(&root, &filter))
        .map_err(raise)?;
    let name = |kind| match kind {
        Kind::File => "file",
        Kind::Symlink => "symlink",
    };
    Ok(entries
        .into_iter()
        .map(|entry| (rel(entry.rel), name(entry.kind)))
        .collect())
}

#[pyfunction]
#[pyo3(signature = (one, other, /))]
fn exchange_files(one: &Bound<'_, PyAny>, other: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(tree::exchange_files(&path(one)?, &path(other)?))
}

#[pyfunction]
#[pyo3(signature = (root, extensions, exclude_dirs, recursive, /))]
fn stat_tree(
    py: Python<'_>,
    root: &Bound<'_, PyAny>,
    extensions: Option<Vec<String>>,
    exclude_dirs: Vec<String>,
    recursive: bool,
) -> PyResult<String> {
    let (root, filter) = (
        path(root)?,
        Filter::new(extensions, exclude_dirs, recursive),
    );
    let digest = py
        .detach(|| tree::stat_tree(&root, &filter))
        .map_err(raise)?;
    Ok(to_hex(&digest))
}

#[pyfunction]
#[pyo3(signature = (root, left_out, /))]
fn stat_beside(py: Python<'_>, root: &Bound<'_, PyAny>, left_out: Vec<String>) -> PyResult<String> {
    let root = path(root)?;
    let left_out = left_out.into_iter().map(String::into_bytes).collect();
    let digest = py
        .detach(|| tree::stat_beside(&root, &left_out))
        .map_err(raise)?;
    Ok(to_hex(&digest))
}

#[pyfunction]
#[pyo3(signature = (root, extensions, exclude_dirs, recursive, /))]
fn digest_tree(
    py: Python<'_>,
    root: &Bound<'_, PyAny>,
    extensions: Option<Vec<String>>,
    exclude_dirs: Vec<String>,
    recursive: bool,
) -> PyResult<(String, Vec<(OsString, String)>)> {
    let (root, filter) = (
        path(root)?,
        Filter::new(extensions, exclude_dirs, recursive),
    );
    let tree = py
        .detach(|| tree::digest_tree(&root, &filter))
        .map_err(raise)?;
    let files = tree
        .files
        .into_iter()
        .map(|(name, digest)| (rel(name), to_hex(&digest)));
    Ok((to_hex(&tree.digest), files.collect()))
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(sha256_hex, module)?)?;
    module.add_function(wrap_pyfunction!(sha256_file, module)?)?;
    module.add_function(wrap_pyfunction!(read_digest, module)?)?;
    module.add_function(wrap_pyfunction!(read_files, module)?)?;
    module.add_function(wrap_pyfunction!(list_tree, module)?)?;
    module.add_function(wrap_pyfunction!(exchange_files, module)?)?;
    module.add_function(wrap_pyfunction!(stat_tree, module)?)?;
    module.add_function(wrap_pyfunction!(stat_beside, module)?)?;
    module.add_function(wrap_pyfunction!(digest_tree, module)?)
}
