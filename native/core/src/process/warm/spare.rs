//! A spare, a child that was forked ahead of its call: its pipes, its identity, its start.

use std::ffi::CString;

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::{Errno, ioctl_fionread, read, write};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, kill_process, pidfd_open, pidfd_send_signal, waitpid,
};

use crate::mailbox::Token;
use crate::process::streams::{input_pipe, output_pipe, pipe};

/// The host's ends of a spare's pipes.
#[derive(Debug)]
pub(in crate::process) struct SparePipes {
    pub(in crate::process) input: OwnedFd,
    pub(in crate::process) output: OwnedFd,
    pub(in crate::process) error: OwnedFd,
    pub(in crate::process) start: StartPipe,
}

/// The pipe that starts a spare's call, and the length of the message that was written to it.
#[derive(Debug)]
pub(in crate::process) struct StartPipe(OwnedFd, usize);

/// The largest message that a pipe takes in one piece.
const MOST_START_BYTES: usize = libc::PIPE_BUF;

/// The child's ends, in the order of the protocol.
#[derive(Debug)]
pub(super) struct ChildEnds([OwnedFd; 4]);

/// The identity of a forked child.
#[derive(Debug)]
pub(in crate::process) struct Child {
    /// Identifies it in events until it is given a call.
    pub(super) token: Token,
    pub(in crate::process) pid: Pid,
    pub(in crate::process) pidfd: OwnedFd,
}

#[derive(Debug)]
pub(in crate::process) struct Spare {
    pub(in crate::process) child: Child,
    pub(in crate::process) pipes: SparePipes,
}

/// Opens the four pipes of a spare.
pub(super) fn open_pipes() -> Result<(SparePipes, ChildEnds), Errno> {
    let (input, output, error) = (input_pipe()?, output_pipe()?, output_pipe()?);
    let (waiting, start) = pipe()?;
    let ours = SparePipes {
        input: input.0,
        output: output.0,
        error: error.0,
        start: StartPipe(start, 0),
    };
    Ok((ours, ChildEnds([input.1, output.1, error.1, waiting])))
}

impl ChildEnds {
    pub(super) fn fds(&self) -> [BorrowedFd<'_>; 4] {
        self.0.each_ref().map(AsFd::as_fd)
    }
}

impl StartPipe {
    /// Starts the call, with its variables; returns whether the message was written.
    pub(in crate::process) fn send(&mut self, own_env: &[CString]) -> bool {
        let mut word = vec![b'g'];
        for variable in own_env {
            word.extend_from_slice(variable.as_bytes_with_nul());
        }
        self.1 = word.len();
        word.len() <= MOST_START_BYTES && write(&self.0, &word) == Ok(word.len())
    }

    /// Takes the message back from a child that has not read it; returns whether that succeeded.
    pub(in crate::process) fn withdraw(&self) -> bool {
        // A second description of the pipe, because the child's own is blocking.
        let path = format!("/proc/self/fd/{}", self.0.as_raw_fd());
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let pipe = open(path, flags, Mode::empty());
        pipe.is_ok_and(|pipe| read(&pipe, &mut [0; MOST_START_BYTES]) == Ok(self.1))
    }

    /// Whether a child that is dead has read the message, or its first byte.
    pub(in crate::process) fn was_read(&self) -> bool {
        ioctl_fionread(&self.0).is_ok_and(|left| left < self.1 as u64)
    }
}

/// Watches `fd`; its events carry `token`.
pub(super) fn watch(
    epoll: BorrowedFd<'_>,
    token: Token,
    source: u64,
    fd: BorrowedFd<'_>,
) -> Result<(), Errno> {
    let data = EventData::new_u64(token << 2 | source);
    epoll::add(epoll, fd, data, EventFlags::IN)
}

/// Whether this is a child of the calling thread, alive or not yet reaped.
pub(super) fn is_own_child(pid: Pid) -> bool {
    let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT | libc::__WNOTHREAD;
    let number = pid.as_raw_nonzero().get().cast_unsigned();
    // SAFETY: the answer goes to plain memory of this frame; nothing is reaped.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        libc::waitid(libc::P_PID, number, &raw mut info, options) == 0
    }
}

/// The descriptor of a child of the calling thread.
pub(super) fn hold(pid: Pid) -> Result<OwnedFd, Errno> {
    let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
    if is_own_child(pid) {
        Ok(pidfd)
    } else {
        Err(Errno::CHILD)
    }
}

/// Kills a child without a call, which has no children.
pub(super) fn kill(pidfd: &OwnedFd) {
    let _ = pidfd_send_signal(pidfd, Signal::KILL);
}

/// Ends and reaps a child of the calling thread for which there is no descriptor.
pub(super) fn kill_and_reap(pid: Pid) {
    if is_own_child(pid) {
        let _ = kill_process(pid, Signal::KILL);
        let _ = waitpid(Some(pid), WaitOptions::empty());
    }
}
