//! An instance that counts what its validation costs, and ends it where that is too much.
//!
//! The validator reads the instance through these types alone, so that each step of it passes
//! here. What ends it unwinds past the validator, which can't be asked to stop.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::HashSet;
use std::fmt::Write;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};

use jsonschema::JsonType;
use jsonschema::json::{Array, Json, Node, NodeIdentity, Object, SerdeJson};
use serde_json::{Map, Number, Value};

use super::pattern::Weight;

/// A thread's stack has at least twice this, on every system.
const MAX_STACK_BYTES: usize = 1024 * 1024;
const STEPS_BETWEEN_LOOKS_AT_THE_CLOCK: u64 = 256;

/// How much one validation may cost.
#[derive(Debug, Clone, Copy)]
pub struct Budget {
    /// A step reads one value, or 64 bytes of a text.
    pub steps: u64,
    pub time: Duration,
}

struct Meter {
    steps_left: Cell<u64>,
    until_clock: Cell<u64>,
    time: Cell<Duration>,
    /// From the first look at the clock on: a small validation never looks.
    deadline: Cell<Option<Instant>>,
    stack_start: Cell<usize>,
    weight: Cell<Weight>,
}

thread_local! {
    static METER: Meter = const {
        Meter {
            steps_left: Cell::new(0),
            until_clock: Cell::new(0),
            time: Cell::new(Duration::ZERO),
            deadline: Cell::new(None),
            stack_start: Cell::new(0),
            weight: Cell::new(Weight::NONE),
        }
    };
}

/// What unwinds.
struct Spent;

/// Run a validation within a budget; None where it would have cost more.
///
/// `weight` is that of the schema's heaviest pattern.
pub fn within<T>(budget: Budget, weight: Weight, validate: impl FnOnce() -> T) -> Option<T> {
    METER.with(|meter| {
        meter.steps_left.set(budget.steps);
        meter.until_clock.set(STEPS_BETWEEN_LOOKS_AT_THE_CLOCK);
        meter.time.set(budget.time);
        meter.deadline.set(None);
        meter.stack_start.set(stack_place());
        meter.weight.set(weight);
    });
    match catch_unwind(AssertUnwindSafe(validate)) {
        Ok(done) => Some(done),
        Err(problem) if problem.is::<Spent>() => None,
        Err(problem) => resume_unwind(problem),
    }
}

#[inline(never)]
fn stack_place() -> usize {
    let local = 0_u8;
    std::hint::black_box(&raw const local) as usize
}

fn spend(steps: u64) {
    let is_spent = METER.with(|meter| {
        let left = meter.steps_left.get();
        meter.steps_left.set(left.saturating_sub(steps));
        let until_clock = meter.until_clock.get();
        meter.until_clock.set(until_clock.saturating_sub(steps));
        if until_clock <= steps && is_late(meter) {
            return true;
        }
        left < steps || stack_place().abs_diff(meter.stack_start.get()) > MAX_STACK_BYTES
    });
    if is_spent {
        resume_unwind(Box::new(Spent));
    }
}

#[cold]
fn is_late(meter: &Meter) -> bool {
    meter.until_clock.set(STEPS_BETWEEN_LOOKS_AT_THE_CLOCK);
    let now = Instant::now();
    match meter.deadline.get() {
        Some(deadline) => now >= deadline,
        None => {
            meter.deadline.set(now.checked_add(meter.time.get()));
            false
        }
    }
}

/// Spend what a text costs that a pattern may be matched against.
fn spend_text(bytes: usize) {
    let weight = METER.with(|meter| {
        let weight = meter.weight.get();
        if weight.backtracks {
            meter.until_clock.set(0);
        }
        weight
    });
    spend(weight.steps(bytes));
}

/// The representation that the validator is made for.
pub struct Metered;

/// A value of the instance.
#[derive(Clone, Copy)]
pub struct MeteredValue<'a>(pub &'a Value);

#[derive(Clone, Copy)]
pub struct MeteredObject<'a>(&'a Map<String, Value>);

#[derive(Clone, Copy)]
pub struct MeteredArray<'a>(&'a [Value]);

impl Json for Metered {
    type Node<'a> = MeteredValue<'a>;
    type PreparedKey = String;
    type StringBuffer = Value;

    const KEYS_PER_LOOKUP: usize = SerdeJson::KEYS_PER_LOOKUP;

    fn prepare_key(key: &str) -> String {
        key.to_owned()
    }

    fn with_string_node<T>(
        buffer: &mut Value,
        string: &str,
        f: impl FnOnce(MeteredValue<'_>) -> T,
    ) -> T {
        SerdeJson::with_string_node(buffer, string, |value| f(MeteredValue(value)))
    }
}

impl<'a> Node<'a, Metered> for MeteredValue<'a> {
    type Object = MeteredObject<'a>;
    type Array = MeteredArray<'a>;
    type Number = &'a Number;

