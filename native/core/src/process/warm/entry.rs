//! The entry of a start that is called repeatedly: its demand, its template, and the waiting jobs.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::num::NonZero;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Pid;

use super::policy::{Crowd, Demand, Trouble};
use super::spare::Spare;
use super::start::{ColdReason, ColdSlot, Key, Origin, RESTS, TemplateStats, Warm};
use super::template::Template;
use crate::process::job::Job;
use crate::process::spec::Program;

const TOO_LONG: ColdReason = Cow::Borrowed("its template takes too long to get ready");

/// How a job starts.
pub(in crate::process) enum Start {
    Cold(Job, ColdReason),
    Warm(Job, Spare, Key),
}

pub(super) struct Entry {
    pub(super) origin: Origin,
    pub(super) demand: Demand,
    pub(super) trouble: Trouble,
    pub(super) template: Option<Template>,
    /// Whether one is to be started at the end of the turn.
    pub(super) is_wanted: bool,
    /// Jobs that wait for the template to get ready, or for its next fork.
    pub(super) queue: VecDeque<Job>,
    /// Held by each job and run that started cold beside the template.
    cold: Arc<()>,
    /// How many runs are served by children of its templates.
    pub(super) leased: usize,
    pub(super) bound_bytes: u64,
}

impl Entry {
    /// An entry for a start that is called again, after this gap.
    pub(super) fn new(program: &Program, warm: &Warm, gap: Duration, now: Instant) -> Self {
        Self {
            origin: Origin {
                program: program.clone(),
                applied: warm.applied.clone(),
            },
            demand: Demand::new(gap, now),
            trouble: Trouble::default(),
            template: None,
            is_wanted: true,
            queue: VecDeque::new(),
            cold: Arc::default(),
            leased: 0,
            bound_bytes: warm.pool.memory_bytes,
        }
    }

    /// Asks for a template, if one may be started.
    pub(super) fn want(&mut self, now: Instant) {
        self.is_wanted |= self.trouble.may_start(now);
    }

    fn crowd(&self) -> Crowd {
        Crowd {
            cold: Arc::strong_count(&self.cold) - 1,
            waiting: self.queue.len(),
            cores: cores(),
        }
    }

    /// Whether a call waits for the template to get ready.
    pub(super) fn makes_wait(&self, now: Instant) -> bool {
        let crowd = self.crowd();
        let is_coming = self.template.as_ref().map_or(self.is_wanted, |template| {
            template.ready_at.is_none() && template.age(now) < crowd.patience()
        });
        is_coming && self.trouble.may_be_awaited() && !crowd.starts_cold()
    }

    pub(super) fn slot(&self, key: Key) -> ColdSlot {
        ColdSlot::new(key, &self.cold)
    }

    /// Takes the waiting jobs that start cold, since the template isn't ready.
    pub(super) fn take_cold(&mut self, key: Key, now: Instant) -> Vec<Start> {
        let Some(template) = self.starting() else {
            return Vec::new();
        };
        let released = self.crowd().released(template.age(now));
        let mut taken: Vec<_> = self.queue.drain(..released).collect();
        let mut index = 0;
        while let Some(job) = self.queue.get(index) {
            if job.waits_until().is_some_and(|time| time <= now) {
                taken.extend(self.queue.remove(index));
            } else {
                index += 1;
            }
        }
        let start = |mut job: Job| {
            job.cold_slot = Some(self.slot(key));
            Start::Cold(job, TOO_LONG)
        };
        taken.into_iter().map(start).collect()
    }

    /// When to decide on the waiting jobs again, while the template isn't ready.
    fn look_at(&self) -> Option<Instant> {
        let template = self.starting().filter(|_| !self.queue.is_empty())?;
        let elapsed = template.age(Instant::now());
        let all = template.launched_at + self.crowd().next_look(elapsed);
        let each = self.queue.iter().filter_map(Job::waits_until);
        Some(each.fold(all, Instant::min))
    }

    /// The template, until it is ready.
    fn starting(&self) -> Option<&Template> {
        let template = self.template.as_ref();
        template.filter(|template| template.ready_at.is_none())
    }

    /// Why a call starts cold while no child can serve it.
    pub(super) fn why_cold(&self) -> ColdReason {
        match &self.template {
            Some(template) if template.ready_at.is_some() => RESTS,
            None if self.trouble.failures > 0 => self.trouble.why_cold(),
            _ => "its template isn't ready".into(),
        }
    }

    /// Whether it can be dropped: it has neither a template nor waiting jobs.
    pub(super) fn is_idle(&self) -> bool {
        self.template.is_none() && !self.is_wanted && self.queue.is_empty()
    }

    /// When something is due.
    pub(super) fn due(&self) -> Option<Instant> {
        let template = self.template.as_ref()?;
        let due = [template.due(&self.demand), self.look_at()];
        due.into_iter().flatten().min()
    }

    pub(super) fn stats(&self) -> Option<TemplateStats> {
        let trouble = &self.trouble;
        let standing = TemplateStats {
            state: "failed",
            pid: 0,
            spares: 0,
            forks: 0,
            memory_bytes: 0,
            failures: trouble.failures,
            reason: trouble.reason.clone(),
        };
        match &self.template {
            Some(template) => Some(TemplateStats {
                state: if template.ready_at.is_some() {
                    "ready"
                } else {
                    "starting"
                },
                pid: template.pid.as_raw_nonzero().get(),
                spares: template.spares.len(),
                forks: template.forks,
                memory_bytes: template.bytes(),
                ..standing
            }),
            None if trouble.is_refused => Some(TemplateStats {
                state: "refused",
                ..standing
            }),
            None => (trouble.failures > 0).then_some(standing),
        }
    }
}

/// How many calls the machine can start at the same time.
fn cores() -> usize {
    static CORES: OnceLock<usize> = OnceLock::new();
    *CORES.get_or_init(|| thread::available_parallelism().map_or(1, NonZero::get))
}

/// Whether a process is a run, a template or a spare already, so that no template can have just
/// forked it.
pub(super) fn is_known(
    entries: &HashMap<Key, Entry>,
    is_run: &dyn Fn(Pid) -> bool,
    pid: Pid,
) -> bool {
    let mut templates = entries.values().filter_map(|entry| entry.template.as_ref());
    let is_in = |template: &Template| {
        let mut spares = template.spares.iter();
        template.pid == pid || spares.any(|spare| spare.child.pid == pid)
    };
    is_run(pid) || templates.any(is_in)
}
