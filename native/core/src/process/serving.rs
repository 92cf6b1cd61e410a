//! What the reactor's thread does: it starts children, serves their pipes and times, reaps them.

use std::cell::OnceCell;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, Event as Readiness, EventData, EventFlags};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::process::{Resource, Signal, getrlimit};

use super::child::{Action, Cause, Event, Phase};
use super::detach::Detachment;
use super::launch::SignalsBlocked;
use super::mailbox::Waiter;
use super::procfs::Snapshot;
use super::reactor::{Command, Token};
use super::run::{Job, Kit, Run, reap};
use super::streams::{Capture, Feed};
use crate::error::OsFailure;

const SCRATCH_BYTES: usize = 256 * 1024;
/// Descriptors that one run needs: its pidfd and two pipes.
const DESCRIPTORS_A_RUN: u64 = 3;
/// Always let in.
const FEWEST_RUNS: usize = 16;

/// Who an event is about, in the low bits of its data; the token stands above them.
const LEADER: u64 = 0;
const STDIN: u64 = 1;
const STDOUT: u64 = 2;
const STDERR: u64 = 3;

/// The data of an event that is about no run; tokens begin at 1.
pub(super) const BELL: u64 = 0;

/// Everything that the thread serves.
pub(super) struct Serving {
    epoll: BorrowedFd<'static>,
    kit: Kit,
    runs: HashMap<Token, Run>,
    /// Jobs for which the host has no descriptors or processes left at present.
    waiting: VecDeque<Job>,
    /// Detached children, to be reaped while the host lives.
    detached: HashMap<Token, OwnedFd>,
    deadlines: BTreeSet<(Instant, Token)>,
    scratch: Vec<u8>,
    closing: Vec<Arc<Waiter<()>>>,
}

/// One turn of the thread; a look through `/proc` is shared by all that end in it.
pub(super) struct Turn<'thread> {
    proof: &'thread SignalsBlocked,
    snapshot: OnceCell<Arc<Snapshot>>,
}

impl<'thread> Turn<'thread> {
    pub(super) fn new(proof: &'thread SignalsBlocked) -> Self {
        Self {
            proof,
            snapshot: OnceCell::new(),
        }
    }
}

impl Serving {
    pub(super) fn new(epoll: BorrowedFd<'static>) -> Result<Self, Errno> {
        Ok(Self {
            epoll,
            kit: Kit::new()?,
            runs: HashMap::new(),
            waiting: VecDeque::new(),
            detached: HashMap::new(),
            deadlines: BTreeSet::new(),
            scratch: vec![0; SCRATCH_BYTES],
            closing: Vec::new(),
        })
    }

    /// How long nothing is due.
    pub(super) fn idle_time(&self) -> Option<Duration> {
        let (first, _) = self.deadlines.first()?;
        Some(first.saturating_duration_since(Instant::now()))
    }

    pub(super) fn obey(&mut self, command: Command, turn: &Turn<'_>) {
        match command {
            Command::Start(job) => {
                self.waiting.push_back(job);
                self.start_waiting(turn);
            }
            Command::Cancel(token) => self.cancel(token, turn),
            Command::Detach(detachment) => self.detach(detachment, turn),
            Command::ShutDown(waiter) => self.shut_down(waiter, turn),
        }
    }

    pub(super) fn on_ready(&mut self, event: Readiness, turn: &Turn<'_>) {
        let data = event.data.u64();
        let (token, source) = (data >> 2, data & 3);
        let Some(run) = self.runs.get_mut(&token) else {
            return self.on_detached_end(token);
        };
        match source {
            LEADER => self.on_leader_end(token, turn),
            STDIN => {
                let done = run.feed.as_mut().is_some_and(Feed::pump);
                if done {
                    self.stop_feeding(token);
                }
            }
            _ => {
                let stream = stream_of(run, source);
                let ended = pump(self.epoll, stream, &mut self.scratch);
                if ended && !run.pipes_open() {
                    self.apply(token, Event::PipesClosed, turn);
                }
            }
        }
    }

