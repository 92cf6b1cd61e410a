//! The conditions of a template's launch, to check that a start now would find the same.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::io::IoSliceMut;

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, open, statat};
use rustix::io::{Errno, preadv};
use rustix::thread::gettid;
use rustix::time::{ClockId, clock_gettime};

use crate::process::streams::above_stdio;

/// The lines of a thread's status that a child inherits.
const INHERITED: [&[u8]; 14] = [
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
    b"Seccomp_filters:",
    b"Cpus_allowed:",
    b"Mems_allowed:",
];
const STATUS_BYTES: usize = 16 * 1024;
/// The granularity of the clock of file times.
const COARSE_NS: i64 = 10_000_000;
const LIMITS: usize = 16;
const WORTH_A_DESCRIPTOR: usize = 4;
/// A template may have read packages by the hundred, and the descriptors are the host's.
const MOST_FOLDERS: usize = 8;

/// The stat of a file by which a change is noticed without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seen {
    device: u64,
    inode: u64,
    size: i64,
    modified_ns: i64,
    changed_ns: i64,
}

fn look(path: &CStr) -> Result<Seen, Errno> {
    look_in(CWD, path)
}

fn look_in(folder: BorrowedFd<'_>, path: &CStr) -> Result<Seen, Errno> {
    let stat = statat(folder, path, AtFlags::empty())?;
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

fn folder_of(path: &CStr) -> Result<CString, Errno> {
    let path = path.to_bytes();
    let slash = path.iter().rposition(|byte| *byte == b'/');
    let folder = slash.map_or(&b"."[..], |slash| &path[..=slash]);
    CString::new(folder).map_err(|_| Errno::INVAL)
}

/// The identity of a folder, which new entries don't change.
fn identity(path: &CStr) -> Result<(u64, u64), Errno> {
    look(path).map(|seen| (seen.device, seen.inode))
}

/// A folder that holds several files of a template. A stat by its descriptor costs half of one by
/// the whole path, and is equal while the path leads to that folder.
#[derive(Debug)]
struct Folder {
    path: CString,
    fd: OwnedFd,
    identity: (u64, u64),
    files: Vec<(CString, Option<Seen>)>,
}

impl Folder {
    fn open(path: CString, names: &[&[u8]]) -> Option<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = open(&path, flags, Mode::empty())
            .and_then(above_stdio)
            .ok()?;
        let own = look_in(fd.as_fd(), c".").ok()?;
        let names = names.iter().filter_map(|name| CString::new(*name).ok());
        let files = names.map(|name| {
            let seen = look_in(fd.as_fd(), &name).ok();
            (name, seen)
        });
        let files = files.collect();
        Some(Self {
            identity: (own.device, own.inode),
            path,
            fd,
            files,
        })
    }

    fn has_changed(&self) -> bool {
        identity(&self.path).as_ref() != Ok(&self.identity)
            || differs(&self.files, |name| look_in(self.fd.as_fd(), name))
    }
}

fn differs(files: &[(CString, Option<Seen>)], look: impl Fn(&CStr) -> Result<Seen, Errno>) -> bool {
    files.iter().any(|(name, seen)| look(name).ok() != *seen)
}

/// The attributes that a child inherits from the launching thread.
#[derive(Debug)]
pub(super) struct Surroundings {
    tid: libc::pid_t,
    status: OwnedFd,
    cgroup: OwnedFd,
    oom_score_adj: OwnedFd,
}

/// The inherited attributes at one moment.
#[derive(Debug, PartialEq, Eq)]
struct Inherited {
    text: Vec<u8>,
    limits: [(u64, u64); LIMITS],
    scheduling: (i32, i32),
    root: (u64, u64),
}

