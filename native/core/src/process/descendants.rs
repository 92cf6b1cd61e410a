//! Descendants of processes, which are killed with them.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, Signal, getpid, pidfd_open, pidfd_send_signal};

use super::held::HeldProcess;
use super::procfs::{ProcessId, Snapshot, Stat, carries, stat_of};
use crate::error::Result;

/// The descendants of some roots, as far as they have been found.
pub(super) struct Descendants<'a> {
    /// The roots, the spared and the killer itself, by number and start.
    roots: HashSet<(i32, u64)>,
    spared: HashSet<(i32, u64)>,
    marks: &'a [Vec<u8>],
    own: i32,
    /// Sessions that are not theirs alone: of a terminal, for one.
    shared_sessions: HashSet<i32>,
    /// Their sessions, each with the start of its leader where that was alive.
    sessions: HashMap<i32, Option<u64>>,
    found: HashMap<(i32, u64), OwnedFd>,
}

impl<'a> Descendants<'a> {
    pub(super) fn new<'h>(
        roots: impl Iterator<Item = &'h HeldProcess>,
        spared: &[ProcessId],
        marks: &'a [Vec<u8>],
    ) -> Result<Self> {
        let own = getpid().as_raw_nonzero().get();
        // Read from the system's files: getsid has no answer for a session whose leader is outside
        // this PID namespace. All of those have the number 0, which therefore identifies no
        // session.
        let mut shared_sessions = HashSet::from([0]);
        shared_sessions.extend(stat_of(own).map(|stat| stat.session));
        let mut known = HashSet::new();
        for held in roots {
            known.insert((held.number(), held.stat.start_ticks));
            shared_sessions.insert(held.stat.session);
        }
        let here = ProcessId::current()?;
        let spared = spared
            .iter()
            .filter(|id| (&id.boot_id, id.pid_namespace) == (&here.boot_id, here.pid_namespace))
            .map(|id| (id.pid, id.start_ticks));
        Ok(Self {
            roots: known,
            spared: spared.collect(),
            marks,
            own,
            shared_sessions,
            sessions: HashMap::new(),
            found: HashMap::new(),
        })
    }

    /// Scans all processes; returns whether it found more descendants. With `stops`, each is
    /// stopped, so that it starts no other.
    pub(super) fn look(&mut self, stops: bool) -> bool {
        let snapshot = Snapshot::take();
        let spared = self.spared.clone();
        let is_spared = |key| spared.contains(&key);
        let descended = descendants(
            &snapshot,
            |key| self.roots.contains(&key) || self.found.contains_key(&key),
            is_spared,
        );
        // A spared process may have inherited the mark, and have passed it on.
        let passed_on = descendants(
            &snapshot,
            |key| is_spared(key) && self.carries(key.0),
            |_| false,
        );
        let mut is_new = false;
        for (pid, stat) in snapshot.all() {
            let key = (pid, stat.start_ticks);
            if pid == self.own || self.roots.contains(&key) || is_spared(key) {
                continue;
            }
            let is_below = descended.contains(&pid)
                || self.is_of_session(stat.session)
                || (!passed_on.contains(&pid) && self.carries(pid));
            if is_below && self.hold(pid, stat, stops) {
                is_new = true;
            }
        }
        is_new
    }

    fn carries(&self, pid: i32) -> bool {
        !self.marks.is_empty() && carries(pid, self.marks)
    }

    /// Holds a process and notes its session; returns whether it is a new one.
    fn hold(&mut self, pid: i32, stat: Stat, stops: bool) -> bool {
        let (pidfd, is_new) = match self.found.entry((pid, stat.start_ticks)) {
            Entry::Occupied(held) => (held.into_mut(), false),
            Entry::Vacant(place) => {
                let Some(pidfd) = hold(pid, stat.start_ticks) else {
                    return false;
                };
                (place.insert(pidfd), true)
            }
        };
        if stops {
            let _ = pidfd_send_signal(pidfd, Signal::STOP);
        }
        if !self.shared_sessions.contains(&stat.session) {
            let leader = stat_of(stat.session).map(|leader| leader.start_ticks);
            self.sessions.entry(stat.session).or_insert(leader);
        }
        is_new
    }

    /// While a session has members, its number isn't reused; a new session of that number has
    /// another leader.
    fn is_of_session(&self, session: i32) -> bool {
        self.sessions.get(&session).is_some_and(|known| {
            stat_of(session).is_none_or(|leader| Some(leader.start_ticks) == *known)
        })
    }

    /// Kills all descendants that were found; returns those whose end can be awaited.
    pub(super) fn kill(self) -> Vec<OwnedFd> {
        let killed = self.found.into_values().filter(|pidfd| {
            // A process that gained other privileges can't be killed, nor awaited.
            pidfd_send_signal(pidfd, Signal::KILL).is_ok()
        });
        killed.collect()
    }
}

/// Holds a process, unless another one has its number.
fn hold(pid: i32, start_ticks: u64) -> Option<OwnedFd> {
    let pidfd = pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
    (stat_of(pid)?.start_ticks == start_ticks).then_some(pidfd)
}

/// The numbers of the processes that `begins` selects and of their descendants, without `ends` and
/// its descendants.
fn descendants(
    snapshot: &Snapshot,
    begins: impl Fn((i32, u64)) -> bool,
    ends: impl Fn((i32, u64)) -> bool,
) -> HashSet<i32> {
    let mut children: HashMap<i32, Vec<(i32, u64)>> = HashMap::new();
    let mut left = Vec::new();
    for (pid, stat) in snapshot.all() {
        let key = (pid, stat.start_ticks);
        children.entry(stat.parent).or_default().push(key);
        if begins(key) {
            left.push(key);
        }
    }
    let mut found = HashSet::new();
    while let Some(key) = left.pop() {
        if !ends(key) && found.insert(key.0) {
            left.extend(children.get(&key.0).into_iter().flatten());
        }
    }
    found
}
