use std::time::Duration;

use serde_json::json;

use super::*;

const AMPLE: Budget = Budget {
    steps: 5_000_000,
    time: Duration::from_secs(600),
};

fn failures(schema: &Value, instance: &Value) -> Vec<(String, String)> {
    let schema = Schema::new(&schema.to_string()).unwrap();
    let found = schema.failures(&instance.to_string(), AMPLE).unwrap();
    found
        .unwrap()
        .into_iter()
        .map(|f| (f.path, f.message))
        .collect()
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

fn is_given_up(schema: &Value, instance: &Value) -> bool {
    let schema = Schema::new(&schema.to_string()).unwrap();
    let found = schema.failures(&instance.to_string(), AMPLE).unwrap();
    found.is_none()
}

fn nested(depth: usize) -> Value {
    (0..depth).fold(json!({"a": 1}), |inner, _| json!({"a": inner}))
}

#[test]
fn what_costs_too_much_is_given_up() {
    let long = "a".repeat(1_000_000);
    let mut chain = serde_json::Map::new();
    for level in 0..200 {
        let next = format!("#/$defs/{}", level + 1);
        chain.insert(level.to_string(), json!({"allOf": [{"$ref": next}]}));
    }
    chain.insert(
        "200".to_owned(),
        json!({"properties": {"a": {"$ref": "#"}}}),
    );
    for (schema, instance) in [
        (json!({"$ref": "#/$defs/0", "$defs": chain}), nested(120)),
        (json!({"pattern": "(.{1,200}x){1,20}$"}), json!(long)),
        (json!({"pattern": "^(?:(?=.*z)a)*$"}), json!(long)),
        (
            json!({"patternProperties": {"(a?){1,1000}b": {}}}),
            json!({&long: 1}),
        ),
        (
            json!({"propertyNames": {"pattern": "(a?){1,1000}b"}}),
            json!({&long: 1}),
        ),
    ] {
        assert!(is_given_up(&schema, &instance), "{schema}");
    }
}

#[test]
fn failures_that_multiply_are_not_all_listed() {
    let fans_out = json!({"anyOf": [
        {"properties": {"a": {"$ref": "#"}}, "required": ["b"]},
        {"properties": {"a": {"$ref": "#"}}, "required": ["c"]},
        {"properties": {"a": {"$ref": "#"}}, "required": ["d"]},
    ], "unevaluatedProperties": {"$ref": "#"}});
    let found = failures(&fans_out, &nested(100));
    assert_eq!(found.len(), 1);
    assert!(
        found[0].1.contains("more ways than can be listed"),
        "{found:?}"
    );
}

#[test]
fn unique_items_are_compared_in_one_pass() {
    let unique = |items: &Value| failures(&json!({"uniqueItems": true}), items).is_empty();
    assert!(!unique(&json!([1, 2, 1.0])));
    assert!(!unique(&json!([0, -0.0])));
    assert!(!unique(&json!([{"a": 1, "b": [2]}, {"b": [2.0], "a": 1}])));
    assert!(!unique(&json!([
        9_223_372_036_854_775_808_u64,
        9_223_372_036_854_775_808.0
    ])));
    assert!(unique(&json!([
        9_223_372_036_854_775_809_u64,
        9_223_372_036_854_775_808.0
    ])));
    assert!(unique(
        &json!([1, true, "1", [1], {"1": 1}, null, "null", 1.5, 1e300])
    ));
    assert!(unique(&json!([
        ["a", "b"],
        ["a,b"],
        [["a"], "b"],
        ["a", ["b"]],
        [],
        [[]]
    ])));
    // Each pair of these has one and the same hash in the crate's own comparison.
    let many: Vec<_> = (0..20_000_u64).map(|n| json!(n + (1 << 63))).collect();
    assert!(unique(&json!(many)));
}

#[test]
fn a_pattern_that_grows_beyond_its_share_is_refused() {
    for pattern in [
        "a{1000}{1000}",
        r"(\w{100}){1000}",
        &"a".repeat(MAX_PATTERN_BYTES + 1),
    ] {
        assert!(refusal(&json!({"pattern": pattern})).contains("pattern"));
    }
    let many: Map<_, _> = (0..2000)
        .map(|n| {
            (
                format!("p{n}"),
                json!({"pattern": format!(r"\w{{200}}{n}")}),
            )
        })
        .collect();
    assert!(refusal(&json!({"properties": many})).contains("pattern"));
    let usual = json!({"pattern": r"^[\w.-]{1,64}@[\w.-]{1,255}$"});
    assert!(failures(&usual, &json!("a@b")).is_empty());
}

#[test]
fn a_pattern_that_backtracks_for_ever_fits_nothing() {
    let schema = json!({"pattern": r"^(a|a)*\1b$"});
    assert_eq!(failures(&schema, &json!("a".repeat(40))).len(), 1);
    let negated = json!({"not": schema});
    assert_eq!(failures(&negated, &json!("a".repeat(40))).len(), 1);
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
    assert!(matches!(
        schema.failures("NaN", AMPLE),
        Err(Error::Invalid(_))
    ));
}
