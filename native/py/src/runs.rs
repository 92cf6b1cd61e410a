//! Runs: started into a mailbox, or waited for by the calling thread.

use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyInt, PyList, PyString, PyTuple};
use ryecore_core::OsFailure;
use ryecore_core::mailbox::{self, Token};
use ryecore_core::process::{self, Ending, Inbox, Limits, Outcome, Program, Report, RunRequest};
use ryecore_core::sync::Waiter;

use crate::convert::{duration, os_pairs, os_text, os_texts, raise, raise_os, size};
use crate::warm::WarmStart;

/// The time between two checks for signals of the calling thread.
const SLICE: Duration = Duration::from_millis(50);

/// A `ryecore.lillux.processes.ProcessSpec`, read attribute by attribute.
#[derive(FromPyObject)]
pub struct Spec<'py> {
    command: Bound<'py, PyAny>,
    args: Bound<'py, PyAny>,
    cwd: Bound<'py, PyAny>,
    env: Bound<'py, PyAny>,
    call_env: Bound<'py, PyAny>,
    stdin: Bound<'py, PyBytes>,
    timeout_s: Option<f64>,
    kill_grace_s: f64,
    drain_s: f64,
    max_output_bytes: i64,
    log_path: Option<PathBuf>,
    warm: Option<WarmStart<'py>>,
}

impl Spec<'_> {
    pub fn program(&self) -> PyResult<Program> {
        Program::new(
            os_text(&self.command)?,
            os_texts(&self.args)?,
            os_pairs(&self.env)?,
            os_text(&self.cwd)?,
        )
        .map_err(raise)
    }

    pub fn stdin(&self) -> &[u8] {
        self.stdin.as_bytes()
    }

    fn start(&self, inbox: Arc<dyn Inbox>) -> PyResult<Token> {
        let program = self.program()?;
        let timeout = self.timeout_s.map(|time| duration("timeout_s", time));
        let limits = Limits {
            timeout: timeout.transpose()?,
            kill_grace: duration("kill_grace_s", self.kill_grace_s)?,
            drain: duration("drain_s", self.drain_s)?,
            max_output_bytes: size("max_output_bytes", self.max_output_bytes)?,
        };
        let warm = self.warm.as_ref().map(|warm| warm.on(&program));
        let request = RunRequest {
            warm: warm.transpose()?,
            program,
            own_env: Program::variables(os_pairs(&self.call_env)?).map_err(raise)?,
            stdin: self.stdin().to_vec(),
            limits,
            log: self.log_path.as_deref(),
        };
        // The lock of the interpreter is held, so that no fork happens in the middle.
        process::start(request, inbox).map_err(raise_os)
    }
}

fn status<'py>(py: Python<'py>, ending: Ending) -> &'py Bound<'py, PyString> {
    match ending {
        Ending::Exited => intern!(py, "exited"),
        Ending::Signaled => intern!(py, "signaled"),
        Ending::TimedOut => intern!(py, "timed_out"),
        Ending::Cancelled => intern!(py, "cancelled"),
        Ending::Unknown => intern!(py, "unknown"),
    }
}

/// The fields of a `ryecore.lillux.processes.ProcessResult`, by name.
fn report_dict(py: Python<'_>, report: Report) -> PyResult<Bound<'_, PyDict>> {
    let Report {
        ending,
        exit_code,
        signal,
        stdout,
        stderr,
        stdout_total_bytes,
        stderr_total_bytes,
        duration,
        pid,
        left_behind,
        warm,
        why_cold,
    } = report;
    let fields = PyDict::new(py);
    fields.set_item(intern!(py, "status"), status(py, ending))?;
    fields.set_item(intern!(py, "exit_code"), exit_code)?;
    fields.set_item(intern!(py, "signal"), signal)?;
    fields.set_item(intern!(py, "stdout"), PyBytes::new(py, &stdout))?;
    fields.set_item(intern!(py, "stderr"), PyBytes::new(py, &stderr))?;
    fields.set_item(intern!(py, "stdout_total_bytes"), stdout_total_bytes)?;
    fields.set_item(intern!(py, "stderr_total_bytes"), stderr_total_bytes)?;
    fields.set_item(intern!(py, "duration_ms"), duration.as_secs_f64() * 1e3)?;
    fields.set_item(intern!(py, "pid"), pid)?;
    fields.set_item(intern!(py, "left_behind"), PyTuple::new(py, left_behind)?)?;
    fields.set_item(intern!(py, "warm"), warm)?;
    fields.set_item(intern!(py, "why_cold"), why_cold)?;
    Ok(fields)
}

/// See `first_use`.
pub fn fill_report_cells(py: Python<'_>) -> PyResult<()> {
    let endings = [
        Ending::Exited,
        Ending::Signaled,
        Ending::TimedOut,
        Ending::Cancelled,
        Ending::Unknown,
    ];
    for ending in endings {
        report_dict(py, Report::never_started(ending))?;
    }
    Ok(())
}

fn failure_object(py: Python<'_>, failure: OsFailure) -> Bound<'_, PyAny> {
    raise_os(failure).into_value(py).into_bound(py).into_any()
}

#[pyclass(frozen, module = "ryecore._native")]
struct Mailbox(Arc<mailbox::Mailbox<Outcome>>);

#[pymethods]
impl Mailbox {
    #[new]
    fn new() -> PyResult<Self> {
        let made = mailbox::Mailbox::new();
        let failed = |errno| raise_os(OsFailure::new("make", "a mailbox", errno));
        Ok(Self(Arc::new(made.map_err(failed)?)))
    }

    #[getter]
    fn fd(&self) -> i32 {
        self.0.fd().as_raw_fd()
    }

    #[pyo3(signature = (spec, /))]
    fn start(&self, spec: Spec<'_>) -> PyResult<Token> {
        spec.start(Arc::clone(&self.0) as Arc<dyn Inbox>)
    }

    fn drain<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(py);
        for (token, outcome) in self.0.drain() {
            let outcome = match outcome {
                Ok(report) => report_dict(py, report)?.into_any(),
                Err(failure) => failure_object(py, failure),
            };
            list.append((PyInt::new(py, token), outcome))?;
        }
        Ok(list)
    }
}

#[pyfunction]
#[pyo3(signature = (token, /))]
fn cancel(token: Token) {
    process::cancel(token);
}

#[pyfunction]
#[pyo3(signature = (spec, /))]
fn run_blocking<'py>(py: Python<'py>, spec: Spec<'py>) -> PyResult<Bound<'py, PyDict>> {
    let waiter = Arc::new(Waiter::<Outcome>::default());
    let token = spec.start(Arc::clone(&waiter) as Arc<dyn Inbox>)?;
    loop {
        if let Some(outcome) = py.detach(|| waiter.wait(SLICE)) {
            return report_dict(py, outcome.map_err(raise_os)?);
        }
        if let Err(interruption) = py.check_signals() {
            process::cancel(token);
            // Its end is near: TERM, grace, KILL.
            py.detach(|| while waiter.wait(SLICE).is_none() {});
            return Err(interruption);
        }
    }
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Mailbox>()?;
    module.add_function(wrap_pyfunction!(cancel, module)?)?;
    module.add_function(wrap_pyfunction!(run_blocking, module)?)
}
