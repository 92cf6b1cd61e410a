//! The phases of a run as pure decisions: from an event to the next phase and action.

use std::time::Duration;

use super::spec::Limits;

/// Why a run was ended from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    TimedOut,
    Cancelled,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Running,
    /// TERM was sent; at the deadline follows KILL.
    Ending(Cause),
    /// KILL was sent; the kernel ends it now.
    Killing(Cause),
    /// The leader is dead, and another process holds a pipe.
    Draining(Option<Cause>),
    Done(Option<Cause>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    LeaderDied { pipes_open: bool },
    PipesClosed,
    Deadline,
    Cancel,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    Nothing,
    /// TERM to the group; the next deadline is that far away.
    Terminate(Duration),
    /// KILL to the group; nothing is left to wait for but the leader's end.
    Kill,
    /// Wait for the end of the pipes, that long at most.
    Drain(Duration),
    /// Kill the rest of the group, reap the leader, report.
    Finish,
}

impl Phase {
    pub(super) fn cause(self) -> Option<Cause> {
        match self {
            Self::Running => None,
            Self::Ending(cause) | Self::Killing(cause) => Some(cause),
            Self::Draining(cause) | Self::Done(cause) => cause,
        }
    }

    pub(super) fn after(self, event: Event, limits: &Limits) -> (Self, Action) {
        use Phase::{Done, Draining, Ending, Killing, Running};
        let cause = self.cause();
        match (self, event) {
            (Running | Ending(_) | Killing(_), Event::LeaderDied { pipes_open: true }) => {
                (Draining(cause), Action::Drain(limits.drain))
            }
            (Running | Ending(_) | Killing(_), Event::LeaderDied { pipes_open: false }) => {
                (Done(cause), Action::Finish)
            }
            (Running, Event::Deadline) => terminate(Cause::TimedOut, limits),
            (Running, Event::Cancel) => terminate(Cause::Cancelled, limits),
            (Ending(cause), Event::Deadline) => (Killing(cause), Action::Kill),
            (Draining(_), Event::PipesClosed | Event::Deadline | Event::Cancel) => {
                (Done(cause), Action::Finish)
            }
            _ => (self, Action::Nothing),
        }
    }
}

fn terminate(cause: Cause, limits: &Limits) -> (Phase, Action) {
    (Phase::Ending(cause), Action::Terminate(limits.kill_grace))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        timeout: None,
        kill_grace: Duration::from_secs(2),
        drain: Duration::from_millis(250),
        max_output_bytes: 1,
    };
    const DIED: Event = Event::LeaderDied { pipes_open: false };
    const DIED_HELD: Event = Event::LeaderDied { pipes_open: true };
    const TERM: Action = Action::Terminate(LIMITS.kill_grace);
    const DRAIN: Action = Action::Drain(LIMITS.drain);

    /// The last phase, and what was done on the way.
    fn live(events: &[Event]) -> (Phase, Vec<Action>) {
        let mut actions = Vec::new();
        let end = events.iter().fold(Phase::Running, |phase, event| {
            let (next, action) = phase.after(*event, &LIMITS);
            actions.push(action);
            next
        });
        actions.retain(|action| *action != Action::Nothing);
        (end, actions)
    }

    #[test]
    fn lives() {
        use Action::{Finish, Kill};
        use Cause::{Cancelled, TimedOut};
        use Event::{Cancel, Deadline, PipesClosed};
        let cases: [(&[Event], Option<Cause>, &[Action]); 10] = [
            (&[DIED], None, &[Finish]),
            (&[PipesClosed, DIED], None, &[Finish]),
            (&[DIED_HELD, PipesClosed], None, &[DRAIN, Finish]),
            (&[DIED_HELD, Deadline], None, &[DRAIN, Finish]),
            (&[DIED_HELD, Cancel], None, &[DRAIN, Finish]),
            (&[Deadline, DIED], Some(TimedOut), &[TERM, Finish]),
            (
                &[Deadline, Deadline, DIED],
                Some(TimedOut),
                &[TERM, Kill, Finish],
            ),
            (
                &[Cancel, Cancel, Deadline, DIED_HELD, Deadline],
                Some(Cancelled),
                &[TERM, Kill, DRAIN, Finish],
            ),
            (&[Deadline, Cancel, DIED], Some(TimedOut), &[TERM, Finish]),
            (
                &[Cancel, DIED, DIED, Deadline],
                Some(Cancelled),
                &[TERM, Finish],
            ),
        ];
        for (events, cause, actions) in cases {
            let expected = (Phase::Done(cause), actions.to_vec());
            assert_eq!(live(events), expected, "{events:?}");
        }
    }
}
