//! The work of the reactor's thread: starts children, serves their pipes and deadlines, reaps them.

use std::cell::OnceCell;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, Event as Readiness, EventData, EventFlags};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::process::Signal;

use super::child::{Action, Cause, Event, Phase};
use super::detach::Detachment;
use super::job::Job;
use super::launch::{Kit, SignalsBlocked};
use super::procfs::Snapshot;
use super::room::{DESCRIPTORS_A_RUN, FEWEST_RUNS, allowed, is_shortage};
use super::run::Run;
use super::signal::reap;
use super::streams::{Capture, Feed};
use super::warm::{Handovers, Key, Spare, Start, TemplateStats, Templates, TurnContext};
use crate::error::OsFailure;
use crate::mailbox::Token;
use crate::sync::Waiter;

const SCRATCH_BYTES: usize = 256 * 1024;

/// The source of an event, in the low bits of its data, below the token.
const LEADER: u64 = 0;
const STDIN: u64 = 1;
const STDOUT: u64 = 2;
const STDERR: u64 = 3;

/// The data of the bell's event; tokens begin at 1.
pub(super) const BELL: u64 = 0;

/// A request of another thread.
pub(super) enum Command {
    Start(Job),
    Cancel(Token),
    Detach(Detachment),
    ShutDown(Arc<Waiter<()>>),
    /// Ends the templates of a pool, and notifies the waiter of their end.
    ClosePool(u64, Option<Arc<Waiter<()>>>),
}

/// The state of the reactor's thread.
pub(super) struct Serving {
    epoll: BorrowedFd<'static>,
    kit: Kit,
    runs: HashMap<Token, Run>,
    /// Jobs for which the host has no descriptors or processes left at present.
    waiting: VecDeque<Job>,
    /// Detached children, to be reaped while the host lives.
    detached: HashMap<Token, OwnedFd>,
    deadlines: BTreeSet<(Instant, Token)>,
    templates: Templates,
    handovers: Handovers,
    scratch: Vec<u8>,
    closing: Vec<Arc<Waiter<()>>>,
}

