//! Processes by identity, detached ones, and what ties the reactor to the interpreter's life.

use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyDictMethods};
use ryecore_core::process::{self as core, Killed, ProcessId, Standing};

use crate::convert::{duration, path, raise};
use crate::runs::program;

const SLICE: Duration = Duration::from_millis(50);
/// KILL needs no grace, and a host that ends must not hang.
const LAST_PATIENCE: Duration = Duration::from_secs(5);

type Id = (String, u64, i32, u64);

fn to_tuple(id: ProcessId) -> Id {
    (id.boot_id, id.pid_namespace, id.pid, id.start_ticks)
}

fn from_tuple((boot_id, pid_namespace, pid, start_ticks): Id) -> ProcessId {
    ProcessId {
        boot_id,
        pid_namespace,
        pid,
        start_ticks,
    }
}

#[pyfunction]
#[pyo3(signature = (command, args, cwd, env, stdin, log_path, /))]
fn start_detached(
    py: Python<'_>,
    command: &Bound<'_, PyAny>,
    args: &Bound<'_, PyAny>,
    cwd: &Bound<'_, PyAny>,
    env: &Bound<'_, PyDict>,
    stdin: &[u8],
    log_path: &Bound<'_, PyAny>,
) -> PyResult<Id> {
    let program = program(command, args, cwd, env)?;
    let log = path(log_path)?;
    let answer = core::start_detached(program, stdin, &log).map_err(raise)?;
    // A start is short and can't be given up half-way.
    let started = py.detach(|| {
        loop {
            if let Some(started) = answer.wait(SLICE) {
                return started;
            }
        }
    });
    started.map(to_tuple).map_err(raise)
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
    let ids: Vec<_> = processes.into_iter().map(from_tuple).collect();
    let spared: Vec<_> = spared.into_iter().map(from_tuple).collect();
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
        match core::process_status(&from_tuple(process)).map_err(raise)? {
            Standing::Running => "running",
            Standing::Zombie => "zombie",
            Standing::Dead => "dead",
        },
    )
}

#[pyfunction]
fn current_process() -> PyResult<Id> {
    ProcessId::current().map(to_tuple).map_err(raise)
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
