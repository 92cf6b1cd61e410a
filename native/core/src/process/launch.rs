//! Starting a child without copying the host: `clone(CLONE_VM | CLONE_VFORK | CLONE_PIDFD)`.
//!
//! Between the clone and the exec the child runs on the host's memory while the launching thread
//! stands still. There it makes raw system calls alone: no allocation, no lock, no panic.

use std::ffi::{CString, c_char, c_int, c_void};
use std::marker::PhantomData;
use std::path::Path;
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};

use rustix::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
use rustix::process::{Pid, WaitId, WaitIdOptions, getpid, waitid};

use super::spec::Program;
use super::streams::above_stdio;
use crate::error::OsFailure;

const STACK_BYTES: usize = 64 * 1024;
const GUARD_BYTES: usize = 64 * 1024;
const LAST_SIGNAL: c_int = 64;
/// The descriptor of a template's socket to its host.
const CONTROL: RawFd = 3;

/// Proof that this thread takes no signals: no handler can run in a child that shares its memory.
#[derive(Debug)]
pub(super) struct SignalsBlocked(PhantomData<*const ()>);

impl SignalsBlocked {
    /// Blocks every signal on the calling thread, for good.
    pub(super) fn on_this_thread() -> Self {
        block_signals();
        Self(PhantomData)
    }
}

/// Blocks every signal on the calling thread, and gives the mask that was.
pub(crate) fn block_signals() -> libc::sigset_t {
    // SAFETY: both sets are plain memory of this frame, filled by the calls.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        before
    }
}

pub(crate) fn restore_signals(mask: &libc::sigset_t) {
    // SAFETY: `mask` is a valid set; no old mask is asked for.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, mask, ptr::null_mut()) };
}

/// Calls a function with signals blocked on the calling thread, and drops a pending SIGPIPE.
pub(super) fn without_signals(act: impl FnOnce()) {
    let before = block_signals();
    act();
    // SAFETY: sets and times are plain memory of this frame.
    unsafe {
        if libc::sigismember(&raw const before, libc::SIGPIPE) == 0 {
            let mut pipe: libc::sigset_t = std::mem::zeroed();
            let at_once: libc::timespec = std::mem::zeroed();
            libc::sigemptyset(&raw mut pipe);
            libc::sigaddset(&raw mut pipe, libc::SIGPIPE);
            libc::sigtimedwait(&raw const pipe, ptr::null_mut(), &raw const at_once);
        }
    }
    restore_signals(&before);
}

/// The child's own stack, with a guard below it. One serves every launch of its thread, because
/// the thread stands still until the child has left it.
#[derive(Debug)]
pub(super) struct Stack(*mut c_void);

// SAFETY: the mapping belongs to this value alone.
unsafe impl Send for Stack {}

impl Stack {
    pub(super) fn new() -> Result<Self, Errno> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh private mapping; the guard lies inside of it.
        unsafe {
            let size = GUARD_BYTES + STACK_BYTES;
            let base = mmap_anonymous(ptr::null_mut(), size, access, MapFlags::PRIVATE)?;
            let stack = Self(base);
            mprotect(base, GUARD_BYTES, MprotectFlags::empty())?;
            Ok(stack)
        }
    }

    fn top(&self) -> *mut c_void {
        // SAFETY: one past the end of the mapping, which is where a stack begins.
        unsafe { self.0.byte_add(GUARD_BYTES + STACK_BYTES) }
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: the whole mapping of `new`, that nothing else refers to.
        let _ = unsafe { munmap(self.0, GUARD_BYTES + STACK_BYTES) };
    }
}

/// The resources of every launch, made once.
#[derive(Debug)]
pub(super) struct Kit {
    pub(super) stack: Stack,
    pub(super) null: OwnedFd,
}

impl Kit {
    pub(super) fn new() -> Result<Self, Errno> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        Ok(Self {
            stack: Stack::new()?,
            null: above_stdio(open("/dev/null", flags, Mode::empty())?)?,
        })
    }
}

