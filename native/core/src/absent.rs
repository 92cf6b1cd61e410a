//! Absent paths, grouped by the folder that a new file would change.

use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{AtFlags, CWD, Stat, statat};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

use crate::error::Result;
use crate::path::{as_path, c_path};

/// A folder's stat shows every later change once it is this old: time stamps are coarse, and a
/// change within the same tick would not show.
const SETTLED_NS: i128 = 200_000_000;

/// The absent paths below one folder.
#[derive(Debug)]
pub(crate) struct AbsentIn {
    folder: CString,
    paths: Vec<CString>,
    /// The stat of the folder, old enough, when all of the paths were absent.
    settled: Mutex<Option<Identity>>,
}

type Identity = (u64, u64, i128, i128);

impl AbsentIn {
    /// Groups paths by their folder, in the order in which the folders first appear.
    pub(crate) fn group(paths: Vec<PathBuf>) -> Result<Vec<Self>> {
        let mut groups: Vec<(PathBuf, Self)> = Vec::new();
        for path in paths {
            let folder = path.parent().unwrap_or(Path::new("/")).to_owned();
            let path = c_path(path)?;
            if let Some((_, group)) = groups.iter_mut().find(|(other, _)| *other == folder) {
                group.paths.push(path);
                continue;
            }
            let group = Self {
                folder: c_path(folder.clone())?,
                paths: vec![path],
                settled: Mutex::new(None),
            };
            groups.push((folder, group));
        }
        Ok(groups.into_iter().map(|(_, group)| group).collect())
    }

    /// The first path at which something stands now.
    ///
    /// A folder whose stat is the settled one has gained no entry, so one look spares many.
    pub(crate) fn broken(&self) -> Option<&Path> {
        let now = identity(&self.folder);
        let mut settled = self.settled.lock().unwrap_or_else(PoisonError::into_inner);
        if now.is_some() && *settled == now {
            return None;
        }
        *settled = None;
        if let Some(path) = self.paths.iter().find(|path| !is_absent(path)) {
            return Some(as_path(path));
        }
        *settled = now.filter(is_settled);
        None
    }
}

fn identity(folder: &CString) -> Option<Identity> {
    let stat: Stat = statat(CWD, folder.as_c_str(), AtFlags::empty()).ok()?;
    let ns = |seconds: i64, nanos: u64| i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
    Some((
        stat.st_dev,
        stat.st_ino,
        ns(stat.st_mtime, stat.st_mtime_nsec),
        ns(stat.st_ctime, stat.st_ctime_nsec),
    ))
}

fn is_settled(identity: &Identity) -> bool {
    let now = clock_gettime(ClockId::Realtime);
    let now = i128::from(now.tv_sec) * 1_000_000_000 + i128::from(now.tv_nsec);
    now - identity.2.max(identity.3) > SETTLED_NS
}

fn is_absent(path: &CString) -> bool {
    matches!(
        statat(CWD, path.as_c_str(), AtFlags::SYMLINK_NOFOLLOW),
        Err(Errno::NOENT | Errno::NOTDIR)
    )
}

#[cfg(test)]
mod tests {
    use std::fs::{self, FileTimes};
    use std::time::{Duration, SystemTime};

    use super::*;
    use crate::testing::Scratch;

    fn group_of(scratch: &Scratch, names: &[&str]) -> Vec<AbsentIn> {
        let paths = names.iter().map(|name| scratch.path(name)).collect();
        AbsentIn::group(paths).unwrap()
    }

    #[test]
    fn paths_of_one_folder_make_one_group() {
        let scratch = Scratch::new();
        let groups = group_of(&scratch, &["a/x", "b/x", "a/y"]);
        let sizes: Vec<_> = groups.iter().map(|group| group.paths.len()).collect();
        assert_eq!(sizes, [2, 1]);
    }

    #[test]
    fn a_new_file_shows_at_once_in_a_fresh_folder() {
        let scratch = Scratch::new();
        scratch.write("folder/other", b"");
        let groups = group_of(&scratch, &["folder/new"]);
        assert_eq!(groups[0].broken(), None);
        scratch.write("folder/new", b"");
        assert_eq!(groups[0].broken(), Some(&*scratch.path("folder/new")));
    }

    #[test]
    fn a_new_file_shows_in_a_settled_folder_even_where_its_mtime_was_set_back() {
        let scratch = Scratch::new();
        scratch.write("folder/other", b"");
        let groups = group_of(&scratch, &["folder/new"]);
        let folder = fs::File::open(scratch.path("folder")).unwrap();
        let before = folder.metadata().unwrap().modified().unwrap();
        while groups[0].settled.lock().unwrap().is_none() {
            assert_eq!(groups[0].broken(), None);
        }
        scratch.write("folder/new", b"");
        folder
            .set_times(FileTimes::new().set_modified(before))
            .unwrap();
        assert_eq!(groups[0].broken(), Some(&*scratch.path("folder/new")));
    }

    #[test]
    fn another_file_in_a_settled_folder_changes_nothing() {
        let scratch = Scratch::new();
        scratch.write("folder/other", b"");
        let groups = group_of(&scratch, &["folder/new"]);
        while groups[0].settled.lock().unwrap().is_none() {
            assert_eq!(groups[0].broken(), None);
        }
        scratch.write("folder/third", b"");
        assert_eq!(groups[0].broken(), None);
    }

    #[test]
    fn a_folder_from_the_future_is_never_settled() {
        let scratch = Scratch::new();
        scratch.write("folder/other", b"");
        let groups = group_of(&scratch, &["folder/new"]);
        let later = SystemTime::now() + Duration::from_secs(3600);
        let folder = fs::File::open(scratch.path("folder")).unwrap();
        folder
            .set_times(FileTimes::new().set_modified(later))
            .unwrap();
        assert_eq!(groups[0].broken(), None);
        assert!(groups[0].settled.lock().unwrap().is_none());
    }

    #[test]
    fn a_folder_that_does_not_exist_is_looked_at_each_time() {
        let scratch = Scratch::new();
        let groups = group_of(&scratch, &["missing/new"]);
        assert_eq!(groups[0].broken(), None);
        scratch.write("missing/new", b"");
        assert_eq!(groups[0].broken(), Some(&*scratch.path("missing/new")));
    }
}
