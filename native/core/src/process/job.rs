//! Runs that are requested, and their results: the types that all parts of the reactor share.

use std::ffi::CString;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::spec::{Limits, Program};
use super::streams::Log;
use super::warm::{ColdReason, ColdSlot, Warm, longest_wait};
use crate::error::OsFailure;
use crate::mailbox::{Mailbox, Token, next_token};
use crate::sync::Waiter;

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    Exited,
    Signaled,
    TimedOut,
    Cancelled,
    /// The child was reaped elsewhere, and its status is lost.
    Unknown,
}

/// The report of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    pub ending: Ending,
    pub exit_code: Option<i32>,
    pub signal: Option<i32>,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    pub stdout_total_bytes: u64,
    pub stderr_total_bytes: u64,
    pub duration: Duration,
    /// 0 for a run that was cancelled before it started.
    pub pid: i32,
    /// Processes that left the group, found after a timeout, a cancellation or an open pipe.
    pub left_behind: Vec<i32>,
    /// Whether it ran in a child that a template had forked ahead.
    pub warm: bool,
    /// Why it ran cold, where it had a warm start.
    pub why_cold: Option<ColdReason>,
}

impl Report {
    /// The report of a run that ended before it began.
    pub const fn never_started(ending: Ending) -> Self {
        Self {
            ending,
            exit_code: None,
            signal: None,
            stdout: Vec::new(),
            stderr: Vec::new(),
            stdout_total_bytes: 0,
            stderr_total_bytes: 0,
            duration: Duration::ZERO,
            pid: 0,
            left_behind: Vec::new(),
            warm: false,
            why_cold: None,
        }
    }
}

pub type Outcome = std::result::Result<Report, OsFailure>;

/// The recipient of a run's outcome.
pub trait Inbox: Send + Sync {
    fn deliver(&self, token: Token, outcome: Outcome);
}

impl Inbox for Mailbox<Outcome> {
    fn deliver(&self, token: Token, outcome: Outcome) {
        self.put(token, outcome);
    }
}

impl Inbox for Waiter<Outcome> {
    fn deliver(&self, _token: Token, outcome: Outcome) {
        self.put(outcome);
    }
}

/// A run as its host requests it.
pub struct RunRequest<'path> {
    pub program: Program,
    /// Variables of this call alone, each `NAME=VALUE`; a template doesn't get them.
    pub own_env: Vec<CString>,
    pub stdin: Vec<u8>,
    pub limits: Limits,
    /// The file that the output is also written to as it comes.
    pub log: Option<&'path Path>,
    pub warm: Option<Warm>,
}

/// A requested run.
pub(super) struct Job {
    pub(super) token: Token,
    pub(super) program: Program,
    pub(super) own_env: Vec<CString>,
    pub(super) stdin: Arc<Vec<u8>>,
    pub(super) limits: Limits,
    pub(super) log: Option<Arc<Log>>,
    pub(super) inbox: Arc<dyn Inbox>,
    /// The warm start, until the job is released to start cold.
    pub(super) warm: Option<Warm>,
    pub(super) why_cold: Option<ColdReason>,
    /// Its place among those that start cold beside their template.
    pub(super) cold_slot: Option<ColdSlot>,
    /// Since when it waits for its template to get ready.
    pub(super) waits_since: Option<Instant>,
}

impl Job {
    pub(super) fn new(request: RunRequest<'_>, inbox: Arc<dyn Inbox>) -> Result<Self, OsFailure> {
        Ok(Self {
            token: next_token(),
            program: request.program,
            own_env: request.own_env,
            stdin: Arc::new(request.stdin),
            limits: request.limits,
            log: request.log.map(Log::open).transpose()?.map(Arc::new),
            inbox,
            warm: request.warm,
            why_cold: None,
            cold_slot: None,
            waits_since: None,
        })
    }

    /// How long it waits for its template at most.
    pub(super) fn waits_until(&self) -> Option<Instant> {
        let since = self.waits_since?;
        Some(since + longest_wait(self.limits.timeout))
    }

    /// Ends its wait for a template, which its timeout includes.
    pub(super) fn end_wait(&mut self) {
        if let Some(since) = self.waits_since.take() {
            let timeout = self.limits.timeout;
            self.limits.timeout = timeout.map(|time| time.saturating_sub(since.elapsed()));
        }
    }

    pub(super) fn failed(self, failure: OsFailure) {
        self.inbox.deliver(self.token, Err(failure));
    }

    pub(super) fn never_started(self) {
        self.inbox
            .deliver(self.token, Ok(Report::never_started(Ending::Cancelled)));
    }
}
