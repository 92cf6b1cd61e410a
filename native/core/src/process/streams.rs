//! The pipes of a child: bounded reading of its output, feeding of its input.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags, fstat, open};
use rustix::io::{Errno, fcntl_dupfd_cloexec, ioctl_fionbio, read, write};
use rustix::pipe::{PipeFlags, pipe_with};

use crate::error::OsFailure;

/// The most that is read of one pipe before the others have their turn: more than any pipe holds,
/// so that one turn empties the pipe of a dead child.
const TURN_BYTES: usize = 2 * 1024 * 1024;

/// How much of a run's output its log takes.
const LOG_BYTES: u64 = 256 * 1024 * 1024;

/// Duplicates descriptor 0, 1 or 2 of a host that closed its own streams: a child would take it for
/// one of its streams.
pub(super) fn above_stdio(fd: OwnedFd) -> Result<OwnedFd, Errno> {
    if fd.as_raw_fd() > 2 {
        return Ok(fd);
    }
    fcntl_dupfd_cloexec(&fd, 3)
}

pub(super) fn pipe() -> Result<(OwnedFd, OwnedFd), Errno> {
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
    Ok((above_stdio(reader)?, above_stdio(writer)?))
}

pub(super) fn output_pipe() -> Result<(OwnedFd, OwnedFd), Errno> {
    let (ours, theirs) = pipe()?;
    ioctl_fionbio(&ours, true)?;
    Ok((ours, theirs))
}

pub(super) fn input_pipe() -> Result<(OwnedFd, OwnedFd), Errno> {
    let (theirs, ours) = pipe()?;
    ioctl_fionbio(&ours, true)?;
    Ok((ours, theirs))
}

/// A log to append to, made for its owner alone where it is missing.
pub(super) fn open_log(path: &Path) -> Result<OwnedFd, OsFailure> {
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOCTTY;
    open(path, flags, Mode::RUSR | Mode::WUSR)
        .and_then(above_stdio)
        .map_err(|errno| OsFailure::new("append to", path, errno))
}

/// A file that both streams of a run are written to as they come, up to a bound.
#[derive(Debug)]
pub(super) struct Log {
    file: OwnedFd,
    room: AtomicU64,
}

impl Log {
    pub(super) fn open(path: &Path) -> Result<Self, OsFailure> {
        Ok(Self::new(open_log(path)?, LOG_BYTES))
    }

    fn new(file: OwnedFd, limit: u64) -> Self {
        Self {
            file,
            room: AtomicU64::new(limit),
        }
    }

    /// Appends up to the bound. A log that can't be written ends, and the run continues.
    fn append(&self, bytes: &[u8]) {
        let room = usize::try_from(self.room.load(Ordering::Relaxed)).unwrap_or(usize::MAX);
        let mut rest = &bytes[..bytes.len().min(room)];
        let mut left = room - rest.len();
        while !rest.is_empty() {
            match write(&self.file, rest) {
                Ok(count) => rest = &rest[count..],
                Err(Errno::INTR) => {}
                Err(_) => {
                    left = 0;
                    break;
                }
            }
        }
        self.room.store(left as u64, Ordering::Relaxed);
    }
}

/// A stream of output: its first bytes are kept, the others counted.
#[derive(Debug)]
pub(super) struct Capture {
    pipe: Option<OwnedFd>,
    kept: Vec<u8>,
    limit: usize,
    total: u64,
    log: Option<Arc<Log>>,
}

impl Capture {
    pub(super) fn new(pipe: OwnedFd, limit: usize, log: Option<Arc<Log>>) -> Self {
        Self {
            pipe: Some(pipe),
            kept: Vec::new(),
            limit,
            total: 0,
            log,
        }
    }

    pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.pipe.as_ref().map(AsFd::as_fd)
    }

    /// The identity of the pipe, as `/proc/PID/fd` shows it.
    pub(super) fn inode(&self) -> Option<u64> {
        fstat(self.pipe.as_ref()?).ok().map(|stat| stat.st_ino)
    }

    /// Reads the available output, at most for one turn; returns the pipe when it has ended.
    pub(super) fn pump(&mut self, scratch: &mut [u8]) -> Option<OwnedFd> {
        let mut turn = 0;
        while turn < TURN_BYTES {
            match read(self.pipe.as_ref()?, &mut *scratch) {
                Ok(0) => return self.pipe.take(),
                Ok(count) => {
                    self.take_in(&scratch[..count]);
                    turn += count;
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return None,
                Err(_) => return self.pipe.take(),
            }
        }
        None
    }

    fn take_in(&mut self, bytes: &[u8]) {
        let room = self.limit - self.kept.len();
        self.kept.extend_from_slice(&bytes[..bytes.len().min(room)]);
        self.total += bytes.len() as u64;
        if let Some(log) = &self.log {
            log.append(bytes);
        }
    }

    pub(super) fn into_parts(self) -> (Vec<u8>, u64, Option<OwnedFd>) {
        (self.kept, self.total, self.pipe)
    }
}

