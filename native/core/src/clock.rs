//! Two clocks in nanoseconds: the wall's, and one that never goes back.

use rustix::time::{ClockId, Timespec, clock_gettime};

fn nanoseconds(time: Timespec) -> i64 {
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// Nanoseconds since 1970, by the wall clock.
pub fn now_ns() -> i64 {
    nanoseconds(clock_gettime(ClockId::Realtime))
}

/// Nanoseconds since an unspecified moment; never goes back.
pub fn monotonic_ns() -> i64 {
    nanoseconds(clock_gettime(ClockId::Monotonic))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_monotonic_clock_never_goes_back() {
        let first = monotonic_ns();
        assert!(monotonic_ns() >= first);
    }

    #[test]
    fn the_wall_clock_stands_after_2020() {
        assert!(now_ns() > 1_577_836_800_000_000_000);
    }
}
