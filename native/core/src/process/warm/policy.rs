//! Pure decisions on templates and spares: when to start them, how many, and when to end them.

use std::time::{Duration, Instant};

use super::start::ColdReason;

/// A second call within this time shows demand.
const REPEATED_WITHIN: Duration = Duration::from_secs(60);
/// The shortest time that a peak of concurrent calls is remembered.
const PEAK_WINDOW: Duration = Duration::from_secs(5);
const MOST_SPARES: usize = 16;
/// The most unanswered requests of a template, which serves them in turn.
pub(super) const MOST_UNANSWERED: usize = 16;
const MOST_TEMPLATES: usize = 16;
/// A template that was used this recently is never evicted.
const IN_USE_WITHIN: Duration = Duration::from_secs(1);
/// The idle times after which the spares end, and the template.
pub(super) const SPARES_IDLE: Duration = Duration::from_secs(10);
pub(super) const TEMPLATE_IDLE: Duration = Duration::from_secs(60);
pub(super) const READY_WITHIN: Duration = Duration::from_secs(10);
pub(super) const FORKED_WITHIN: Duration = Duration::from_secs(1);
/// The pause after a fork that the system refused.
pub(super) const REST: Duration = Duration::from_secs(1);
const FIRST_LOOK: Duration = Duration::from_secs(1);
const MOST_DOUBLED: u32 = 4;
const MOST_FORKS: u64 = 10_000;
const GROWTH_BYTES: u64 = 16 * 1024 * 1024;
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LAST_RETRY: Duration = Duration::from_secs(300);
/// What a cold start takes of a core, roughly.
const COLD_START: Duration = Duration::from_millis(50);
/// How long a template has the cores for itself, beside the calls that started with it.
const HEAD_START: Duration = Duration::from_millis(500);
/// The longest that a call waits for a template that starts.
const MOST_PATIENCE: Duration = Duration::from_secs(2);
/// The part of its own timeout that a call may spend waiting.
const PART_OF_TIMEOUT: u32 = 4;
/// After this many spares in a row that died before their call, the template is at fault.
const MOST_STILLBORN: u32 = 4;

/// Whether a call `since` after the one before it starts a template.
pub(super) fn shows_demand(since: Duration) -> bool {
    since <= REPEATED_WITHIN
}

/// The calls of a start whose template isn't ready.
#[derive(Debug, Clone, Copy)]
pub(super) struct Crowd {
    /// How many run that started cold.
    pub(super) cold: usize,
    pub(super) waiting: usize,
    /// How many calls the machine can start at the same time.
    pub(super) cores: usize,
}

impl Crowd {
    /// Whether a call that comes now starts cold: one for each core does, and more would only take
    /// the processor from each other and from the template.
    pub(super) fn starts_cold(&self) -> bool {
        self.waiting == 0 && self.cold < self.cores
    }

    /// How long after the launch of the template the calls wait for it: no longer than it would
    /// take to start all of them cold, but for its head start.
    pub(super) fn patience(&self) -> Duration {
        let turns = u32::try_from(self.waiting.div_ceil(self.cores)).unwrap_or(u32::MAX);
        let cold = COLD_START.saturating_mul(turns);
        cold.clamp(HEAD_START, MOST_PATIENCE)
    }

    /// How many of the waiting calls start cold, this long after the launch of the template: none
    /// during its head start, then as many as the cores can start, and all in the end.
    pub(super) fn released(&self, elapsed: Duration) -> usize {
        if elapsed >= self.patience() {
            self.waiting
        } else if elapsed >= HEAD_START {
            self.waiting.min(self.cores.saturating_sub(self.cold))
        } else {
            0
        }
    }

    /// When to decide on the waiting calls again, counted from the launch of the template.
    pub(super) fn next_look(&self, elapsed: Duration) -> Duration {
        // In the past where some are to start now.
        if elapsed < HEAD_START || self.released(elapsed) > 0 {
            HEAD_START
        } else {
            self.patience()
        }
    }
}

/// How long a call with this timeout waits for a template at most.
pub(in crate::process) fn longest_wait(timeout: Option<Duration>) -> Duration {
    timeout.map_or(MOST_PATIENCE, |time| {
        MOST_PATIENCE.min(time / PART_OF_TIMEOUT)
    })
}

/// The recent calls of one start.
#[derive(Debug, Clone, Copy)]
pub(super) struct Demand {
    last_call: Instant,
    /// Between the last two calls.
    gap: Duration,
    window: Instant,
    peak: usize,
    peak_before: usize,
}

