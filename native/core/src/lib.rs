//! The native part of ryecore: processes, witnesses, trees, content store, syncs, watching, schemas,
//! signing, time.
//!
//! Without Python; the bindings are in `ryecore-py`.

#[cfg(not(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64")
)))]
compile_error!(
    "ryecore runs on Linux (x86-64 and arm64) alone: its processes stand on pidfd, epoll and PDEATHSIG"
);

mod absent;
pub mod clock;
pub mod digest;
pub mod disk;
pub mod error;
pub mod mailbox;
mod path;
pub mod process;
pub mod schema;
pub mod signing;
pub mod store;
pub mod sync;
pub mod text_pattern;
pub mod tree;
pub mod watch;
pub mod witness;

#[cfg(test)]
mod testing;

pub use error::{Error, OsFailure, Result};
