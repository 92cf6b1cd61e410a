//! Content by its SHA-256: written once, whole or not at all; never given back changed.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use rustix::io::Errno;

use crate::clock::now_ns;
use crate::digest::{Digest, from_hex, read_digest, sha256, to_hex};
use crate::error::{Error, Result};

const TEMPORARY: &str = "tmp";
const CORRUPT: &str = "corrupt";
/// What a killed writer left is nobody's after that.
const STALE: Duration = Duration::from_secs(3600);
const SHARDS: usize = 256;

/// A folder of blobs, `ab/<hex>`, shared by any number of processes.
///
/// One level of folders: a second one would have nearly each blob make a folder of its own, which
/// costs several times what the blob does.
#[derive(Debug)]
pub struct Store {
    root: PathBuf,
    durable: bool,
    /// Which folders' names are known to survive a power cut, by their number.
    kept: [AtomicBool; SHARDS],
}

/// A file that vanishes unless it is put in its place.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

impl Store {
    /// Opens a store, made where it is missing. `durable`: what `put` has returned survives a
    /// power cut.
    pub fn open(root: PathBuf, durable: bool) -> Result<Self> {
        let kept = [const { AtomicBool::new(false) }; SHARDS];
        let store = Self {
            root,
            durable,
            kept,
        };
        make_folder(&store.root)?;
        make_folder(&store.root.join(TEMPORARY))?;
        if durable {
            sync(parent(&store.root))?;
        }
        store.sweep();
        Ok(store)
    }

    /// Stores content, and gives its name. Content that is there already is left alone.
    pub fn put(&self, bytes: &[u8]) -> Result<Digest> {
        let digest = sha256(bytes);
        let path = self.path(&digest);
        let present = read_digest(&path, bytes.len() as u64);
        if present.is_ok_and(|(_, found)| found == digest) {
            if self.durable {
                sync(&path)?; // another writer may have been less careful
            }
        } else {
            let temporary = self.write_temporary(bytes)?;
            move_to(&temporary.0, &path)?;
            std::mem::forget(temporary);
        }
        self.persist_name(&digest, &path)?;
        Ok(digest)
    }

    /// Content by its name, verified. A blob that differs is moved aside and is an error.
    pub fn get(&self, hex: &str) -> Result<Vec<u8>> {
        let digest = from_hex(hex)?;
        let path = self.path(&digest);
        let (bytes, found) = read_digest(&path, u64::MAX)?;
        if found == digest {
            return Ok(bytes);
        }
        self.move_aside(&path, hex)?;
        Err(Error::os("trust the content of", &path, Errno::BADMSG))
    }

    /// Whether a blob of this name is there; nothing is said about its content.
    pub fn has(&self, hex: &str) -> Result<bool> {
        Ok(self.path(&from_hex(hex)?).is_file())
    }

