//! The templates of the process: which child serves a call, and what is due.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::Errno;
use rustix::process::Pid;

use super::conditions::Surroundings;
use super::entry::{Entry, Start, is_known};
use super::policy;
use super::reaper::Reaper;
use super::spare::{Child, Spare, hold, kill_and_reap, watch};
use super::start::{ColdReason, ColdSlot, Key, RESTS, TemplateStats, Warm};
use super::template::{CONTROL, LEADER, Message, reason_of, receive};
use crate::mailbox::{Token, next_token};
use crate::process::job::Job;
use crate::process::launch::{Kit, SignalsBlocked};
use crate::process::spec::Program;
use crate::sync::Waiter;

/// The descriptors of a template, of a spare (forked or requested), and of a lease beside those of
/// a run.
const OF_A_TEMPLATE: usize = 3;
pub(super) const OF_A_SPARE: usize = 5;
const OF_A_LEASE: usize = 1;

const READ_TOO_LATE: &str = "something that it has read is younger than it";
const MOST_SEEN: usize = 1024;
const MOST_ENTRIES: usize = 64;

/// What the reactor's thread provides during a turn.
pub(in crate::process) struct TurnContext<'turn> {
    pub(in crate::process) kit: &'turn Kit,
    pub(in crate::process) proof: &'turn SignalsBlocked,
    pub(in crate::process) scratch: &'turn mut [u8],
    /// Whether a process is one of the runs.
    pub(in crate::process) is_run: &'turn dyn Fn(Pid) -> bool,
    /// Descriptors that may be used, and how many of them are left.
    pub(in crate::process) allowed: u64,
    pub(in crate::process) room: u64,
    pub(in crate::process) now: Instant,
}

/// All templates of this process.
pub(in crate::process) struct Templates {
    pub(super) epoll: BorrowedFd<'static>,
    seen: HashMap<Key, Instant>,
    pub(super) entries: HashMap<Key, Entry>,
    /// The entry of each template and spare by its token.
    pub(super) owners: HashMap<Token, Key>,
    pub(super) reaper: Reaper,
    /// The entries to maintain at the end of the turn.
    pub(super) dirty: Vec<Key>,
    /// Jobs that are to start.
    pub(super) outbox: VecDeque<Start>,
    pub(super) around: Option<Surroundings>,
    look: u64,
}

impl Templates {
    pub(in crate::process) fn new(epoll: BorrowedFd<'static>) -> Self {
        Self {
            epoll,
            seen: HashMap::new(),
            entries: HashMap::new(),
            owners: HashMap::new(),
            reaper: Reaper::new(epoll),
            dirty: Vec::new(),
            outbox: VecDeque::new(),
            around: None,
            look: 1,
        }
    }

    /// Begins a round of checks: an earlier check doesn't cover the jobs that are offered from here
    /// on.
    pub(in crate::process) fn begin_check_round(&mut self) {
        self.look += 1;
    }

    /// Whether a spare can serve a job at once.
    pub(in crate::process) fn has_spare(&self, job: &Job) -> bool {
        let warm = job.warm.as_ref().filter(|warm| !warm.pool.is_closed());
        let entry = warm.and_then(|warm| self.entries.get(&Key::of(warm)));
        let template = entry.and_then(|entry| entry.template.as_ref());
        !job.stdin.is_empty() && template.is_some_and(|template| !template.spares.is_empty())
    }

    /// Offers a job: it starts at once, or waits for its template or the next fork.
    pub(in crate::process) fn offer(&mut self, mut job: Job, now: Instant) {
        let warm = job.warm.as_ref().filter(|warm| !warm.pool.is_closed());
        let Some(warm) = warm else {
            return self
                .outbox
                .push_back(Start::Cold(job, "its pool is closed".into()));
        };
        if job.stdin.is_empty() {
            let why = "nothing stands on its standard input";
            return self.outbox.push_back(Start::Cold(job, why.into()));
        }
        let key = Key::of(warm);
        let Some(entry) = self.entries.get_mut(&key) else {
            let why = self.count(key, &job.program, warm, now);
            job.cold_slot = self.entries.get(&key).map(|entry| entry.slot(key));
            return self.outbox.push_back(Start::Cold(job, why));
        };
        if !entry.origin.is_of(&job.program, warm) {
            let why = "another start has its place";
            return self.outbox.push_back(Start::Cold(job, why.into()));
        }
        mark_dirty(&mut self.dirty, key);
        entry.demand.call(entry.leased + entry.queue.len() + 1, now);
        match &entry.template {
            Some(template) if template.serves_at(now) => {
                entry.queue.push_back(job);
                self.serve_queue(key);
            }
            template => {
                if template.is_none() {
                    entry.want(now);
                }
                if entry.makes_wait(now) {
                    job.waits_since = Some(now);
                    return entry.queue.push_back(job);
                }
                job.cold_slot = Some(entry.slot(key));
                let why = entry.why_cold();
                self.outbox.push_back(Start::Cold(job, why));
            }
        }
    }

