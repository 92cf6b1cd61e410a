//! SHA-256 of bytes and of regular files.

use std::cell::RefCell;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use rustix::buffer::spare_capacity;
use rustix::fd::OwnedFd;
use rustix::fs::{FileType, Mode, OFlags, fstat, open};
use rustix::io::{Errno, read};
use sha2::{Digest as _, Sha256};

use crate::error::{Error, Result};

/// The 32 bytes of a SHA-256.
pub type Digest = [u8; 32];

const CHUNK_BYTES: usize = 128 * 1024;
const MAX_THREADS: usize = 4;
/// Below this many files a thread costs more than it saves.
const FILES_A_THREAD: usize = 16;

pub fn sha256(bytes: &[u8]) -> Digest {
    Sha256::digest(bytes).into()
}

/// The SHA-256 of parts as if they were one.
pub fn sha256_of(parts: &[&[u8]]) -> Digest {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update(part);
    }
    hasher.finalize().into()
}

/// Lower-case hex.
pub fn to_hex(digest: &Digest) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(64);
    for byte in digest {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text
}

/// The digest behind 64 lower-case hex digits, else an error that shows the text.
pub fn from_hex(text: &str) -> Result<Digest> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let refused = || Error::Invalid(format!("{text:?} is not 64 lower-case hex digits"));
    let mut digest = [0; 32];
    if text.len() != 64 {
        return Err(refused());
    }
    for (byte, pair) in digest.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        let (high, low) = (digit(pair[0]), digit(pair[1]));
        *byte = high.zip(low).map(|(h, l)| h << 4 | l).ok_or_else(refused)?;
    }
    Ok(digest)
}

/// An open regular file.
pub(crate) struct Regular {
    file: OwnedFd,
    size: u64,
}

impl Regular {
    /// Opens a file to read; a FIFO or a device is refused and never waited for.
    pub(crate) fn open<P: rustix::path::Arg>(path: P) -> std::result::Result<Self, Errno> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = open(path, flags, Mode::empty())?;
        let stat = fstat(&file)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Ok(Self {
                file,
                size: stat.st_size.cast_unsigned(),
            }),
            FileType::Directory => Err(Errno::ISDIR),
            _ => Err(Errno::INVAL),
        }
    }

    /// Whether a read of `count` out of `wanted` bytes, `total` so far, met the end of the file.
    ///
    /// It spares the read that returns nothing. Files without a size (in /proc) need that read.
    fn ends(&self, total: u64, count: usize, wanted: usize) -> bool {
        count == 0 || (self.size > 0 && total >= self.size && count < wanted)
    }

    /// Hashes the whole file through `buffer`.
    pub(crate) fn digest(&self, buffer: &mut [u8]) -> std::result::Result<Digest, Errno> {
        let mut hasher = Sha256::new();
        let mut total = 0;
        loop {
            let count = read(&self.file, &mut *buffer)?;
            hasher.update(&buffer[..count]);
            total += count as u64;
            if self.ends(total, count, buffer.len()) {
                return Ok(hasher.finalize().into());
            }
        }
    }

    /// The whole file, refused with `FBIG` above `max_bytes`.
    fn bytes(&self, max_bytes: u64) -> std::result::Result<Vec<u8>, Errno> {
        if self.size > max_bytes {
            return Err(Errno::FBIG);
        }
        // One byte more than expected, so that meeting the end needs no new memory.
        let expected = usize::try_from(self.size).map_err(|_| Errno::FBIG)?;
        let mut bytes = Vec::with_capacity(expected + 1);
        loop {
            if bytes.len() == bytes.capacity() {
                bytes.reserve(CHUNK_BYTES);
            }
            let wanted = bytes.capacity() - bytes.len();
            let count = read(&self.file, spare_capacity(&mut bytes))?;
            let total = bytes.len() as u64;
            if total > max_bytes {
                return Err(Errno::FBIG);
            }
            if self.ends(total, count, wanted) {
                return Ok(bytes);
            }
        }
    }
}

/// The whole of a regular file and its digest.
pub fn read_digest(path: &Path, max_bytes: u64) -> Result<(Vec<u8>, Digest)> {
    let bytes = Regular::open(path)
        .and_then(|file| file.bytes(max_bytes))
        .map_err(|errno| Error::os("read", path, errno))?;
    let digest = sha256(&bytes);
    Ok((bytes, digest))
}

