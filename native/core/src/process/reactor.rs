//! The one thread on which every child is started, and all of them are served.
//!
//! PDEATHSIG follows the thread that started a child, so this one lives as long as the host.

use std::path::Path;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::{Errno, write};
use rustix::process::{Pid, getpid};

use super::detach::Detachment;
use super::job::{Inbox, Job, RunRequest};
use super::launch::{SignalsBlocked, block_signals, restore_signals, without_signals};
use super::procfs::ProcessId;
use super::serving::{BELL, Command, Serving, Turn};
use super::spec::Program;
use crate::error::{OsFailure, Result as CoreResult};
use crate::mailbox::Token;
use crate::sync::{Waiter, lock};

const NAME: &str = "ryecore-reactor";
const EVENTS_A_TURN: usize = 256;
const THREAD_STACK_BYTES: usize = 256 * 1024;
const LONGEST_SLEEP: Duration = Duration::from_secs(3600);

/// The reactor of this process. It is never freed: its thread lives as long as the process.
pub(super) struct Reactor {
    pub(super) epoll: OwnedFd,
    pub(super) bell: OwnedFd,
    commands: Mutex<Vec<Command>>,
    /// Held by the thread whenever it does not sleep; `None` in the child of a fork.
    pub(super) serving: Mutex<Option<Serving>>,
    pub(super) process: Pid,
}

static REACTOR: AtomicPtr<Reactor> = AtomicPtr::new(ptr::null_mut());
static STARTING: Mutex<()> = Mutex::new(());

/// The reactor that runs in this process already.
pub(super) fn running() -> Option<&'static Reactor> {
    // SAFETY: null, or a reactor that `start_reactor` has leaked.
    let reactor = unsafe { REACTOR.load(Ordering::Acquire).as_ref() };
    // A fork without the hooks leaves a reactor without its thread.
    reactor.filter(|reactor| reactor.process == getpid())
}

/// The next use starts another one.
pub(super) fn forget() {
    REACTOR.store(ptr::null_mut(), Ordering::Release);
}

fn reactor() -> Result<&'static Reactor, OsFailure> {
    if let Some(reactor) = running() {
        return Ok(reactor);
    }
    let _starting = lock(&STARTING);
    match running() {
        Some(reactor) => Ok(reactor),
        None => start_reactor().map_err(|errno| OsFailure::new("start the thread", NAME, errno)),
    }
}

fn start_reactor() -> Result<&'static Reactor, Errno> {
    let reactor: &'static Reactor = Box::leak(Box::new(Reactor {
        epoll: epoll::create(CreateFlags::CLOEXEC)?,
        bell: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        commands: Mutex::new(Vec::new()),
        serving: Mutex::new(None),
        process: getpid(),
    }));
    // Edge-triggered, so that it is never read.
    let rung = EventFlags::IN | EventFlags::ET;
    epoll::add(
        &reactor.epoll,
        &reactor.bell,
        EventData::new_u64(BELL),
        rung,
    )?;
    *lock(&reactor.serving) = Some(Serving::new(reactor.epoll.as_fd())?);
    // The thread begins with every signal blocked.
    let mask = block_signals();
    let thread = thread::Builder::new()
        .name(NAME.to_owned())
        .stack_size(THREAD_STACK_BYTES)
        .spawn(|| reactor.work());
    restore_signals(&mask);
    thread.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::AGAIN))?;
    REACTOR.store(ptr::from_ref(reactor).cast_mut(), Ordering::Release);
    Ok(reactor)
}

impl Reactor {
    fn work(&self) {
        let proof = SignalsBlocked::on_this_thread();
        let mut events = Vec::with_capacity(EVENTS_A_TURN);
        let mut idle_time = None;
        loop {
            events.clear();
            let timeout = idle_time.map(|time: Duration| timespec(time.min(LONGEST_SLEEP)));
            // An error is an interruption: nothing is ready then.
            let _ = epoll::wait(&self.epoll, spare_capacity(&mut events), timeout.as_ref());
            let mut serving = lock(&self.serving);
            let Some(serving) = serving.as_mut() else {
                return;
            };
            let turn = Turn::new(&proof);
            for event in &events {
                if event.data.u64() != BELL {
                    serving.on_ready(*event, &turn);
                }
            }
            let commands = std::mem::take(&mut *lock(&self.commands));
            if !commands.is_empty() {
                serving.begin_check_round();
            }
            for command in commands {
                serving.execute(command, &turn);
            }
            serving.on_time(&turn);
            serving.tend(&turn);
            idle_time = serving.idle_time();
        }
    }

    /// Gives a job to a spare on the calling thread, while the reactor sleeps, which saves its
    /// wake-up before the child begins. Returns the job where that isn't possible.
    fn begin_here(&self, job: Job) -> Option<Job> {
        if job.warm.is_none() {
            return Some(job);
        }
        let Ok(mut serving) = self.serving.try_lock() else {
            return Some(job);
        };
        let Some(serving) = serving.as_mut().filter(|serving| serving.can_begin(&job)) else {
            return Some(job);
        };
        // A child that has just died must not end the host by SIGPIPE.
        without_signals(|| serving.begin(job));
        None
    }

    fn ring(&self) {
        let _ = write(&self.bell, &1_u64.to_ne_bytes());
    }

    pub(super) fn submit(&self, command: Command) {
        let mut commands = lock(&self.commands);
        commands.push(command);
        let rings_already = commands.len() > 1;
        drop(commands);
        if !rings_already {
            self.ring();
        }
    }
}

fn timespec(time: Duration) -> Timespec {
    Timespec {
        tv_sec: time.as_secs().cast_signed(),
        tv_nsec: time.subsec_nanos().into(),
    }
}

/// Requests a run; its outcome always goes to the inbox.
pub fn start(request: RunRequest<'_>, inbox: Arc<dyn Inbox>) -> Result<Token, OsFailure> {
    let job = Job::new(request, inbox)?;
    let token = job.token;
    let reactor = reactor()?;
    match reactor.begin_here(job) {
        Some(job) => reactor.submit(Command::Start(job)),
        // The reactor prepares for the next call while the child works.
        None => reactor.ring(),
    }
    Ok(token)
}

/// Ends a run: TERM, grace, KILL. A run that has ended already is no error.
pub fn cancel(token: Token) {
    if let Some(reactor) = running() {
        reactor.submit(Command::Cancel(token));
    }
}

/// Requests a detached start: `stdin` as a file of its own, both outputs appended to `log`.
pub fn start_detached(
    program: Program,
    stdin: &[u8],
    log: &Path,
) -> CoreResult<Arc<Waiter<CoreResult<ProcessId>>>> {
    let (detachment, answer) = Detachment::new(program, stdin, log)?;
    reactor()?.submit(Command::Detach(detachment));
    Ok(answer)
}

/// Kills and reaps every run; whether all ended within `patience`.
pub fn shut_down(patience: Duration) -> bool {
    let Some(reactor) = running() else {
        return true;
    };
    let ended = Arc::new(Waiter::default());
    reactor.submit(Command::ShutDown(Arc::clone(&ended)));
    ended.wait(patience).is_some()
}