    /// Counts a call of a start without an entry; returns why it starts cold.
    fn count(&mut self, key: Key, program: &Program, warm: &Warm, now: Instant) -> ColdReason {
        let since = |time| now.saturating_duration_since(time);
        let gap = self.seen.insert(key, now).map(since);
        if let Some(gap) = gap.filter(|gap| policy::shows_demand(*gap)) {
            self.seen.remove(&key);
            self.make_room_for_entry();
            self.entries
                .insert(key, Entry::new(program, warm, gap, now));
            mark_dirty(&mut self.dirty, key);
            return "its template starts beside this call".into();
        }
        if self.seen.len() > MOST_SEEN {
            self.seen
                .retain(|_, time| policy::shows_demand(since(*time)));
            if self.seen.len() > MOST_SEEN {
                self.seen.clear();
            }
        }
        "a template starts at the second call within a minute".into()
    }

    /// Drops the least recently called entry that is idle, where there are too many.
    fn make_room_for_entry(&mut self) {
        if self.entries.len() >= MOST_ENTRIES {
            let idle = self.entries.iter().filter(|(_, entry)| entry.is_idle());
            let oldest = idle.min_by_key(|(_, entry)| entry.demand.last_call());
            if let Some(key) = oldest.map(|(key, _)| *key) {
                self.entries.remove(&key);
            }
        }
    }

    /// Gives the spares to waiting jobs, if they equal what a start now would be.
    fn serve_queue(&mut self, key: Key) {
        let (Some(entry), Some(around)) = (self.entries.get_mut(&key), &self.around) else {
            return;
        };
        let Some(template) = &mut entry.template else {
            return;
        };
        if entry.queue.is_empty() || template.spares.is_empty() {
            return;
        }
        // All waiting jobs came before this round, so one check covers them.
        if template.looked != self.look {
            if let Some(why) = template.conditions.broken(around) {
                return self.retire(key, why.into());
            }
            template.looked = self.look;
        }
        while !entry.queue.is_empty() {
            let Some(spare) = template.spares.pop_front() else {
                return;
            };
            if let Some(job) = entry.queue.pop_front() {
                self.owners.remove(&spare.child.token);
                entry.leased += 1;
                self.outbox.push_back(Start::Warm(job, spare, key));
            }
        }
    }

    /// Takes back a spare that was dead before its call could start.
    pub(in crate::process) fn refuse(&mut self, child: Child, key: Key) {
        self.reaper.take_child(key.pool, child);
        self.returned(key, false);
    }

    /// Notes that the run of a spare has ended, and whether its call began.
    pub(in crate::process) fn returned(&mut self, key: Key, has_begun: bool) {
        let Some(entry) = self.entries.get_mut(&key) else {
            return;
        };
        entry.leased = entry.leased.saturating_sub(1);
        if let Some(template) = &mut entry.template {
            template.stillborn = if has_begun { 0 } else { template.stillborn + 1 };
            if !has_begun {
                mark_dirty(&mut self.dirty, key);
            }
        }
    }

    /// Frees the place of a call that has ended, if it started cold beside its template.
    pub(in crate::process) fn cold_ended(&mut self, slot: Option<ColdSlot>) {
        if let Some(ColdSlot { key, .. }) = slot {
            mark_dirty(&mut self.dirty, key);
        }
    }

    /// Takes a job back that waits for a template or a fork.
    pub(in crate::process) fn cancel(&mut self, token: Token) -> Option<Job> {
        self.entries.values_mut().find_map(|entry| {
            let position = entry.queue.iter().position(|job| job.token == token)?;
            entry.queue.remove(position)
        })
    }

