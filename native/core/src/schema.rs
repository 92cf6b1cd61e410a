//! JSON Schema: every failure of an instance, by path and in plain words.

mod metered;
mod pattern;

use std::collections::HashSet;
use std::fmt::{self, Display, Write};

use jsonschema::error::ValidationErrorKind;
use jsonschema::paths::{Location, LocationSegment};
use jsonschema::{Draft, PatternOptions, ValidationError, Validator};
use serde_json::{Map, Value};

use crate::error::{Error, Result};
pub use crate::schema::metered::Budget;
use crate::schema::metered::{Metered, MeteredValue, within};
pub use crate::schema::pattern::Weight;

const MAX_MESSAGE_CHARS: usize = 300;
const MAX_VALUE_CHARS: usize = 80;
/// Nobody reads more, and a large instance may have millions.
const MAX_FAILURES: usize = 100;
/// To find failures costs memory, too.
const MAX_STEPS_FOR_FAILURES: u64 = 1_000_000;
const MAX_BACKTRACKS: usize = 100_000;
const MAX_PATTERN_BYTES: usize = 10_000;
/// Of all patterns together, with their repetitions written out.
const MAX_PATTERN_PARTS: u64 = 100_000;
/// What a schema's patterns may take once compiled: each alone, and all together.
const MAX_COMPILED_BYTES: usize = 4 * 1024 * 1024;
const MAX_COMPILED_BYTES_OF_ALL: usize = 32 * 1024 * 1024;

/// A schema, ready to be used many times.
#[derive(Debug)]
pub struct Schema {
    validator: Validator<Metered>,
    weight: Weight,
}

/// One way in which an instance differs from its schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// As in `items[2].name`; empty for the root.
    pub path: String,
    pub message: String,
}

impl Schema {
    /// Draft 2020-12, unless the schema names another. Nothing is fetched. Each `format` that the
    /// draft names is checked, with `check_formats`; `regex`, the international ones and others only
    /// annotate.
    pub fn new(schema_json: &str, check_formats: bool) -> Result<Self> {
        let mut schema = parse(schema_json, "the schema")?;
        name_the_unexpected(&mut schema);
        let (weight, compiled_bytes) = weigh_patterns(&schema)?;
        let patterns = PatternOptions::fancy_regex()
            .backtrack_limit(MAX_BACKTRACKS)
            .size_limit(compiled_bytes)
            .dfa_size_limit(compiled_bytes);
        let options = jsonschema::options_for::<Metered>()
            .with_draft(declared_draft(&schema)?)
            .with_pattern_options(patterns)
            .should_validate_formats(check_formats)
            .with_format("regex", |_: &str| true) // to parse one takes the square of its groups
            .offline();
        let built = options.build(&schema).map_err(|error| {
            let failure = explain(&error);
            let place = match failure.path.as_str() {
                "" => "at its root",
                path => &format!("at {path}"),
            };
            Error::Invalid(format!(
                "the schema is invalid {place}: {}",
                failure.message
            ))
        });
        Ok(Self {
            validator: built?,
            weight,
        })
    }

    /// The failures of an instance, the first hundred at most; none when it is valid.
    ///
    /// None at all where finding out would have cost more than the budget.
    pub fn failures(&self, instance_json: &str, budget: Budget) -> Result<Option<Vec<Failure>>> {
        let instance = parse(instance_json, "the instance")?;
        let value = MeteredValue(&instance);
        let is_valid = || self.validator.is_valid(value);
        let Some(valid) = within(budget, self.weight, is_valid) else {
            return Ok(None);
        };
        if valid {
            return Ok(Some(Vec::new()));
        }
        let listed = || -> Vec<Failure> {
            let failures = self.validator.iter_errors(value).take(MAX_FAILURES);
            let mut listed = Vec::new();
            failures.for_each(|error| explain_all(&error, &mut listed));
            listed.truncate(MAX_FAILURES);
            listed
        };
        let budget_for_failures = Budget {
            steps: MAX_STEPS_FOR_FAILURES,
            ..budget
        };
        Ok(Some(
            within(budget_for_failures, self.weight, listed).unwrap_or_else(|| {
                vec![Failure {
                    path: String::new(),
                    message: "it doesn't fit, in more ways than can be listed".to_owned(),
                }]
            }),
        ))
    }
}

/// The weight of a schema's heaviest pattern, and how large each may become when compiled.
fn weigh_patterns(schema: &Value) -> Result<(Weight, usize)> {
    let mut patterns = HashSet::new();
    let mut left = vec![schema];
    while let Some(value) = left.pop() {
        match value {
            Value::Array(items) => left.extend(items),
            Value::Object(members) => {
                patterns.extend(members.get("pattern").and_then(Value::as_str));
                if let Some(Value::Object(by_pattern)) = members.get("patternProperties") {
                    patterns.extend(by_pattern.keys().map(String::as_str));
                }
                left.extend(members.values());
            }
            _ => {}
        }
    }
    if let Some(long) = patterns.iter().find(|one| one.len() > MAX_PATTERN_BYTES) {
        return Err(Error::Invalid(format!(
            "the schema's pattern {} is longer than {MAX_PATTERN_BYTES} bytes",
            shortened(long, MAX_VALUE_CHARS)
        )));
    }
    let weights: Vec<_> = patterns.iter().map(|one| Weight::of(one)).collect();
    let parts = weights.iter().map(|one| one.parts);
    if parts.fold(0, u64::saturating_add) > MAX_PATTERN_PARTS {
        return Err(Error::Invalid(format!(
            "the schema's patterns repeat their parts more than {MAX_PATTERN_PARTS} times"
        )));
    }
    let share = MAX_COMPILED_BYTES_OF_ALL / patterns.len().max(1);
    Ok((
        weights.into_iter().fold(Weight::NONE, Weight::max),
        share.min(MAX_COMPILED_BYTES),
    ))
}

