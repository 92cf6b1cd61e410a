//! Results for an event loop, in a mailbox with a descriptor, each by the token of what it is for.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::{Errno, read, write};

use crate::sync::lock;

/// Identifies a run, a sync, and whatever else the reactor watches, for the life of the host.
pub type Token = u64;

static LAST_TOKEN: AtomicU64 = AtomicU64::new(0);

pub(crate) fn next_token() -> Token {
    LAST_TOKEN.fetch_add(1, Ordering::Relaxed) + 1
}

/// Results for one event loop. Its descriptor is readable while results wait.
#[derive(Debug)]
pub struct Mailbox<T> {
    arrived: Mutex<Vec<(Token, T)>>,
    bell: OwnedFd,
}

impl<T> Mailbox<T> {
    pub fn new() -> Result<Self, Errno> {
        Ok(Self {
            arrived: Mutex::new(Vec::new()),
            bell: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        })
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// Takes everything that has arrived.
    pub fn drain(&self) -> Vec<(Token, T)> {
        // The bell first: a later arrival rings again.
        let _ = read(&self.bell, &mut [0; 8]);
        std::mem::take(&mut *lock(&self.arrived))
    }

    pub(crate) fn put(&self, token: Token, content: T) {
        let mut arrived = lock(&self.arrived);
        arrived.push((token, content));
        // It rings already for earlier arrivals: many are one wake-up.
        if arrived.len() == 1 {
            let _ = write(&self.bell, &1_u64.to_ne_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    fn rings(mailbox: &Mailbox<u8>) -> bool {
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        poll(&mut [PollFd::new(mailbox, PollFlags::IN)], Some(&now)) == Ok(1)
    }

    impl AsFd for Mailbox<u8> {
        fn as_fd(&self) -> BorrowedFd<'_> {
            self.fd()
        }
    }

    #[test]
    fn it_rings_while_something_lies_in_it() {
        let mailbox = Mailbox::new().unwrap();
        assert!(!rings(&mailbox));
        mailbox.put(1, b'a');
        mailbox.put(2, b'b');
        assert!(rings(&mailbox));
        assert_eq!(mailbox.drain(), [(1, b'a'), (2, b'b')]);
        assert!(!rings(&mailbox));
        mailbox.put(3, b'c');
        assert!(rings(&mailbox));
    }
}
