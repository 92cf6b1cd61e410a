//! JSON Schema: every failure of an instance, by path and in plain words.

use jsonschema::error::ValidationErrorKind;
use jsonschema::paths::{Location, LocationSegment};
use jsonschema::{Draft, ValidationError, Validator};
use serde_json::{Map, Value};

use crate::error::{Error, Result};

const MAX_MESSAGE_CHARS: usize = 300;
const MAX_VALUE_CHARS: usize = 80;
/// Nobody reads more, and a large instance may have millions.
const MAX_FAILURES: usize = 100;

/// A schema, ready to be used many times.
#[derive(Debug)]
pub struct Schema(Validator);

/// One way in which an instance differs from its schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// As in `items[2].name`; empty for the root.
    pub path: String,
    pub message: String,
}

impl Schema {
    /// Draft 2020-12, unless the schema names another. Nothing is fetched, and `format` only
    /// annotates.
    pub fn new(schema_json: &str) -> Result<Self> {
        let mut schema = parse(schema_json, "the schema")?;
        name_the_unexpected(&mut schema);
        let options = jsonschema::options()
            .with_draft(declared_draft(&schema)?)
            .should_validate_formats(false)
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
        Ok(Self(built?))
    }

    /// The failures of an instance, the first hundred at most; none when it is valid.
    pub fn failures(&self, instance_json: &str) -> Result<Vec<Failure>> {
        let instance = parse(instance_json, "the instance")?;
        let failures = self.0.iter_errors(&instance).take(MAX_FAILURES);
        Ok(failures.map(|error| explain(&error)).collect())
    }
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

fn explain(error: &ValidationError<'_>) -> Failure {
    let value = shortened(&error.instance().to_string(), MAX_VALUE_CHARS);
    let message = match error.kind() {
        ValidationErrorKind::FalseSchema => format!("{value} is not allowed here"),
        _ => error.masked_with(value).to_string(),
    };
    Failure {
        path: plain_path(error.instance_path()),
        message: shortened(&message, MAX_MESSAGE_CHARS),
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

fn shortened(text: &str, max_chars: usize) -> String {
    if text.chars().count() <= max_chars {
        return text.to_owned();
    }
    let kept: String = text.chars().take(max_chars - 1).collect();
    kept + "…"
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn failures(schema: &Value, instance: &Value) -> Vec<(String, String)> {
        let schema = Schema::new(&schema.to_string()).unwrap();
        let found = schema.failures(&instance.to_string()).unwrap();
        found.into_iter().map(|f| (f.path, f.message)).collect()
    }

    fn refusal(schema: &Value) -> String {
        match Schema::new(&schema.to_string()) {
            Err(Error::Invalid(message)) => message,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_hundred_failures_are_enough() {
        let many = json!(vec![0; 100_000]);
        let schema = json!({"items": {"type": "string"}});
        assert_eq!(failures(&schema, &many).len(), MAX_FAILURES);
    }

    #[test]
    fn all_failures_are_listed_with_plain_paths() {
        let schema = json!({
            "type": "object",
            "required": ["id"],
            "properties": {
                "items": {"items": {"properties": {"name": {"type": "string"}}}},
                "odd key": {"minimum": 3},
            },
        });
        let instance = json!({"items": [{}, {}, {"name": 7}], "odd key": 1});
        let mut found = failures(&schema, &instance);
        found.sort();
        let expected = [
            ("", r#""id" is a required property"#),
            (r#"["odd key"]"#, "1 is less than the minimum of 3"),
            ("items[2].name", r#"7 is not of type "string""#),
        ];
        assert_eq!(found, expected.map(|(p, m)| (p.to_owned(), m.to_owned())));
        assert!(failures(&schema, &json!({"id": 1, "odd key": 3})).is_empty());
    }

    #[test]
    fn values_and_messages_are_shortened() {
        let long = "é".repeat(10_000);
        let found = failures(&json!({"type": "integer"}), &json!(long));
        assert!(
            found[0].1.ends_with(r#"… is not of type "integer""#),
            "{found:?}"
        );
        let many: Vec<_> = (0..1000).map(|n| (n.to_string(), n.into())).collect();
        let object = Value::Object(many.into_iter().collect());
        let found = failures(
            &json!({"properties": {"a": {}}, "additionalProperties": false}),
            &object,
        );
        assert_eq!(found[0].1.chars().count(), MAX_MESSAGE_CHARS);
        let found = failures(&json!({"properties": {"a": false}}), &json!({"a": 1}));
        assert_eq!(
            found,
            [("a".to_owned(), "1 is not allowed here".to_owned())]
        );
    }

    #[test]
    fn an_unexpected_property_is_named_where_none_is_allowed() {
        let found = failures(&json!({"additionalProperties": false}), &json!({"path": 1}));
        assert!(found[0].1.contains("path"), "{found:?}");
    }

    #[test]
    fn an_invalid_schema_says_where() {
        let message = refusal(&json!({"properties": {"a": {"type": "nonsense"}}}));
        assert!(
            message.starts_with("the schema is invalid at properties.a.type: "),
            "{message}"
        );
        assert!(refusal(&json!(7)).starts_with("the schema is invalid at its root: "));
        let message = refusal(&json!({"$schema": "https://example.invalid/draft"}));
        assert!(message.contains("no known draft"), "{message}");
        assert!(Schema::new("{").is_err());
    }

    #[test]
    fn nothing_is_fetched() {
        for uri in [
            "https://example.invalid/a.json",
            "file:///etc/passwd",
            "other.json",
        ] {
            let message = refusal(&json!({"properties": {"a": {"$ref": uri}}}));
            assert!(message.contains(uri), "{message}");
        }
    }

    #[test]
    fn references_inside_of_the_schema_are_followed() {
        let schema = json!({
            "$defs": {"tree": {"properties": {"child": {"$ref": "#/$defs/tree"}}, "required": ["n"]}},
            "$ref": "#/$defs/tree",
        });
        let found = failures(&schema, &json!({"n": 1, "child": {"n": 1, "child": {}}}));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].0, "child.child");
    }

    #[test]
    fn formats_only_annotate() {
        for draft in ["draft-07/schema#", "draft/2020-12/schema"] {
            let scheme = if draft.starts_with("draft-07") {
                "http"
            } else {
                "https"
            };
            let uri = format!("{scheme}://json-schema.org/{draft}");
            let schema = json!({"$schema": uri, "format": "email"});
            assert!(failures(&schema, &json!("no address")).is_empty());
        }
    }

    #[test]
    fn an_instance_that_is_no_json_is_refused() {
        let schema = Schema::new("true").unwrap();
        assert!(matches!(schema.failures("NaN"), Err(Error::Invalid(_))));
    }
}