/// Where nothing is allowed by name, a failure would not say which name it met.
fn name_the_unexpected(schema: &mut Value) {
    if let Some(root) = schema.as_object_mut()
        && root.get("additionalProperties") == Some(&Value::Bool(false))
    {
        root.entry("properties")
            .or_insert_with(|| Value::Object(Map::new()));
    }
}

fn parse(json: &str, what: &str) -> Result<Value> {
    serde_json::from_str(json)
        .map_err(|error| Error::Invalid(format!("{what} is not JSON: {error}")))
}

fn declared_draft(schema: &Value) -> Result<Draft> {
    match schema.get("$schema").and_then(Value::as_str) {
        None => Ok(Draft::Draft202012),
        Some(uri) => match Draft::Draft202012.detect(schema) {
            Draft::Unknown => Err(Error::Invalid(format!(
                "the schema is invalid at $schema: {} is no known draft",
                shortened(uri, MAX_VALUE_CHARS)
            ))),
            draft => Ok(draft),
        },
    }
}

/// Explain an error: that of a choice by the only alternative that was meant, if there is one.
fn explain_all(error: &ValidationError<'_>, listed: &mut Vec<Failure>) {
    let (ValidationErrorKind::AnyOf { context } | ValidationErrorKind::OneOfNotValid { context }) =
        error.kind()
    else {
        listed.push(explain(error));
        return;
    };
    match &meant_among(context, error.instance_path())[..] {
        [only] => only.iter().for_each(|one| explain_all(one, listed)),
        _ => listed.push(explain(error)),
    }
}

/// The alternatives of a choice that a value can be meant for: those of its type, and among several
/// those whose constants it has.
fn meant_among<'a>(
    context: &'a [Vec<ValidationError<'static>>],
    place: &Location,
) -> Vec<&'a [ValidationError<'static>]> {
    let of_its_type = context.iter().map(Vec::as_slice).filter(|errors| {
        let is_other = |error: &ValidationError<'_>| {
            matches!(error.kind(), ValidationErrorKind::Type { .. })
                && error.instance_path() == place
        };
        !errors.is_empty() && !errors.iter().any(is_other)
    });
    let all: Vec<_> = of_its_type.collect();
    if all.len() < 2 {
        return all;
    }
    let differs = |error: &ValidationError<'_>| {
        use ValidationErrorKind::{Constant, Enum};
        matches!(error.kind(), Constant { .. } | Enum { .. })
    };
    let same = |errors: &&[ValidationError<'_>]| !errors.iter().any(differs);
    all.into_iter().filter(same).collect()
}

fn explain(error: &ValidationError<'_>) -> Failure {
    let value = shortened(error.instance(), MAX_VALUE_CHARS);
    let message = match error.kind() {
        ValidationErrorKind::FalseSchema => format!("{value} is not allowed here"),
        ValidationErrorKind::Format { format } => {
            let example = example_of(format);
            let text = format!("{value} is not a {format:?}{example}");
            shortened(&text, MAX_MESSAGE_CHARS)
        }
        _ => shortened(&error.masked_with(value), MAX_MESSAGE_CHARS),
    };
    Failure {
        path: plain_path(error.instance_path()),
        message,
    }
}

/// What a model needs to see that it left something out, as an offset.
fn example_of(format: &str) -> &'static str {
    match format {
        "date" => ", such as 2026-01-31",
        "date-time" => ", such as 2026-01-31T12:00:00Z or 2026-01-31T12:00:00+01:00",
        "time" => ", such as 12:00:00Z or 12:00:00+01:00",
        "duration" => ", such as P3DT12H",
        "uri" => ", such as https://example.org",
        _ => "",
    }
}

fn plain_path(location: &Location) -> String {
    let mut path = String::new();
    for segment in location {
        match segment {
            LocationSegment::Index(index) => path.push_str(&format!("[{index}]")),
            LocationSegment::Property(name) if is_plain(&name) => {
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(&name);
            }
            LocationSegment::Property(name) => path.push_str(&format!("[{name:?}]")),
        }
    }
    path
}

fn is_plain(name: &str) -> bool {
    let plain = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '$');
    !name.is_empty() && name.chars().all(plain)
}

/// The text of a value, of which no more is written than is kept.
fn shortened<T: Display + ?Sized>(value: &T, max_chars: usize) -> String {
    let mut kept = Kept {
        text: String::new(),
        chars_left: max_chars,
    };
    if write!(kept, "{value}").is_err() {
        kept.text.pop();
        kept.text.push('…');
    }
    kept.text
}

struct Kept {
    text: String,
    chars_left: usize,
}

impl Write for Kept {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let kept = text.chars().take(self.chars_left);
        let before = self.text.len();
        self.text.extend(kept);
        let written = &self.text[before..];
        self.chars_left -= written.chars().count();
        if written.len() < text.len() {
            return Err(fmt::Error);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
