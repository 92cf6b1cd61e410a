//! Syncs of logs on threads of their own, which never wait for the lock of an interpreter.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{Mode, OFlags, ftruncate, open, stat};
use rustix::io::Errno;
use rustix::process::{Pid, getpid};

use crate::error::OsFailure;
use crate::mailbox::{Mailbox, Token, next_token};
use crate::process::{block_signals, restore_signals};
use crate::sync::lock;

const NAME: &str = "ryecore-sync";
const THREAD_STACK_BYTES: usize = 128 * 1024;
/// Syncs of many files at once share the disk, which does a few at a time.
const MOST_THREADS: usize = 32;
/// How long a thread waits for the next sync.
const IDLE_TIME: Duration = Duration::from_secs(30);

/// Whether all of a log is on the disk; not, where a sync of it has failed, now or before.
pub type Synced = Result<bool, OsFailure>;

struct Job {
    token: Token,
    log: PathBuf,
    mark: PathBuf,
    inbox: Arc<Mailbox<Synced>>,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Job>,
    threads: usize,
    idle_threads: usize,
}

/// The threads of this process. They are never freed: a thread may wait here at any time.
struct Workers {
    queue: Mutex<Queue>,
    bell: Condvar,
    process: Pid,
}

static WORKERS: AtomicPtr<Workers> = AtomicPtr::new(ptr::null_mut());

fn workers() -> &'static Workers {
    loop {
        let known = WORKERS.load(Ordering::Acquire);
        // SAFETY: null, or workers that were leaked below.
        let found: Option<&'static Workers> = unsafe { known.as_ref() };
        // A fork leaves workers without their threads, and their lock as it was.
        if let Some(workers) = found.filter(|workers| workers.process == getpid()) {
            return workers;
        }
        let made = Box::into_raw(Box::new(Workers {
            queue: Mutex::new(Queue::default()),
            bell: Condvar::new(),
            process: getpid(),
        }));
        let swapped = WORKERS.compare_exchange(known, made, Ordering::AcqRel, Ordering::Acquire);
        if swapped.is_err() {
            // SAFETY: nobody else has seen it.
            drop(unsafe { Box::from_raw(made) });
        }
    }
}

/// Begins to sync the content of a log; how it ended goes to the inbox.
///
/// After a sync that failed, the kernel may have dropped what it couldn't write, and would report the
/// next sync as a success, in any process. So the size of another file, `mark`, tells all of them:
/// it is not empty from a failure on until somebody has written the log again.
///
/// # Errors
///
/// No thread can be started for it.
pub fn start_sync(
    log: PathBuf,
    mark: PathBuf,
    inbox: Arc<Mailbox<Synced>>,
) -> Result<Token, OsFailure> {
    let workers = workers();
    let mut queue = lock(&workers.queue);
    if queue.waiting.len() >= queue.idle_threads && queue.threads < MOST_THREADS {
        match workers.start_thread() {
            Ok(()) => queue.threads += 1,
            Err(errno) if queue.threads == 0 => {
                return Err(OsFailure::new("start the thread", NAME, errno));
            }
            Err(_) => {} // those that there are do it
        }
    }
    let token = next_token();
    queue.waiting.push_back(Job {
        token,
        log,
        mark,
        inbox,
    });
    drop(queue);
    workers.bell.notify_one();
    Ok(token)
}

impl Workers {
    fn start_thread(&'static self) -> Result<(), Errno> {
        // The thread begins with every signal blocked: they are for threads that the host knows.
        let mask = block_signals();
        let thread = thread::Builder::new()
            .name(NAME.to_owned())
            .stack_size(THREAD_STACK_BYTES)
            .spawn(|| self.work());
        restore_signals(&mask);
        thread.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::AGAIN))?;
        Ok(())
    }

    fn work(&self) {
        while let Some(job) = self.next() {
            job.inbox.put(job.token, sync(&job.log, &job.mark));
        }
    }

    /// The next job; `None` where none has come for a while.
    fn next(&self) -> Option<Job> {
        let mut queue = lock(&self.queue);
        queue.idle_threads += 1;
        let (mut queue, _) = self
            .bell
            .wait_timeout_while(queue, IDLE_TIME, |queue| queue.waiting.is_empty())
            .unwrap_or_else(PoisonError::into_inner);
        queue.idle_threads -= 1;
        let job = queue.waiting.pop_front();
        if job.is_none() {
            queue.threads -= 1;
        }
        job
    }
}

