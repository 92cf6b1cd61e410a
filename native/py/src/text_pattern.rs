use pyo3::prelude::*;
use ryecore_core::text_pattern;

use crate::convert::raise;

#[pyclass(frozen, module = "ryecore._native")]
struct TextPattern(text_pattern::TextPattern);

#[pymethods]
impl TextPattern {
    #[new]
    #[pyo3(signature = (pattern, /))]
    fn new(py: Python<'_>, pattern: &str) -> PyResult<Self> {
        py.detach(|| text_pattern::TextPattern::new(pattern))
            .map(Self)
            .map_err(raise)
    }

    #[pyo3(signature = (text, max_steps, /))]
    fn is_match(&self, py: Python<'_>, text: &str, max_steps: u64) -> Option<bool> {
        py.detach(|| self.0.is_match(text, max_steps))
    }
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<TextPattern>()
}
