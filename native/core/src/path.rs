//! Paths in the form that system calls take.

use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// Converts a path; one with a NUL is refused.
pub(crate) fn c_path(path: PathBuf) -> Result<CString> {
    CString::new(path.into_os_string().into_encoded_bytes())
        .map_err(|_| Error::Invalid("a path contains a NUL".to_owned()))
}

pub(crate) fn as_path(path: &CString) -> &Path {
    Path::new(OsStr::from_bytes(path.as_bytes()))
}
