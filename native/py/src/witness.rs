use std::ffi::OsString;
use std::sync::Arc;

use pyo3::prelude::*;
use ryecore_core::digest::from_hex;
use ryecore_core::tree::Filter;
use ryecore_core::witness::{SeenTree, Witness as Core};

use crate::convert::{self, path, paths, raise};

/// A `ryecore.lillux.witness.TreeStat`, read attribute by attribute.
#[derive(FromPyObject)]
pub struct TreeStat<'py> {
    root: Bound<'py, PyAny>,
    filter: TreeFilter,
    fingerprint: String,
}

/// A `ryecore.lillux.digests.TreeFilter`.
#[derive(FromPyObject)]
struct TreeFilter {
    extensions: Option<Vec<String>>,
    exclude_dirs: Vec<String>,
    recursive: bool,
}

#[pyclass(frozen, module = "ryecore._native")]
pub struct Witness(Arc<Core>);

impl Witness {
    /// One that holds whatever changes.
    pub fn of_nothing() -> PyResult<Self> {
        Core::new(Vec::new(), Vec::new(), Vec::new())
            .map(|core| Self(Arc::new(core)))
            .map_err(raise)
    }

    pub fn shared(&self) -> Arc<Core> {
        Arc::clone(&self.0)
    }
}

#[pymethods]
impl Witness {
    #[new]
    #[pyo3(signature = (files, absent, trees, /))]
    fn new(
        files: Vec<(Bound<'_, PyAny>, String)>,
        absent: &Bound<'_, PyAny>,
        trees: Vec<TreeStat<'_>>,
    ) -> PyResult<Self> {
        let file = |(path, hex): (Bound<'_, PyAny>, String)| -> PyResult<_> {
            Ok((convert::path(&path)?, from_hex(&hex).map_err(raise)?))
        };
        let tree = |TreeStat {
                        root,
                        filter,
                        fingerprint,
                    }: TreeStat<'_>|
         -> PyResult<_> {
            let filter = Filter::new(filter.extensions, filter.exclude_dirs, filter.recursive);
            let fingerprint = from_hex(&fingerprint).map_err(raise)?;
            Ok(SeenTree::new(path(&root)?, filter, fingerprint))
        };
        let files = files.into_iter().map(file).collect::<PyResult<_>>()?;
        let trees = trees.into_iter().map(tree).collect::<PyResult<_>>()?;
        Core::new(files, paths(absent)?, trees)
            .map(|core| Self(Arc::new(core)))
            .map_err(raise)
    }

    fn holds(&self, py: Python<'_>) -> bool {
        py.detach(|| self.0.broken().is_none())
    }

    fn broken(&self, py: Python<'_>) -> Option<OsString> {
        py.detach(|| self.0.broken().map(Into::into))
    }
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Witness>()
}