/// The child's ends of its three streams, and what becomes its descriptor 3; none of them is 0, 1
/// or 2. Nothing else reaches the child.
#[derive(Debug)]
pub(super) struct Stdio<'fd> {
    pub(super) stdin: BorrowedFd<'fd>,
    pub(super) stdout: BorrowedFd<'fd>,
    pub(super) stderr: BorrowedFd<'fd>,
    pub(super) control: Option<BorrowedFd<'fd>>,
}

/// A child that has executed its program.
#[derive(Debug)]
pub(super) struct Launched {
    pub(super) pid: Pid,
    pub(super) pidfd: OwnedFd,
}

/// A step of the child before its exec; the order is that of the steps.
#[derive(Debug, Clone, Copy)]
#[repr(i32)]
enum Step {
    None = 0,
    Session,
    HostGone,
    Stdio,
    Chdir,
    Seal,
    Exec,
}

/// The data of the child, prepared by the launching thread.
struct Plan {
    path: *const c_char,
    argv: *const *const c_char,
    env: *const *const c_char,
    cwd: *const c_char,
    stdio: [RawFd; 3],
    /// The descriptor that becomes 3; -1 for none.
    control: RawFd,
    host: libc::pid_t,
    dies_with_host: bool,
    /// The step that failed, and its errno: written by the child, read after the clone.
    failed_step: AtomicI32,
    errno: AtomicI32,
}

/// Starts `program` as the leader of its own session.
///
/// `own_env` are variables of this one call, above those of the program.
/// With `dies_with_host` the kernel kills it when the launching *thread* ends.
pub(super) fn launch(
    _proof: &SignalsBlocked,
    stack: &Stack,
    program: &Program,
    own_env: &[CString],
    stdio: &Stdio<'_>,
    dies_with_host: bool,
) -> Result<Launched, OsFailure> {
    let pointers = |first: &[CString], second: &[CString]| -> Vec<*const c_char> {
        let texts = first.iter().chain(second).map(|text| text.as_ptr());
        texts.chain([ptr::null()]).collect()
    };
    // Of two variables of one name, the first counts.
    let (argv, env) = (
        pointers(&program.argv, &[]),
        pointers(own_env, &program.env),
    );
    let plan = Plan {
        path: program.path.as_ptr(),
        argv: argv.as_ptr(),
        env: env.as_ptr(),
        cwd: program.cwd.as_ptr(),
        stdio: [
            stdio.stdin.as_raw_fd(),
            stdio.stdout.as_raw_fd(),
            stdio.stderr.as_raw_fd(),
        ],
        control: stdio.control.map_or(-1, |fd| fd.as_raw_fd()),
        host: getpid().as_raw_nonzero().get(),
        dies_with_host,
        failed_step: AtomicI32::new(Step::None as i32),
        errno: AtomicI32::new(0),
    };
    let mut pidfd: RawFd = -1;
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PIDFD | libc::SIGCHLD;
    // SAFETY: the child runs `become_program` on its own stack, on memory that outlives it there,
    // because CLONE_VFORK holds this thread until the exec. No signal handler can run in between.
    let pid = unsafe {
        let plan = (&raw const plan).cast_mut().cast();
        libc::clone(become_program, stack.top(), flags, plan, &raw mut pidfd)
    };
    let errno = || Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::AGAIN);
    let Some(pid) = (pid > 0).then(|| Pid::from_raw(pid)).flatten() else {
        return Err(OsFailure::new(
            "start a process for",
            program.command(),
            errno(),
        ));
    };
    // SAFETY: the kernel has just made this descriptor for us, close-on-exec.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    let failed_step = plan.failed_step.load(Ordering::Acquire);
    if failed_step == Step::None as i32 {
        return Ok(Launched { pid, pidfd });
    }
    // It has ended without executing the program: reap it.
    let _ = waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED);
    let errno = Errno::from_raw_os_error(plan.errno.load(Ordering::Acquire));
    Err(explain(failed_step, program, errno))
}

fn explain(step: i32, program: &Program, errno: Errno) -> OsFailure {
    let command = program.command();
    let (text, path): (_, &Path) = if step == Step::Chdir as i32 {
        ("enter the working directory", program.working_dir())
    } else if step == Step::Exec as i32 {
        ("execute", command)
    } else if step == Step::Session as i32 {
        ("make a session for", command)
    } else if step == Step::HostGone as i32 {
        ("tie to its host", command)
    } else {
        ("wire the streams of", command)
    };
    OsFailure::new(text, path, errno)
}