    pub(super) fn on_time(&mut self, turn: &Turn<'_>) {
        let now = Instant::now();
        while let Some(&(due, token)) = self.deadlines.first() {
            if due > now {
                return;
            }
            self.deadlines.pop_first();
            if let Some(run) = self.runs.get_mut(&token) {
                run.deadline = None;
            }
            self.apply(token, Event::Deadline, turn);
        }
    }

    /// Starts waiting jobs in their order, as far as the host has room.
    fn start_waiting(&mut self, turn: &Turn<'_>) {
        while self.has_room() {
            let Some(job) = self.waiting.pop_front() else {
                return;
            };
            match Run::start(&self.kit, turn.proof, &job) {
                Ok(run) => self.serve(job.token, run),
                Err(failure) if is_shortage(&failure) && !self.runs.is_empty() => {
                    // The end of another run makes room.
                    return self.waiting.push_front(job);
                }
                Err(failure) => job.failed(failure),
            }
        }
    }

    /// Whether another run leaves the host a quarter of its descriptors.
    fn has_room(&self) -> bool {
        if self.runs.len() < FEWEST_RUNS {
            return true;
        }
        let most = getrlimit(Resource::Nofile).current;
        let most = most.map_or(u64::MAX, |most| most / 4 * 3 / DESCRIPTORS_A_RUN);
        (self.runs.len() as u64) < most
    }

    fn serve(&mut self, token: Token, run: Run) {
        if let Err(errno) = self.register(token, &run) {
            return run.give_up(token, OsFailure::new("watch", "a child's pipes", errno));
        }
        if let Some(deadline) = run.deadline {
            self.deadlines.insert((deadline, token));
        }
        self.runs.insert(token, run);
    }

