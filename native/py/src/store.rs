use pyo3::prelude::*;
use pyo3::types::PyBytes;
use ryecore_core::digest::to_hex;
use ryecore_core::store::Store;

use crate::convert::{path, raise};

#[pyclass(frozen, module = "ryecore._native")]
struct ContentStore(Store);

#[pymethods]
impl ContentStore {
    #[new]
    #[pyo3(signature = (root, durable, /))]
    fn new(py: Python<'_>, root: &Bound<'_, PyAny>, durable: bool) -> PyResult<Self> {
        let root = path(root)?;
        py.detach(|| Store::open(root, durable))
            .map(Self)
            .map_err(raise)
    }

    #[pyo3(signature = (content, /))]
    fn put(&self, py: Python<'_>, content: &[u8]) -> PyResult<String> {
        let digest = py.detach(|| self.0.put(content)).map_err(raise)?;
        Ok(to_hex(&digest))
    }

    #[pyo3(signature = (digest, /))]
    fn get<'py>(&self, py: Python<'py>, digest: &str) -> PyResult<Bound<'py, PyBytes>> {
        let content = py.detach(|| self.0.get(digest)).map_err(raise)?;
        Ok(PyBytes::new(py, &content))
    }

    #[pyo3(signature = (digest, /))]
    fn has(&self, digest: &str) -> PyResult<bool> {
        self.0.has(digest).map_err(raise)
    }

    #[pyo3(signature = (digest, /))]
    fn verify(&self, py: Python<'_>, digest: &str) -> PyResult<bool> {
        py.detach(|| self.0.verify(digest)).map_err(raise)
    }
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<ContentStore>()
}