/// The child: becomes the program, or leaves with a note in the plan.
extern "C" fn become_program(plan: *mut c_void) -> c_int {
    // SAFETY: `launch` passes a plan that lives until this child has left its memory.
    let plan = unsafe { &*plan.cast::<Plan>() };
    let step = prepare_and_exec(plan);
    // SAFETY: errno is this thread's; `_exit` runs no handlers of the host.
    unsafe {
        plan.errno
            .store(*libc::__errno_location(), Ordering::Release);
        plan.failed_step.store(step as i32, Ordering::Release);
        libc::_exit(127)
    }
}

/// Returns only the step that failed, with its errno set.
fn prepare_and_exec(plan: &Plan) -> Step {
    // SAFETY: raw system calls on plain values and on memory of the plan; the C library's
    // wrappers used here take no lock and allocate nothing.
    unsafe {
        reset_signals();
        if libc::setsid() < 0 {
            return Step::Session;
        }
        if plan.dies_with_host {
            let killed = libc::SIGKILL as libc::c_ulong;
            if libc::prctl(libc::PR_SET_PDEATHSIG, killed) < 0 {
                return Step::HostGone;
            }
            // The host may have died before it could matter.
            if libc::getppid() != plan.host {
                *libc::__errno_location() = libc::ESRCH;
                return Step::HostGone;
            }
        }
        for (fd, target) in plan.stdio.iter().zip(0..) {
            if libc::dup2(*fd, target) < 0 {
                return Step::Stdio;
            }
        }
        if libc::chdir(plan.cwd) < 0 {
            return Step::Chdir;
        }
        if !close_others_on_exec() {
            return Step::Seal;
        }
        // The streams are in place, so that 3 is free.
        if plan.control >= 0 && !keep_as_control(plan.control) {
            return Step::Stdio;
        }
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, ptr::null_mut());
        libc::execve(plan.path, plan.argv, plan.env);
        Step::Exec
    }
}

/// Handlers of the host must not run here, and what it ignores must not be inherited.
///
/// # Safety
/// Only in a child that does not share its signal table.
unsafe fn reset_signals() {
    // The kernel's form of a sigaction; zeroed it is SIG_DFL without flags. The C library's own
    // call may take a lock that a thread of the host holds.
    let default = [0_u64; 4];
    let mask_bytes = 8_usize;
    for signal in 1..=LAST_SIGNAL {
        let none = ptr::null_mut::<c_void>();
        // SAFETY: `default` is as large as the kernel's struct. KILL and STOP are refused.
        unsafe {
            libc::syscall(
                libc::SYS_rt_sigaction,
                signal,
                &raw const default,
                none,
                mask_bytes,
            )
        };
    }
}

/// # Safety
/// Only in a child that does not share its descriptor table.
unsafe fn keep_as_control(fd: RawFd) -> bool {
    // SAFETY: plain numbers. A copy onto itself would keep its mark.
    unsafe {
        if fd == CONTROL {
            libc::fcntl(fd, libc::F_SETFD, 0) == 0
        } else {
            libc::dup2(fd, CONTROL) == CONTROL
        }
    }
}

/// Nothing that the host has open reaches the program.
///
/// # Safety
/// Only in a child that does not share its descriptor table.
unsafe fn close_others_on_exec() -> bool {
    let first: libc::c_uint = 3;
    let cloexec: libc::c_uint = libc::CLOSE_RANGE_CLOEXEC;
    // SAFETY: plain numbers.
    let done = unsafe { libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, cloexec) };
    // Kernels before 5.11 don't know it.
    // SAFETY: the caller's promise is the same.
    done == 0 || unsafe { close_each_on_exec() }
}

