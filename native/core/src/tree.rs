//! Folders as a whole: what is in them, whether their stats changed, what their contents hash to.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::ffi::{CStr, OsStr};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, RawDir, RenameFlags, Stat, fstat, open, openat,
    renameat_with, statat,
};
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};

use crate::digest::{Digest, in_parallel, sha256_file, to_hex};
use crate::error::{Error, Result};

const LISTING_BYTES: usize = 32 * 1024;

/// Which files of a tree count.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// Final suffixes without their dot; `None` takes every file.
    extensions: Option<BTreeSet<Vec<u8>>>,
    /// Names of folders that are not entered, at any depth.
    exclude_dirs: BTreeSet<Vec<u8>>,
    recursive: bool,
}

/// What stands at a path; other things (folders, devices, dangling links) are not listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    File,
    /// A symbolic link to a regular file.
    Symlink,
}

/// A file of a tree, by its path below the root.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    pub rel: Vec<u8>,
    pub kind: Kind,
}

/// The content of a tree: one digest over all files, and each file's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeDigest {
    pub digest: Digest,
    pub files: Vec<(Vec<u8>, Digest)>,
}

impl Filter {
    pub fn new(
        extensions: Option<Vec<String>>,
        exclude_dirs: Vec<String>,
        recursive: bool,
    ) -> Self {
        let bare = |text: String| text.strip_prefix('.').unwrap_or(&text).as_bytes().to_vec();
        Self {
            extensions: extensions.map(|all| all.into_iter().map(bare).collect()),
            exclude_dirs: exclude_dirs.into_iter().map(String::into_bytes).collect(),
            recursive,
        }
    }

    fn takes_file(&self, name: &[u8]) -> bool {
        let Some(extensions) = &self.extensions else {
            return true;
        };
        // A leading dot makes a hidden file, not a suffix.
        match name.iter().rposition(|&byte| byte == b'.') {
            Some(0) | None => false,
            Some(dot) => extensions.contains(&name[dot + 1..]),
        }
    }

    fn enters(&self, name: &[u8]) -> bool {
        self.recursive && !self.exclude_dirs.contains(name)
    }
}

/// Every file of the tree, sorted by the bytes of its path.
pub fn list_tree(root: &Path, filter: &Filter) -> Result<Vec<Entry>> {
    let mut entries = Vec::new();
    let visit = |_: &OwnedFd, _: &CStr, rel, kind| {
        entries.push(Entry { rel, kind });
        Ok(())
    };
    walk(root, filter, visit, |_, _| Ok(()))?;
    entries.sort_unstable();
    Ok(entries)
}

/// Exchanges the names of two files in one step; false where that can't be done.
pub fn exchange_files(one: &Path, other: &Path) -> bool {
    renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).is_ok()
}

/// A fingerprint of every file's stat: it changes whenever content may have changed.
///
/// Where every file counts, so do the folders: whatever is put into one, a link say, shows.
pub fn stat_tree(root: &Path, filter: &Filter) -> Result<Digest> {
    stat_and_count(root, filter).map(|(fingerprint, _)| fingerprint)
}

/// The fingerprint, and how many files it stands for.
pub(crate) fn stat_and_count(root: &Path, filter: &Filter) -> Result<(Digest, usize)> {
    let mut entries = Vec::new();
    let mut folders = Vec::new();
    let visit = |folder: &OwnedFd, name: &CStr, rel, kind| {
        let mut facts = [0; 2 * FACTS_BYTES];
        let own = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
        facts[..FACTS_BYTES].copy_from_slice(&facts_of(&own));
        if kind == Kind::Symlink {
            let target = statat(folder, name, AtFlags::empty())?;
            facts[FACTS_BYTES..].copy_from_slice(&facts_of(&target));
        }
        entries.push((rel, kind, facts));
        Ok(())
    };
    let enter = |folder: &OwnedFd, rel: &[u8]| {
        if filter.extensions.is_none() {
            folders.push((rel.to_vec(), facts_of(&fstat(folder)?)));
        }
        Ok(())
    };
    walk(root, filter, visit, enter)?;
    entries.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    folders.sort_unstable();
    let mut hasher = Sha256::new();
    for (rel, facts) in &folders {
        hasher.update((rel.len() as u64).to_le_bytes());
        hasher.update(rel);
        hasher.update(facts);
    }
    for (rel, kind, facts) in &entries {
        hasher.update((rel.len() as u64).to_le_bytes());
        hasher.update(rel);
        hasher.update([*kind as u8]);
        hasher.update(facts);
    }
    Ok((hasher.finalize().into(), entries.len()))
}

