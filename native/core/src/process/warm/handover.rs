//! Calls that were given to forked children, until the children must have begun.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::mailbox::Token;

/// A child that has not begun by then is stopped or starved, and its call starts cold.
const BEGUN_WITHIN: Duration = Duration::from_secs(1);

/// The calls by age, the oldest first.
#[derive(Debug, Default)]
pub(in crate::process) struct Handovers(VecDeque<(Instant, Token)>);

impl Handovers {
    pub(in crate::process) fn add(&mut self, token: Token, now: Instant) {
        self.0.push_back((now + BEGUN_WITHIN, token));
    }

    /// When the next one is to be checked.
    pub(in crate::process) fn due(&self) -> Option<Instant> {
        self.0.front().map(|(due, _)| *due)
    }

    /// Removes and returns one that is due.
    pub(in crate::process) fn pop_due(&mut self, now: Instant) -> Option<Token> {
        self.due().filter(|due| *due <= now)?;
        self.0.pop_front().map(|(_, token)| token)
    }

    /// Forgets the oldest ones that have ended.
    pub(in crate::process) fn settle(&mut self, is_over: impl Fn(Token) -> bool) {
        while self.0.front().is_some_and(|(_, token)| is_over(*token)) {
            self.0.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_looked_at_once_in_its_turn() {
        let start = Instant::now();
        let mut handovers = Handovers::default();
        assert_eq!(handovers.due(), None);
        for token in 1..=4 {
            handovers.add(
                token,
                start + Duration::from_millis(100) * u32::try_from(token).unwrap(),
            );
        }
        handovers.settle(|token| token != 2);
        assert_eq!(handovers.due(), Some(start + Duration::from_millis(1200)));
        assert_eq!(handovers.pop_due(start + Duration::from_millis(1199)), None);
        let later = start + Duration::from_millis(1300);
        assert_eq!(handovers.pop_due(later), Some(2));
        assert_eq!(handovers.pop_due(later), Some(3));
        assert_eq!(handovers.pop_due(later), None);
    }
}