/// Waits until the content of a log is on the disk.
fn sync(log: &Path, mark: &Path) -> Synced {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let file = match open(log, flags, Mode::empty()) {
        Ok(file) => file,
        // Who used it last has moved its content to where it belongs, and synced that.
        Err(Errno::NOENT) => return Ok(true),
        Err(errno) => return Err(OsFailure::new("open", log, errno)),
    };
    if !is_written(&file) {
        let _ = truncate(mark, 1);
        return Ok(false);
    }
    let marked = stat(mark).map_err(|errno| OsFailure::new("stat", mark, errno))?;
    Ok(marked.st_size == 0)
}

/// Writes the content of a file to the disk; whether that succeeded.
fn is_written(file: &OwnedFd) -> bool {
    loop {
        // By the C library, which tests put a slow disk in place of.
        // SAFETY: the descriptor is that of an open file.
        if unsafe { libc::fdatasync(file.as_raw_fd()) } == 0 {
            return true;
        }
        if std::io::Error::last_os_error().kind() != std::io::ErrorKind::Interrupted {
            return false;
        }
    }
}

/// Sets the length of a file, which rustix does by descriptors alone.
fn truncate(path: &Path, size_bytes: u64) -> Result<(), Errno> {
    let file = open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    ftruncate(file, size_bytes)
}

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, poll};

    use super::*;
    use crate::testing::Scratch;

    fn next(inbox: &Mailbox<Synced>) -> Vec<(Token, Synced)> {
        let bell = inbox.fd();
        poll(&mut [PollFd::from_borrowed_fd(bell, PollFlags::IN)], None).unwrap();
        inbox.drain()
    }

    fn synced(log: PathBuf, mark: PathBuf) -> Synced {
        let inbox = Arc::new(Mailbox::new().unwrap());
        let token = start_sync(log, mark, Arc::clone(&inbox)).unwrap();
        let (arrived, synced) = next(&inbox).pop().unwrap();
        assert_eq!(arrived, token);
        synced
    }

    #[test]
    fn a_log_is_synced_unless_a_mark_says_that_it_has_to_be_written_again() {
        let scratch = Scratch::new();
        let (log, mark) = (scratch.write("log", b"content"), scratch.write("mark", b""));
        assert_eq!(synced(log.clone(), mark.clone()), Ok(true));
        assert_eq!(synced(scratch.path("removed"), mark.clone()), Ok(true));
        scratch.write("mark", b"1");
        assert_eq!(synced(log.clone(), mark), Ok(false));
        let missing = scratch.path("missing");
        let failure = OsFailure::new("stat", &missing, Errno::NOENT);
        assert_eq!(synced(log, missing), Err(failure));
    }

    #[test]
    fn a_sync_that_fails_leaves_the_mark() {
        let scratch = Scratch::new();
        let mark = scratch.write("mark", b"");
        // The kernel syncs no such file.
        assert_eq!(synced("/proc/self/stat".into(), mark.clone()), Ok(false));
        assert_eq!(stat(&mark).unwrap().st_size, 1);
    }

    #[test]
    fn many_syncs_at_once_all_end() {
        let scratch = Scratch::new();
        let mark = scratch.write("mark", b"");
        let inbox = Arc::new(Mailbox::new().unwrap());
        let mut left: Vec<_> = (0..200)
            .map(|number| {
                let log = scratch.write(&number.to_string(), b"content");
                start_sync(log, mark.clone(), Arc::clone(&inbox)).unwrap()
            })
            .collect();
        while !left.is_empty() {
            for (token, synced) in next(&inbox) {
                assert_eq!(synced, Ok(true));
                left.retain(|one| *one != token);
            }
        }
        assert!(lock(&workers().queue).threads <= MOST_THREADS);
    }
}
