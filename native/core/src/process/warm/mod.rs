//! Warm starts: templates that fork children ahead of the calls that they serve.
//!
//! A template is the same command line as a cold start, with one argument that stops it half-way.
//! There it forks with `CLONE_PARENT`, so that what it forks are children of the host. All of this
//! lives on the reactor's thread, and nothing here ever waits.

mod entry;
mod grave;
mod handed;
mod handle;
mod policy;
mod pool;
mod spare;
mod template;
mod upkeep;
mod witness;

pub(super) use entry::Key;
pub(super) use handed::Handed;
pub use handle::{Pool, Standing, Warm};
pub(super) use policy::Why;
pub(super) use pool::{Hand, Start, Templates};
pub(super) use spare::{Child, Go, Spare};
