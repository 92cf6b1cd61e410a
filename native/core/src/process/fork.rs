//! Forks of the host: the child closes what it inherited, and starts a reactor of its own when
//! needed.

use std::cell::RefCell;
use std::sync::MutexGuard;

use rustix::fd::AsRawFd;

use super::reactor::{Reactor, forget, running};
use super::serving::Serving;
use crate::sync::lock;

type LockedReactor = (&'static Reactor, MutexGuard<'static, Option<Serving>>);

thread_local! {
    static LOCKED: RefCell<Option<LockedReactor>> = const { RefCell::new(None) };
}

/// Stops the reactor between two turns, so that the child inherits it whole.
pub fn before_fork() {
    if let Some(reactor) = running() {
        LOCKED.set(Some((reactor, lock(&reactor.serving))));
    }
}

pub fn after_fork_in_parent() {
    drop(LOCKED.take());
}

/// Closes the reactor's descriptors; its thread did not come along.
pub fn after_fork_in_child() {
    let Some((reactor, mut serving)) = LOCKED.take() else {
        return;
    };
    forget();
    drop(serving.take());
    // No other thread of this process waits for the lock, and unlocking could wake a thread of the
    // parent.
    std::mem::forget(serving);
    // SAFETY: the reactor is forgotten, so these numbers are used by nobody from here on.
    unsafe {
        rustix::io::close(reactor.epoll.as_raw_fd());
        rustix::io::close(reactor.bell.as_raw_fd());
    }
}
