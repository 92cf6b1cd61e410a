//! Children that outlive the host: no parent-death signal, no pipes, a log file.

use std::path::Path;
use std::sync::Arc;

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::SealFlags;
use rustix::fs::{MemfdFlags, SeekFrom, fcntl_add_seals, memfd_create, seek};
use rustix::io::{Errno, write};
use rustix::process::{Signal, WaitId, WaitIdOptions, pidfd_send_signal, waitid};

use super::launch::{Kit, Launched, SignalsBlocked, Stdio, launch};
use super::procfs::ProcessId;
use super::spec::Program;
use super::streams::{above_stdio, open_log};
use crate::error::{Error, OsFailure, Result};
use crate::mailbox::{Token, next_token};
use crate::sync::Waiter;

type Answer = Arc<Waiter<Result<ProcessId>>>;

/// A requested start; its result goes to `answer`.
pub(super) struct Detachment {
    program: Program,
    stdin: Option<OwnedFd>,
    log: OwnedFd,
    answer: Answer,
}

/// A sealed anonymous file with these bytes, positioned at its beginning.
fn payload(bytes: &[u8]) -> std::result::Result<OwnedFd, Errno> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = above_stdio(memfd_create("ryecore-stdin", flags)?)?;
    let mut rest = bytes;
    while !rest.is_empty() {
        rest = &rest[write(&file, rest)?..];
    }
    seek(&file, SeekFrom::Start(0))?;
    let seals = SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
    fcntl_add_seals(&file, seals)?;
    Ok(file)
}

impl Detachment {
    /// A request, and where its result arrives.
    pub(super) fn new(program: Program, stdin: &[u8], log: &Path) -> Result<(Self, Answer)> {
        let log = open_log(log)?;
        let stdin = if stdin.is_empty() {
            None
        } else {
            let failed = |errno| Error::os("keep the input of", program.command(), errno);
            Some(payload(stdin).map_err(failed)?)
        };
        let answer = Answer::default();
        let detachment = Self {
            program,
            stdin,
            log,
            answer: Arc::clone(&answer),
        };
        Ok((detachment, answer))
    }

    /// Starts the child and delivers the answer; returns the child to be reaped later.
    pub(super) fn start(
        self,
        kit: &Kit,
        proof: &SignalsBlocked,
        watch: impl FnOnce(Token, &OwnedFd) -> std::result::Result<(), Errno>,
    ) -> Option<(Token, OwnedFd)> {
        let stdio = Stdio {
            stdin: self.stdin.as_ref().unwrap_or(&kit.null).as_fd(),
            stdout: self.log.as_fd(),
            stderr: self.log.as_fd(),
            control: None,
        };
        let Launched { pid, pidfd } =
            match launch(proof, &kit.stack, &self.program, &[], &stdio, false) {
                Ok(launched) => launched,
                Err(failure) => {
                    self.answer.put(Err(failure.into()));
                    return None;
                }
            };
        let token = next_token();
        let failed = |errno| OsFailure::new("watch", self.program.command(), errno);
        let identity = watch(token, &pidfd).map_err(|errno| failed(errno).into());
        match identity.and_then(|()| ProcessId::of(pid)) {
            Ok(identity) => {
                self.answer.put(Ok(identity));
                Some((token, pidfd))
            }
            Err(error) => {
                // Without an identity it could never be ended, so it is killed.
                let _ = pidfd_send_signal(&pidfd, Signal::KILL);
                let _ = waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED);
                self.answer.put(Err(error));
                None
            }
        }
    }
}
