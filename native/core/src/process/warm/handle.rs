//! A pool as its host sees it.

use std::sync::Arc;
use std::time::Duration;

use super::start::{PoolState, TemplateSpec, TemplateStats, Warm};
use crate::error::Result;
use crate::process::reactor;
use crate::process::serving::Command;
use crate::process::spec::Program;
use crate::sync::{Waiter, lock};

/// Templates within one bound of memory; two pools share nothing. Dropping it closes it.
#[derive(Debug)]
pub struct Pool(Arc<PoolState>);

impl Pool {
    #[must_use]
    pub fn new(memory_bytes: u64) -> Self {
        Self(Arc::new(PoolState::new(memory_bytes)))
    }

    /// A warm start of `target`, from a template made as `spec` says.
    pub fn start(&self, target: &Program, spec: TemplateSpec<'_>) -> Result<Warm> {
        Warm::new(&self.0, target, spec)
    }

    /// Ends every template and what it forked ahead; whether all ended within `patience`.
    pub fn close(&self, patience: Duration) -> bool {
        self.0.close();
        let Some(reactor) = reactor::running() else {
            return true;
        };
        let ended = Arc::new(Waiter::default());
        reactor.submit(Command::ClosePool(self.0.id, Some(Arc::clone(&ended))));
        ended.wait(patience).is_some()
    }

    #[must_use]
    pub fn stats(&self) -> Vec<TemplateStats> {
        let Some(reactor) = reactor::running() else {
            return Vec::new();
        };
        let serving = lock(&reactor.serving);
        serving
            .as_ref()
            .map_or_else(Vec::new, |serving| serving.stats(self.0.id))
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if self.0.close()
            && let Some(reactor) = reactor::running()
        {
            reactor.submit(Command::ClosePool(self.0.id, None));
        }
    }
}