    fn register(&self, token: Token, run: &Run) -> Result<(), Errno> {
        let add = |fd: BorrowedFd<'_>, source, flags| {
            let data = EventData::new_u64(token << 2 | source);
            epoll::add(self.epoll, fd, data, flags)
        };
        for (stream, source) in [(&run.stdout, STDOUT), (&run.stderr, STDERR)] {
            if let Some(fd) = stream.fd() {
                add(fd, source, EventFlags::IN)?;
            }
        }
        if let Some(feed) = &run.feed {
            add(feed.fd(), STDIN, EventFlags::OUT)?;
        }
        add(run.pidfd.as_fd(), LEADER, EventFlags::IN)
    }

    fn on_leader_end(&mut self, token: Token, turn: &Turn<'_>) {
        self.stop_feeding(token);
        let Some(run) = self.runs.get_mut(&token) else {
            return;
        };
        let _ = epoll::delete(self.epoll, &run.pidfd);
        // What the dead have written is there already.
        pump(self.epoll, &mut run.stdout, &mut self.scratch);
        pump(self.epoll, &mut run.stderr, &mut self.scratch);
        let pipes_open = run.pipes_open();
        self.apply(token, Event::LeaderDied { pipes_open }, turn);
    }

    fn on_detached_end(&mut self, token: Token) {
        if let Some(pidfd) = self.detached.remove(&token) {
            let _ = epoll::delete(self.epoll, &pidfd);
            reap(&pidfd);
        }
    }

    fn stop_feeding(&mut self, token: Token) {
        let run = self.runs.get_mut(&token);
        if let Some(feed) = run.and_then(|run| run.feed.take()) {
            let _ = epoll::delete(self.epoll, feed.fd());
        }
    }

    fn apply(&mut self, token: Token, event: Event, turn: &Turn<'_>) {
        let Some(run) = self.runs.get_mut(&token) else {
            return;
        };
        let (phase, action) = run.phase.after(event, &run.limits);
        run.phase = phase;
        match action {
            Action::Nothing => {}
            Action::Terminate(grace) => {
                run.signal_group(Signal::TERM);
                self.set_deadline(token, Some(grace));
            }
            Action::Kill => {
                run.signal_group(Signal::KILL);
                self.set_deadline(token, None);
            }
            Action::Drain(patience) => self.set_deadline(token, Some(patience)),
            Action::Finish => self.finish(token, turn),
        }
    }

    fn set_deadline(&mut self, token: Token, wait: Option<Duration>) {
        let Some(run) = self.runs.get_mut(&token) else {
            return;
        };
        if let Some(old) = run.deadline.take() {
            self.deadlines.remove(&(old, token));
        }
        run.deadline = wait.and_then(|wait| Instant::now().checked_add(wait));
        if let Some(new) = run.deadline {
            self.deadlines.insert((new, token));
        }
    }

    fn finish(&mut self, token: Token, turn: &Turn<'_>) {
        self.set_deadline(token, None);
        let Some(run) = self.runs.remove(&token) else {
            return;
        };
        // A fork of the host may hold a copy, so closing alone would not end the watching.
        for fd in [run.stdout.fd(), run.stderr.fd()].into_iter().flatten() {
            let _ = epoll::delete(self.epoll, fd);
        }
        let look = || Arc::clone(turn.snapshot.get_or_init(|| Arc::new(Snapshot::take())));
        run.finish(token, look);
        self.start_waiting(turn);
        if self.runs.is_empty() {
            for waiter in self.closing.drain(..) {
                waiter.put(());
            }
        }
    }

    fn cancel(&mut self, token: Token, turn: &Turn<'_>) {
        let waiting = self.waiting.iter().position(|job| job.token == token);
        match waiting.and_then(|position| self.waiting.remove(position)) {
            Some(job) => job.never_started(),
            None => self.apply(token, Event::Cancel, turn),
        }
    }

    fn detach(&mut self, detachment: Detachment, turn: &Turn<'_>) {
        let epoll = self.epoll;
        let watch = |token: Token, pidfd: &OwnedFd| {
            let data = EventData::new_u64(token << 2 | LEADER);
            epoll::add(epoll, pidfd, data, EventFlags::IN)
        };
        if let Some((token, pidfd)) = detachment.start(&self.kit, turn.proof, watch) {
            self.detached.insert(token, pidfd);
        }
    }

    /// Kills every run; detached children live on.
    fn shut_down(&mut self, waiter: Arc<Waiter<()>>, turn: &Turn<'_>) {
        for job in self.waiting.drain(..) {
            job.never_started();
        }
        if self.runs.is_empty() {
            return waiter.put(());
        }
        self.closing.push(waiter);
        let tokens: Vec<_> = self.runs.keys().copied().collect();
        for token in tokens {
            let Some(run) = self.runs.get_mut(&token) else {
                continue;
            };
            run.limits.drain = Duration::ZERO;
            if let Phase::Draining(_) = run.phase {
                self.apply(token, Event::Cancel, turn);
            } else {
                run.phase = Phase::Killing(Cause::Cancelled);
                run.signal_group(Signal::KILL);
                self.set_deadline(token, None);
            }
        }
    }
}

fn stream_of(run: &mut Run, source: u64) -> &mut Capture {
    if source == STDOUT {
        &mut run.stdout
    } else {
        &mut run.stderr
    }
}

/// Reads what is there; whether the stream has ended.
fn pump(epoll: BorrowedFd<'_>, stream: &mut Capture, scratch: &mut [u8]) -> bool {
    let Some(ended) = stream.pump(scratch) else {
        return false;
    };
    let _ = epoll::delete(epoll, &ended);
    true
}

/// Whether the end of another run may help.
fn is_shortage(failure: &OsFailure) -> bool {
    let shortages = [Errno::MFILE, Errno::NFILE, Errno::AGAIN, Errno::NOMEM];
    shortages
        .iter()
        .any(|errno| errno.raw_os_error() == failure.errno)
}
