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
mod tests;
