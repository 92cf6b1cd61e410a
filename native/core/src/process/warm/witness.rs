//! What a template was made from, and whether a start made now would find the same.

use std::ffi::{CStr, CString};
use std::io::IoSliceMut;

use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags, open, stat};
use rustix::io::{Errno, preadv};
use rustix::thread::gettid;
use rustix::time::{ClockId, clock_gettime};

/// Lines of a thread's status that a child inherits.
const INHERITED: [&[u8]; 13] = [
    b"Umask:",
    b"Uid:",
    b"Gid:",
    b"Groups:",
    b"CapInh:",
    b"CapPrm:",
    b"CapEff:",
    b"CapBnd:",
    b"CapAmb:",
    b"NoNewPrivs:",
    b"Seccomp:",
    b"Cpus_allowed:",
    b"Mems_allowed:",
];
const STATUS_BYTES: usize = 16 * 1024;
/// File times come from a clock that is that coarse.
const COARSE_NS: i64 = 10_000_000;
const LIMITS: usize = 16;

/// What tells a changed file from an unchanged one without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seen {
    device: u64,
    inode: u64,
    size: i64,
    modified_ns: i64,
    changed_ns: i64,
}

fn look(path: &CStr) -> Result<Seen, Errno> {
    let stat = stat(path)?;
    let ns = |seconds: i64, ns: u64| {
        seconds
            .wrapping_mul(1_000_000_000)
            .wrapping_add_unsigned(ns)
    };
    Ok(Seen {
        device: stat.st_dev,
        inode: stat.st_ino,
        size: stat.st_size,
        modified_ns: ns(stat.st_mtime, stat.st_mtime_nsec),
        changed_ns: ns(stat.st_ctime, stat.st_ctime_nsec),
    })
}

/// A folder may get entries, and is the same one.
fn identity(path: &CStr) -> Result<(u64, u64), Errno> {
    look(path).map(|seen| (seen.device, seen.inode))
}

/// What a start inherits from the thread that starts it, and no spec says.
#[derive(Debug)]
pub(super) struct Surroundings {
    tid: libc::pid_t,
    status: OwnedFd,
    cgroup: OwnedFd,
    oom_score_adj: OwnedFd,
}

/// Those at one moment.
#[derive(Debug, PartialEq, Eq)]
struct Inherited {
    text: Vec<u8>,
    limits: [(u64, u64); LIMITS],
    scheduling: (i32, i32),
    root: (u64, u64),
}

impl Surroundings {
    /// Of the calling thread, from here on.
    pub(super) fn of_this_thread() -> Result<Self, Errno> {
        let kept = |path: &str| open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        Ok(Self {
            tid: gettid().as_raw_nonzero().get(),
            status: kept("/proc/thread-self/status")?,
            cgroup: kept("/proc/thread-self/cgroup")?,
            oom_score_adj: kept("/proc/self/oom_score_adj")?,
        })
    }

    fn look(&self) -> Result<Inherited, Errno> {
        let mut buffer = [0; STATUS_BYTES];
        let mut text = Vec::with_capacity(1024);
        let status = read_whole(&self.status, &mut buffer)?;
        for line in status.split_inclusive(|byte| *byte == b'\n') {
            if INHERITED.iter().any(|name| line.starts_with(name)) {
                text.extend_from_slice(line);
            }
        }
        text.extend_from_slice(read_whole(&self.cgroup, &mut buffer)?);
        text.extend_from_slice(read_whole(&self.oom_score_adj, &mut buffer)?);
        Ok(Inherited {
            text,
            limits: limits(),
            scheduling: scheduling(self.tid),
            root: identity(c"/")?,
        })
    }
}

/// A file of `/proc` that can't be read at once is more than anybody compares.
fn read_whole<'buffer>(file: &OwnedFd, buffer: &'buffer mut [u8]) -> Result<&'buffer [u8], Errno> {
    let count = preadv(file, &mut [IoSliceMut::new(buffer)], 0)?;
    if count == buffer.len() {
        return Err(Errno::FBIG);
    }
    Ok(&buffer[..count])
}

fn limits() -> [(u64, u64); LIMITS] {
    std::array::from_fn(|resource| {
        let mut limit = libc::rlimit64 {
            rlim_cur: 0,
            rlim_max: 0,
        };
        let number = libc::c_uint::try_from(resource).unwrap_or_default();
        // SAFETY: asks for this process's limit alone, into plain memory of this frame.
        unsafe { libc::prlimit64(0, number, std::ptr::null(), &raw mut limit) };
        (limit.rlim_cur, limit.rlim_max)
    })
}

fn scheduling(tid: libc::pid_t) -> (i32, i32) {
    // SAFETY: plain numbers.
    unsafe {
        let niceness = libc::getpriority(libc::PRIO_PROCESS, tid.cast_unsigned());
        (niceness, libc::sched_getscheduler(tid))
    }
}

