//! One start that is called again and again: its demand, its template, and who waits for it.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use rustix::process::Pid;

use super::handle::{Standing, Warm, Way};
use super::policy::{Demand, RESTS, Trouble, Why};
use super::template::Template;
use crate::process::reactor::Token;
use crate::process::run::{Job, Run};
use crate::process::spec::Program;

/// One start of one pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::process) struct Key {
    pub(super) pool: u64,
    pub(super) start: u64,
}

pub(super) struct Entry {
    pub(super) origin: Origin,
    pub(super) demand: Demand,
    pub(super) trouble: Trouble,
    pub(super) template: Option<Template>,
    /// Whether one is to be started at the end of the turn.
    pub(super) is_wanted: bool,
    /// Jobs that wait for the next fork.
    pub(super) queue: VecDeque<Job>,
    /// Runs that are served by children of its templates.
    pub(super) lent: usize,
    pub(super) bound_bytes: u64,
}

/// What the templates of one start are made from.
#[derive(Debug)]
pub(super) struct Origin {
    pub(super) program: Program,
    pub(super) way: Way,
}

impl Origin {
    /// Whether a start of this program is that very one; the key is but a hash of it.
    pub(super) fn is_of(&self, program: &Program, warm: &Warm) -> bool {
        self.way == warm.way && self.program == *program
    }
}

impl Key {
    pub(super) fn of(warm: &Warm) -> Self {
        Self {
            pool: warm.pool.id,
            start: warm.start,
        }
    }
}

impl Entry {
    /// For a start that is called again, after so long.
    pub(super) fn new(program: &Program, warm: &Warm, gap: Duration, now: Instant) -> Self {
        Self {
            origin: Origin {
                program: program.clone(),
                way: warm.way.clone(),
            },
            demand: Demand::new(gap, now),
            trouble: Trouble::default(),
            template: None,
            is_wanted: true,
            queue: VecDeque::new(),
            lent: 0,
            bound_bytes: warm.pool.memory_bytes,
        }
    }

    /// Asks for a template, if one may be started.
    pub(super) fn want(&mut self, now: Instant) {
        self.is_wanted |= self.trouble.may_start(now);
    }

    /// Why a call starts cold that comes while nobody can serve it.
    pub(super) fn why_cold(&self) -> Why {
        match &self.template {
            Some(template) if template.ready_at.is_some() => RESTS,
            None if self.trouble.failures > 0 => self.trouble.why_cold(),
            _ => "its template isn't ready".into(),
        }
    }

    /// Whether nothing but memories is lost with it.
    pub(super) fn is_idle(&self) -> bool {
        self.template.is_none() && !self.is_wanted && self.queue.is_empty()
    }

    /// When something is due.
    pub(super) fn due(&self) -> Option<Instant> {
        self.template.as_ref()?.due(&self.demand)
    }

    pub(super) fn standing(&self) -> Option<Standing> {
        let trouble = &self.trouble;
        let standing = Standing {
            state: "failed",
            pid: 0,
            spares: 0,
            forks: 0,
            memory_bytes: 0,
            failures: trouble.failures,
            reason: trouble.reason.clone(),
        };
        match &self.template {
            Some(template) => Some(Standing {
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
            None if trouble.is_refused => Some(Standing {
                state: "refused",
                ..standing
            }),
            None => (trouble.failures > 0).then_some(standing),
        }
    }
}

/// Whether a process has its place already, so that no template can have just forked it.
pub(super) fn is_known(
    entries: &HashMap<Key, Entry>,
    runs: &HashMap<Token, Run>,
    pid: Pid,
) -> bool {
    let mut templates = entries.values().filter_map(|entry| entry.template.as_ref());
    let is_in = |template: &Template| {
        let mut spares = template.spares.iter();
        template.pid == pid || spares.any(|spare| spare.child.pid == pid)
    };
    runs.values().any(|run| run.pid == pid) || templates.any(is_in)
}
