use std::time::Duration;

use serde_json::json;

use super::*;

const AMPLE: Budget = Budget {
    steps: 5_000_000,
    time: Duration::from_secs(600),
};

fn failures(schema: &Value, instance: &Value) -> Vec<(String, String)> {
    let schema = Schema::new(&schema.to_string(), true).unwrap();
    let found = schema.failures(&instance.to_string(), AMPLE).unwrap();
    found
        .unwrap()
        .into_iter()
        .map(|f| (f.path, f.message))
        .collect()
}

fn refusal(schema: &Value) -> String {
    match Schema::new(&schema.to_string(), true) {
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
fn of_a_choice_the_alternative_that_was_meant_is_explained() {
    let date = json!({"type": "string", "format": "date"});
    let of_kind = |kind: &str, field: &str, schema: &Value| {
        json!({
            "type": "object",
            "properties": {"kind": {"enum": [kind]}, field: schema},
            "required": ["kind", field],
        })
    };
    let optional = json!({"anyOf": [date, {"type": "null"}]});
    let pets = json!({"anyOf": [
        of_kind("cat", "lives", &json!({"type": "integer"})),
        of_kind("dog", "born", &optional),
    ]});
    let no_date = "\"soon\" is not a \"date\", such as 2026-01-31";
    let both = "is not valid under any of the schemas listed in the 'anyOf' keyword";
    for (schema, instance, path, message) in [
        (&optional, json!("soon"), "", no_date),
        (
            &pets,
            json!({"kind": "dog", "born": "soon"}),
            "born",
            no_date,
        ),
        (
            &pets,
            json!({"kind": "cat", "lives": "9"}),
            "lives",
            "\"9\" is not of type \"integer\"",
        ),
        (&pets, json!({"kind": "cow"}), "", both),
        (&pets, json!(5), "", both),
    ] {
        let found = failures(schema, &instance);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].0, path);
        assert!(found[0].1.ends_with(message), "{found:?}");
    }
}

fn is_given_up(schema: &Value, instance: &Value) -> bool {
    let schema = Schema::new(&schema.to_string(), true).unwrap();
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
    assert!(Schema::new("{", true).is_err());
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
fn formats_are_checked() {
    for (format, fits, misfits) in [
        ("date", "2026-02-28", "2026-02-30"),
        ("date-time", "2026-02-28T12:00:00Z", "2026-02-28 noon"),
        ("time", "12:00:00+01:00", "12 o'clock"),
        ("duration", "P3DT12H", "three days"),
        ("email", "ada@example.org", "no address"),
        ("hostname", "example.org", "-example-"),
        ("ipv4", "192.0.2.1", "192.0.2.256"),
        ("ipv6", "2001:db8::1", "2001:db8"),
        ("uri", "https://example.org/a?b", "/a"),
        ("uri-reference", "/a", "\\a"),
        (
            "uuid",
            "5a1e2cb0-5c04-4b9b-8d2c-7d6e5e1d2a01",
            "5a1e2cb05c04",
        ),
        ("json-pointer", "/a/0", "a"),
    ] {
        let schema = json!({"format": format});
        assert!(failures(&schema, &json!(fits)).is_empty(), "{format}");
        assert!(failures(&schema, &json!(7)).is_empty(), "{format}");
        let found = failures(&schema, &json!(misfits));
        assert!(found[0].1.contains(format), "{format}: {found:?}");
    }
    let old = json!({"$schema": "http://json-schema.org/draft-07/schema#", "format": "email"});
    assert_eq!(failures(&old, &json!("no address")).len(), 1);
}

#[test]
fn formats_may_only_annotate() {
    let schema = Schema::new(r#"{"format": "date"}"#, false).unwrap();
    assert_eq!(schema.failures(r#""soon""#, AMPLE).unwrap(), Some(vec![]));
}

#[test]
fn formats_without_a_check_only_annotate() {
    for format in ["password", "int64", "regex", "idn-email"] {
        assert!(failures(&json!({"format": format}), &json!("((")).is_empty());
    }
}

#[test]
fn an_instance_that_is_no_json_is_refused() {
    let schema = Schema::new("true", true).unwrap();
    assert!(matches!(
        schema.failures("NaN", AMPLE),
        Err(Error::Invalid(_))
    ));
}
