use pyo3::prelude::*;
use ryecore_core::clock;

#[pyfunction]
fn now_ns() -> i64 {
    clock::now_ns()
}

#[pyfunction]
fn monotonic_ns() -> i64 {
    clock::monotonic_ns()
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(now_ns, module)?)?;
    module.add_function(wrap_pyfunction!(monotonic_ns, module)?)
}
