//! Child processes: one thread starts, feeds, reads, times and reaps all of them.

mod child;
mod descendants;
mod detach;
mod fork;
mod held;
mod job;
mod kill;
mod launch;
mod procfs;
mod reactor;
mod room;
mod run;
mod serving;
mod signal;
mod spec;
mod streams;
mod warm;

pub use fork::{after_fork_in_child, after_fork_in_parent, before_fork};
pub use job::{Ending, Inbox, Outcome, Report, RunRequest};
pub use kill::{Killed, ProcessStatus, kill_processes, process_status};
pub(crate) use launch::{block_signals, restore_signals};
pub use procfs::ProcessId;
pub use reactor::{cancel, shut_down, start, start_detached};
pub use spec::{Limits, Program};
pub use warm::{Pool, TemplateSpec, TemplateStats, Warm};
