//! Runs: started into a mailbox, or waited for by the calling thread.

use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyInt, PyList, PyString, PyTuple};
use ryecore_core::OsFailure;
use ryecore_core::process::{self, Ending, Inbox, Limits, Outcome, Program, Report, Token, Waiter};

use crate::convert::{duration, os_pairs, os_text, os_texts, raise, raise_os, size};
use crate::warm::WarmStart;

/// Between two looks at whether a signal wants the calling thread.
const SLICE: Duration = Duration::from_millis(50);

/// What is to be run, still in Python's values.
#[derive(FromPyObject)]
struct Spec<'py>(
    Bound<'py, PyAny>,
    Bound<'py, PyAny>,
    Bound<'py, PyAny>,
    Bound<'py, PyDict>,
    Bound<'py, PyDict>,
    Bound<'py, PyBytes>,
    Option<f64>,
    f64,
    f64,
    i64,
    Option<PathBuf>,
    Option<WarmStart<'py>>,
);

impl Spec<'_> {
    fn start(&self, inbox: Arc<dyn Inbox>) -> PyResult<Token> {
        let Self(
            command,
            args,
            cwd,
            env,
            own_env,
            stdin,
            timeout_s,
            kill_grace_s,
            drain_s,
            max_bytes,
            log,
            warm,
        ) = self;
        let program = program(command, args, cwd, env)?;
        let own_env = Program::variables(os_pairs(own_env)?).map_err(raise)?;
        let limits = Limits {
            timeout: timeout_s
                .map(|time| duration("timeout_s", time))
                .transpose()?,
            kill_grace: duration("kill_grace_s", *kill_grace_s)?,
            drain: duration("drain_s", *drain_s)?,
            max_output_bytes: size("max_output_bytes", *max_bytes)?,
        };
        let warm = warm.as_ref().map(|warm| warm.on(&program)).transpose()?;
        // The lock of the interpreter is held, so that no fork happens in the middle.
        let stdin = stdin.as_bytes().to_vec();
        process::start(program, own_env, stdin, limits, log.as_deref(), inbox, warm)
            .map_err(raise_os)
    }
}

pub fn program(
    command: &Bound<'_, PyAny>,
    args: &Bound<'_, PyAny>,
    cwd: &Bound<'_, PyAny>,
    env: &Bound<'_, PyDict>,
) -> PyResult<Program> {
    Program::new(
        os_text(command)?,
        os_texts(args)?,
        os_pairs(env)?,
        os_text(cwd)?,
    )
    .map_err(raise)
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

fn report_tuple(py: Python<'_>, report: Report) -> PyResult<Bound<'_, PyTuple>> {
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
    (
        status(py, ending),
        exit_code,
        signal,
        PyBytes::new(py, &stdout),
        PyBytes::new(py, &stderr),
        stdout_total_bytes,
        stderr_total_bytes,
        duration.as_secs_f64() * 1e3,
        pid,
        PyTuple::new(py, left_behind)?,
        warm,
        why_cold,
    )
        .into_pyobject(py)
}

fn failure_object(py: Python<'_>, failure: OsFailure) -> Bound<'_, PyAny> {
    raise_os(failure).into_value(py).into_bound(py).into_any()
}

#[pyclass(frozen, module = "ryecore._native")]
struct Mailbox(Arc<process::Mailbox<Outcome>>);

#[pymethods]
impl Mailbox {
    #[new]
    fn new() -> PyResult<Self> {
        let made = process::Mailbox::new();
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
                Ok(report) => report_tuple(py, report)?.into_any(),
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
fn run_blocking<'py>(py: Python<'py>, spec: Spec<'py>) -> PyResult<Bound<'py, PyTuple>> {
    let waiter = Arc::new(Waiter::<Outcome>::default());
    let token = spec.start(Arc::clone(&waiter) as Arc<dyn Inbox>)?;
    loop {
        if let Some(outcome) = py.detach(|| waiter.wait(SLICE)) {
            return report_tuple(py, outcome.map_err(raise_os)?);
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