/// What one template was made from.
#[derive(Debug)]
pub(super) struct Witness {
    launched_ns: i64,
    program: (CString, Seen),
    cwd: (CString, (u64, u64)),
    inherited: Inherited,
    files: Vec<(CString, Option<Seen>)>,
}

impl Witness {
    /// Right before the launch.
    pub(super) fn before_launch(
        program: &CStr,
        cwd: &CStr,
        around: &Surroundings,
    ) -> Result<Self, Errno> {
        let now = clock_gettime(ClockId::RealtimeCoarse);
        Ok(Self {
            launched_ns: now.tv_sec * 1_000_000_000 + now.tv_nsec,
            program: (program.to_owned(), look(program)?),
            cwd: (cwd.to_owned(), identity(cwd)?),
            inherited: around.look()?,
            files: Vec::new(),
        })
    }

    /// Takes in what the template says that it has read; whether all of it is older than the
    /// launch. What is younger may have been read before it was changed, or after.
    pub(super) fn take_in(&mut self, paths: &[u8]) -> bool {
        let paths = paths
            .split(|byte| *byte == 0)
            .filter(|path| !path.is_empty());
        let paths = paths.filter_map(|path| CString::new(path).ok());
        self.files = paths.map(|path| (path.clone(), look(&path).ok())).collect();
        let seen = self.files.iter().filter_map(|(_, seen)| seen.as_ref());
        let mut seen = seen.chain([&self.program.1]);
        seen.all(|seen| seen.changed_ns < self.launched_ns - COARSE_NS)
    }

    /// What differs now, in words; `None` while everything holds.
    pub(super) fn broken(&self, around: &Surroundings) -> Option<&'static str> {
        let (program, seen) = &self.program;
        if look(program).as_ref() != Ok(seen) {
            return Some("its program has changed");
        }
        let (cwd, seen) = &self.cwd;
        if identity(cwd).as_ref() != Ok(seen) {
            return Some("its working directory is another one");
        }
        if around.look().as_ref() != Ok(&self.inherited) {
            return Some("what a start inherits has changed");
        }
        let differs = |(path, seen): &(CString, Option<Seen>)| look(path).ok() != *seen;
        let has_changed = self.files.iter().any(differs);
        has_changed.then_some("a file that it has read has changed")
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;
    use std::path::Path;

    use super::*;
    use crate::testing::Scratch;

    fn c_string(path: &Path) -> CString {
        CString::new(path.as_os_str().as_bytes()).unwrap()
    }

    fn witness(scratch: &Scratch, around: &Surroundings, files: &[&str]) -> Witness {
        let cwd = c_string(scratch.root());
        let mut witness = Witness::before_launch(c"/bin/sh", &cwd, around).unwrap();
        // As if the launch had been later than it was, and the files older.
        witness.launched_ns += 1_000_000_000;
        let paths: Vec<_> = files
            .iter()
            .map(|name| c_string(&scratch.path(name)).into_bytes())
            .collect();
        assert!(witness.take_in(&paths.join(&0)));
        witness
    }

    #[test]
    fn it_holds_until_something_changes() {
        let scratch = Scratch::new();
        let around = Surroundings::of_this_thread().unwrap();
        let file = scratch.write("file", b"1");
        let seen = witness(&scratch, &around, &["file", "absent"]);
        assert_eq!(seen.broken(&around), None);
        std::fs::write(file, b"22").unwrap();
        assert!(seen.broken(&around).unwrap().contains("file"));
        let seen = witness(&scratch, &around, &["file", "absent"]);
        scratch.write("absent", b"");
        assert!(seen.broken(&around).unwrap().contains("file"));
        let seen = witness(&scratch, &around, &[]);
        let (cwd, moved) = (scratch.root(), scratch.path("../moved"));
        std::fs::rename(cwd, &moved).unwrap();
        assert!(seen.broken(&around).unwrap().contains("directory"));
        std::fs::rename(&moved, cwd).unwrap();
        assert_eq!(seen.broken(&around), None);
    }

    #[test]
    fn what_is_younger_than_the_launch_is_not_trusted() {
        let scratch = Scratch::new();
        let around = Surroundings::of_this_thread().unwrap();
        let file = c_string(&scratch.write("file", b"1"));
        let mut seen = Witness::before_launch(c"/bin/sh", c"/", &around).unwrap();
        assert!(seen.take_in(b""));
        assert!(!seen.take_in(file.as_bytes()));
    }

    #[test]
    fn what_a_start_inherits_is_compared() {
        // On a thread of its own, whose niceness changes alone.
        std::thread::scope(|scope| {
            let body = || {
                let scratch = Scratch::new();
                let around = Surroundings::of_this_thread().unwrap();
                let seen = witness(&scratch, &around, &[]);
                // SAFETY: plain numbers, about this thread.
                unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 19) };
                seen.broken(&around).map(str::to_owned)
            };
            let broken = scope.spawn(body).join().unwrap();
            assert!(broken.unwrap().contains("inherits"));
        });
    }
}
