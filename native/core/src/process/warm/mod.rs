//! Warm starts: templates that fork children ahead of the calls that they serve.
//!
//! A template is the same command line as a cold start, with one argument that stops it half-way.
//! There it forks with `CLONE_PARENT`, so that what it forks are children of the host. All of this
//! lives on the reactor's thread, and nothing here ever waits.

mod conditions;
mod entry;
mod handle;
mod handover;
mod policy;
mod pool;
mod reaper;
mod spare;
mod start;
mod template;
mod upkeep;

pub(super) use entry::Start;
pub use handle::Pool;
pub(super) use handover::Handovers;
pub(super) use policy::longest_wait;
pub(super) use pool::{Templates, TurnContext};
pub(super) use spare::{Child, Spare, StartPipe};
pub(super) use start::{ColdReason, ColdSlot, Key};
pub use start::{TemplateSpec, TemplateStats, Warm};
