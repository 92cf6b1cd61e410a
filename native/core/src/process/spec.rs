//! The spec of a run: a resolved program in C's form, and its limits.

use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Access, FileType, access, stat};
use rustix::io::Errno;

use crate::error::{Error, Result};

/// A program, resolved before anything is started, in the form that `execve` takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    pub(super) path: CString,
    pub(super) argv: Vec<CString>,
    pub(super) env: Vec<CString>,
    pub(super) cwd: CString,
}

/// The limits of a run.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// How long the leader may run; `None` is for ever.
    pub timeout: Option<Duration>,
    /// Between TERM and KILL.
    pub kill_grace: Duration,
    /// How long a pipe may stay open after the leader's end.
    pub drain: Duration,
    /// How much of each stream is kept.
    pub max_output_bytes: usize,
}

impl Program {
    /// Resolves `command`: an absolute path, or a bare name in the PATH of the child's own `env`.
    pub fn new(
        command: OsString,
        args: Vec<OsString>,
        env: Vec<(OsString, OsString)>,
        cwd: OsString,
    ) -> Result<Self> {
        let path = resolve(&command, &env)?;
        let mut argv = Vec::with_capacity(args.len() + 1);
        argv.push(c_string(command, "the command")?);
        for arg in args {
            argv.push(c_string(arg, "an argument")?);
        }
        Ok(Self {
            path: c_string(path.into_os_string(), "the command")?,
            argv,
            env: env.into_iter().map(assignment).collect::<Result<_>>()?,
            cwd: c_string(cwd, "the working directory")?,
        })
    }

    /// Variables of one call, in C's form.
    pub fn variables(env: Vec<(OsString, OsString)>) -> Result<Vec<CString>> {
        env.into_iter().map(assignment).collect()
    }

    pub(super) fn command(&self) -> &Path {
        Path::new(OsStr::from_bytes(self.path.as_bytes()))
    }

    pub(super) fn working_dir(&self) -> &Path {
        Path::new(OsStr::from_bytes(self.cwd.as_bytes()))
    }
}

fn c_string(text: OsString, what: &str) -> Result<CString> {
    CString::new(text.into_vec())
        .map_err(|_| Error::Invalid(format!("{what} contains a NUL character")))
}

fn assignment((name, value): (OsString, OsString)) -> Result<CString> {
    if name.is_empty() || name.as_bytes().contains(&b'=') {
        let message = format!("{name:?} can't be the name of an environment variable");
        return Err(Error::Invalid(message));
    }
    let mut text = name;
    text.reserve_exact(value.len() + 2);
    text.push("=");
    text.push(value);
    c_string(text, "an environment variable")
}

fn resolve(command: &OsStr, env: &[(OsString, OsString)]) -> Result<PathBuf> {
    if Path::new(command).is_absolute() {
        return Ok(command.into());
    }
    if command.is_empty() || command.as_bytes().contains(&b'/') {
        let message = format!("{command:?} is neither an absolute path nor a bare name");
        return Err(Error::Invalid(message));
    }
    let path = env.iter().rev().find(|(name, _)| name == "PATH");
    let folders = path.map_or(&b""[..], |(_, value)| value.as_bytes());
    let mut reason = Errno::NOENT;
    for folder in folders.split(|&byte| byte == b':') {
        // An empty or relative entry would let the working directory decide what runs.
        if !folder.starts_with(b"/") {
            continue;
        }
        let candidate = Path::new(OsStr::from_bytes(folder)).join(command);
        match check_executable(&candidate) {
            Ok(()) => return Ok(candidate),
            Err(Errno::ACCESS) => reason = Errno::ACCESS,
            Err(_) => {}
        }
    }
    Err(Error::os("find on the child's PATH", command, reason))
}

fn check_executable(path: &Path) -> std::result::Result<(), Errno> {
    match FileType::from_raw_mode(stat(path)?.st_mode) {
        FileType::RegularFile => access(path, Access::EXEC_OK),
        _ => Err(Errno::ACCESS),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::testing::Scratch;

    fn program(command: &str, path: &str, cwd: &Path) -> Result<Program> {
        let env = vec![("PATH".into(), path.into())];
        Program::new(command.into(), Vec::new(), env, cwd.into())
    }

    fn executable(scratch: &Scratch, name: &str) {
        let path = scratch.write(name, b"#!/bin/sh\n");
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn a_bare_name_is_looked_up_in_the_childs_path() {
        let scratch = Scratch::new();
        executable(&scratch, "first/tool");
        executable(&scratch, "second/tool");
        scratch.write("second/plain", b"not executable");
        let path = format!("{0}/missing:{0}/second:{0}/first", scratch.root().display());
        let found = program("tool", &path, scratch.root()).unwrap();
        assert_eq!(found.command(), scratch.path("second/tool"));
        for path in ["first", "", ":first", "."] {
            assert!(program("tool", path, &scratch.path("first")).is_err());
        }
        for (name, errno) in [("plain", Errno::ACCESS), ("nothing", Errno::NOENT)] {
            let failed = program(name, &path, scratch.root()).unwrap_err();
            assert_eq!(failed, Error::os("find on the child's PATH", name, errno));
        }
    }

    #[test]
    fn without_a_path_a_bare_name_is_not_found() {
        let failed = Program::new("sh".into(), vec![], vec![], "/".into()).unwrap_err();
        assert_eq!(
            failed,
            Error::os("find on the child's PATH", "sh", Errno::NOENT)
        );
    }

    #[test]
    fn what_c_cannot_say_is_refused() {
        let env = |name: &str| vec![(name.into(), "x".into())];
        let new = |command: &str, arg: &str, name: &str| {
            Program::new(command.into(), vec![arg.into()], env(name), "/".into())
        };
        assert!(new("/bin/true", "fine", "FINE").is_ok());
        for (command, arg, name) in [
            ("./true", "", "A"),
            ("", "", "A"),
            ("/bin/tr\0ue", "", "A"),
            ("/bin/true", "\0", "A"),
            ("/bin/true", "", "A=B"),
            ("/bin/true", "", ""),
        ] {
            let refused = new(command, arg, name);
            assert!(matches!(refused, Err(Error::Invalid(_))), "{command:?}");
        }
    }
}