/// A fingerprint of the stats of all below a folder, but of some folders and those above them, whose
/// making so doesn't show. What stands in the place of such a folder, a link say, counts.
///
/// `left_out` has their paths below the root. A link as the root, or above them, isn't followed.
pub fn stat_beside(root: &Path, left_out: &BTreeSet<Vec<u8>>) -> Result<Digest> {
    let every_file = Filter::new(None, Vec::new(), true);
    let mut above = BTreeSet::from([Vec::new()]);
    for rel in left_out {
        let ends = rel.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        above.extend(ends.map(|(end, _)| rel[..end].to_vec()));
    }
    let mut hasher = Sha256::new();
    for folder in &above {
        let path = join(root, folder);
        let failed = |errno| Error::os("read", &path, errno);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let opened = match open(&path, flags, Mode::empty()) {
            Ok(opened) => opened,
            // What stands there counts among the names of the folder above.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => continue,
            Err(errno) => return Err(failed(errno)),
        };
        let mut names = Vec::new();
        let mut buffer = vec![MaybeUninit::uninit(); LISTING_BYTES];
        let mut listing = RawDir::new(opened.as_fd(), &mut buffer);
        while let Some(entry) = listing.next() {
            let name = entry.map_err(failed)?.file_name().to_owned();
            if !matches!(name.to_bytes(), b"." | b"..") {
                names.push(name);
            }
        }
        names.sort_unstable();
        for name in names {
            let rel = below(folder, &name);
            let stat = statat(&opened, &name, AtFlags::SYMLINK_NOFOLLOW).map_err(failed)?;
            let is_folder = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
            if is_folder && (left_out.contains(&rel) || above.contains(&rel)) {
                continue;
            }
            hasher.update((rel.len() as u64).to_le_bytes());
            hasher.update(&rel);
            if is_folder {
                hasher.update(stat_tree(&join(root, &rel), &every_file)?);
            } else {
                hasher.update(facts_of(&stat));
            }
        }
    }
    Ok(hasher.finalize().into())
}

/// When a file or folder of the tree changed last, by its change time in nanoseconds since 1970.
pub(crate) fn newest_change_ns(root: &Path, filter: &Filter) -> Result<i64> {
    let newest = Cell::new(i64::MIN);
    let visit = |folder: &OwnedFd, name: &CStr, _, _| {
        let own = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
        newest.set(newest.get().max(change_ns(&own)));
        Ok(())
    };
    let enter = |folder: &OwnedFd, _: &[u8]| {
        newest.set(newest.get().max(change_ns(&fstat(folder)?)));
        Ok(())
    };
    walk(root, filter, visit, enter)?;
    Ok(newest.get())
}

fn change_ns(stat: &Stat) -> i64 {
    let seconds_ns = stat.st_ctime.wrapping_mul(1_000_000_000);
    seconds_ns.wrapping_add_unsigned(stat.st_ctime_nsec)
}

/// SHA-256 over the lines `{hex}  {rel}\n`, sorted by path; links count by what they point to.
pub fn digest_tree(root: &Path, filter: &Filter) -> Result<TreeDigest> {
    let entries = list_tree(root, filter)?;
    let digests = in_parallel(&entries, |entry| sha256_file(&join(root, &entry.rel)))?;
    let mut hasher = Sha256::new();
    for (entry, digest) in entries.iter().zip(&digests) {
        hasher.update(to_hex(digest));
        hasher.update(b"  ");
        hasher.update(&entry.rel);
        hasher.update(b"\n");
    }
    let paths = entries.into_iter().map(|entry| entry.rel);
    Ok(TreeDigest {
        digest: hasher.finalize().into(),
        files: paths.zip(digests).collect(),
    })
}

fn join(root: &Path, rel: &[u8]) -> PathBuf {
    root.join(OsStr::from_bytes(rel))
}

const FACTS_BYTES: usize = 64;

fn facts_of(stat: &Stat) -> [u8; FACTS_BYTES] {
    let mut facts = [0; FACTS_BYTES];
    let numbers = [
        stat.st_dev,
        stat.st_ino,
        u64::from(stat.st_mode),
        stat.st_size.cast_unsigned(),
        stat.st_mtime.cast_unsigned(),
        stat.st_mtime_nsec,
        stat.st_ctime.cast_unsigned(),
        stat.st_ctime_nsec,
    ];
    for (slot, number) in facts.chunks_exact_mut(8).zip(numbers) {
        slot.copy_from_slice(&number.to_le_bytes());
    }
    facts
}

