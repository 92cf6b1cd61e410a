//! One template: its launch, and the protocol on its descriptor 3.

use std::collections::VecDeque;
use std::ffi::CString;
use std::fs;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::time::{Duration, Instant};

use rustix::event::epoll;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::{Errno, ioctl_fionbio, read};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags,
    SocketType, recv, send, sendmsg, socketpair,
};
use rustix::process::Pid;

use super::conditions::{LaunchConditions, Surroundings};
use super::policy::{self, Demand};
use super::spare::{ChildEnds, Spare, SparePipes, open_pipes, watch};
use super::start::Origin;
use crate::mailbox::Token;
use crate::process::launch::{Kit, Launched, SignalsBlocked, Stdio, launch};
use crate::process::spec::Program;
use crate::process::streams::{above_stdio, output_pipe};

/// The sources of a template's events; a spare has the first one alone.
pub(super) const LEADER: u64 = 0;
pub(super) const CONTROL: u64 = 1;
const PRINTED: u64 = 2;

/// How much of a refusal is kept.
const REASON_CHARS: usize = 200;

/// A fork that was requested and not answered.
#[derive(Debug)]
pub(super) struct PendingFork {
    pub(super) pipes: SparePipes,
    at: Instant,
}

#[derive(Debug)]
pub(super) struct Template {
    pub(super) token: Token,
    pub(super) pid: Pid,
    pub(super) pidfd: OwnedFd,
    pub(super) socket: OwnedFd,
    /// Its output; a template that prints is unfit.
    pub(super) output: Option<OwnedFd>,
    pub(super) ready_at: Option<Instant>,
    pub(super) conditions: LaunchConditions,
    pub(super) pending_forks: VecDeque<PendingFork>,
    pub(super) spares: VecDeque<Spare>,
    pub(super) forks: u64,
    /// Spares in a row that died before their call began.
    pub(super) stillborn: u32,
    pub(super) rests_until: Option<Instant>,
    /// The last round whose check found its conditions unchanged.
    pub(super) looked: u64,
    /// When its memory is to be measured.
    pub(super) look_at: Option<Instant>,
    /// How often it was measured, with a spare.
    pub(super) looks: u32,
    share_bytes: u64,
    /// The share of each spare.
    spare_share_bytes: u64,
    resident_bytes_when_ready: u64,
    pub(super) launched_at: Instant,
    last_answer: Instant,
}

/// A message of a template.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Message<'message> {
    Ready(&'message [u8]),
    No(&'message [u8]),
    Forked(Pid),
    Nonsense,
    /// It has closed its end.
    Gone,
}

/// Why a fork was not requested.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ForkRefusal {
    /// It has enough requests.
    Busy,
    /// The host has no descriptors left.
    Shortage,
    /// It has closed its socket.
    Gone,
}

fn parse_message(message: &[u8]) -> Message<'_> {
    if let Some(paths) = message.strip_prefix(b"ready\0") {
        return Message::Ready(paths);
    }
    if message == b"ready" {
        return Message::Ready(b"");
    }
    if let Some(reason) = message.strip_prefix(b"no\0") {
        return Message::No(reason);
    }
    let number = std::str::from_utf8(message).ok();
    let number = number
        .and_then(|text| text.parse().ok())
        .filter(|pid| *pid > 1);
    number
        .and_then(Pid::from_raw)
        .map_or(Message::Nonsense, Message::Forked)
}

/// Receives the next message; `None` while there is none.
pub(super) fn receive<'scratch>(
    socket: &OwnedFd,
    scratch: &'scratch mut [u8],
) -> Option<Message<'scratch>> {
    loop {
        match recv(socket, &mut *scratch, RecvFlags::TRUNC) {
            Ok((0, 0)) => return Some(Message::Gone),
            Ok((count, whole)) if whole <= count => return Some(parse_message(&scratch[..count])),
            Ok(_) => return Some(Message::Nonsense),
            // A template that ends with unread messages leaves one error before its last message.
            Err(Errno::INTR | Errno::CONNRESET) => {}
            Err(Errno::AGAIN) => return None,
            Err(_) => return Some(Message::Gone),
        }
    }
}

/// A refusal as one line of bounded length.
pub(super) fn reason_of(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let printable = text
        .chars()
        .map(|char| if char.is_control() { ' ' } else { char });
    printable.take(REASON_CHARS).collect()
}

