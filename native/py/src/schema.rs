use std::time::Duration;

use pyo3::prelude::*;
use ryecore_core::schema::{Budget, Schema};

use crate::convert::raise;

#[pyclass(frozen, module = "ryecore._native")]
struct SchemaValidator(Schema);

#[pymethods]
impl SchemaValidator {
    #[new]
    #[pyo3(signature = (schema_json, check_formats, /))]
    fn new(py: Python<'_>, schema_json: &str, check_formats: bool) -> PyResult<Self> {
        py.detach(|| Schema::new(schema_json, check_formats))
            .map(Self)
            .map_err(raise)
    }

    #[pyo3(signature = (instance_json, max_steps, max_ms, /))]
    fn failures(
        &self,
        py: Python<'_>,
        instance_json: &str,
        max_steps: u64,
        max_ms: u64,
    ) -> PyResult<Option<Vec<(String, String)>>> {
        let budget = Budget {
            steps: max_steps,
            time: Duration::from_millis(max_ms),
        };
        let found = py
            .detach(|| self.0.failures(instance_json, budget))
            .map_err(raise)?;
        Ok(found.map(|failures| {
            let pairs = failures.into_iter();
            pairs.map(|one| (one.path, one.message)).collect()
        }))
    }
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<SchemaValidator>()
}
