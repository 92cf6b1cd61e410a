//! The entry of a start that is called repeatedly: its demand, its template, and the waiting jobs.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use rustix::process::Pid;

use super::policy::{Demand, Trouble};
use super::start::{ColdReason, Key, Origin, RESTS, TemplateStats, Warm};
use super::template::Template;
use crate::process::job::Job;
use crate::process::spec::Program;

pub(super) struct Entry {
    pub(super) origin: Origin,
    pub(super) demand: Demand,
    pub(super) trouble: Trouble,
    pub(super) template: Option<Template>,
    /// Whether one is to be started at the end of the turn.
    pub(super) is_wanted: bool,
    /// Jobs that wait for the next fork.
    pub(super) queue: VecDeque<Job>,
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
            leased: 0,
            bound_bytes: warm.pool.memory_bytes,
        }
    }

    /// Asks for a template, if one may be started.
    pub(super) fn want(&mut self, now: Instant) {
        self.is_wanted |= self.trouble.may_start(now);
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
        self.template.as_ref()?.due(&self.demand)
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