/// Calls `visit(folder, name, rel, kind)` for every file that the filter takes, and
/// `enter(folder, rel)` for every folder, in no order.
fn walk<V, E>(root: &Path, filter: &Filter, mut visit: V, mut enter: E) -> Result<()>
where
    V: FnMut(&OwnedFd, &CStr, Vec<u8>, Kind) -> std::result::Result<(), Errno>,
    E: FnMut(&OwnedFd, &[u8]) -> std::result::Result<(), Errno>,
{
    let failed = |rel: &[u8], errno| Error::os("read", join(root, rel), errno);
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let top = open(root, flags, Mode::empty()).map_err(|errno| Error::os("read", root, errno))?;
    let mut buffer = vec![MaybeUninit::uninit(); LISTING_BYTES];
    // Folders wait by path, not by descriptor, so that depth costs no descriptors.
    let mut waiting: Vec<Vec<u8>> = vec![Vec::new()];
    while let Some(rel_folder) = waiting.pop() {
        let opened;
        let folder = if rel_folder.is_empty() {
            &top
        } else {
            let below = OsStr::from_bytes(&rel_folder);
            opened = openat(&top, below, flags | OFlags::NOFOLLOW, Mode::empty())
                .map_err(|errno| failed(&rel_folder, errno))?;
            &opened
        };
        enter(folder, &rel_folder).map_err(|errno| failed(&rel_folder, errno))?;
        let mut listing = RawDir::new(folder.as_fd(), &mut buffer);
        while let Some(entry) = listing.next() {
            let entry = entry.map_err(|errno| failed(&rel_folder, errno))?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let rel = below(&rel_folder, name);
            let kind = match file_type(folder, name, entry.file_type()) {
                Ok(FileType::RegularFile) => Kind::File,
                Ok(FileType::Symlink) if leads_to_file(folder, name) => Kind::Symlink,
                Ok(FileType::Directory) => {
                    if filter.enters(name.to_bytes()) {
                        waiting.push(rel);
                    }
                    continue;
                }
                Ok(_) => continue,
                Err(errno) => return Err(failed(&rel, errno)),
            };
            if filter.takes_file(name.to_bytes()) {
                visit(folder, name, rel, kind)
                    .map_err(|errno| failed(&below(&rel_folder, name), errno))?;
            }
        }
    }
    Ok(())
}

fn below(folder: &[u8], name: &CStr) -> Vec<u8> {
    let mut rel = Vec::with_capacity(folder.len() + 1 + name.count_bytes());
    if !folder.is_empty() {
        rel.extend_from_slice(folder);
        rel.push(b'/');
    }
    rel.extend_from_slice(name.to_bytes());
    rel
}

fn file_type(
    folder: &OwnedFd,
    name: &CStr,
    listed: FileType,
) -> std::result::Result<FileType, Errno> {
    if listed != FileType::Unknown {
        return Ok(listed);
    }
    let stat = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(FileType::from_raw_mode(stat.st_mode))
}

