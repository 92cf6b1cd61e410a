//! A pool as its host sees it, and what a start says to be served from it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::error::{Error, Result};
use crate::process::Program;

/// Templates within one bound of memory; two pools share nothing.
#[derive(Debug)]
pub struct Pool {
    memory_bytes: u64,
    is_closed: AtomicBool,
}

/// How one template stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    pub state: &'static str,
    /// 0 where no process is.
    pub pid: i32,
    pub spares: usize,
    pub forks: u64,
    pub memory_bytes: u64,
    /// How often in a row it has failed.
    pub failures: u32,
    /// Why it failed the last time.
    pub reason: String,
}

/// From which pool, and how, a program is started warm.
#[derive(Debug, Clone)]
pub struct Warm {
    pub pool: Arc<Pool>,
    /// Which of the arguments (behind the command) is another in the template, and what it is.
    pub arg_index: usize,
    pub arg: std::ffi::CString,
    /// What the template is sent.
    pub program: Arc<[u8]>,
    pub settings: Arc<[u8]>,
}

impl Pool {
    #[must_use]
    pub fn new(memory_bytes: u64) -> Arc<Self> {
        Arc::new(Self {
            memory_bytes,
            is_closed: AtomicBool::new(false),
        })
    }

    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed) || self.memory_bytes == 0
    }

    /// Ends every template and what it forked ahead; whether all ended within `patience`.
    pub fn close(&self, _patience: Duration) -> bool {
        self.is_closed.store(true, Ordering::Relaxed);
        true
    }

    #[must_use]
    pub fn stats(&self) -> Vec<Standing> {
        Vec::new()
    }
}

impl Warm {
    /// Whether `program` has the argument that is to be another one.
    pub fn check(&self, program: &Program) -> Result<()> {
        if self.arg_index + 1 < program.argv.len() {
            return Ok(());
        }
        let message = format!("there is no argument {} to be warm with", self.arg_index);
        Err(Error::Invalid(message))
    }
}
