use pyo3::prelude::*;
use ryecore_core::schema::Schema;

use crate::convert::raise;

#[pyclass(frozen, module = "ryecore._native")]
struct SchemaValidator(Schema);

#[pymethods]
impl SchemaValidator {
    #[new]
    #[pyo3(signature = (schema_json, /))]
    fn new(py: Python<'_>, schema_json: &str) -> PyResult<Self> {
        py.detach(|| Schema::new(schema_json))
            .map(Self)
            .map_err(raise)
    }

    #[pyo3(signature = (instance_json, /))]
    fn failures(&self, py: Python<'_>, instance_json: &str) -> PyResult<Vec<(String, String)>> {
        let found = py
            .detach(|| self.0.failures(instance_json))
            .map_err(raise)?;
        Ok(found
            .into_iter()
            .map(|failure| (failure.path, failure.message))
            .collect())
    }
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<SchemaValidator>()
}
