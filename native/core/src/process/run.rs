//! One run: the descriptors of a child, its phase, and the report at its end.

use std::sync::Arc;
use std::time::Instant;

use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus, pidfd_send_signal, waitid,
};

use super::child::{Cause, Phase};
use super::job::{Ending, Inbox, Job, Report};
use super::launch::{Kit, Launched, SignalsBlocked, Stdio, launch};
use super::procfs::Snapshot;
use super::signal::{reap, signal_group};
use super::spec::Limits;
use super::streams::{Capture, Feed, input_pipe, output_pipe};
use super::warm::{Child, ColdReason, ColdSlot, Key, Spare, StartPipe};
use crate::error::OsFailure;
use crate::mailbox::Token;

pub(super) struct Run {
    pub(super) pid: Pid,
    pub(super) pidfd: OwnedFd,
    pub(super) phase: Phase,
    pub(super) limits: Limits,
    pub(super) deadline: Option<Instant>,
    pub(super) feed: Option<Feed>,
    pub(super) stdout: Capture,
    pub(super) stderr: Capture,
    pub(super) started: Instant,
    /// The lease of a run in a spare.
    pub(super) lease: Option<Box<Lease>>,
    pub(super) cold_slot: Option<ColdSlot>,
    why_cold: Option<ColdReason>,
    inbox: Arc<dyn Inbox>,
}

/// The lease of a spare by a run, which may turn out not to have begun.
pub(super) struct Lease {
    pub(super) job: Job,
    pub(super) key: Key,
    start: StartPipe,
    is_withdrawn: bool,
}

/// The pipes of one run: ours first, then the child's.
struct Pipes {
    input: Option<(OwnedFd, OwnedFd)>,
    output: (OwnedFd, OwnedFd),
    error: (OwnedFd, OwnedFd),
}

impl Pipes {
    fn open(with_input: bool) -> Result<Self, Errno> {
        Ok(Self {
            input: with_input.then(input_pipe).transpose()?,
            output: output_pipe()?,
            error: output_pipe()?,
        })
    }
}

impl Run {
    pub(super) fn start(kit: &Kit, proof: &SignalsBlocked, job: &Job) -> Result<Self, OsFailure> {
        let failed = |errno| OsFailure::new("open pipes for", job.program.command(), errno);
        let pipes = Pipes::open(!job.stdin.is_empty()).map_err(failed)?;
        let (ours, theirs) = pipes.input.unzip();
        let stdio = Stdio {
            stdin: theirs.as_ref().unwrap_or(&kit.null).as_fd(),
            stdout: pipes.output.1.as_fd(),
            stderr: pipes.error.1.as_fd(),
            control: None,
        };
        let feed = ours.and_then(|pipe| rest_of(pipe, job));
        let started = Instant::now();
        let launched = launch(proof, &kit.stack, &job.program, &job.own_env, &stdio, true)?;
        let output = (pipes.output.0, pipes.error.0);
        Ok(Self::of(launched, feed, output, started, job))
    }

    /// Gives the job to a spare, if that is alive.
    pub(super) fn adopt(spare: Spare, key: Key, job: Job) -> Result<Self, Box<(Child, Job)>> {
        let Spare { child, mut pipes } = spare;
        let feed = rest_of(pipes.input, &job);
        let started = Instant::now();
        if !pipes.start.send(&job.own_env) {
            return Err(Box::new((child, job)));
        }
        let launched = Launched {
            pid: child.pid,
            pidfd: child.pidfd,
        };
        let output = (pipes.output, pipes.error);
        let mut run = Self::of(launched, feed, output, started, &job);
        let start = pipes.start;
        run.lease = Some(Box::new(Lease {
            job,
            key,
            start,
            is_withdrawn: false,
        }));
        Ok(run)
    }

    fn of(
        Launched { pid, pidfd }: Launched,
        feed: Option<Feed>,
        (stdout, stderr): (OwnedFd, OwnedFd),
        started: Instant,
        job: &Job,
    ) -> Self {
        let limits = job.limits;
        let capture = |pipe| Capture::new(pipe, limits.max_output_bytes, job.log.clone());
        Self {
            pid,
            pidfd,
            phase: Phase::Running,
            limits,
            // A deadline that can't be represented never comes.
            deadline: limits.timeout.and_then(|time| started.checked_add(time)),
            feed,
            stdout: capture(stdout),
            stderr: capture(stderr),
            started,
            lease: None,
            cold_slot: job.cold_slot.clone(),
            why_cold: job.why_cold.clone(),
            inbox: Arc::clone(&job.inbox),
        }
    }