/// The input that a child has not taken yet.
#[derive(Debug)]
pub(super) struct Feed {
    pipe: OwnedFd,
    bytes: Arc<Vec<u8>>,
    sent: usize,
}

impl Feed {
    pub(super) fn new(pipe: OwnedFd, bytes: Arc<Vec<u8>>) -> Self {
        Self {
            pipe,
            bytes,
            sent: 0,
        }
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }

    /// Writes what fits; returns whether it is done. A child that doesn't read isn't an error.
    pub(super) fn pump(&mut self) -> bool {
        while self.sent < self.bytes.len() {
            match write(&self.pipe, &self.bytes[self.sent..]) {
                Ok(count) => self.sent += count,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return false,
                Err(_) => return true,
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use rustix::io::ioctl_fionbio;
    use rustix::pipe::{PipeFlags, pipe_with};

    use super::*;
    use crate::testing::Scratch;

    fn pipe() -> (OwnedFd, OwnedFd) {
        let ends = pipe_with(PipeFlags::CLOEXEC).unwrap();
        ioctl_fionbio(&ends.0, true).unwrap();
        ioctl_fionbio(&ends.1, true).unwrap();
        ends
    }

    #[test]
    fn the_first_bytes_are_kept_and_all_are_counted() {
        let (reader, writer) = pipe();
        let mut capture = Capture::new(reader, 5, None);
        let mut scratch = [0; 4];
        write(&writer, b"abc").unwrap();
        assert!(capture.pump(&mut scratch).is_none());
        write(&writer, b"defghi").unwrap();
        assert!(capture.pump(&mut scratch).is_none());
        drop(writer);
        assert!(capture.pump(&mut scratch).is_some());
        assert!(capture.fd().is_none());
        let (kept, total, _) = capture.into_parts();
        assert_eq!((&kept[..], total), (&b"abcde"[..], 9));
    }

    #[test]
    fn a_log_gets_both_streams_as_they_come_up_to_its_bound() {
        let scratch = Scratch::new();
        let path = scratch.path("log");
        let log = Arc::new(Log::new(File::create(&path).unwrap().into(), 8));
        let mut scratch = [0; 64];
        let mut captures = [pipe(), pipe()]
            .map(|(reader, writer)| (Capture::new(reader, 99, Some(Arc::clone(&log))), writer));
        for (index, text) in [(0, "one "), (1, "two "), (0, "three")] {
            let (capture, writer) = &mut captures[index];
            write(&*writer, text.as_bytes()).unwrap();
            assert!(capture.pump(&mut scratch).is_none());
        }
        assert_eq!(std::fs::read(path).unwrap(), b"one two ");
        let [(out, _), (err, _)] = captures;
        assert_eq!(out.into_parts().0, b"one three");
        assert_eq!(err.into_parts().0, b"two ");
    }

    #[test]
    fn input_flows_as_it_is_taken() {
        let (reader, writer) = pipe();
        let mut feed = Feed::new(writer, Arc::new(vec![7; 200_000]));
        let mut capture = Capture::new(reader, usize::MAX, None);
        let mut scratch = [0; 64 * 1024];
        let mut turns = 1;
        while !feed.pump() {
            assert!(capture.pump(&mut scratch).is_none());
            turns += 1;
        }
        assert!(turns > 1);
        drop(feed);
        assert!(capture.pump(&mut scratch).is_some());
        assert_eq!(capture.into_parts().1, 200_000);
    }

    #[test]
    fn a_reader_that_went_away_is_no_error() {
        // Rust's own start-up ignores SIGPIPE, as the reactor's mask does.
        let (reader, writer) = pipe();
        drop(reader);
        assert!(Feed::new(writer, Arc::new(vec![1; 10])).pump());
    }
}
