//! Child processes: one thread starts, feeds, reads, times and reaps all of them.

mod below;
mod child;
mod detach;
mod fork;
mod kill;
mod launch;
mod mailbox;
mod procfs;
mod reactor;
mod room;
mod run;
mod serving;
mod signal;
mod spec;
mod streams;
mod warm;

pub use detach::start_detached;
pub use fork::{after_fork_in_child, after_fork_in_parent, before_fork};
pub use kill::{Killed, Standing, kill_processes, process_status};
pub use mailbox::{Mailbox, Waiter};
pub use procfs::ProcessId;
pub use reactor::{Token, cancel, shut_down, start};
pub use run::{Ending, Inbox, Outcome, Report};
pub use spec::{Limits, Program};
pub use warm::{Pool, Standing as TemplateStanding, Warm};
