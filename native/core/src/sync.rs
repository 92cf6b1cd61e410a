//! Locks, and one result that one thread waits for.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Takes a lock, a poisoned one too: its content is consistent after each statement.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One result for one thread.
#[derive(Debug)]
pub struct Waiter<T> {
    result: Mutex<Option<T>>,
    arrived: Condvar,
}

impl<T> Default for Waiter<T> {
    fn default() -> Self {
        Self {
            result: Mutex::new(None),
            arrived: Condvar::new(),
        }
    }
}

impl<T> Waiter<T> {
    /// The result, or `None` when it has not come after `patience`.
    pub fn wait(&self, patience: Duration) -> Option<T> {
        let waiting = lock(&self.result);
        let (mut result, _) = self
            .arrived
            .wait_timeout_while(waiting, patience, |result| result.is_none())
            .unwrap_or_else(PoisonError::into_inner);
        result.take()
    }

    pub(crate) fn put(&self, result: T) {
        *lock(&self.result) = Some(result);
        self.arrived.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_waiter_gets_its_result_or_goes_on() {
        let waiter = Waiter::default();
        assert_eq!(waiter.wait(Duration::ZERO), None);
        std::thread::scope(|scope| {
            scope.spawn(|| waiter.put(7));
            assert_eq!(waiter.wait(Duration::from_secs(60)), Some(7));
        });
    }
}