impl Template {
    /// Starts the program with the recipe's argument, and sends it the recipe.
    pub(super) fn launch(
        token: Token,
        Origin { program, applied }: &Origin,
        around: &Surroundings,
        kit: &Kit,
        proof: &SignalsBlocked,
    ) -> Result<Self, String> {
        let failed = |what: &str, errno: Errno| format!("{what}: {errno}");
        let (socket, control) = sockets().map_err(|errno| failed("it got no socket", errno))?;
        let (output, printed) = output_pipe().map_err(|errno| failed("it got no pipe", errno))?;
        let conditions = LaunchConditions::before_launch(&program.path, &program.cwd, around)
            .map_err(|errno| failed("its program can't be looked at", errno))?;
        let program = program.with_argument(applied.arg_index, applied.recipe.arg.clone());
        let stdio = Stdio {
            stdin: kit.null.as_fd(),
            stdout: printed.as_fd(),
            stderr: printed.as_fd(),
            control: Some(control.as_fd()),
        };
        let launched_at = Instant::now();
        let Launched { pid, pidfd } = launch(proof, &kit.stack, &program, &[], &stdio, true)
            .map_err(|failure| format!("it can't be started: {}", failure.reason()))?;
        let template = Self {
            token,
            pid,
            pidfd,
            socket,
            output: Some(output),
            ready_at: None,
            conditions,
            pending_forks: VecDeque::new(),
            spares: VecDeque::new(),
            forks: 0,
            stillborn: 0,
            rests_until: None,
            looked: 0,
            look_at: None,
            looks: 0,
            share_bytes: 0,
            spare_share_bytes: 0,
            resident_bytes_when_ready: 0,
            launched_at,
            last_answer: launched_at,
        };
        // A template that doesn't take them never becomes ready.
        for content in [&applied.recipe.program, &applied.recipe.settings] {
            let _ = send(&template.socket, content, SendFlags::NOSIGNAL);
        }
        Ok(template)
    }

    /// Watches its descriptors; their events carry its token.
    pub(super) fn watch(&self, epoll: BorrowedFd<'_>) -> Result<(), Errno> {
        watch(epoll, self.token, LEADER, self.pidfd.as_fd())?;
        watch(epoll, self.token, CONTROL, self.socket.as_fd())?;
        match &self.output {
            Some(output) => watch(epoll, self.token, PRINTED, output.as_fd()),
            None => Ok(()),
        }
    }

    /// Why it is unfit, if it has printed something: in a cold start the call would have printed
    /// it.
    pub(super) fn printed(&mut self, epoll: BorrowedFd<'_>) -> Option<String> {
        match read(self.output.as_ref()?, &mut [0; 1024]) {
            Err(Errno::AGAIN | Errno::INTR) => None,
            Ok(0) | Err(_) => {
                let closed = self.output.take()?;
                let _ = epoll::delete(epoll, &closed);
                None
            }
            Ok(_) => Some("it prints something ahead of the calls".to_owned()),
        }
    }

    /// Whether forks can be requested now.
    pub(super) fn forks_at(&self, now: Instant) -> bool {
        self.ready_at.is_some() && self.rests_until.is_none_or(|time| time <= now)
    }

    /// Whether it can give a call a child now, or soon.
    pub(super) fn serves_at(&self, now: Instant) -> bool {
        !self.spares.is_empty() || self.forks_at(now)
    }

    /// Requests another child.
    pub(super) fn request_fork(&mut self, now: Instant) -> Result<(), ForkRefusal> {
        if self.pending_forks.len() >= policy::MOST_UNANSWERED {
            return Err(ForkRefusal::Busy);
        }
        let (ours, theirs) = open_pipes().map_err(|_| ForkRefusal::Shortage)?;
        match send_fork(&self.socket, &theirs) {
            Ok(()) => {
                self.pending_forks.push_back(PendingFork {
                    pipes: ours,
                    at: now,
                });
                Ok(())
            }
            Err(Errno::AGAIN) if !self.pending_forks.is_empty() => Err(ForkRefusal::Busy),
            Err(Errno::AGAIN | Errno::TOOMANYREFS | Errno::NOBUFS | Errno::NOMEM) => {
                Err(ForkRefusal::Shortage)
            }
            Err(_) => Err(ForkRefusal::Gone),
        }
    }

    /// Removes the oldest requested fork, which is answered.
    pub(super) fn answered(&mut self, now: Instant) -> Option<SparePipes> {
        self.last_answer = now;
        self.pending_forks.pop_front().map(|asked| asked.pipes)
    }

    pub(super) fn served(&self, now: Instant) -> Duration {
        let since = |time| now.saturating_duration_since(time);
        self.ready_at.map_or(Duration::ZERO, since)
    }