    /// Serves an event; returns whether it was about a template, a spare or a dying process.
    pub(in crate::process) fn on_ready(
        &mut self,
        token: Token,
        source: u64,
        context: &mut TurnContext<'_>,
    ) -> bool {
        let Some(&key) = self.owners.get(&token) else {
            if source != LEADER {
                // It is about one that was ended earlier in this turn, and doesn't report its
                // death.
                return true;
            }
            let entries = &self.entries;
            let is_known = |pid| is_known(entries, context.is_run, pid);
            return self.reaper.on_death(token, context.scratch, &is_known);
        };
        let template = self
            .entries
            .get_mut(&key)
            .and_then(|entry| entry.template.as_mut());
        match template {
            Some(template) if template.token != token => self.on_spare_death(key, token),
            Some(template) => match source {
                LEADER => self.on_template_death(key, context),
                CONTROL => self.listen(key, context),
                _ => {
                    if let Some(reason) = template.printed(self.epoll) {
                        self.fail(key, reason, context.now);
                    }
                }
            },
            None => {}
        }
        true
    }

    /// Messages before its end count, such as a reason.
    fn on_template_death(&mut self, key: Key, context: &mut TurnContext<'_>) {
        self.listen(key, context);
        if let Some(Entry {
            template: Some(_), ..
        }) = self.entries.get(&key)
        {
            self.fail(key, "it ended".to_owned(), context.now);
        }
    }

    fn on_spare_death(&mut self, key: Key, token: Token) {
        self.owners.remove(&token);
        let entry = self.entries.get_mut(&key);
        let Some(template) = entry.and_then(|entry| entry.template.as_mut()) else {
            return;
        };
        template.stillborn += 1;
        let position = template
            .spares
            .iter()
            .position(|spare| spare.child.token == token);
        if let Some(spare) = position.and_then(|position| template.spares.remove(position)) {
            self.reaper.take_child(key.pool, spare.child);
        }
        mark_dirty(&mut self.dirty, key);
    }

    pub(super) fn listen(&mut self, key: Key, context: &mut TurnContext<'_>) {
        loop {
            let entry = self.entries.get_mut(&key);
            let Some(template) = entry.and_then(|entry| entry.template.as_mut()) else {
                return;
            };
            let is_ready = template.ready_at.is_some();
            let failure = match receive(&template.socket, context.scratch) {
                None => return,
                Some(Message::Ready(paths)) if !is_ready => {
                    if template.conditions.take_in(paths) {
                        self.on_template_ready(key, context.now)
                    } else {
                        Some(READ_TOO_LATE.to_owned())
                    }
                }
                Some(Message::No(reason)) if !is_ready => Some(reason_of(reason)),
                Some(Message::No(_)) => {
                    let is_answer = template.answered(context.now).is_some();
                    self.rest(key, context.now);
                    (!is_answer).then(|| "it answers what nobody has asked".to_owned())
                }
                Some(Message::Forked(pid)) if is_ready => self.on_forked(key, pid, context),
                Some(Message::Gone) => Some("it ended".to_owned()),
                Some(_) => Some("it says what makes no sense".to_owned()),
            };
            if let Some(reason) = failure {
                return self.fail(key, reason, context.now);
            }
        }
    }

    /// Returns the reason why it is unfit.
    fn on_template_ready(&mut self, key: Key, now: Instant) -> Option<String> {
        let entry = self.entries.get_mut(&key)?;
        let template = entry.template.as_mut()?;
        if let Some(reason) = template.printed(self.epoll) {
            return Some(reason);
        }
        // What it has read stays in its memory, so it must be what was verified.
        if let Some(sealed) = &entry.origin.applied.recipe.sealed {
            if !template.conditions.is_younger_than_all_of(sealed) {
                return Some(READ_TOO_LATE.to_owned());
            }
            if sealed.broken().is_some() {
                return Some("the sealed copy that it has read was changed".to_owned());
            }
        }
        template.ready_at = Some(now);
        template.measure();
        mark_dirty(&mut self.dirty, key);
        self.keep_within_memory(key);
        None
    }

    /// Returns the reason why it is unfit.
    fn on_forked(&mut self, key: Key, pid: Pid, context: &TurnContext<'_>) -> Option<String> {
        let is_known = is_known(&self.entries, context.is_run, pid) || self.reaper.holds(pid);
        let template = self.entries.get_mut(&key)?.template.as_mut()?;
        let Some(pipes) = template.answered(context.now).filter(|_| !is_known) else {
            return Some("it names a process that it was not asked for".to_owned());
        };
        let pidfd = match hold(pid) {
            Ok(pidfd) => pidfd,
            Err(Errno::MFILE | Errno::NFILE | Errno::NOMEM) => {
                kill_and_reap(pid);
                self.rest(key, context.now);
                return None;
            }
            Err(_) => return Some("it names a process that is not the host's child".to_owned()),
        };
        let token = next_token();
        let child = Child { token, pid, pidfd };
        if watch(self.epoll, token, LEADER, child.pidfd.as_fd()).is_err() {
            kill_and_reap(pid);
            self.rest(key, context.now);
            return None;
        }
        template.forks += 1;
        let look = policy::look_after(template.looks);
        template.look_at.get_or_insert(context.now + look);
        template.spares.push_back(Spare { child, pipes });
        self.owners.insert(token, key);
        self.serve_queue(key);
        mark_dirty(&mut self.dirty, key);
        None
    }