impl Demand {
    /// The demand of a call, this long after the one before it.
    pub(super) fn new(gap: Duration, now: Instant) -> Self {
        Self {
            last_call: now,
            gap,
            window: now,
            peak: 1,
            peak_before: 0,
        }
    }

    /// Counts another call, and how many run with it.
    pub(super) fn call(&mut self, at_once: usize, now: Instant) {
        self.gap = now.saturating_duration_since(self.last_call);
        self.last_call = now;
        let age = now.saturating_duration_since(self.window);
        if age >= PEAK_WINDOW {
            self.peak_before = if age < 2 * PEAK_WINDOW { self.peak } else { 0 };
            self.peak = 0;
            self.window = now;
        }
        self.peak = self.peak.max(at_once);
    }

    pub(super) fn last_call(&self) -> Instant {
        self.last_call
    }

    pub(super) fn gap(&self) -> Duration {
        self.gap
    }

    /// How many spares should wait for calls.
    pub(super) fn spares_wanted(&self, now: Instant) -> usize {
        if now.saturating_duration_since(self.last_call) >= SPARES_IDLE {
            return 0;
        }
        self.peak.max(self.peak_before).clamp(1, MOST_SPARES)
    }
}

/// The failures of the templates of one start.
#[derive(Debug, Clone, Default)]
pub(super) struct Trouble {
    pub(super) failures: u32,
    pub(super) retry_at: Option<Instant>,
    pub(super) is_refused: bool,
    pub(super) reason: String,
}

impl Trouble {
    /// A template failed, after it had been ready for `served`.
    pub(super) fn fail(&mut self, reason: String, served: Duration, now: Instant) {
        self.failures = if served >= TEMPLATE_IDLE {
            1
        } else {
            self.failures.saturating_add(1)
        };
        self.retry_at = now.checked_add(retry_after(self.failures));
        self.reason = reason;
    }

    pub(super) fn refuse(&mut self, reason: String) {
        self.is_refused = true;
        self.failures = self.failures.saturating_add(1);
        self.reason = reason;
    }

    /// The reason for the trace of a call.
    pub(super) fn why_cold(&self) -> ColdReason {
        let what = if self.is_refused {
            "no template can be made of it"
        } else {
            "its template failed"
        };
        format!("{what}: {}", self.reason).into()
    }

    /// Whether calls may wait for a template that starts: after a failure none does.
    pub(super) fn may_be_awaited(&self) -> bool {
        self.failures == 0
    }

    pub(super) fn may_start(&self, now: Instant) -> bool {
        !self.is_refused && self.retry_at.is_none_or(|time| time <= now)
    }
}

fn retry_after(failures: u32) -> Duration {
    let doubled = 2_u32.saturating_pow(failures.saturating_sub(1));
    FIRST_RETRY.saturating_mul(doubled).min(LAST_RETRY)
}

/// How long after a fork the memory of a template is measured, after this many measurements. One
/// takes a millisecond of the thread that serves every call.
pub(super) fn look_after(looks: u32) -> Duration {
    FIRST_LOOK * (1 << looks.min(MOST_DOUBLED))
}

/// Whether a template has forked too often, or grown too much.
pub(super) fn is_worn(forks: u64, bytes_when_ready: u64, bytes: u64) -> bool {
    let growth = bytes.saturating_sub(bytes_when_ready);
    forks >= MOST_FORKS || (growth > GROWTH_BYTES && growth > bytes_when_ready / 2)
}

pub(super) fn is_barren(stillborn: u32) -> bool {
    stillborn >= MOST_STILLBORN
}

/// A template of a pool, with its memory and last use.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tenant<Key> {
    pub(super) key: Key,
    pub(super) bytes: u64,
    pub(super) last_call: Instant,
}

/// Whether another template may exceed the bounds.
pub(super) fn is_full<Key>(tenants: &[Tenant<Key>], bound: u64) -> bool {
    let sizes = || tenants.iter().map(|tenant| tenant.bytes);
    let needed = sizes().sum::<u64>() + sizes().max().unwrap_or_default();
    tenants.len() >= MOST_TEMPLATES || needed > bound
}

