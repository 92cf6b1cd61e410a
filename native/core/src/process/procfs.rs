//! Processes as `/proc` shows them: identities, and processes that left their group.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;

use rustix::io::Errno;
use rustix::process::{Pid, getpid};

use crate::error::{Error, Result};

/// The identity of a process, unique across boots, containers and reused numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessId {
    pub boot_id: String,
    /// The inode of its pid namespace.
    pub pid_namespace: u64,
    pub pid: i32,
    /// Clock ticks between boot and its start.
    pub start_ticks: u64,
}

/// The kernel's PF_FORKNOEXEC.
const FORKED_NOT_EXECUTED: u32 = 0x40;

/// The needed fields of `/proc/PID/stat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stat {
    pub(super) state: u8,
    pub(super) parent: i32,
    pub(super) group: i32,
    pub(super) session: i32,
    flags: u32,
    pub(super) start_ticks: u64,
}

impl Stat {
    pub(super) fn is_dead(self) -> bool {
        matches!(self.state, b'Z' | b'X' | b'x')
    }
}

impl ProcessId {
    /// The identity of the process that has this number now.
    pub(super) fn of(pid: Pid) -> Result<Self> {
        let number = pid.as_raw_nonzero().get();
        let stat =
            stat_of(number).ok_or_else(|| Error::os("identify", proc_path(number), Errno::SRCH))?;
        Ok(Self {
            boot_id: boot_id()?,
            pid_namespace: pid_namespace()?,
            pid: number,
            start_ticks: stat.start_ticks,
        })
    }

    pub fn current() -> Result<Self> {
        Self::of(getpid())
    }
}

fn proc_path(pid: i32) -> String {
    format!("/proc/{pid}")
}

fn failed(path: &str, error: &io::Error) -> Error {
    Error::os(
        "read",
        path,
        Errno::from_io_error(error).unwrap_or(Errno::IO),
    )
}

pub(super) fn boot_id() -> Result<String> {
    let path = "/proc/sys/kernel/random/boot_id";
    let text = fs::read_to_string(path).map_err(|error| failed(path, &error))?;
    Ok(text.trim_end().to_owned())
}

pub(super) fn pid_namespace() -> Result<u64> {
    let path = "/proc/self/ns/pid";
    let metadata = fs::metadata(path).map_err(|error| failed(path, &error))?;
    Ok(metadata.ino())
}

/// `None` for a number that no process has.
pub(super) fn stat_of(pid: i32) -> Option<Stat> {
    parse_stat(&fs::read(format!("/proc/{pid}/stat")).ok()?)
}

fn parse_stat(line: &[u8]) -> Option<Stat> {
    // The name stands in parentheses and may contain anything, parentheses too.
    let end = line.iter().rposition(|&byte| byte == b')')?;
    let mut fields = std::str::from_utf8(line.get(end + 2..)?).ok()?.split(' ');
    let state = *fields.next()?.as_bytes().first()?;
    let mut number = |skipped: usize| fields.nth(skipped);
    Some(Stat {
        state,
        parent: number(0)?.parse().ok()?,
        group: number(0)?.parse().ok()?,
        session: number(0)?.parse().ok()?,
        flags: number(2)?.parse().ok()?,
        start_ticks: number(12)?.parse().ok()?,
    })
}

/// The numbers and sessions of children of this process, dead ones too, that have not executed a
/// program since their fork.
pub(super) fn forked_children() -> Vec<(i32, i32)> {
    let own = getpid().as_raw_nonzero().get();
    let children = numbers().filter_map(|pid| {
        let stat = stat_of(pid)?;
        (stat.parent == own && stat.flags & FORKED_NOT_EXECUTED != 0).then_some((pid, stat.session))
    });
    children.collect()
}

fn numbers() -> impl Iterator<Item = i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Every process of this namespace that is alive, at one moment.
#[derive(Debug)]
pub(super) struct Snapshot(Vec<(i32, Stat)>);

impl Snapshot {
    pub(super) fn take() -> Self {
        let living = numbers().filter_map(|pid| {
            let stat = stat_of(pid)?;
            (!stat.is_dead()).then_some((pid, stat))
        });
        Self(living.collect())
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (i32, Stat)> {
        self.0.iter().copied()
    }

    /// The members of a process group.
    pub(super) fn group(&self, group: i32) -> impl Iterator<Item = i32> {
        let members = self.0.iter().filter(move |(_, stat)| stat.group == group);
        members.map(|(pid, _)| *pid)
    }

    /// The processes that left the group of `leader`, and belong to its session or write to one of
    /// its pipes.
    pub(super) fn left_behind(&self, leader: i32, pipes: &[u64]) -> Vec<i32> {
        let own = getpid().as_raw_nonzero().get();
        let links: Vec<_> = pipes
            .iter()
            .map(|inode| format!("pipe:[{inode}]"))
            .collect();
        let strangers = self.0.iter().filter(|(pid, stat)| {
            *pid != own
                && stat.group != leader
                && (stat.session == leader || writes_to(*pid, &links))
        });
        strangers.map(|(pid, _)| *pid).collect()
    }
}

/// Whether the environment that a process began with has one of `marks`, each `NAME=VALUE`.
pub(super) fn carries(pid: i32, marks: &[Vec<u8>]) -> bool {
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let mut texts = environment.split(|&byte| byte == 0);
    texts.any(|text| marks.iter().any(|mark| mark == text))
}

/// The reading ends are our own, and those of the host's other forks.
fn writes_to(pid: i32, links: &[String]) -> bool {
    if links.is_empty() {
        return false;
    }
    let open = fs::read_dir(format!("/proc/{pid}/fd"))
        .into_iter()
        .flatten()
        .flatten();
    let mut held = open.filter(|entry| {
        fs::read_link(entry.path())
            .is_ok_and(|target| links.iter().any(|link| target.as_os_str() == link.as_str()))
    });
    held.any(|entry| {
        let name = entry.file_name();
        let info = fs::read_to_string(format!("/proc/{pid}/fdinfo/{}", name.display()));
        info.is_ok_and(|info| opened_to_write(&info))
    })
}

fn opened_to_write(fdinfo: &str) -> bool {
    let flags = fdinfo.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|octal| i32::from_str_radix(octal.trim(), 8).ok());
    flags.is_some_and(|flags| flags & libc::O_ACCMODE != libc::O_RDONLY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_and_spaces_is_skipped() {
        let line = b"42 (a ) R 1 (b) S 1 42 41 0 -1 64 0 0 0 0 0 0 0 0 20 0 1 0 777 0 0\n";
        let expected = Stat {
            state: b'S',
            parent: 1,
            group: 42,
            session: 41,
            flags: 0x40,
            start_ticks: 777,
        };
        assert_eq!(parse_stat(line), Some(expected));
        assert_eq!(parse_stat(b""), None);
        assert_eq!(parse_stat(b"1 (x) S 1"), None);
    }

    #[test]
    fn the_current_process_is_itself() {
        let own = ProcessId::current().unwrap();
        assert_eq!(own.pid, std::process::id().cast_signed());
        assert_eq!(own, ProcessId::current().unwrap());
        assert_eq!(own.boot_id.len(), 36);
        assert!(Snapshot::take().0.iter().any(|(pid, _)| *pid == own.pid));
    }

    #[test]
    fn flags_tell_readers_from_writers() {
        assert!(!opened_to_write("pos:\t0\nflags:\t02000000\n"));
        assert!(opened_to_write("pos:\t0\nflags:\t02000001\n"));
        assert!(opened_to_write("pos:\t0\nflags:\t0100002\n"));
        assert!(!opened_to_write(""));
    }
}
