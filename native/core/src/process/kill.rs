//! Status and killing of processes, by identities that are never reused.

use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::process::Signal;

use super::descendants::Descendants;
use super::held::hold;
use super::procfs::ProcessId;
use crate::error::{Error, Result};

/// The time between two checks for an interruption by the caller.
const SLICE: Duration = Duration::from_millis(50);
/// After KILL only the kernel can delay the end.
const KILL_PATIENCE: Duration = Duration::from_secs(10);
/// Each descendant that is found is stopped, so that each further scan finds fewer.
const MOST_LOOKS: usize = 64;

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Killed {
    Terminated,
    Killed,
    AlreadyDead,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessStatus {
    Running,
    Zombie,
    Dead,
}

/// Returns the status of a process. One of another boot is dead; one of another pid namespace is an
/// error.
pub fn process_status(id: &ProcessId) -> Result<ProcessStatus> {
    Ok(match hold(id)? {
        None => ProcessStatus::Dead,
        Some(held) if held.stat.is_dead() => ProcessStatus::Zombie,
        Some(_) => ProcessStatus::Running,
    })
}

/// Ends processes, the groups that they lead, and all their descendants.
///
/// First TERM goes to them and their groups, which have `grace` to end. Then KILL goes to the rest:
/// their descendants, and the sessions of those. Processes with one of `marks` in their environment
/// are killed too, which finds those that lost their parents. `spared` and their descendants are
/// left alone. `go_on` is called between slices of waiting; returns `None` where it returned false.
pub fn kill_processes(
    ids: &[ProcessId],
    spared: &[ProcessId],
    marks: &[Vec<u8>],
    grace: Duration,
    mut go_on: impl FnMut() -> bool,
) -> Result<Option<Vec<Killed>>> {
    let mut unseen = None;
    let mut outcomes = vec![Killed::AlreadyDead; ids.len()];
    let mut roots = Vec::new();
    for (index, id) in ids.iter().enumerate() {
        match hold(id) {
            Ok(held) => {
                let alive = held.filter(|held| !held.stat.is_dead());
                roots.extend(alive.map(|held| (index, held)));
            }
            Err(error) => unseen = unseen.or(Some(error)),
        }
    }
    let mut descendants = Descendants::new(roots.iter().map(|(_, held)| held), spared, marks)?;
    descendants.look(false);
    // The members are held by descriptors, so that their end is an event.
    let mut living = Vec::new();
    for (index, held) in &roots {
        let members = held.members();
        match held.signal(Signal::TERM) {
            Ok(()) => {}
            Err(Errno::SRCH) => continue,
            Err(errno) => return Err(held.failed(errno)),
        }
        outcomes[*index] = Killed::Terminated;
        living.extend(members);
        let copy = fcntl_dupfd_cloexec(&held.pidfd, 3);
        living.push(copy.map_err(|errno| held.failed(errno))?);
    }
    if wait_for_end(&mut living, grace, &mut go_on) == Wait::Stopped {
        return Ok(None);
    }
    for (index, held) in &roots {
        if held.is_alive() {
            outcomes[*index] = Killed::Killed;
            held.freeze();
        }
    }
    let mut looks = 0;
    while descendants.look(true) && looks < MOST_LOOKS {
        looks += 1;
    }
    for (_, held) in &roots {
        match held.signal(Signal::KILL) {
            Ok(()) | Err(Errno::SRCH) => {}
            Err(errno) => return Err(held.failed(errno)),
        }
    }
    living.extend(descendants.kill());
    match wait_for_end(&mut living, KILL_PATIENCE, &mut go_on) {
        Wait::Ended => unseen.map_or(Ok(Some(outcomes)), Err),
        Wait::Stopped => Ok(None),
        Wait::TimeOver => {
            let pid = roots.first().map_or(0, |(_, held)| held.number());
            Err(Error::os("end", format!("/proc/{pid}"), Errno::TIMEDOUT))
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Wait {
    Ended,
    TimeOver,
    Stopped,
}

/// Waits until every process has ended; those that have are taken from the list.
fn wait_for_end(
    living: &mut Vec<OwnedFd>,
    patience: Duration,
    go_on: &mut impl FnMut() -> bool,
) -> Wait {
    let begun = Instant::now();
    while let Some(first) = living.first() {
        let left = patience.saturating_sub(begun.elapsed());
        let slice = left.min(SLICE);
        let timeout = Timespec {
            tv_sec: 0,
            tv_nsec: slice.subsec_nanos().into(),
        };
        let mut look = [PollFd::new(first, PollFlags::IN)];
        if poll(&mut look, Some(&timeout)) == Ok(1) {
            living.swap_remove(0);
        } else if left.is_zero() {
            return Wait::TimeOver;
        } else if !go_on() {
            return Wait::Stopped;
        }
    }
    Wait::Ended
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command, Stdio};

    use rustix::process::Pid;

    use super::*;
    use crate::process::procfs::{Snapshot, stat_of};

    /// A shell that leads a group of its own, and has said that it is ready.
    fn shell(script: &str) -> (Child, ProcessId) {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]).process_group(0);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap())
            .read_line(&mut line)
            .unwrap();
        let pid = Pid::from_child(&child);
        (child, ProcessId::of(pid).unwrap())
    }

    fn kill(id: &ProcessId, grace: Duration) -> Killed {
        let ids = std::slice::from_ref(id);
        kill_processes(ids, &[], &[], grace, || true)
            .unwrap()
            .unwrap()[0]
    }

    const SOON: Duration = Duration::from_millis(100);
    const LATE: Duration = Duration::from_secs(60);

    #[test]
    fn a_running_process_ends_by_term_with_its_group() {
        let (mut child, id) = shell("sleep 1000 & echo ready; wait");
        assert_eq!(process_status(&id), Ok(ProcessStatus::Running));
        let members: Vec<_> = Snapshot::take().group(id.pid).collect();
        assert_eq!(members.len(), 2);
        assert_eq!(kill(&id, LATE), Killed::Terminated);
        assert_eq!(process_status(&id), Ok(ProcessStatus::Zombie));
        assert_eq!(kill(&id, LATE), Killed::AlreadyDead);
        assert_eq!(Snapshot::take().group(id.pid).count(), 0);
        child.wait().unwrap();
        assert_eq!(process_status(&id), Ok(ProcessStatus::Dead));
        assert_eq!(kill(&id, LATE), Killed::AlreadyDead);
    }

    #[test]
    fn who_ignores_term_is_killed() {
        let (mut child, id) = shell("trap '' TERM; echo ready; while :; do sleep 1000; done");
        assert_eq!(kill(&id, SOON), Killed::Killed);
        child.wait().unwrap();
    }

    #[test]
    fn another_process_under_the_same_number_is_spared() {
        let (mut child, id) = shell("echo ready; exec sleep 1000");
        let reused = ProcessId {
            start_ticks: id.start_ticks - 1,
            ..id.clone()
        };
        let other_boot = ProcessId {
            boot_id: "another".to_owned(),
            ..id.clone()
        };
        for gone in [reused, other_boot] {
            assert_eq!(process_status(&gone), Ok(ProcessStatus::Dead));
            assert_eq!(kill(&gone, SOON), Killed::AlreadyDead);
        }
        let elsewhere = ProcessId {
            pid_namespace: 1,
            ..id.clone()
        };
        assert!(matches!(process_status(&elsewhere), Err(Error::Os(_))));
        let ids = [elsewhere, id.clone()];
        assert!(kill_processes(&ids[..1], &[], &[], SOON, || true).is_err());
        assert_eq!(process_status(&id), Ok(ProcessStatus::Running));
        assert_eq!(kill(&id, LATE), Killed::Terminated);
        child.wait().unwrap();
    }

    #[test]
    fn numbers_that_mean_everybody_are_refused() {
        let own = ProcessId::current().unwrap();
        for pid in [1, 0, -1, i32::MIN] {
            let id = ProcessId { pid, ..own.clone() };
            assert!(matches!(process_status(&id), Err(Error::Invalid(_))));
            assert!(matches!(
                kill_processes(&[id], &[], &[], SOON, || true),
                Err(Error::Invalid(_))
            ));
        }
    }

    #[test]
    fn waiting_can_be_stopped() {
        let (mut child, id) = shell("trap '' TERM; echo ready; while :; do sleep 1000; done");
        let ids = std::slice::from_ref(&id);
        assert_eq!(kill_processes(ids, &[], &[], LATE, || false), Ok(None));
        assert_eq!(kill(&id, Duration::ZERO), Killed::Killed);
        child.wait().unwrap();
    }

    /// The number that a shell has said behind its first word.
    fn said(child: &mut Child) -> i32 {
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap())
            .read_line(&mut line)
            .unwrap();
        line.trim().parse().unwrap()
    }

    fn speaking(script: &str, env: &[(&str, &str)]) -> (Child, i32, ProcessId) {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]).process_group(0);
        command.envs(env.iter().copied());
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let number = said(&mut child);
        let id = ProcessId::of(Pid::from_child(&child)).unwrap();
        (child, number, id)
    }

    fn is_alive(pid: i32) -> bool {
        stat_of(pid).is_some_and(|stat| !stat.is_dead())
    }

    #[test]
    fn what_a_process_has_started_in_other_sessions_goes_with_it() {
        // Its own group ends by TERM; the other session has lost its leader by then.
        let script = "setsid sh -c 'sleep 1000 & echo $!; wait' & trap exit TERM; wait";
        for grace in [SOON, LATE] {
            let (mut child, inner, id) = speaking(script, &[]);
            assert!(is_alive(inner));
            kill(&id, grace);
            assert!(!is_alive(inner), "{grace:?}");
            child.wait().unwrap();
        }
    }

    #[test]
    fn who_is_spared_stays_with_all_below_it() {
        let script = "setsid sh -c 'sleep 1000 & echo $$; wait' & wait";
        let (mut child, inner, id) = speaking(script, &[]);
        let spared = ProcessId::of(Pid::from_raw(inner).unwrap()).unwrap();
        let ids = std::slice::from_ref(&id);
        let spares = std::slice::from_ref(&spared);
        kill_processes(ids, spares, &[], SOON, || true).unwrap();
        let descendants = Snapshot::take().group(inner).count();
        assert_eq!(descendants, 2);
        kill(&spared, SOON);
        assert_eq!(Snapshot::take().group(inner).count(), 0);
        child.wait().unwrap();
    }

    #[test]
    fn a_mark_finds_who_has_lost_its_parents() {
        let script = "setsid sh -c 'sleep 1000 & echo $!' ; exec sleep 1000";
        let (mut child, inner, id) = speaking(script, &[("MARK", "of-this-test")]);
        let (mut other, stranger, other_id) = speaking(script, &[("MARK", "of-this-test-2")]);
        let marks = [b"MARK=of-this-test".to_vec()];
        kill_processes(&[], &[], &marks, SOON, || true).unwrap();
        assert!(!is_alive(inner) && is_alive(stranger));
        assert_eq!(process_status(&id), Ok(ProcessStatus::Zombie));
        kill_processes(
            &[other_id],
            &[],
            &[b"MARK=of-this-test-2".to_vec()],
            SOON,
            || true,
        )
        .unwrap();
        assert!(!is_alive(stranger));
        child.wait().unwrap();
        other.wait().unwrap();
    }
}