    /// How long ago it was launched.
    pub(super) fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.launched_at)
    }

    /// When it counts as hanging.
    pub(super) fn hangs_at(&self) -> Option<Instant> {
        if self.ready_at.is_none() {
            return self.launched_at.checked_add(policy::READY_WITHIN);
        }
        let asked = self.pending_forks.front()?;
        asked
            .at
            .max(self.last_answer)
            .checked_add(policy::FORKED_WITHIN)
    }

    /// When the next decision about it is due.
    pub(super) fn due(&self, demand: &Demand) -> Option<Instant> {
        let idle = if self.spares.is_empty() {
            policy::TEMPLATE_IDLE
        } else {
            policy::SPARES_IDLE
        };
        let idle = demand.last_call().checked_add(idle);
        [self.hangs_at(), idle, self.look_at]
            .into_iter()
            .flatten()
            .min()
    }

    /// Measures the memory of it and its spares; returns whether it is worn.
    pub(super) fn measure(&mut self) -> bool {
        let Some(own) = memory_of(self.pid) else {
            return false;
        };
        self.share_bytes = own.share_bytes;
        if let Some(spare) = self.spares.back().and_then(|one| memory_of(one.child.pid)) {
            self.spare_share_bytes = spare.share_bytes;
            self.looks += 1;
        }
        if self.resident_bytes_when_ready == 0 {
            self.resident_bytes_when_ready = own.resident_bytes;
        }
        let before = self.resident_bytes_when_ready;
        policy::is_worn(self.forks, before, own.resident_bytes)
    }

    /// The memory of it and its spares, when last measured.
    pub(super) fn bytes(&self) -> u64 {
        self.share_bytes + self.spare_share_bytes * self.spares.len() as u64
    }
}

fn sockets() -> Result<(OwnedFd, OwnedFd), Errno> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let (ours, theirs) = socketpair(family, kind, SocketFlags::CLOEXEC, None)?;
    ioctl_fionbio(&ours, true)?;
    Ok((above_stdio(ours)?, above_stdio(theirs)?))
}

fn send_fork(socket: &OwnedFd, sent: &ChildEnds) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let fds = sent.fds();
    ancillary.push(SendAncillaryMessage::ScmRights(&fds));
    let text = [IoSlice::new(b"fork")];
    sendmsg(socket, &text, &mut ancillary, SendFlags::NOSIGNAL).map(drop)
}

struct Memory {
    /// Its proportional share of memory.
    share_bytes: u64,
    resident_bytes: u64,
}

fn memory_of(pid: Pid) -> Option<Memory> {
    let pid = pid.as_raw_nonzero();
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let field = |name: &str| -> Option<u64> {
        let line = rollup.lines().find_map(|line| line.strip_prefix(name))?;
        let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
        Some(kib * 1024)
    };
    Some(Memory {
        share_bytes: field("Pss:")?,
        resident_bytes: field("Rss:")?,
    })
}

impl Program {
    /// The same program with another text for one of its arguments.
    fn with_argument(&self, index: usize, text: CString) -> Self {
        let mut other = self.clone();
        // The command precedes the arguments.
        other.argv[index + 1] = text;
        other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages() {
        let pid = |number| Message::Forked(Pid::from_raw(number).unwrap());
        let cases: [(&[u8], Message<'_>); 9] = [
            (b"ready\0/a\0/b", Message::Ready(b"/a\0/b")),
            (b"ready\0", Message::Ready(b"")),
            (b"ready", Message::Ready(b"")),
            (b"no\0two threads", Message::No(b"two threads")),
            (b"4711", pid(4711)),
            (b"1", Message::Nonsense),
            (b"-4", Message::Nonsense),
            (b"hello", Message::Nonsense),
            (b"\xff", Message::Nonsense),
        ];
        for (message, said) in cases {
            assert_eq!(parse_message(message), said);
        }
    }

    #[test]
    fn a_reason_is_one_short_line() {
        assert_eq!(reason_of(b"two\nlines\x1b[1m"), "two lines [1m");
        assert_eq!(reason_of(&[b'x'; 9999]).len(), REASON_CHARS);
    }

    #[test]
    fn a_template_that_ends_without_having_read_all_is_heard_to_its_end() {
        let (ours, theirs) = sockets().unwrap();
        send(&ours, b"a recipe", SendFlags::empty()).unwrap();
        send(&theirs, b"no\0two threads", SendFlags::empty()).unwrap();
        drop(theirs);
        let mut scratch = [0; 64];
        assert_eq!(
            receive(&ours, &mut scratch),
            Some(Message::No(b"two threads"))
        );
        assert_eq!(receive(&ours, &mut scratch), Some(Message::Gone));
    }
}