/// The template to evict for another one, whose start is called with this gap; `None` where none
/// may be evicted. One that is called as often stays: if all were evicted in turn, none would ever
/// serve a call.
pub(super) fn makes_way<Key: Copy>(
    tenants: &[Tenant<Key>],
    gap: Duration,
    now: Instant,
) -> Option<Key> {
    let oldest = tenants.iter().min_by_key(|tenant| tenant.last_call)?;
    let idle = now.saturating_duration_since(oldest.last_call);
    (idle >= IN_USE_WITHIN && idle > gap).then_some(oldest.key)
}

/// What to do when the pool exceeds its memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Excess<Key> {
    Fits,
    /// The least recently used one is to end.
    Ends(Key),
    /// It doesn't fit even alone.
    Refused(Key),
}

pub(super) fn excess<Key: Copy>(tenants: &[Tenant<Key>], bound: u64) -> Excess<Key> {
    if let Some(giant) = tenants.iter().find(|tenant| tenant.bytes > bound) {
        return Excess::Refused(giant.key);
    }
    if tenants.iter().map(|tenant| tenant.bytes).sum::<u64>() <= bound {
        return Excess::Fits;
    }
    let oldest = tenants.iter().min_by_key(|tenant| tenant.last_call);
    oldest.map_or(Excess::Fits, |tenant| Excess::Ends(tenant.key))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const MIB: u64 = 1024 * 1024;

    #[test]
    fn spares_follow_the_most_calls_at_once_and_go_when_it_is_quiet() {
        let start = Instant::now();
        // Calls (when, how many at once), then when one looks and what is wanted.
        type Calls = &'static [(u32, usize)];
        let cases: [(Calls, u32, usize); 9] = [
            (&[], 0, 1),
            (&[], 9, 1),
            (&[], 10, 0),
            (&[(0, 4)], 3, 4),
            (&[(0, 400)], 1, 16),
            (&[(0, 4), (4, 1), (6, 1)], 7, 4),
            (&[(0, 4), (6, 1), (11, 1)], 12, 1),
            (&[(0, 4), (15, 1)], 16, 1),
            (&[(0, 4)], 10, 0),
        ];
        for (calls, look, wanted) in cases {
            let mut demand = Demand::new(SECOND, start);
            for (second, at_once) in calls {
                demand.call(*at_once, start + SECOND * *second);
            }
            let found = demand.spares_wanted(start + SECOND * look);
            assert_eq!(found, wanted, "{calls:?} at {look}");
        }
    }

    #[test]
    fn only_a_repeated_call_shows_demand() {
        assert!(shows_demand(SECOND * 60));
        assert!(!shows_demand(SECOND * 61));
    }

    #[test]
    fn beside_a_template_that_starts_each_core_starts_one_call_cold() {
        let cases = [
            (0, 0, 1, true),
            (1, 0, 1, false),
            (1, 0, 2, true),
            (2, 0, 2, false),
            (9, 0, 2, false),
            (1, 1, 2, false),
            (63, 0, 64, true),
        ];
        for (cold, waiting, cores, starts) in cases {
            let crowd = Crowd {
                cold,
                waiting,
                cores,
            };
            assert_eq!(crowd.starts_cold(), starts, "{crowd:?}");
        }
    }

    #[test]
    fn waiting_calls_start_cold_where_the_template_takes_longer_than_that_would() {
        // How many run cold, wait, and how many cores; then milliseconds since the launch, how
        // many are released, and when to look again.
        let cases = [
            (2, 1, 2, 0, 0, 500),
            (0, 1, 2, 499, 0, 500),
            (2, 1, 2, 500, 1, 500),
            (0, 20, 2, 500, 20, 500),
            (0, 40, 2, 499, 0, 500),
            (0, 40, 2, 600, 2, 500),
            (2, 40, 2, 500, 0, 1000),
            (9, 40, 2, 999, 0, 1000),
            (9, 40, 2, 1000, 40, 500),
            (1, 200, 2, 1999, 1, 500),
            (2, 200, 2, 2100, 200, 500),
            (0, 200, 64, 500, 200, 500),
            (0, usize::MAX, 1, 1999, 1, 500),
            (0, 0, 2, 5000, 0, 500),
        ];
        for (cold, waiting, cores, millis, released, look) in cases {
            let crowd = Crowd {
                cold,
                waiting,
                cores,
            };
            let elapsed = Duration::from_millis(millis);
            assert_eq!(crowd.released(elapsed), released, "{crowd:?} {millis}");
            let found = crowd.next_look(elapsed);
            assert_eq!(found, Duration::from_millis(look), "{crowd:?} {millis}");
        }
    }

    #[test]
    fn a_call_waits_for_a_part_of_its_own_timeout_at_most() {
        for (timeout, millis) in [
            (None, 2000),
            (Some(0), 0),
            (Some(1), 250),
            (Some(300), 2000),
        ] {
            let found = longest_wait(timeout.map(Duration::from_secs));
            assert_eq!(found, Duration::from_millis(millis), "{timeout:?}");
        }
    }

    #[test]
    fn no_call_waits_for_the_template_after_one_that_failed() {
        let mut failed = Trouble::default();
        assert!(failed.may_be_awaited());
        failed.fail("it died".to_owned(), SECOND * 60, Instant::now());
        assert!(!failed.may_be_awaited());
        let mut refused = Trouble::default();
        refused.refuse("it has threads".to_owned());
        assert!(!refused.may_be_awaited());
    }

    #[test]
    fn failures_are_tried_again_ever_later_and_a_refusal_never() {
        let now = Instant::now();
        let mut trouble = Trouble::default();
        assert!(trouble.may_start(now));
        for (failure, wait) in [(1, 1), (2, 2), (3, 4), (9, 256), (10, 300), (90, 300)] {
            while trouble.failures < failure {
                trouble.fail("it died".to_owned(), Duration::ZERO, now);
            }
            assert!(!trouble.may_start(now + SECOND * wait - Duration::from_millis(1)));
            assert!(trouble.may_start(now + SECOND * wait), "{failure}");
        }
        trouble.fail("it died".to_owned(), SECOND * 60, now);
        assert_eq!(trouble.failures, 1);
        trouble.refuse("it has threads".to_owned());
        assert!(!trouble.may_start(now + SECOND * 1_000_000));
    }

    #[test]
    fn memory_is_looked_at_ever_less_often() {
        for (looks, wait) in [(0, 1), (1, 2), (3, 8), (4, 16), (900, 16)] {
            assert_eq!(look_after(looks), SECOND * wait);
        }
    }

    #[test]
    fn a_template_wears_out_by_forks_or_growth() {
        let cases = [
            (9_999, 10, 10, false),
            (10_000, 10, 10, true),
            (0, 10, 26, false),
            (0, 10, 27, true),
            (0, 100, 150, false),
            (0, 100, 151, true),
            (0, 100, 50, false),
        ];
        for (forks, before, after, worn) in cases {
            assert_eq!(
                is_worn(forks, before * MIB, after * MIB),
                worn,
                "{forks} {after}"
            );
        }
        assert!(!is_barren(3));
        assert!(is_barren(4));
    }

    #[test]
    fn the_least_recently_used_goes_first() {
        let start = Instant::now();
        let tenants = |sizes: &[u64]| -> Vec<Tenant<usize>> {
            let tenants = sizes.iter().zip(0..);
            let tenants = tenants.map(|(bytes, index)| Tenant {
                key: index as usize,
                bytes: *bytes,
                last_call: start + SECOND * index,
            });
            tenants.collect()
        };
        assert_eq!(excess(&tenants(&[40, 30, 30]), 100), Excess::Fits);
        assert_eq!(excess(&tenants(&[40, 30, 31]), 100), Excess::Ends(0));
        assert_eq!(excess(&tenants(&[40, 101, 1]), 100), Excess::Refused(1));
        assert_eq!(excess::<u8>(&[], 100), Excess::Fits);
        let three = tenants(&[1, 1, 1]);
        for (gap, look, goes) in [(0, 4, Some(0)), (3, 4, Some(0)), (4, 4, None), (0, 0, None)] {
            let found = makes_way(&three, SECOND * gap, start + SECOND * look);
            assert_eq!(found, goes, "{gap} {look}");
        }
        assert_eq!(makes_way::<u8>(&[], SECOND, start), None);
    }

    #[test]
    fn a_pool_is_full_when_one_more_of_the_largest_may_not_fit() {
        let of = |bytes: &[u64]| -> Vec<Tenant<()>> {
            let last_call = Instant::now();
            let tenant = |bytes: &u64| Tenant {
                key: (),
                bytes: *bytes,
                last_call,
            };
            bytes.iter().map(tenant).collect()
        };
        assert!(!is_full(&of(&[]), 100));
        assert!(!is_full(&of(&[40, 20]), 100));
        assert!(is_full(&of(&[40, 21]), 100));
        assert!(!is_full(&of(&[1; 15]), 100));
        assert!(is_full(&of(&[1; 16]), 100));
    }
}
