//! Witnesses: the files and folders that a decision was based on, to check that none has changed.

use std::cell::RefCell;
use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use rustix::io::Errno;

use crate::absent::AbsentIn;
use crate::digest::{Digest, Regular};
use crate::error::Result;
use crate::path::{as_path, c_path};
use crate::tree::{Filter, newest_change_ns, stat_and_count};

const BUFFER_BYTES: usize = 64 * 1024;
const FILES_WORTH_A_THREAD: usize = 256;

/// A folder with the fingerprint of its stats.
#[derive(Debug)]
pub struct SeenTree {
    root: PathBuf,
    filter: Filter,
    fingerprint: Digest,
    /// The number of files at the last check; 0 before the first.
    files: AtomicUsize,
}

impl SeenTree {
    pub fn new(root: PathBuf, filter: Filter, fingerprint: Digest) -> Self {
        Self {
            root,
            filter,
            fingerprint,
            files: AtomicUsize::new(0),
        }
    }

    fn has_changed(&self) -> bool {
        let Ok((fingerprint, files)) = stat_and_count(&self.root, &self.filter) else {
            return true;
        };
        self.files.store(files, Ordering::Relaxed);
        fingerprint != self.fingerprint
    }
}

/// Files with their content, paths at which nothing was, and folders with their stats.
#[derive(Debug)]
pub struct Witness {
    files: Vec<(CString, Digest)>,
    absent: Vec<AbsentIn>,
    trees: Vec<SeenTree>,
}

impl Witness {
    pub fn new(
        files: Vec<(PathBuf, Digest)>,
        absent: Vec<PathBuf>,
        trees: Vec<SeenTree>,
    ) -> Result<Self> {
        let files: Result<_> = files
            .into_iter()
            .map(|(path, digest)| Ok((c_path(path)?, digest)))
            .collect();
        Ok(Self {
            files: files?,
            absent: AbsentIn::group(absent)?,
            trees,
        })
    }

    /// Whether another one has the same files and folders, with the same content and stats.
    pub(crate) fn saw_the_same(&self, other: &Self) -> bool {
        let tree = |tree: &SeenTree| (tree.root.clone(), tree.filter.clone(), tree.fingerprint);
        self.files == other.files
            && self.trees.len() == other.trees.len()
            && self.trees.iter().map(tree).eq(other.trees.iter().map(tree))
    }

    /// Whether nothing in its folders has changed since a time in nanoseconds since 1970.
    pub(crate) fn is_older_than(&self, time_ns: i64) -> bool {
        let newest = |tree: &SeenTree| newest_change_ns(&tree.root, &tree.filter);
        let is_older = |tree| newest(tree).is_ok_and(|newest_ns| newest_ns < time_ns);
        self.trees.iter().all(is_older)
    }

    /// The first path that has changed; `None` while none has.
    pub fn broken(&self) -> Option<&Path> {
        let differs = |(path, digest): &&(CString, Digest)| digest_now(path) != Ok(*digest);
        if let Some((path, _)) = self.files.iter().find(differs) {
            return Some(as_path(path));
        }
        if let Some(path) = self.absent.iter().find_map(AbsentIn::broken) {
            return Some(path);
        }
        self.broken_tree().map(|tree| &*tree.root)
    }

    /// Checks large trees in parallel: a check of a thousand files takes longer than starting a
    /// thread.
    fn broken_tree(&self) -> Option<&SeenTree> {
        let large = |tree: &&SeenTree| tree.files.load(Ordering::Relaxed) >= FILES_WORTH_A_THREAD;
        if self.trees.iter().filter(large).count() < 2 {
            return self.trees.iter().find(|tree| tree.has_changed());
        }
        thread::scope(|scope| {
            let looks: Vec<_> = self
                .trees
                .iter()
                .map(|tree| {
                    (
                        tree,
                        large(&tree).then(|| scope.spawn(|| tree.has_changed())),
                    )
                })
                .collect();
            let mut changed = looks.into_iter().map(|(tree, look)| {
                let has_changed = match look {
                    Some(look) => look.join().unwrap_or(true),
                    None => tree.has_changed(),
                };
                (tree, has_changed)
            });
            changed
                .find(|(_, has_changed)| *has_changed)
                .map(|(tree, _)| tree)
        })
    }
}

