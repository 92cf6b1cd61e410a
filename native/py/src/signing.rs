use pyo3::prelude::*;
use pyo3::types::PyBytes;
use ryecore_core::signing;

#[pyclass(frozen, module = "ryecore._native")]
struct Signer(signing::Signer);

#[pymethods]
impl Signer {
    #[new]
    #[pyo3(signature = (seed, /))]
    fn new(seed: &[u8]) -> PyResult<Self> {
        Ok(Self(signing::Signer::new(seed.try_into()?)))
    }

    fn public<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.public())
    }

    #[pyo3(signature = (message, /))]
    fn sign<'py>(&self, py: Python<'py>, message: &[u8]) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.sign(message))
    }

    #[pyo3(signature = (message, /))]
    fn sign_base64(&self, message: &[u8]) -> String {
        self.0.sign_base64(message)
    }
}

#[pyfunction]
#[pyo3(signature = (public, signature, message, /))]
fn verify_signature(public: &[u8], signature: &[u8], message: &[u8]) -> bool {
    signing::verifies(public, signature, message)
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(verify_signature, module)?)?;
    module.add_class::<Signer>()
}