/// The digest of a regular file, read piece by piece.
pub fn sha256_file(path: &Path) -> Result<Digest> {
    thread_local! {
        static BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; CHUNK_BYTES]);
    }
    Regular::open(path)
        .and_then(|file| BUFFER.with_borrow_mut(|buffer| file.digest(buffer)))
        .map_err(|errno| Error::os("read", path, errno))
}

/// Reads many files, several at a time; the answers keep the order of the paths.
pub fn read_files<P: AsRef<Path> + Sync>(
    paths: &[P],
    max_bytes: u64,
) -> Result<Vec<(Vec<u8>, Digest)>> {
    in_parallel(paths, |path| read_digest(path.as_ref(), max_bytes))
}

/// Applies `work` to every item on a few threads; the first error in order wins.
pub(crate) fn in_parallel<I, T, F>(items: &[I], work: F) -> Result<Vec<T>>
where
    I: Sync,
    T: Send,
    F: Fn(&I) -> Result<T> + Sync,
{
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let threads = cores.min(MAX_THREADS).min(items.len() / FILES_A_THREAD);
    if threads < 2 {
        return items.iter().map(work).collect();
    }
    let next = AtomicUsize::new(0);
    let take_turns = || {
        let mut done = Vec::with_capacity(items.len() / threads + FILES_A_THREAD);
        loop {
            let first = next.fetch_add(FILES_A_THREAD, Ordering::Relaxed);
            let Some(rest) = items.get(first..) else {
                return done;
            };
            if rest.is_empty() {
                return done;
            }
            for (offset, item) in rest.iter().take(FILES_A_THREAD).enumerate() {
                done.push((first + offset, work(item)));
            }
        }
    };
    let mut done = thread::scope(|scope| {
        // A thread that the system refuses is one less; this one works in any case.
        let helpers: Vec<_> = (1..threads)
            .filter_map(|_| thread::Builder::new().spawn_scoped(scope, take_turns).ok())
            .collect();
        let mut done = take_turns();
        for helper in helpers {
            match helper.join() {
                Ok(theirs) => done.extend(theirs),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        done
    });
    done.sort_unstable_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;

    const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    #[test]
    fn hex_goes_there_and_back() {
        assert_eq!(to_hex(&sha256(b"abc")), ABC);
        assert_eq!(from_hex(ABC), Ok(sha256(b"abc")));
    }

    #[test]
    fn bad_hex_is_refused() {
        for text in ["", "abc", &ABC.to_uppercase(), &"g".repeat(64), "é"] {
            assert!(matches!(from_hex(text), Err(Error::Invalid(_))), "{text}");
        }
    }

    #[test]
    fn a_file_is_read_and_hashed_whole() {
        let scratch = Scratch::new();
        for size in [0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, 3 * CHUNK_BYTES + 7] {
            let content = vec![b'x'; size];
            let path = scratch.write("file", &content);
            let expected = sha256(&content);
            assert_eq!(read_digest(&path, u64::MAX), Ok((content, expected)));
            assert_eq!(sha256_file(&path), Ok(expected));
        }
    }

    #[test]
    fn a_file_above_the_limit_is_refused() {
        let scratch = Scratch::new();
        let path = scratch.write("file", b"four");
        assert!(read_digest(&path, 4).is_ok());
        let Err(Error::Os(failure)) = read_digest(&path, 3) else {
            panic!("it was read");
        };
        assert_eq!(failure.errno, Errno::FBIG.raw_os_error());
    }

    #[test]
    fn many_files_keep_their_order_and_the_first_error_wins() {
        let scratch = Scratch::new();
        let mut paths: Vec<_> = (0..100)
            .map(|n| scratch.write(&format!("{n}"), format!("{n}").as_bytes()))
            .collect();
        let read = read_files(&paths, u64::MAX).unwrap();
        for (n, (bytes, digest)) in read.iter().enumerate() {
            assert_eq!(bytes, n.to_string().as_bytes());
            assert_eq!(*digest, sha256(bytes));
        }
        paths[70] = scratch.path("missing-a");
        paths[90] = scratch.path("missing-b");
        let Err(Error::Os(failure)) = read_files(&paths, u64::MAX) else {
            panic!("a missing file was read");
        };
        assert_eq!(failure.path, scratch.path("missing-a"));
    }

    #[test]
    fn what_is_no_regular_file_is_refused_at_once() {
        let scratch = Scratch::new();
        let fifo = scratch.fifo("fifo");
        for path in [fifo.as_path(), Path::new("/dev/zero"), Path::new("/")] {
            assert!(matches!(sha256_file(path), Err(Error::Os(_))), "{path:?}");
        }
    }
}
