//! Processes by identity, detached ones, and what ties the reactor to the interpreter's life.

use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyDictMethods};
use ryecore_core::process::{self as core, Killed, ProcessId, ProcessStatus};

use crate::convert::{duration, path, raise};
use crate::runs::Spec;

const SLICE: Duration = Duration::from_millis(50);
/// KILL needs no grace, and a host that ends must not hang.
const LAST_PATIENCE: Duration = Duration::from_secs(5);

/// A `ryecore.lillux.processes.ProcessId`, read attribute by attribute.
#[derive(FromPyObject)]
pub struct Id {
    boot_id: String,
    pid_namespace: u64,
    pid: i32,
    start_ticks: u64,
}

impl From<Id> for ProcessId {
    fn from(id: Id) -> Self {
        Self {
            boot_id: id.boot_id,
            pid_namespace: id.pid_namespace,
            pid: id.pid,
            start_ticks: id.start_ticks,
        }
    }
}

/// The fields of a `ryecore.lillux.processes.ProcessId`, by name, but for the time namespace.
fn id_dict(py: Python<'_>, id: ProcessId) -> PyResult<Bound<'_, PyDict>> {
    let fields = PyDict::new(py);
    fields.set_item("boot_id", id.boot_id)?;
    fields.set_item("pid_namespace", id.pid_namespace)?;
    fields.set_item("pid", id.pid)?;
    fields.set_item("start_ticks", id.start_ticks)?;
    Ok(fields)
}

#[pyfunction]
#[pyo3(signature = (spec, log_path, /))]
fn start_detached<'py>(
    py: Python<'py>,
    spec: Spec<'py>,
    log_path: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyDict>> {
    let log = path(log_path)?;
    let answer = core::start_detached(spec.program()?, spec.stdin(), &log).map_err(raise)?;
    // A start is short and can't be cancelled.
    let started = py.detach(|| {
        loop {
            if let Some(started) = answer.wait(SLICE) {
                return started;
            }
        }
    });
    id_dict(py, started.map_err(raise)?)
}

#[pyfunction]
#[pyo3(signature = (processes, spared, marks, grace_s, /))]
fn kill_processes(
    py: Python<'_>,
    processes: Vec<Id>,
    spared: Vec<Id>,
    marks: Vec<Vec<u8>>,
    grace_s: f64,
) -> PyResult<Vec<&'static str>> {
    let ids: Vec<_> = processes.into_iter().map(ProcessId::from).collect();
    let spared: Vec<_> = spared.into_iter().map(ProcessId::from).collect();
    let grace = duration("grace_s", grace_s)?;
    let mut interruption = Ok(());
    let killed = py.detach(|| {
        core::kill_processes(&ids, &spared, &marks, grace, || {
            interruption = Python::attach(|py| py.check_signals());
            interruption.is_ok()
        })
    });
    interruption?;
    let outcomes = killed.map_err(raise)?.unwrap_or_default();
    let outcomes = outcomes.into_iter().map(|killed| match killed {
        Killed::Terminated => "terminated",
        Killed::AlreadyDead => "already_dead",
        Killed::Killed => "killed",
    });
    Ok(outcomes.collect())
}

#[pyfunction]
#[pyo3(signature = (process, /))]
fn process_status(process: Id) -> PyResult<&'static str> {
    Ok(
        match core::process_status(&process.into()).map_err(raise)? {
            ProcessStatus::Running => "running",
            ProcessStatus::Zombie => "zombie",
            ProcessStatus::Dead => "dead",
        },
    )
}

#[pyfunction]
fn current_process(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    id_dict(py, ProcessId::current().map_err(raise)?)
}

#[pyfunction]
fn before_fork() {
    core::before_fork();
}

#[pyfunction]
fn after_fork_in_parent() {
    core::after_fork_in_parent();
}

#[pyfunction]
fn after_fork_in_child() {
    core::after_fork_in_child();
}

#[pyfunction]
fn shut_down(py: Python<'_>) -> bool {
    py.detach(|| core::shut_down(LAST_PATIENCE))
}

/// The interpreter's forks and its end concern the reactor.
fn tie_to_interpreter(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    let hooks = PyDict::new(py);
    hooks.set_item("before", wrap_pyfunction!(before_fork, module)?)?;
    hooks.set_item(
        "after_in_parent",
        wrap_pyfunction!(after_fork_in_parent, module)?,
    )?;
    hooks.set_item(
        "after_in_child",
        wrap_pyfunction!(after_fork_in_child, module)?,
    )?;
    py.import("os")?
        .call_method("register_at_fork", (), Some(&hooks))?;
    let shut_down = wrap_pyfunction!(shut_down, module)?;
    py.import("atexit")?
        .call_method1("register", (shut_down,))?;
    Ok(())
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(start_detached, module)?)?;
    module.add_function(wrap_pyfunction!(kill_processes, module)?)?;
    module.add_function(wrap_pyfunction!(process_status, module)?)?;
    module.add_function(wrap_pyfunction!(current_process, module)?)?;
    tie_to_interpreter(module)
}