/// One turn of the thread; the runs that end in it share one scan of `/proc`.
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
            templates: Templates::new(epoll),
            handovers: Handovers::default(),
            scratch: vec![0; SCRATCH_BYTES],
            closing: Vec::new(),
        })
    }

    /// How long until something is due.
    pub(super) fn idle_time(&self) -> Option<Duration> {
        let first = self.deadlines.first().map(|(due, _)| *due);
        let due = [first, self.templates.due(), self.handovers.due()];
        let due = due.into_iter().flatten().min()?;
        Some(due.saturating_duration_since(Instant::now()))
    }

    pub(super) fn execute(&mut self, command: Command, turn: &Turn<'_>) {
        match command {
            Command::Start(job) => {
                self.waiting.push_back(job);
                self.start_waiting(turn);
            }
            Command::Cancel(token) => self.cancel(token, turn),
            Command::Detach(detachment) => self.detach(detachment, turn),
            Command::ShutDown(waiter) => self.shut_down(waiter, turn),
            Command::ClosePool(pool, waiter) => self.close_pool(pool, waiter),
        }
    }

    /// Begins a round of checks, for jobs that were requested after the last one.
    pub(super) fn begin_check_round(&mut self) {
        self.templates.begin_check_round();
    }

    /// Whether a job can begin at once, without this thread.
    pub(super) fn can_begin(&self, job: &Job) -> bool {
        self.waiting.is_empty() && self.has_room() && self.templates.has_spare(job)
    }

    /// Begins it; the next turn does the rest.
    pub(super) fn begin(&mut self, job: Job) {
        self.begin_check_round();
        self.templates.offer(job, Instant::now());
        self.start_released();
    }

    pub(super) fn on_ready(&mut self, event: Readiness, turn: &Turn<'_>) {
        let data = event.data.u64();
        let (token, source) = (data >> 2, data & 3);
        let Some(run) = self.runs.get_mut(&token) else {
            return self.on_other(token, source, turn);
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
        if self
            .templates
            .due()
            .is_some_and(|due| due <= Instant::now())
        {
            self.with_context(turn, Templates::on_time);
        }
        let now = Instant::now();
        while let Some(token) = self.handovers.pop_due(now) {
            if let Some(run) = self.runs.get_mut(&token) {
                run.end_unless_begun();
            }
        }
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
            if job.warm.is_some() {
                self.templates.offer(job, Instant::now());
                self.start_released();
                continue;
            }
            match Run::start(&self.kit, turn.proof, &job) {
                Ok(run) => self.serve(job.token, run),
                Err(failure) if is_shortage(&failure) && self.will_have_room() => {
                    return self.waiting.push_front(job);
                }
                Err(failure) => job.failed(failure),
            }
        }
    }

    /// Whether the end of something makes room: spares are ended before a call fails.
    fn will_have_room(&mut self) -> bool {
        self.templates.close(None);
        !self.runs.is_empty() || !self.templates.is_empty()
    }

    /// Whether another run leaves the host a quarter of its descriptors.
    fn has_room(&self) -> bool {
        self.runs.len() < FEWEST_RUNS || self.room(allowed()) >= DESCRIPTORS_A_RUN
    }

    /// How many of the allowed descriptors are left.
    fn room(&self, allowed: u64) -> u64 {
        let used = self.runs.len() as u64 * DESCRIPTORS_A_RUN + self.templates.descriptors();
        allowed.saturating_sub(used)
    }

    fn with_context<T>(
        &mut self,
        turn: &Turn<'_>,
        act: impl FnOnce(&mut Templates, &mut TurnContext<'_>) -> T,
    ) -> T {
        let allowed = allowed();
        let mut context = TurnContext {
            kit: &self.kit,
            proof: turn.proof,
            allowed,
            room: self.room(allowed),
            scratch: &mut self.scratch,
            is_run: &|pid| self.runs.values().any(|run| run.pid == pid),
            now: Instant::now(),
        };
        act(&mut self.templates, &mut context)
    }

    /// Ends a turn: does what could wait until here.
    pub(super) fn tend(&mut self, turn: &Turn<'_>) {
        // Jobs that were given a child start before more forks are requested.
        self.start_released();
        if self.templates.is_dirty() {
            self.with_context(turn, Templates::tend);
            self.start_released();
        }
        self.start_waiting(turn);
    }

    /// Begins the jobs that the templates release.
    fn start_released(&mut self) {
        while let Some(start) = self.templates.take_start() {
            match start {
                Start::Cold(mut job, why) => {
                    job.warm = None;
                    job.why_cold = Some(why);
                    self.waiting.push_front(job);
                }
                Start::Warm(job, spare, key) => self.adopt(job, spare, key),
            }
        }
    }

    fn adopt(&mut self, job: Job, spare: Spare, key: Key) {
        let token = job.token;
        match Run::adopt(spare, key, job) {
            Ok(run) => {
                // From here on its end is an event of the run.
                let _ = epoll::delete(self.epoll, &run.pidfd);
                self.handovers.add(token, Instant::now());
                self.serve(token, run);
            }
            Err(refused) => {
                let (child, job) = *refused;
                self.templates.refuse(child, key);
                self.waiting.push_front(job);
            }
        }
    }

    /// Begins the call of a dead child that never began it.
    fn begin_anew(&mut self, token: Token, turn: &Turn<'_>) {
        self.set_deadline(token, None);
        let Some(run) = self.runs.remove(&token) else {
            return;
        };
        for fd in [run.stdout.fd(), run.stderr.fd()].into_iter().flatten() {
            let _ = epoll::delete(self.epoll, fd);
        }
        if let Some((mut job, key)) = run.into_job() {
            job.warm = None;
            job.why_cold = Some("what was forked for it never began".into());
            self.templates.returned(key, false);
            self.waiting.push_front(job);
        }
        self.start_waiting(turn);
    }

    fn close_pool(&mut self, pool: u64, waiter: Option<Arc<Waiter<()>>>) {
        self.templates.close(Some(pool));
        if let Some(waiter) = waiter {
            self.templates.wait(pool, waiter);
        }
    }

    pub(super) fn stats(&self, pool: u64) -> Vec<TemplateStats> {
        self.templates.stats(pool)
    }

    /// Notifies the waiters for the end of everything.
    fn notify_if_empty(&mut self) {
        if self.runs.is_empty() && self.templates.is_empty() {
            for waiter in self.closing.drain(..) {
                waiter.put(());
            }
        }
    }

    fn serve(&mut self, token: Token, run: Run) {
        if let Err(errno) = self.register(token, &run) {
            if let Some(lease) = &run.lease {
                self.templates.returned(lease.key, true);
            }
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
        if run.never_began() {
            return self.begin_anew(token, turn);
        }
        // The output of a dead leader is in its pipes already.
        pump(self.epoll, &mut run.stdout, &mut self.scratch);
        pump(self.epoll, &mut run.stderr, &mut self.scratch);
        let pipes_open = run.pipes_open();
        self.apply(token, Event::LeaderDied { pipes_open }, turn);
    }

    /// Serves an event of a template, of a spare or of a detached child.
    fn on_other(&mut self, token: Token, source: u64, turn: &Turn<'_>) {
        if self.with_context(turn, |templates, context| {
            templates.on_ready(token, source, context)
        }) {
            return self.notify_if_empty();
        }
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
        let Some(mut run) = self.runs.remove(&token) else {
            return;
        };
        // A fork of the host may hold a copy, so closing alone would not end the watching.
        for fd in [run.stdout.fd(), run.stderr.fd()].into_iter().flatten() {
            let _ = epoll::delete(self.epoll, fd);
        }
        if let Some(lease) = &run.lease {
            self.templates.returned(lease.key, true);
            self.handovers
                .settle(|token| !self.runs.contains_key(&token));
        }
        self.templates.cold_ended(run.cold_slot.take());
        let look = || Arc::clone(turn.snapshot.get_or_init(|| Arc::new(Snapshot::take())));
        run.finish(token, look);
        self.start_waiting(turn);
        self.notify_if_empty();
    }

    fn cancel(&mut self, token: Token, turn: &Turn<'_>) {
        let waiting = self.waiting.iter().position(|job| job.token == token);
        let job = waiting.and_then(|position| self.waiting.remove(position));
        match job.or_else(|| self.templates.cancel(token)) {
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
        self.templates.close(None);
        self.start_released();
        for job in self.waiting.drain(..) {
            job.never_started();
        }
        self.closing.push(waiter);
        self.notify_if_empty();
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

/// Reads the available output; returns whether the stream has ended.
fn pump(epoll: BorrowedFd<'_>, stream: &mut Capture, scratch: &mut [u8]) -> bool {
    let Some(ended) = stream.pump(scratch) else {
        return false;
    };
    let _ = epoll::delete(epoll, &ended);
    true
}
