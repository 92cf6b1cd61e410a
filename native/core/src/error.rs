//! The one error: a value that makes no sense, or a step that the kernel refused.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

/// A step that the kernel refused, and the path that it was about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OsFailure {
    pub errno: i32,
    /// What was being done, as in "cannot {step} {path}".
    pub step: &'static str,
    pub path: PathBuf,
}

/// Why an operation gave no result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// The caller's value makes no sense.
    Invalid(String),
    /// The kernel refused a step.
    Os(OsFailure),
}

pub type Result<T> = std::result::Result<T, Error>;

impl OsFailure {
    pub fn new(step: &'static str, path: impl AsRef<Path>, errno: Errno) -> Self {
        Self {
            errno: errno.raw_os_error(),
            step,
            path: path.as_ref().to_owned(),
        }
    }

    /// The kernel's own words for the error number.
    pub fn reason(&self) -> String {
        let text = io::Error::from_raw_os_error(self.errno).to_string();
        match text.rfind(" (os error") {
            Some(end) => text[..end].to_owned(),
            None => text,
        }
    }
}

impl Error {
    pub fn os(step: &'static str, path: impl AsRef<Path>, errno: Errno) -> Self {
        Self::Os(OsFailure::new(step, path, errno))
    }
}

impl fmt::Display for OsFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { step, path, .. } = self;
        write!(f, "cannot {step} {}: {}", path.display(), self.reason())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(message) => f.write_str(message),
            Self::Os(failure) => failure.fmt(f),
        }
    }
}

impl std::error::Error for Error {}

impl From<OsFailure> for Error {
    fn from(failure: OsFailure) -> Self {
        Self::Os(failure)
    }
}