impl Surroundings {
    /// The surroundings of the calling thread.
    pub(super) fn of_this_thread() -> Result<Self, Errno> {
        let kept = |path: &str| {
            let flags = OFlags::RDONLY | OFlags::CLOEXEC;
            open(path, flags, Mode::empty()).and_then(above_stdio)
        };
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

/// Reads a file of `/proc`; one that is larger than the buffer is an error.
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

/// The conditions of one template's launch.
#[derive(Debug)]
pub(super) struct LaunchConditions {
    launched_ns: i64,
    program: (CString, Seen),
    /// The program's folder: a replaced virtual environment may have the same program.
    program_folder: (CString, (u64, u64)),
    cwd: (CString, (u64, u64)),
    inherited: Inherited,
    folders: Vec<Folder>,
    files: Vec<(CString, Option<Seen>)>,
}

impl LaunchConditions {
    /// Reads the conditions right before the launch.
    pub(super) fn before_launch(
        program: &CStr,
        cwd: &CStr,
        around: &Surroundings,
    ) -> Result<Self, Errno> {
        let now = clock_gettime(ClockId::RealtimeCoarse);
        let folder = folder_of(program)?;
        Ok(Self {
            launched_ns: now.tv_sec * 1_000_000_000 + now.tv_nsec,
            program: (program.to_owned(), look(program)?),
            program_folder: (folder.clone(), identity(&folder)?),
            cwd: (cwd.to_owned(), identity(cwd)?),
            inherited: around.look()?,
            folders: Vec::new(),
            files: Vec::new(),
        })
    }

    /// Adds the files that the template has read; returns whether all are older than the launch. A
    /// younger one may have been read before or after its change.
    pub(super) fn take_in(&mut self, paths: &[u8]) -> bool {
        let paths = paths
            .split(|byte| *byte == 0)
            .filter(|path| !path.is_empty());
        let mut folders: BTreeMap<&[u8], Vec<&[u8]>> = BTreeMap::new();
        for path in paths {
            let slash = path.iter().rposition(|byte| *byte == b'/');
            let (folder, name) = path.split_at(slash.map_or(0, |slash| slash + 1));
            folders.entry(folder).or_default().push(name);
        }
        let mut folders: Vec<_> = folders.into_iter().collect();
        folders.sort_by_key(|(_, names)| Reverse(names.len()));
        for (folder, names) in folders {
            // The template's own directory is where its relative paths begin.
            let mut place = if folder.starts_with(b"/") {
                Vec::new()
            } else {
                [self.cwd.0.as_bytes(), b"/"].concat()
            };
            place.extend_from_slice(folder);
            let is_worth_it =
                names.len() >= WORTH_A_DESCRIPTOR && self.folders.len() < MOST_FOLDERS;
            let opened = CString::new(&*place).ok().filter(|_| is_worth_it);
            match opened.and_then(|path| Folder::open(path, &names)) {
                Some(folder) => self.folders.push(folder),
                None => self.files.extend(names.iter().filter_map(|name| {
                    let path = CString::new([&*place, *name].concat()).ok()?;
                    let seen = look(&path).ok();
                    Some((path, seen))
                })),
            }
        }
        let in_folders = self.folders.iter().flat_map(|folder| &folder.files);
        let seen = self
            .files
            .iter()
            .chain(in_folders)
            .filter_map(|(_, seen)| seen.as_ref());
        let mut seen = seen.chain([&self.program.1]);
        seen.all(|seen| seen.changed_ns < self.launched_ns - COARSE_NS)
    }

    /// Whether these files were last changed before the launch, and so were read as they are.
    pub(super) fn is_younger_than_all_of(&self, sealed: &crate::witness::Witness) -> bool {
        sealed.is_older_than(self.launched_ns - COARSE_NS)
    }

    /// How many descriptors it holds.
    pub(super) fn descriptors(&self) -> usize {
        self.folders.len()
    }

    /// The condition that has changed, in words; `None` while all hold.
    pub(super) fn broken(&self, around: &Surroundings) -> Option<&'static str> {
        let (program, seen) = &self.program;
        if look(program).as_ref() != Ok(seen) {
            return Some("its program has changed");
        }
        let (folder, seen) = &self.program_folder;
        if identity(folder).as_ref() != Ok(seen) {
            return Some("its program's directory is another one");
        }
        let (cwd, seen) = &self.cwd;
        if identity(cwd).as_ref() != Ok(seen) {
            return Some("its working directory is another one");
        }
        if around.look().as_ref() != Ok(&self.inherited) {
            return Some("what a start inherits has changed");
        }
        let has_changed =
            self.folders.iter().any(Folder::has_changed) || differs(&self.files, look);
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

    fn witness(scratch: &Scratch, around: &Surroundings, files: &[&str]) -> LaunchConditions {
        scratch.write("cwd/some", b"");
        let cwd = c_string(&scratch.path("cwd"));
        let mut witness = LaunchConditions::before_launch(c"/bin/sh", &cwd, around).unwrap();
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
        for index in 0..9 {
            scratch.write(&format!("many/{index}"), b"");
        }
        let all: Vec<_> = (0..9).map(|index| format!("many/{index}")).collect();
        let all: Vec<_> = all.iter().map(String::as_str).collect();
        let seen = witness(&scratch, &around, &all);
        assert_eq!((seen.descriptors(), seen.broken(&around)), (1, None));
        std::fs::rename(scratch.path("many"), scratch.path("other")).unwrap();
        assert!(seen.broken(&around).unwrap().contains("file"));
        std::fs::rename(scratch.path("other"), scratch.path("many")).unwrap();
        assert_eq!(seen.broken(&around), None);
        scratch.write("many/8", b"8");
        assert!(seen.broken(&around).unwrap().contains("file"));
        let seen = witness(&scratch, &around, &[]);
        let (cwd, moved) = (scratch.path("cwd"), scratch.path("moved"));
        std::fs::rename(&cwd, &moved).unwrap();
        assert!(seen.broken(&around).unwrap().contains("directory"));
        std::fs::rename(&moved, &cwd).unwrap();
        assert_eq!(seen.broken(&around), None);
    }

    #[test]
    fn a_replaced_environment_is_seen_where_its_program_is_the_same() {
        let scratch = Scratch::new();
        let around = Surroundings::of_this_thread().unwrap();
        for name in ["now", "next"] {
            scratch.write(&format!("{name}/bin/other"), b"");
            let link = scratch.path(&format!("{name}/bin/sh"));
            std::os::unix::fs::symlink("/bin/sh", link).unwrap();
        }
        let program = c_string(&scratch.path("now/bin/sh"));
        let seen = LaunchConditions::before_launch(&program, c"/", &around).unwrap();
        assert_eq!(seen.broken(&around), None);
        std::fs::rename(scratch.path("now"), scratch.path("before")).unwrap();
        std::fs::rename(scratch.path("next"), scratch.path("now")).unwrap();
        assert!(
            seen.broken(&around)
                .unwrap()
                .contains("program's directory")
        );
    }

    #[test]
    fn hundreds_of_folders_take_few_descriptors() {
        let scratch = Scratch::new();
        let around = Surroundings::of_this_thread().unwrap();
        let all: Vec<_> = (0..400)
            .map(|index| format!("{}/{index}", index / 4))
            .collect();
        for name in &all {
            scratch.write(name, b"");
        }
        let all: Vec<_> = all.iter().map(String::as_str).collect();
        for changed in ["0/0", "50/200", "99/399"] {
            let seen = witness(&scratch, &around, &all);
            assert!(seen.descriptors() <= MOST_FOLDERS);
            assert_eq!(seen.broken(&around), None);
            scratch.write(changed, b"changed");
            assert!(seen.broken(&around).unwrap().contains("file"));
        }
    }

    #[test]
    fn what_is_younger_than_the_launch_is_not_trusted() {
        let scratch = Scratch::new();
        let around = Surroundings::of_this_thread().unwrap();
        let file = c_string(&scratch.write("file", b"1"));
        let mut seen = LaunchConditions::before_launch(c"/bin/sh", c"/", &around).unwrap();
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