    /// Whether its child, dead now, never began its call, and wasn't ended.
    pub(super) fn never_began(&self) -> bool {
        let lease = self.lease.as_ref().filter(|_| self.phase.cause().is_none());
        lease.is_some_and(|lease| lease.is_withdrawn || !lease.start.was_read())
    }

    /// Ends a child that has not begun its call, and withdraws the call, so that it can't begin
    /// later.
    pub(super) fn end_unless_begun(&mut self) {
        let is_ending = self.phase.cause().is_some();
        let lease = self.lease.as_mut().filter(|_| !is_ending);
        if let Some(lease) = lease
            && lease.start.withdraw()
        {
            lease.is_withdrawn = true;
            self.signal_group(Signal::KILL);
        }
    }

    pub(super) fn pipes_open(&self) -> bool {
        self.stdout.fd().is_some() || self.stderr.fd().is_some()
    }

    pub(super) fn signal_group(&self, signal: Signal) {
        // A group that has ended needs no signal.
        let sent = signal_group(self.pidfd.as_fd(), self.pid, signal);
        // But a spare leads no group until it has begun.
        if sent == Err(Errno::SRCH) && self.lease.is_some() {
            let _ = pidfd_send_signal(&self.pidfd, signal);
        }
    }

    /// Reaps a child whose call never began, and returns the call with its remaining time.
    pub(super) fn into_job(self) -> Option<(Job, Key)> {
        self.signal_group(Signal::KILL);
        reap(&self.pidfd);
        let Lease { mut job, key, .. } = *self.lease?;
        let waited = self.started.elapsed();
        let timeout = job.limits.timeout;
        job.limits.timeout = timeout.map(|time| time.saturating_sub(waited));
        Some((job, key))
    }

    /// Ends a run that can't be served.
    pub(super) fn give_up(self, token: Token, failure: OsFailure) {
        self.signal_group(Signal::KILL);
        let _ = waitid(WaitId::PidFd(self.pidfd.as_fd()), WaitIdOptions::EXITED);
        self.inbox.deliver(token, Err(failure));
    }

    /// Kills the rest of the group, reaps the leader, and reports.
    pub(super) fn finish(self, token: Token, snapshot: impl FnOnce() -> Arc<Snapshot>) {
        let cause = self.phase.cause();
        let left_behind = if cause.is_some() || self.pipes_open() {
            let held = [self.stdout.inode(), self.stderr.inode()];
            let held: Vec<_> = held.into_iter().flatten().collect();
            snapshot().left_behind(self.pid.as_raw_nonzero().get(), &held)
        } else {
            Vec::new()
        };
        self.signal_group(Signal::KILL);
        let status = reap(&self.pidfd);
        let (stdout, stdout_total_bytes, stdout_pipe) = self.stdout.into_parts();
        let (stderr, stderr_total_bytes, stderr_pipe) = self.stderr.into_parts();
        let report = Report {
            ending: ending(cause, status.as_ref()),
            exit_code: status.as_ref().and_then(WaitIdStatus::exit_status),
            signal: status.as_ref().and_then(WaitIdStatus::terminating_signal),
            stdout,
            stderr,
            stdout_total_bytes,
            stderr_total_bytes,
            duration: self.started.elapsed(),
            pid: self.pid.as_raw_nonzero().get(),
            left_behind,
            warm: self.lease.is_some(),
            why_cold: self.why_cold,
        };
        // Descriptors are closed before the report, so that its recipient finds none open.
        drop((stdout_pipe, stderr_pipe, self.feed, self.pidfd, self.lease));
        self.inbox.deliver(token, Ok(report));
    }
}

/// Writes a job's input; returns the feed where it doesn't fit into the pipe at once.
fn rest_of(pipe: OwnedFd, job: &Job) -> Option<Feed> {
    let mut feed = Feed::new(pipe, Arc::clone(&job.stdin));
    (!feed.pump()).then_some(feed)
}

fn ending(cause: Option<Cause>, status: Option<&WaitIdStatus>) -> Ending {
    match (cause, status) {
        (Some(Cause::TimedOut), _) => Ending::TimedOut,
        (Some(Cause::Cancelled), _) => Ending::Cancelled,
        (None, None) => Ending::Unknown,
        (None, Some(status)) if status.exited() => Ending::Exited,
        (None, Some(_)) => Ending::Signaled,
    }
}