    /// Whether a blob is there and is what its name says.
    pub fn verify(&self, hex: &str) -> Result<bool> {
        let digest = from_hex(hex)?;
        match crate::digest::sha256_file(&self.path(&digest)) {
            Ok(found) => Ok(found == digest),
            Err(Error::Os(failure)) if failure.errno == Errno::NOENT.raw_os_error() => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn path(&self, digest: &Digest) -> PathBuf {
        let hex = to_hex(digest);
        let mut path = PathBuf::with_capacity(self.root.as_os_str().len() + hex.len() + 4);
        path.push(&self.root);
        path.push(&hex[..2]);
        path.push(hex);
        path
    }

    /// A name that no other writer has.
    fn unique(&self, folder: &str, stem: &str) -> PathBuf {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let (process, number) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let name = format!("{stem}-{process}-{number}-{}", now_ns());
        self.root.join(folder).join(name)
    }

    fn write_temporary(&self, bytes: &[u8]) -> Result<Temporary> {
        let path = self.unique(TEMPORARY, "blob");
        let mut options = fs::OpenOptions::new();
        options.write(true).create_new(true).mode(0o444);
        let mut file = options.open(&path).map_err(failed("write", &path))?;
        let temporary = Temporary(path);
        let written = file.write_all(bytes);
        let kept = written.and_then(|()| {
            if self.durable {
                file.sync_data()
            } else {
                Ok(())
            }
        });
        kept.map_err(failed("write", &temporary.0))?;
        Ok(temporary)
    }

    /// Makes a blob's name survive a power cut.
    fn persist_name(&self, digest: &Digest, path: &Path) -> Result<()> {
        if !self.durable {
            return Ok(());
        }
        sync(parent(path))?;
        let kept = &self.kept[usize::from(digest[0])];
        if !kept.load(Ordering::Relaxed) {
            sync(&self.root)?;
            kept.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    fn move_aside(&self, path: &Path, hex: &str) -> Result<()> {
        make_folder(&self.root.join(CORRUPT))?;
        match fs::rename(path, self.unique(CORRUPT, hex)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            moved => moved.map_err(failed("move aside", path)),
        }
    }

    fn sweep(&self) {
        let entries = fs::read_dir(self.root.join(TEMPORARY))
            .into_iter()
            .flatten()
            .flatten();
        for entry in entries {
            let written = entry.metadata().and_then(|metadata| metadata.modified());
            let age = written.map(|time| SystemTime::now().duration_since(time));
            if matches!(age, Ok(Ok(age)) if age > STALE) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(path)
}

/// Puts a file in its place, whose folder is made where it is missing.
fn move_to(from: &Path, path: &Path) -> Result<()> {
    let moved = match fs::rename(from, path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            make_folder(parent(path))?;
            fs::rename(from, path)
        }
        moved => moved,
    };
    moved.map_err(failed("write", path))
}

fn sync(path: &Path) -> Result<()> {
    let synced = fs::File::open(path).and_then(|file| file.sync_all());
    synced.map_err(failed("keep", path))
}

fn make_folder(path: &Path) -> Result<()> {
    let mut builder = fs::DirBuilder::new();
    let made = builder.recursive(true).mode(0o700).create(path);
    made.map_err(failed("make the folder", path))
}

fn failed(step: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    move |error| {
        Error::os(
            step,
            path,
            Errno::from_io_error(&error).unwrap_or(Errno::IO),
        )
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::testing::Scratch;

    fn store(scratch: &Scratch) -> Store {
        Store::open(scratch.path("store"), false).unwrap()
    }

    fn files_in(folder: &Path) -> usize {
        fs::read_dir(folder).map_or(0, Iterator::count)
    }

    #[test]
    fn content_comes_back_by_its_name() {
        let scratch = Scratch::new();
        for durable in [false, true] {
            let store = Store::open(scratch.path("store"), durable).unwrap();
            for content in [&b""[..], b"abc", &vec![7; 300_000]] {
                let hex = to_hex(&store.put(content).unwrap());
                assert_eq!(store.put(content).map(|d| to_hex(&d)), Ok(hex.clone()));
                assert_eq!(store.get(&hex).as_deref(), Ok(content));
                assert_eq!((store.has(&hex), store.verify(&hex)), (Ok(true), Ok(true)));
                let path = scratch.root().join(format!("store/{}/{hex}", &hex[..2]));
                assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o444);
            }
        }
        assert_eq!(files_in(&scratch.path("store/tmp")), 0);
    }

    #[test]
    fn what_is_missing_is_missing() {
        let scratch = Scratch::new();
        let store = store(&scratch);
        let hex = to_hex(&sha256(b"never stored"));
        assert_eq!(
            (store.has(&hex), store.verify(&hex)),
            (Ok(false), Ok(false))
        );
        let Err(Error::Os(failure)) = store.get(&hex) else {
            panic!("it was there");
        };
        assert_eq!(failure.errno, Errno::NOENT.raw_os_error());
    }

    #[test]
    fn a_corrupt_blob_is_moved_aside_and_can_be_stored_again() {
        let scratch = Scratch::new();
        let store = store(&scratch);
        let digest = store.put(b"content").unwrap();
        let (hex, path) = (to_hex(&digest), store.path(&digest));
        for damage in [&b"c0ntent"[..], b"cont", b"content and more"] {
            fs::remove_file(&path).unwrap();
            fs::write(&path, damage).unwrap();
            assert_eq!(store.verify(&hex), Ok(false));
            let Err(Error::Os(failure)) = store.get(&hex) else {
                panic!("it was given back");
            };
            assert_eq!(failure.errno, Errno::BADMSG.raw_os_error());
            assert_eq!(store.has(&hex), Ok(false));
            fs::write(&path, damage).unwrap();
            store.put(b"content").unwrap();
            assert_eq!(store.get(&hex).as_deref(), Ok(&b"content"[..]));
        }
        assert_eq!(files_in(&scratch.path("store/corrupt")), 3);
    }

    #[test]
    fn names_that_are_none_are_refused() {
        let scratch = Scratch::new();
        let store = store(&scratch);
        for name in ["", "abc", "../../etc/passwd", &"A".repeat(64)] {
            assert!(matches!(store.get(name), Err(Error::Invalid(_))));
            assert!(matches!(store.has(name), Err(Error::Invalid(_))));
            assert!(matches!(store.verify(name), Err(Error::Invalid(_))));
        }
    }

    #[test]
    fn many_writers_agree() {
        let scratch = Scratch::new();
        let store = store(&scratch);
        let contents: Vec<_> = (0..20).map(|n: u32| vec![n as u8; 10_000]).collect();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| contents.iter().all(|c| store.put(c).is_ok()));
            }
        });
        for content in &contents {
            assert_eq!(store.get(&to_hex(&sha256(content))).as_ref(), Ok(content));
        }
        assert_eq!(files_in(&scratch.path("store/tmp")), 0);
    }

    #[test]
    fn what_a_killed_writer_left_is_swept_when_it_is_old() {
        let scratch = Scratch::new();
        drop(store(&scratch));
        let (old, fresh) = (
            scratch.write("store/tmp/old", b"x"),
            scratch.write("store/tmp/new", b"x"),
        );
        let long_ago = SystemTime::now() - 2 * STALE;
        fs::File::options()
            .write(true)
            .open(&old)
            .unwrap()
            .set_modified(long_ago)
            .unwrap();
        drop(store(&scratch));
        assert!(!old.exists());
        assert!(fresh.exists());
    }
}
