//! Fills on import what pyo3 would fill on first use.
//!
//! pyo3 lets go of the interpreter's lock while it fills one of its cells, such as that of an
//! interned name. A fork in between would leave the child with a cell that it waits for forever.

use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyBytes, PyDict};

use crate::processes::Id;
use crate::runs::{Spec, fill_report_cells};
use crate::warm::{Pool, WarmStart, fill_stats_cells};
use crate::witness::{TreeStat, Witness};

/// Reads one value of each class that is read attribute by attribute, and makes one of each that
/// is written so.
pub fn fill_cells<'py>(py: Python<'py>) -> PyResult<()> {
    let namespace = py.import("types")?.getattr("SimpleNamespace")?;
    let object = |fields: Bound<'py, PyDict>| namespace.call((), Some(&fields));
    let none = py.None();
    let empty = PyBytes::new(py, b"");
    let filter = [
        ("extensions", vec!["py"].into_pyobject(py)?),
        ("exclude_dirs", vec!["x"].into_pyobject(py)?),
    ]
    .into_py_dict(py)?;
    filter.set_item("recursive", true)?;
    let tree = [("root", "/"), ("fingerprint", "")].into_py_dict(py)?;
    tree.set_item("filter", object(filter)?)?;
    object(tree)?.extract::<TreeStat<'_>>()?;
    let id = [("pid_namespace", 0), ("pid", 0), ("start_ticks", 0)].into_py_dict(py)?;
    id.set_item("boot_id", "")?;
    object(id)?.extract::<Id>()?;

    let pool = [("_native", Py::new(py, Pool::with_bytes(0))?)].into_py_dict(py)?;
    let sealed = [("_native", Py::new(py, Witness::of_nothing()?)?)].into_py_dict(py)?;
    let warm = [("program", &empty), ("settings", &empty)].into_py_dict(py)?;
    warm.set_item("pool", object(pool)?)?;
    warm.set_item("sealed", object(sealed)?)?;
    warm.set_item("arg_index", 0)?;
    warm.set_item("arg", "x")?;
    let warm = object(warm)?;
    warm.extract::<WarmStart<'_>>()?;

    let spec = [("command", "/x"), ("cwd", "/")].into_py_dict(py)?;
    spec.set_item("args", ["x"])?;
    for name in ["env", "call_env"] {
        spec.set_item(name, [("X", "x")].into_py_dict(py)?)?;
    }
    for name in ["kill_grace_s", "drain_s", "max_output_bytes"] {
        spec.set_item(name, 0)?;
    }
    spec.set_item("stdin", empty)?;
    spec.set_item("timeout_s", none.clone_ref(py))?;
    spec.set_item("log_path", "/")?;
    spec.set_item("warm", warm)?;
    object(spec)?.extract::<Spec<'_>>()?.program()?;
    fill_report_cells(py)?;
    fill_stats_cells(py)
}