    /// Pauses forks for a while; jobs that no fork will serve start cold.
    pub(super) fn rest(&mut self, key: Key, now: Instant) {
        let Some(entry) = self.entries.get_mut(&key) else {
            return;
        };
        let coming = entry.template.as_mut().map_or(0, |template| {
            template.rests_until = now.checked_add(policy::REST);
            template.pending_forks.len() + template.spares.len()
        });
        while entry.queue.len() > coming {
            let job = entry.queue.pop_back();
            self.outbox.extend(job.map(|job| Start::Cold(job, RESTS)));
        }
    }

    /// Ends a template that failed; another one is tried later.
    pub(super) fn fail(&mut self, key: Key, reason: String, now: Instant) {
        if let Some(entry) = self.entries.get_mut(&key) {
            let served = entry.template.as_ref().map(|template| template.served(now));
            entry.trouble.fail(reason, served.unwrap_or_default(), now);
            let why = entry.trouble.why_cold();
            self.retire(key, why);
        }
    }

    /// Ends a template and its spares; the waiting jobs start cold, with the reason.
    pub(super) fn retire(&mut self, key: Key, why: ColdReason) {
        let Some(entry) = self.entries.get_mut(&key) else {
            return;
        };
        let cold = |job| Start::Cold(job, why.clone());
        self.outbox.extend(entry.queue.drain(..).map(cold));
        if let Some(template) = entry.template.take() {
            self.owners.remove(&template.token);
            for spare in &template.spares {
                self.owners.remove(&spare.child.token);
            }
            self.reaper.take_template(key.pool, template);
        }
    }

    pub(in crate::process) fn is_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// A job that is to start; the last one comes first.
    pub(in crate::process) fn take_start(&mut self) -> Option<Start> {
        let mut start = self.outbox.pop_back()?;
        let (Start::Cold(job, _) | Start::Warm(job, ..)) = &mut start;
        job.end_wait();
        Some(start)
    }

    /// The number of open descriptors.
    pub(in crate::process) fn descriptors(&self) -> u64 {
        let of_entry = |entry: &Entry| {
            let of_template = entry.template.as_ref().map_or(0, |template| {
                OF_A_TEMPLATE
                    + template.conditions.descriptors()
                    + (template.spares.len() + template.pending_forks.len()) * OF_A_SPARE
            });
            of_template + entry.leased * OF_A_LEASE
        };
        let standing: usize = self.entries.values().map(of_entry).sum();
        (standing + self.reaper.len()) as u64
    }

    pub(in crate::process) fn is_empty(&self) -> bool {
        self.reaper.len() == 0 && self.entries.values().all(|entry| entry.template.is_none())
    }

    /// Ends the templates of a pool, or all.
    pub(in crate::process) fn close(&mut self, pool: Option<u64>) {
        let is_of_pool = |key: &Key| pool.is_none_or(|pool| key.pool == pool);
        let keys: Vec<_> = self.entries.keys().copied().filter(is_of_pool).collect();
        for key in keys {
            self.retire(key, "its pool is closed".into());
            self.entries.remove(&key);
        }
        self.seen.retain(|key, _| !is_of_pool(key));
    }

    /// Notifies the waiter when no process of a pool is left.
    pub(in crate::process) fn wait(&mut self, pool: u64, waiter: Arc<Waiter<()>>) {
        self.reaper.wait(pool, waiter);
    }

    pub(in crate::process) fn stats(&self, pool: u64) -> Vec<TemplateStats> {
        let of_pool = self.entries.iter().filter(|(key, _)| key.pool == pool);
        of_pool.filter_map(|(_, entry)| entry.stats()).collect()
    }
}

fn mark_dirty(dirty: &mut Vec<Key>, key: Key) {
    if !dirty.contains(&key) {
        dirty.push(key);
    }
}