/// # Safety
/// Only in a child that does not share its descriptor table.
unsafe fn close_each_on_exec() -> bool {
    // SAFETY: the limit is plain memory; a number that is no descriptor is refused.
    unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) < 0 {
            return false;
        }
        let mut fd: c_int = 3;
        while (fd as libc::rlim_t) < limit.rlim_cur {
            libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC);
            fd += 1;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use rustix::pipe::{PipeFlags, pipe_with};

    use super::*;

    /// On a thread of its own, because the mask stays.
    fn on_launching_thread<T: Send>(test: impl FnOnce(&SignalsBlocked, &Stack) -> T + Send) -> T {
        let body = || test(&SignalsBlocked::on_this_thread(), &Stack::new().unwrap());
        std::thread::scope(|scope| scope.spawn(body).join().unwrap())
    }

    fn program(command: &str, args: &[&str], cwd: &str) -> Program {
        let args = args.iter().map(Into::into).collect();
        Program::new(command.into(), args, Vec::new(), cwd.into()).unwrap()
    }

    #[test]
    fn a_program_runs_in_its_own_session_with_the_streams_it_was_given() {
        let script = "ps=$(cut -d' ' -f5,6 /proc/$$/stat); echo $$ $ps; cat";
        let (pid, output) = on_launching_thread(|proof, stack| {
            let (input, mut feeding) = pipe_with(PipeFlags::CLOEXEC).unwrap();
            let (reading, output) = pipe_with(PipeFlags::CLOEXEC).unwrap();
            let stdio = Stdio {
                stdin: input.as_fd(),
                stdout: output.as_fd(),
                stderr: output.as_fd(),
                control: None,
            };
            let shell = Program::new(
                "/bin/sh".into(),
                vec!["-c".into(), script.into()],
                vec![("PATH".into(), "/usr/bin:/bin".into())],
                "/".into(),
            );
            let child = launch(proof, stack, &shell.unwrap(), &[], &stdio, true).unwrap();
            drop((input, output));
            rustix::io::write(&mut feeding, b"fed").unwrap();
            drop(feeding);
            let mut text = String::new();
            std::fs::File::from(reading)
                .read_to_string(&mut text)
                .unwrap();
            let status = waitid(WaitId::PidFd(child.pidfd.as_fd()), WaitIdOptions::EXITED);
            assert_eq!(status.unwrap().unwrap().exit_status(), Some(0));
            (child.pid.as_raw_nonzero(), text)
        });
        assert_eq!(output, format!("{pid} {pid} {pid}\nfed"));
    }

    #[test]
    fn each_failed_step_says_which_and_why() {
        let cases = [
            ("/bin/missing", "/", "execute", "/bin/missing", Errno::NOENT),
            ("/etc/passwd", "/", "execute", "/etc/passwd", Errno::ACCESS),
            (
                "/bin/true",
                "/missing",
                "enter the working directory",
                "/missing",
                Errno::NOENT,
            ),
        ];
        for (command, cwd, step, path, errno) in cases {
            let failed = on_launching_thread(|proof, stack| {
                let null = std::fs::File::open("/dev/null").unwrap();
                let stdio = Stdio {
                    stdin: null.as_fd(),
                    stdout: null.as_fd(),
                    stderr: null.as_fd(),
                    control: None,
                };
                launch(
                    proof,
                    stack,
                    &program(command, &[], cwd),
                    &[],
                    &stdio,
                    false,
                )
                .unwrap_err()
            });
            assert_eq!(failed, OsFailure::new(step, path, errno));
        }
    }

    #[test]
    fn without_close_range_each_descriptor_is_marked() {
        // In a forked process, so that this one's descriptors stay as they are.
        let held = std::fs::File::open("/dev/null").unwrap();
        let inherited = rustix::io::dup(&held).unwrap();
        // SAFETY: the child makes system calls alone and leaves.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            // SAFETY: this process is a copy; nothing of it is shared.
            unsafe {
                let done = close_each_on_exec();
                let flags = libc::fcntl(inherited.as_raw_fd(), libc::F_GETFD);
                libc::_exit(c_int::from(!(done && flags == libc::FD_CLOEXEC)));
            }
        }
        let mut status = 0;
        // SAFETY: reaps the child made above.
        assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
        assert_eq!(status, 0);
    }
}
