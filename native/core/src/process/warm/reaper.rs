//! The reaper of templates and spares: kills them, reaps them, and finds children that a dead
//! template did not report.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use rustix::event::epoll;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::net::{Shutdown, shutdown};
use rustix::process::{Pid, Signal};

use super::spare::{Child, hold, is_own_child, kill, kill_and_reap, watch};
use super::template::{LEADER, Message, PendingFork, Template, receive};
use crate::mailbox::{Token, next_token};
use crate::process::procfs::forked_children;
use crate::process::signal::{reap, signal_group};
use crate::sync::Waiter;

/// A process that was killed.
struct Dying {
    pool: u64,
    pid: Pid,
    pidfd: OwnedFd,
    /// The forks that a template may have made without reporting them.
    unheard: Option<Unheard>,
}

struct Unheard {
    socket: OwnedFd,
    pending_forks: VecDeque<PendingFork>,
}

/// Processes that were killed and are not reaped.
pub(super) struct Reaper {
    epoll: BorrowedFd<'static>,
    dying: HashMap<Token, Dying>,
    waiting: Vec<(u64, Arc<Waiter<()>>)>,
}

impl Reaper {
    pub(super) fn new(epoll: BorrowedFd<'static>) -> Self {
        Self {
            epoll,
            dying: HashMap::new(),
            waiting: Vec::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.dying.len()
    }

    pub(super) fn holds(&self, pid: Pid) -> bool {
        self.dying.values().any(|dying| dying.pid == pid)
    }

    /// Notifies the waiter when no process of a pool is left.
    pub(super) fn wait(&mut self, pool: u64, waiter: Arc<Waiter<()>>) {
        self.waiting.push((pool, waiter));
        self.notify_waiters();
    }

    /// Ends a child that has no call. Its descriptor is watched by its token.
    pub(super) fn take_child(&mut self, pool: u64, child: Child) {
        kill(&child.pidfd);
        let dying = Dying {
            pool,
            pid: child.pid,
            pidfd: child.pidfd,
            unheard: None,
        };
        self.dying.insert(child.token, dying);
    }

    /// Ends a template and its spares. Its descriptor is watched by its token.
    pub(super) fn take_template(&mut self, pool: u64, mut template: Template) {
        let _ = signal_group(template.pidfd.as_fd(), template.pid, Signal::KILL);
        kill(&template.pidfd);
        // A host that dropped its privileges can't kill it: then it ends by itself.
        let _ = shutdown(&template.socket, Shutdown::Write);
        let _ = epoll::delete(self.epoll, &template.socket);
        if let Some(output) = template.output.take() {
            let _ = epoll::delete(self.epoll, &output);
        }
        for spare in template.spares.drain(..) {
            self.take_child(pool, spare.child);
        }
        let dying = Dying {
            pool,
            pid: template.pid,
            pidfd: template.pidfd,
            unheard: Some(Unheard {
                socket: template.socket,
                pending_forks: template.pending_forks,
            }),
        };
        self.dying.insert(template.token, dying);
    }

    /// Ends a child that has no descriptor.
    pub(super) fn take_pid(&mut self, pool: u64, pid: Pid) {
        let Ok(pidfd) = hold(pid) else {
            return kill_and_reap(pid);
        };
        let token = next_token();
        match watch(self.epoll, token, LEADER, pidfd.as_fd()) {
            Ok(()) => self.take_child(pool, Child { token, pid, pidfd }),
            Err(_) => kill_and_reap(pid),
        }
    }

    /// Reaps a dead process; returns whether it was one of these.
    pub(super) fn on_death(
        &mut self,
        token: Token,
        scratch: &mut [u8],
        is_known: &dyn Fn(Pid) -> bool,
    ) -> bool {
        let Some(dead) = self.dying.remove(&token) else {
            return false;
        };
        let _ = epoll::delete(self.epoll, &dead.pidfd);
        reap(&dead.pidfd);
        if let Some(unheard) = dead.unheard {
            self.find_children(dead.pool, dead.pid, unheard, scratch, is_known);
        }
        self.notify_waiters();
        true
    }

    /// Finds the children that a dead template has forked without a message that was received.
    fn find_children(
        &mut self,
        pool: u64,
        template: Pid,
        mut unheard: Unheard,
        scratch: &mut [u8],
        is_known: &dyn Fn(Pid) -> bool,
    ) {
        while !unheard.pending_forks.is_empty() {
            match receive(&unheard.socket, scratch) {
                Some(Message::Forked(pid)) if !is_known(pid) && !self.holds(pid) => {
                    self.take_pid(pool, pid);
                }
                Some(Message::Gone) | None => break,
                Some(_) => {}
            }
            unheard.pending_forks.pop_front();
        }
        if unheard.pending_forks.is_empty() {
            return;
        }
        // All other children of the reactor have executed their programs.
        for (number, session) in forked_children() {
            let is_of_template = session == number || session == template.as_raw_nonzero().get();
            let pid = Pid::from_raw(number).filter(|pid| is_own_child(*pid));
            if let Some(pid) = pid
                && is_of_template
                && !is_known(pid)
                && !self.holds(pid)
            {
                self.take_pid(pool, pid);
            }
        }
    }

    fn notify_waiters(&mut self) {
        let dying = &self.dying;
        self.waiting.retain(|(pool, waiter)| {
            let is_over = dying.values().all(|dying| dying.pool != *pool);
            if is_over {
                waiter.put(());
            }
            !is_over
        });
    }
}