fn digest_now(path: &CString) -> std::result::Result<Digest, Errno> {
    // The hottest call of the library allocates nothing.
    thread_local! {
        static BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; BUFFER_BYTES]);
    }
    let file = Regular::open(path.as_c_str())?;
    BUFFER.with_borrow_mut(|buffer| file.digest(buffer))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::digest::sha256;
    use crate::testing::Scratch;
    use crate::tree::stat_tree;

    fn witness_of(scratch: &Scratch) -> Witness {
        let file = scratch.write("seen/file", b"content");
        let filter = Filter::new(None, Vec::new(), true);
        let root = scratch.path("tree");
        scratch.write("tree/one", b"1");
        let fingerprint = stat_tree(&root, &filter).unwrap();
        let tree = SeenTree::new(root, filter, fingerprint);
        let absent = vec![scratch.path("absent"), scratch.path("seen/file/below")];
        Witness::new(vec![(file, sha256(b"content"))], absent, vec![tree]).unwrap()
    }

    #[test]
    fn it_holds_while_nothing_changes() {
        let scratch = Scratch::new();
        let witness = witness_of(&scratch);
        assert_eq!(witness.broken(), None);
        assert_eq!(witness.broken(), None);
    }

    #[test]
    fn each_change_is_named_by_its_path() {
        type Change = fn(&Scratch);
        let cases: [(&str, Change); 7] = [
            ("seen/file", |s| drop(s.write("seen/file", b"c0ntent"))),
            ("seen/file", |s| drop(s.write("seen/file", b"content+"))),
            ("seen/file", |s| {
                fs::remove_file(s.path("seen/file")).unwrap()
            }),
            ("absent", |s| drop(s.write("absent", b""))),
            ("absent", |s| symlink("nowhere", s.path("absent")).unwrap()),
            ("tree", |s| drop(s.write("tree/two", b"2"))),
            ("tree", |s| fs::remove_dir_all(s.path("tree")).unwrap()),
        ];
        for (name, change) in cases {
            let scratch = Scratch::new();
            let witness = witness_of(&scratch);
            change(&scratch);
            assert_eq!(witness.broken(), Some(&*scratch.path(name)));
        }
    }

    #[test]
    fn it_is_older_than_a_time_until_something_of_its_trees_changes() {
        let changes: [fn(&Scratch); 4] = [
            |s| drop(s.write("tree/one", b"1")),
            |s| drop(s.write("tree/below/two", b"2")),
            |s| fs::remove_file(s.path("tree/one")).unwrap(),
            |s| fs::remove_dir_all(s.path("tree")).unwrap(),
        ];
        for change in changes {
            let scratch = Scratch::new();
            let witness = witness_of(&scratch);
            let newest = newest_change_ns(&scratch.path("tree"), &witness.trees[0].filter).unwrap();
            assert!(witness.is_older_than(newest + 1));
            assert!(!witness.is_older_than(newest));
            // Until the clock of files has gone on.
            while change_time_of_a_new_file(&scratch) <= newest {}
            change(&scratch);
            assert!(!witness.is_older_than(newest + 1));
        }
    }

    fn change_time_of_a_new_file(scratch: &Scratch) -> i64 {
        use std::os::unix::fs::MetadataExt;
        let seen = fs::metadata(scratch.write("clock", b"")).unwrap();
        seen.ctime() * 1_000_000_000 + seen.ctime_nsec()
    }

    #[test]
    fn two_saw_the_same_where_files_and_folders_are_alike() {
        let scratch = Scratch::new();
        let (one, other) = (witness_of(&scratch), witness_of(&scratch));
        assert!(one.saw_the_same(&one));
        // Written anew, the tree has other times.
        assert!(
            !one.saw_the_same(&other) || one.trees[0].fingerprint == other.trees[0].fingerprint
        );
        let bare = Witness::new(Vec::new(), Vec::new(), Vec::new()).unwrap();
        assert!(!one.saw_the_same(&bare));
        assert!(bare.saw_the_same(&bare));
    }

    #[test]
    fn a_change_in_one_of_several_large_trees_is_found() {
        let scratch = Scratch::new();
        let roots = ["a", "b", "c"].map(|name| {
            for file in 0..FILES_WORTH_A_THREAD {
                scratch.write(&format!("{name}/{file}"), b"");
            }
            scratch.path(name)
        });
        let trees = roots.iter().map(|root| {
            let filter = Filter::new(None, Vec::new(), true);
            let fingerprint = stat_tree(root, &filter).unwrap();
            SeenTree::new(root.clone(), filter, fingerprint)
        });
        let witness = Witness::new(Vec::new(), Vec::new(), trees.collect()).unwrap();
        assert_eq!(witness.broken(), None);
        assert_eq!(witness.broken(), None);
        scratch.write("b/7", b"changed");
        assert_eq!(witness.broken(), Some(&*roots[1]));
    }

    #[test]
    fn a_fifo_in_a_files_place_is_a_difference_and_never_waited_for() {
        let scratch = Scratch::new();
        let witness = witness_of(&scratch);
        fs::remove_file(scratch.path("seen/file")).unwrap();
        scratch.fifo("seen/file");
        assert_eq!(witness.broken(), Some(&*scratch.path("seen/file")));
    }

    #[test]
    fn content_longer_than_the_buffer_is_hashed_whole() {
        let scratch = Scratch::new();
        let mut content = vec![b'x'; 3 * BUFFER_BYTES];
        let path = scratch.write("long", &content);
        let seen = vec![(path.clone(), sha256(&content))];
        let witness = Witness::new(seen, Vec::new(), Vec::new()).unwrap();
        assert_eq!(witness.broken(), None);
        *content.last_mut().unwrap() = b'y';
        fs::write(&path, &content).unwrap();
        assert_eq!(witness.broken(), Some(&*path));
    }
}
