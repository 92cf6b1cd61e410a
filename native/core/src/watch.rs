//! Changes of files and folders, told by inotify.

use std::collections::{BTreeSet, HashMap};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;

use crate::error::{Error, Result};

const BUFFER_BYTES: usize = 16 * 1024;

/// Changes of a watched path. A file is watched through its folder, so that it may be replaced,
/// or not exist yet; where the folder is missing too, through the nearest one that exists.
#[derive(Debug)]
pub struct Watcher {
    inotify: OwnedFd,
    paths: Vec<PathBuf>,
    interests: HashMap<i32, Vec<Interest>>,
}

/// What an event of a watched folder means for a path.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Interest {
    /// Which of the watched paths.
    path: usize,
    /// The entry that counts; `None` is every one.
    name: Option<OsString>,
    /// The path itself is this entry, not only something above it.
    is_direct: bool,
}

impl Watcher {
    pub fn new(paths: Vec<PathBuf>) -> Result<Self> {
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)
            .map_err(|errno| Error::os("watch", first_of(&paths), errno))?;
        let mut watcher = Self {
            inotify,
            paths,
            interests: HashMap::new(),
        };
        watcher.arm()?;
        Ok(watcher)
    }

    /// Readable while changes wait.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }

    /// The watched paths that have changed since the last call; all of them when the kernel lost
    /// count. Never waits.
    pub fn changes(&mut self) -> Result<Vec<PathBuf>> {
        let mut changed = BTreeSet::new();
        let mut moved = false;
        let mut buffer = [MaybeUninit::uninit(); BUFFER_BYTES];
        let mut reader = Reader::new(&self.inotify, &mut buffer);
        loop {
            let event = match reader.next() {
                Ok(event) => event,
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(Error::os("watch", first_of(&self.paths), errno)),
            };
            let kind = event.events();
            if kind.contains(ReadFlags::QUEUE_OVERFLOW) {
                changed.extend(0..self.paths.len());
                moved = true;
            }
            moved |= kind.intersects(MOVING);
            let name = event
                .file_name()
                .map(|name| OsStr::from_bytes(name.to_bytes()));
            for interest in self.interests.get(&event.wd()).into_iter().flatten() {
                let concerns = match (&interest.name, name) {
                    // The folder itself was moved or removed.
                    (_, None) => true,
                    (None, Some(_)) => true,
                    (Some(wanted), Some(name)) => wanted == name,
                };
                if concerns && (interest.is_direct || self.paths[interest.path].exists()) {
                    changed.insert(interest.path);
                }
            }
        }
        if moved {
            changed.extend(self.arm()?);
        }
        Ok(changed
            .into_iter()
            .map(|index| self.paths[index].clone())
            .collect())
    }

    /// Waits for changes, `patience` at most; nothing when none came.
    pub fn wait(&mut self, patience: Duration) -> Result<Vec<PathBuf>> {
        let timeout = Timespec {
            tv_sec: i64::try_from(patience.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: patience.subsec_nanos().into(),
        };
        // An interruption reads as nothing.
        let _ = poll(
            &mut [PollFd::new(&self.inotify, PollFlags::IN)],
            Some(&timeout),
        );
        self.changes()
    }

    /// Watches what now leads to each path. Gives the paths that came to be in the meantime.
    fn arm(&mut self) -> Result<Vec<usize>> {
        let mut interests: HashMap<i32, Vec<Interest>> = HashMap::new();
        let mut appeared = Vec::new();
        for (index, path) in self.paths.iter().enumerate() {
            let existed = self.is_directly_watched(index);
            loop {
                let found = leading_to(path, index);
                for (folder, interest) in &found {
                    match inotify::add_watch(&self.inotify, folder, WATCHED) {
                        Ok(wd) => {
                            let list = interests.entry(wd).or_default();
                            if !list.contains(interest) {
                                list.push(interest.clone());
                            }
                        }
                        // It went away again; the second look sees what is there now.
                        Err(Errno::NOENT | Errno::NOTDIR) => {}
                        Err(errno) => return Err(Error::os("watch", folder, errno)),
                    }
                }
                // Something may have come to be between the look and the watch.
                if leading_to(path, index) == found {
                    break;
                }
            }
            if !existed && path.exists() {
                appeared.push(index);
            }
        }
        let before = std::mem::replace(&mut self.interests, interests);
        for wd in before.keys().filter(|wd| !self.interests.contains_key(wd)) {
            // A folder that is gone has taken its watch along.
            let _ = inotify::remove_watch(&self.inotify, *wd);
        }
        let is_first = before.is_empty();
        Ok(if is_first { Vec::new() } else { appeared })
    }

    fn is_directly_watched(&self, path: usize) -> bool {
        let mut all = self.interests.values().flatten();
        all.any(|interest| interest.path == path && interest.is_direct)
    }
}

/// Events after which other folders may lead to a path.
const MOVING: ReadFlags = ReadFlags::CREATE
    .union(ReadFlags::DELETE)
    .union(ReadFlags::MOVED_FROM)
    .union(ReadFlags::MOVED_TO)
    .union(ReadFlags::DELETE_SELF)
    .union(ReadFlags::MOVE_SELF);

const WATCHED: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MODIFY)
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::ONLYDIR);

fn first_of(paths: &[PathBuf]) -> &Path {
    paths.first().map_or(Path::new(""), PathBuf::as_path)
}

