//! Processes that are held by a descriptor once their identity was checked.

use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, getpid, pidfd_open, pidfd_send_signal};

use super::procfs::{ProcessId, Snapshot, Stat, boot_id, pid_namespace, stat_of};
use super::signal::{has_ended, signal_group};
use crate::error::{Error, Result};

/// A process whose identity was checked, held so that its number can't pass to another.
pub(super) struct HeldProcess {
    pub(super) pid: Pid,
    pub(super) pidfd: OwnedFd,
    pub(super) stat: Stat,
}

/// Holds a process; `None` where it has ended, or another one has its number.
pub(super) fn hold(id: &ProcessId) -> Result<Option<HeldProcess>> {
    let Some(pid) = (id.pid > 1).then(|| Pid::from_raw(id.pid)).flatten() else {
        let message = format!("{} is not the number of a process to act on", id.pid);
        return Err(Error::Invalid(message));
    };
    if id.boot_id != boot_id()? {
        return Ok(None);
    }
    if id.pid_namespace != pid_namespace()? {
        let path = format!("/proc/{}", id.pid);
        return Err(Error::os(
            "see into the other pid namespace of",
            path,
            Errno::XDEV,
        ));
    }
    let pidfd = match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(pidfd) => pidfd,
        Err(Errno::SRCH) => return Ok(None),
        Err(errno) => return Err(Error::os("hold", format!("/proc/{}", id.pid), errno)),
    };
    // The descriptor is opened first: the process that is then read is the held one, or its start
    // time differs because the number was reused in between.
    let stat = stat_of(id.pid).filter(|stat| stat.start_ticks == id.start_ticks);
    Ok(stat.map(|stat| HeldProcess { pid, pidfd, stat }))
}

impl HeldProcess {
    pub(super) fn number(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    pub(super) fn failed(&self, errno: Errno) -> Error {
        Error::os("end", format!("/proc/{}", self.number()), errno)
    }

    pub(super) fn is_alive(&self) -> bool {
        !has_ended(self.pidfd.as_fd())
    }

    /// Stops it, so that it starts no other process.
    pub(super) fn freeze(&self) {
        if self.pid != getpid() {
            let _ = pidfd_send_signal(&self.pidfd, Signal::STOP);
        }
    }

    pub(super) fn leads(&self) -> bool {
        self.stat.group == self.number()
    }

    pub(super) fn signal(&self, signal: Signal) -> std::result::Result<(), Errno> {
        if self.leads() {
            signal_group(self.pidfd.as_fd(), self.pid, signal)
        } else {
            pidfd_send_signal(&self.pidfd, signal)
        }
    }

    /// The others of the group.
    pub(super) fn members(&self) -> Vec<OwnedFd> {
        if !self.leads() {
            return Vec::new();
        }
        let leader = self.number();
        let snapshot = Snapshot::take();
        let others = snapshot.group(leader).filter(|pid| *pid != leader);
        let held = others.filter_map(|pid| {
            let held = pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
            // Still the same one, now that it can't change any more.
            (stat_of(pid)?.group == leader).then_some(held)
        });
        held.collect()
    }
}
