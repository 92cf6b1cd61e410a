//! The last moments of templates and spares: killed, to be reaped, and nobody is forgotten.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use rustix::event::epoll;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::net::{Shutdown, shutdown};
use rustix::process::{Pid, Signal};

use super::spare::{Child, hold, is_own_child, kill, kill_and_reap, watch};
use super::template::{LEADER, Message, PendingFork, Template, receive};
use crate::process::job::{Token, next_token};
use crate::process::procfs::forked_children;
use crate::process::signal::{reap, signal_group};
use crate::process::sync::Waiter;

/// A process that was killed.
struct Dying {
    pool: u64,
    pid: Pid,
    pidfd: OwnedFd,
    /// What a template may have forked and could not tell any more.
    unheard: Option<Unheard>,
}

struct Unheard {
    socket: OwnedFd,
    pending_forks: VecDeque<PendingFork>,
}

/// Who was killed and is not reaped yet.
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

    /// Takes the word when nothing of a pool is left.
    pub(super) fn wait(&mut self, pool: u64, waiter: Arc<Waiter<()>>) {
        self.waiting.push((pool, waiter));
        self.tell();
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
        // A host that has given up its rights may kill it no more: then it leaves by itself.
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

    /// Ends a child that no descriptor stands for yet.
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

    /// Reaps a dead one; whether it was here.
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
        self.tell();
        true
    }

    /// What a dead template had forked, and told nobody, or nobody has heard.
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
        // The reactor's other children have all become their programs.
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

    fn tell(&mut self) {
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