/// The folders to be watched for a path: where it stands, and where its link leads.
fn leading_to(path: &Path, index: usize) -> Vec<(PathBuf, Interest)> {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut found = vec![entry_of(&absolute, index)];
    if absolute.is_dir() {
        let any = Interest {
            path: index,
            name: None,
            is_direct: true,
        };
        found.push((absolute.clone(), any));
    }
    if let Ok(target) = fs::canonicalize(&absolute)
        && target != absolute
    {
        found.push(entry_of(&target, index));
    }
    found
}

/// The nearest existing folder above a path, and the entry in it that leads there.
fn entry_of(path: &Path, index: usize) -> (PathBuf, Interest) {
    let mut entry = path;
    let mut is_direct = true;
    loop {
        let (folder, name) = match (entry.parent(), entry.file_name()) {
            (Some(folder), Some(name)) => (folder, Some(name.to_owned())),
            // The root of everything has no folder above it.
            _ => (entry, None),
        };
        if folder.is_dir() || name.is_none() {
            let interest = Interest {
                path: index,
                name,
                is_direct,
            };
            return (folder.to_owned(), interest);
        }
        entry = folder;
        is_direct = false;
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::testing::Scratch;

    const LONG: Duration = Duration::from_secs(30);

    fn watcher(paths: &[&PathBuf]) -> Watcher {
        Watcher::new(paths.iter().map(|path| (*path).clone()).collect()).unwrap()
    }

    fn expect(watcher: &mut Watcher, paths: &[&PathBuf]) {
        let changed = watcher.wait(LONG).unwrap();
        assert_eq!(changed.iter().collect::<Vec<_>>(), paths);
        assert!(watcher.changes().unwrap().is_empty());
    }

    #[test]
    fn a_file_is_watched_through_all_that_may_happen_to_it() {
        let scratch = Scratch::new();
        let (file, other) = (scratch.write("file", b"1"), scratch.write("other", b"1"));
        let mut watcher = watcher(&[&file]);
        assert!(watcher.changes().unwrap().is_empty());
        fs::write(&other, b"not watched").unwrap();
        assert!(watcher.changes().unwrap().is_empty());
        fs::write(&file, b"written").unwrap();
        expect(&mut watcher, &[&file]);
        fs::rename(&other, &file).unwrap();
        expect(&mut watcher, &[&file]);
        fs::remove_file(&file).unwrap();
        expect(&mut watcher, &[&file]);
        fs::write(&file, b"again").unwrap();
        expect(&mut watcher, &[&file]);
    }

    #[test]
    fn a_folder_is_changed_by_its_entries() {
        let scratch = Scratch::new();
        scratch.write("folder/one", b"1");
        let folder = scratch.path("folder");
        let mut watcher = watcher(&[&folder]);
        scratch.write("folder/two", b"2");
        expect(&mut watcher, &[&folder]);
        fs::remove_dir_all(&folder).unwrap();
        expect(&mut watcher, &[&folder]);
        fs::create_dir(&folder).unwrap();
        expect(&mut watcher, &[&folder]);
        scratch.write("folder/three", b"3");
        expect(&mut watcher, &[&folder]);
    }

    #[test]
    fn a_path_whose_folders_do_not_exist_yet() {
        let scratch = Scratch::new();
        let file = scratch.path("a/b/file");
        let mut watcher = watcher(&[&file]);
        fs::create_dir(scratch.path("a")).unwrap();
        assert!(watcher.changes().unwrap().is_empty());
        fs::create_dir(scratch.path("a/b")).unwrap();
        assert!(watcher.changes().unwrap().is_empty());
        fs::write(&file, b"").unwrap();
        expect(&mut watcher, &[&file]);
        fs::rename(scratch.path("a/b"), scratch.path("a/c")).unwrap();
        expect(&mut watcher, &[&file]);
        fs::create_dir(scratch.path("a/b")).unwrap();
        fs::write(&file, b"").unwrap();
        expect(&mut watcher, &[&file]);
    }

    #[test]
    fn a_link_is_followed_to_its_target() {
        let scratch = Scratch::new();
        let target = scratch.write("elsewhere/target", b"1");
        let link = scratch.path("link");
        symlink(&target, &link).unwrap();
        let mut watcher = watcher(&[&link]);
        fs::write(&target, b"2").unwrap();
        expect(&mut watcher, &[&link]);
        fs::remove_file(&link).unwrap();
        expect(&mut watcher, &[&link]);
    }

    #[test]
    fn several_paths_are_told_apart() {
        let scratch = Scratch::new();
        let (a, b) = (scratch.write("a", b""), scratch.write("b", b""));
        let mut watcher = watcher(&[&a, &b]);
        fs::write(&b, b"1").unwrap();
        expect(&mut watcher, &[&b]);
        fs::write(&b, b"2").unwrap();
        fs::write(&a, b"2").unwrap();
        expect(&mut watcher, &[&a, &b]);
    }

    #[test]
    fn after_an_overflow_everything_may_have_changed() {
        let limit = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
        let limit: usize = limit.trim().parse().unwrap();
        let scratch = Scratch::new();
        let (a, b) = (scratch.path("a"), scratch.path("b"));
        let mut watcher = watcher(&[&a, &b]);
        for number in 0..=limit / 2 {
            // Two different events each, so that none is merged into another.
            let name = scratch.path(&format!("noise{}", number % 2));
            fs::write(&name, b"").unwrap();
            fs::remove_file(&name).unwrap();
        }
        expect(&mut watcher, &[&a, &b]);
    }

    #[test]
    fn waiting_ends_with_its_patience() {
        let scratch = Scratch::new();
        let mut watcher = watcher(&[&scratch.path("never")]);
        let changes = watcher.wait(Duration::from_millis(1)).unwrap();
        assert!(changes.is_empty());
    }
}