    fn as_object(&self) -> Option<MeteredObject<'a>> {
        spend(1);
        self.0.as_object().map(MeteredObject)
    }

    fn as_array(&self) -> Option<MeteredArray<'a>> {
        spend(1);
        self.0.as_array().map(|items| MeteredArray(items))
    }

    fn as_string(&self) -> Option<Cow<'a, str>> {
        let string = self.0.as_str();
        spend_text(string.map_or(0, str::len));
        string.map(Cow::Borrowed)
    }

    fn as_number(&self) -> Option<&'a Number> {
        spend(1);
        self.0.as_number()
    }

    fn as_boolean(&self) -> Option<bool> {
        spend(1);
        self.0.as_bool()
    }

    fn is_null(&self) -> bool {
        spend(1);
        self.0.is_null()
    }

    fn json_type(&self) -> JsonType {
        spend(1);
        Node::<SerdeJson>::json_type(&self.0)
    }

    fn string_length(&self) -> Option<u64> {
        spend(1 + self.0.as_str().map_or(0, |string| string.len() as u64 / 64));
        Node::<SerdeJson>::string_length(&self.0)
    }

    fn equals_value(&self, expected: &Value) -> bool {
        is_equal(self.0, expected)
    }

    fn to_value(&self) -> Cow<'a, Value> {
        spend(1);
        Cow::Borrowed(self.0)
    }

    fn identity(&self) -> Option<NodeIdentity> {
        spend(1);
        Node::<SerdeJson>::identity(&self.0)
    }
}

fn is_equal(value: &Value, expected: &Value) -> bool {
    match (value, expected) {
        (Value::Array(ours), Value::Array(theirs)) => {
            spend(1);
            ours.len() == theirs.len() && ours.iter().zip(theirs).all(|(a, b)| is_equal(a, b))
        }
        (Value::Object(ours), Value::Object(theirs)) => {
            spend(1);
            ours.len() == theirs.len()
                && ours
                    .iter()
                    .all(|(key, a)| theirs.get(key).is_some_and(|b| is_equal(a, b)))
        }
        (Value::String(ours), Value::String(theirs)) => {
            spend(1 + ours.len().min(theirs.len()) as u64 / 64);
            ours == theirs
        }
        _ => {
            spend(1);
            Node::<SerdeJson>::equals_value(&value, expected)
        }
    }
}

pub struct MeteredMembers<'a>(serde_json::map::Iter<'a>);

impl<'a> Iterator for MeteredMembers<'a> {
    type Item = (&'a str, MeteredValue<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let (name, value) = self.0.next()?;
        spend_text(name.len());
        Some((name.as_str(), MeteredValue(value)))
    }
}

impl<'a> Object<'a, Metered> for MeteredObject<'a> {
    type Node = MeteredValue<'a>;
    type MemberName = &'a str;
    type MembersIter = MeteredMembers<'a>;

    fn len(&self) -> usize {
        self.0.len()
    }

    fn get(&self, key: &String) -> Option<MeteredValue<'a>> {
        spend(1);
        self.0.get(key).map(MeteredValue)
    }

    fn members(&self) -> MeteredMembers<'a> {
        spend(1);
        MeteredMembers(self.0.iter())
    }
}

pub struct MeteredElements<'a>(std::slice::Iter<'a, Value>);

impl<'a> Iterator for MeteredElements<'a> {
    type Item = MeteredValue<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        spend(1);
        self.0.next().map(MeteredValue)
    }
}

impl<'a> Array<'a, Metered> for MeteredArray<'a> {
    type Node = MeteredValue<'a>;
    type ElementsIter = MeteredElements<'a>;

    fn len(&self) -> usize {
        self.0.len()
    }

    fn elements(&self) -> MeteredElements<'a> {
        MeteredElements(self.0.iter())
    }

    /// By a text of each element: the crate's own hashes let an author choose elements that collide.
    fn is_unique(&self) -> bool {
        let mut seen = HashSet::new();
        self.0.len() < 2
            || self.0.iter().all(|element| {
                let mut text = String::new();
                write_canonically(element, &mut text);
                seen.insert(text)
            })
    }
}

/// Write a value such that equal ones, as JSON Schema has it, have the same text.
fn write_canonically(value: &Value, text: &mut String) {
    spend(1);
    match value {
        Value::Array(items) => {
            text.push('[');
            for item in items {
                write_canonically(item, text);
                text.push(',');
            }
            text.push(']');
        }
        Value::Object(members) => {
            let mut sorted: Vec<_> = members.iter().collect();
            sorted.sort_unstable_by_key(|(key, _)| *key);
            text.push('{');
            for (key, member) in sorted {
                write_quoted(key, text);
                write_canonically(member, text);
                text.push(',');
            }
            text.push('}');
        }
        Value::String(string) => write_quoted(string, text),
        Value::Number(number) => write_number(number, text),
        Value::Bool(_) | Value::Null => text.push_str(&value.to_string()),
    }
}

fn write_quoted(string: &str, text: &mut String) {
    spend(string.len() as u64 / 64);
    // Writing to a String never fails. The length says where the string ends.
    let _ = write!(text, "\"{}:", string.len());
    text.push_str(string);
}

fn write_number(number: &Number, text: &mut String) {
    let whole = match number.as_f64() {
        _ if !number.is_f64() => None,
        #[allow(clippy::cast_possible_truncation)] // it is below 2^64
        Some(float) if float.fract() == 0.0 && float.abs() < 2.0_f64.powi(64) => {
            Some(float as i128)
        }
        _ => None,
    };
    let _ = match whole {
        Some(whole) => write!(text, "{whole}"),
        None => write!(text, "{number}"),
    };
}
