//! The room that the host has for another child.

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use crate::error::OsFailure;

/// Descriptors that one run needs: its pidfd and two pipes.
pub(super) const DESCRIPTORS_A_RUN: u64 = 3;
/// The runs that are always started.
pub(super) const FEWEST_RUNS: usize = 16;

/// How many descriptors all of this may take: the host keeps a quarter for itself.
pub(super) fn allowed() -> u64 {
    let most = getrlimit(Resource::Nofile).current;
    most.map_or(u64::MAX, |most| most / 4 * 3)
}

/// Whether the end of another run may help.
pub(super) fn is_shortage(failure: &OsFailure) -> bool {
    let shortages = [Errno::MFILE, Errno::NFILE, Errno::AGAIN, Errno::NOMEM];
    shortages
        .iter()
        .any(|errno| errno.raw_os_error() == failure.errno)
}
