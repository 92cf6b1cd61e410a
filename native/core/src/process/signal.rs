//! Signals to a process group, and the reaping of its leader, by the leader's descriptor.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus, kill_process_group, waitid,
};

use super::procfs::stat_of;

/// Since Linux 6.9: the signal goes to the group that the process leads.
const PIDFD_SIGNAL_PROCESS_GROUP: libc::c_uint = 4;

/// Signals the group of a leader, alive or dead; a group that took over its number is spared.
pub(super) fn signal_group(leader: BorrowedFd<'_>, pid: Pid, signal: Signal) -> Result<(), Errno> {
    let info = std::ptr::null::<libc::siginfo_t>();
    let (fd, number) = (leader.as_raw_fd(), signal.as_raw());
    // SAFETY: plain numbers; no info is passed.
    let done = unsafe {
        let group = PIDFD_SIGNAL_PROCESS_GROUP;
        libc::syscall(libc::SYS_pidfd_send_signal, fd, number, info, group)
    };
    if done == 0 {
        return Ok(());
    }
    match Errno::from_io_error(&std::io::Error::last_os_error()) {
        Some(Errno::INVAL) if number_is_theirs(leader, pid) => kill_process_group(pid, signal),
        Some(errno) => Err(errno),
        None => Ok(()),
    }
}

/// Whether the process behind a pidfd is a zombie or gone.
pub(super) fn has_ended(process: BorrowedFd<'_>) -> bool {
    let at_once = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let mut look = [PollFd::from_borrowed_fd(process, PollFlags::IN)];
    poll(&mut look, Some(&at_once)) != Ok(0)
}

/// Reaps a dead leader; `None` where its status was taken elsewhere.
pub(super) fn reap(pidfd: &OwnedFd) -> Option<WaitIdStatus> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
    waitid(WaitId::PidFd(pidfd.as_fd()), options).ok().flatten()
}

/// Before a leader is reaped its number isn't reused. Afterwards it is still the group's while no
/// process has it: it isn't reused before the last member has ended.
fn number_is_theirs(leader: BorrowedFd<'_>, pid: Pid) -> bool {
    let peek = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let is_our_child = waitid(WaitId::PidFd(leader.as_fd()), peek).is_ok();
    is_our_child || !has_ended(leader) || stat_of(pid.as_raw_nonzero().get()).is_none()
}
