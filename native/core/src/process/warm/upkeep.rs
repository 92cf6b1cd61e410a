//! Maintenance of the templates between calls: starts, forks, measurements, ends.

use std::time::{Duration, Instant};

use super::conditions::Surroundings;
use super::entry::Entry;
use super::policy::{self, Excess, Tenant};
use super::pool::{OF_A_SPARE, Templates, TurnContext};
use super::spare::kill_and_reap;
use super::start::Key;
use super::template::{ForkRefusal, Template};
use crate::mailbox::next_token;

const MAKES_WAY: &str = "another template took its memory";
/// The descriptors of a fork while it is requested.
const WHILE_ASKED: u64 = 9;

impl Templates {
    /// Maintains the entries that were marked during the turn.
    pub(in crate::process) fn tend(&mut self, context: &mut TurnContext<'_>) {
        for key in std::mem::take(&mut self.dirty) {
            let Some(entry) = self.entries.get_mut(&key) else {
                continue;
            };
            if std::mem::take(&mut entry.is_wanted) {
                self.start_template(key, context);
            }
            self.start_cold(key, context.now);
            self.replenish(key, context);
        }
    }

    /// Starts waiting jobs cold: those that have waited long enough, and all where no template
    /// starts.
    fn start_cold(&mut self, key: Key, now: Instant) {
        let entry = self.entries.get_mut(&key);
        let Some(entry) = entry.filter(|entry| !entry.queue.is_empty()) else {
            return;
        };
        if entry.template.is_none() {
            let why = entry.why_cold();
            return self.retire(key, why);
        }
        self.outbox.extend(entry.take_cold(key, now));
    }

    fn start_template(&mut self, key: Key, context: &TurnContext<'_>) {
        let tenants = self.tenants(key.pool);
        let Some(entry) = self.entries.get(&key) else {
            return;
        };
        if policy::is_full(&tenants, entry.bound_bytes) {
            match policy::makes_way(&tenants, entry.demand.gap(), context.now) {
                Some(other) => self.retire(other, MAKES_WAY.into()),
                None => return,
            }
        }
        if self.around.is_none() {
            self.around = Surroundings::of_this_thread().ok();
        }
        let Some(around) = &self.around else {
            return;
        };
        let Some(entry) = self.entries.get_mut(&key) else {
            return;
        };
        let token = next_token();
        let launched = Template::launch(token, &entry.origin, around, context.kit, context.proof);
        let launched = launched.and_then(|template| match template.watch(self.epoll) {
            Ok(()) => Ok(template),
            Err(errno) => {
                kill_and_reap(template.pid);
                Err(format!("it can't be watched: {errno}"))
            }
        });
        match launched {
            Ok(template) => {
                self.owners.insert(token, key);
                entry.template = Some(template);
            }
            Err(reason) => entry.trouble.fail(reason, Duration::ZERO, context.now),
        }
    }

    /// Requests the wanted forks.
    fn replenish(&mut self, key: Key, context: &mut TurnContext<'_>) {
        let Some(entry) = self.entries.get_mut(&key) else {
            return;
        };
        let Some(template) = &mut entry.template else {
            return;
        };
        if policy::is_barren(template.stillborn) {
            return self.fail(key, "what it forks dies".to_owned(), context.now);
        }
        if !template.forks_at(context.now) {
            return;
        }
        let waiting = entry.queue.len();
        let wanted = waiting + entry.demand.spares_wanted(context.now);
        loop {
            let coming = template.spares.len() + template.pending_forks.len();
            if coming >= wanted {
                return;
            }
            let is_ahead = coming >= waiting;
            if is_ahead && context.room < context.allowed / 2 {
                return;
            }
            let asked = if context.room < WHILE_ASKED {
                Err(ForkRefusal::Shortage)
            } else {
                template.request_fork(context.now)
            };
            match asked {
                Ok(()) => context.room -= OF_A_SPARE as u64,
                Err(ForkRefusal::Busy) => return,
                Err(ForkRefusal::Shortage) => return self.rest(key, context.now),
                Err(ForkRefusal::Gone) => {
                    return self.fail(key, "it ended".to_owned(), context.now);
                }
            }
        }
    }

    /// When something is due.
    pub(in crate::process) fn due(&self) -> Option<Instant> {
        self.entries.values().filter_map(Entry::due).min()
    }

    pub(in crate::process) fn on_time(&mut self, context: &mut TurnContext<'_>) {
        let now = context.now;
        let is_due = |entry: &Entry| entry.due().is_some_and(|due| due <= now);
        let due = self.entries.iter().filter(|(_, entry)| is_due(entry));
        let due: Vec<_> = due.map(|(key, _)| *key).collect();
        for key in due {
            self.on_due(key, context);
        }
    }

    fn on_due(&mut self, key: Key, context: &mut TurnContext<'_>) {
        // Messages that were sent before count, however late they are read.
        self.listen(key, context);
        let now = context.now;
        let Some(entry) = self.entries.get_mut(&key) else {
            return;
        };
        self.outbox.extend(entry.take_cold(key, now));
        let Some(template) = &mut entry.template else {
            return;
        };
        if template.hangs_at().is_some_and(|time| time <= now) {
            return self.fail(key, "it hangs".to_owned(), now);
        }
        let idle = now.saturating_duration_since(entry.demand.last_call());
        if idle >= policy::TEMPLATE_IDLE && entry.queue.is_empty() {
            self.retire(key, "nobody has called it for a while".into());
            self.entries.remove(&key);
            return;
        }
        if idle >= policy::SPARES_IDLE {
            for spare in template.spares.drain(..) {
                self.owners.remove(&spare.child.token);
                self.reaper.take_child(key.pool, spare.child);
            }
        }
        if template.look_at.is_some_and(|time| time <= now) {
            template.look_at = None;
            if template.measure() {
                return self.retire(key, "its template is worn".into());
            }
            self.keep_within_memory(key);
        }
    }

    fn tenants(&self, pool: u64) -> Vec<Tenant<Key>> {
        let tenants = self.entries.iter().filter(|(key, _)| key.pool == pool);
        let tenants = tenants.filter_map(|(key, entry)| {
            entry.template.as_ref().map(|template| Tenant {
                key: *key,
                bytes: template.bytes(),
                last_call: entry.demand.last_call(),
            })
        });
        tenants.collect()
    }

    pub(super) fn keep_within_memory(&mut self, key: Key) {
        let Some(bound) = self.entries.get(&key).map(|entry| entry.bound_bytes) else {
            return;
        };
        loop {
            match policy::excess(&self.tenants(key.pool), bound) {
                Excess::Fits => return,
                Excess::Ends(oldest) => self.retire(oldest, MAKES_WAY.into()),
                Excess::Refused(giant) => {
                    if let Some(entry) = self.entries.get_mut(&giant) {
                        let reason = "it takes more memory than all may".to_owned();
                        entry.trouble.refuse(reason);
                        let why = entry.trouble.why_cold();
                        self.retire(giant, why);
                    }
                }
            }
        }
    }
}