fn leads_to_file(folder: &OwnedFd, name: &CStr) -> bool {
    statat(folder, name, AtFlags::empty())
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;
    use crate::digest::sha256;
    use crate::testing::Scratch;

    fn names(root: &Path, filter: &Filter) -> Vec<String> {
        let entries = list_tree(root, filter).unwrap();
        entries
            .into_iter()
            .map(|entry| String::from_utf8(entry.rel).unwrap())
            .collect()
    }

    fn all() -> Filter {
        Filter::new(None, Vec::new(), true)
    }

    fn sample() -> Scratch {
        let scratch = Scratch::new();
        for name in ["b.py", "a/z.py", "a.py", "a/deep/er.txt", "skip/x.py"] {
            scratch.write(name, name.as_bytes());
        }
        scratch
    }

    #[test]
    fn whatever_is_put_into_a_folder_shows_where_every_file_counts() {
        let scratch = Scratch::new();
        scratch.write("tree/deep/file.py", b"1");
        let root = scratch.path("tree");
        let every = Filter::new(None, Vec::new(), true);
        let python = Filter::new(Some(vec![".py".to_owned()]), Vec::new(), true);
        let before = (stat_tree(&root, &every), stat_tree(&root, &python));
        std::os::unix::fs::symlink("/", scratch.path("tree/deep/link")).unwrap();
        assert_ne!(stat_tree(&root, &every).unwrap(), before.0.unwrap());
        assert_eq!(stat_tree(&root, &python).unwrap(), before.1.unwrap());
    }

    #[test]
    fn files_are_listed_by_the_bytes_of_their_paths() {
        let scratch = sample();
        assert_eq!(
            names(scratch.root(), &all()),
            ["a.py", "a/deep/er.txt", "a/z.py", "b.py", "skip/x.py"]
        );
    }

    #[test]
    fn the_filter_knows_suffixes_folders_and_depth() {
        let scratch = sample();
        scratch.write(".py", b"hidden, without a suffix");
        scratch.write("archive.py.gz", b"");
        let exclude = || vec!["skip".to_owned()];
        for suffix in ["py", ".py"] {
            let python = Filter::new(Some(vec![suffix.to_owned()]), exclude(), true);
            assert_eq!(names(scratch.root(), &python), ["a.py", "a/z.py", "b.py"]);
        }
        let flat = Filter::new(None, Vec::new(), false);
        assert_eq!(
            names(scratch.root(), &flat),
            [".py", "a.py", "archive.py.gz", "b.py"]
        );
    }

    #[test]
    fn links_to_files_are_told_apart_and_links_to_folders_not_followed() {
        let scratch = Scratch::new();
        scratch.write("real/file", b"1");
        symlink("real/file", scratch.path("link")).unwrap();
        symlink("real", scratch.path("folder-link")).unwrap();
        symlink("nowhere", scratch.path("dangling")).unwrap();
        scratch.fifo("fifo");
        let entries = list_tree(scratch.root(), &all()).unwrap();
        let expected = [("link", Kind::Symlink), ("real/file", Kind::File)];
        let expected = expected.map(|(rel, kind)| Entry {
            rel: rel.into(),
            kind,
        });
        assert_eq!(entries, expected);
    }

    #[test]
    fn the_digest_is_that_of_sha256sum_lines() {
        let scratch = Scratch::new();
        scratch.write("b", b"2");
        scratch.write("a", b"1");
        let tree = digest_tree(scratch.root(), &all()).unwrap();
        let lines = format!(
            "{}  a\n{}  b\n",
            to_hex(&sha256(b"1")),
            to_hex(&sha256(b"2"))
        );
        assert_eq!(tree.digest, sha256(lines.as_bytes()));
        assert_eq!(tree.files.len(), 2);
    }

    #[test]
    fn every_kind_of_change_changes_the_fingerprint() {
        let scratch = sample();
        let root = scratch.root();
        let outside = Scratch::new();
        let target = outside.write("target", b"1");
        symlink(&target, scratch.path("link")).unwrap();
        let mut seen = vec![stat_tree(root, &all()).unwrap()];
        assert_eq!(seen[0], stat_tree(root, &all()).unwrap());
        let mut changed = |what: &str| {
            let now = stat_tree(root, &all()).unwrap();
            assert!(!seen.contains(&now), "{what} went unnoticed");
            seen.push(now);
        };
        scratch.write("a.py", b"longer than before");
        changed("another content");
        fs::rename(scratch.path("b.py"), scratch.path("c.py")).unwrap();
        changed("another name");
        fs::set_permissions(scratch.path("c.py"), fs::Permissions::from_mode(0o700)).unwrap();
        changed("another mode");
        fs::remove_file(scratch.path("c.py")).unwrap();
        changed("a file less");
        fs::write(&target, b"12").unwrap();
        changed("the content behind a link");
    }

    #[test]
    fn a_missing_root_is_named() {
        let scratch = Scratch::new();
        let missing = scratch.path("missing");
        for failed in [
            list_tree(&missing, &all()).map(drop),
            stat_tree(&missing, &all()).map(drop),
            digest_tree(&missing, &all()).map(drop),
        ] {
            assert_eq!(failed, Err(Error::os("read", &missing, Errno::NOENT)));
        }
    }

    #[test]
    fn all_but_what_is_left_out_shows_in_a_fingerprint() {
        let scratch = Scratch::new();
        let root = scratch.path("root");
        let left_out = BTreeSet::from([b".ai/state".to_vec(), b".ai/cache".to_vec()]);
        let stat = || stat_beside(&root, &left_out).unwrap();
        let nothing = stat();
        fs::create_dir(&root).unwrap();
        assert_eq!(stat(), nothing);
        scratch.write("root/.ai/state/one", b"1");
        assert_eq!(stat(), nothing);
        scratch.write("root/.ai/tools/t.py", b"1");
        let before = stat();
        assert_ne!(before, nothing);
        scratch.write("root/.ai/state/one", b"22");
        scratch.write("root/.ai/cache/two", b"2");
        assert_eq!(stat(), before);
        let mut seen = BTreeSet::from([nothing, before]);
        scratch.write("root/.ai/tools/t.py", b"22");
        assert!(seen.insert(stat()));
        scratch.write("root/.ai/tools/state/one", b"1");
        assert!(seen.insert(stat()));
        scratch.write("root/state", b"1");
        assert!(seen.insert(stat()));
        symlink("nowhere", scratch.path("root/link")).unwrap();
        assert!(seen.insert(stat()));
        fs::remove_dir_all(scratch.path("root/.ai/cache")).unwrap();
        assert!(!seen.insert(stat()));
        symlink("tools", scratch.path("root/.ai/cache")).unwrap();
        assert!(seen.insert(stat()));
    }
}
