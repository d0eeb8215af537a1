//! One form of a JSON value for hashing: the same value has the same bytes, whoever wrote it and however it travelled.
//!
//! Members sorted by the bytes of their names, no space between tokens, strings with the shortest escapes, and a number
//! without a fraction as an integer: other programs that pass a record on write `1` for `1.0`.

use std::collections::BTreeMap;

use serde_json::{Number, Value};
use sha2::{Digest as _, Sha256};

/// The largest integer that every reader of JSON tells from its neighbours.
const EXACT: f64 = 9_007_199_254_740_991.0;

/// The value in its one form.
pub fn text(value: &Value) -> String {
    match value {
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(text).collect();
            format!("[{}]", items.join(","))
        }
        Value::Object(members) => {
            let sorted: BTreeMap<&String, &Value> = members.iter().collect();
            let members: Vec<String> = sorted
                .into_iter()
                .map(|(name, value)| format!("{}:{}", Value::from(name.as_str()), text(value)))
                .collect();
            format!("{{{}}}", members.join(","))
        }
        Value::Number(number) => numeral(number),
        other => other.to_string(),
    }
}

/// The same value with its numbers as [`text`] writes them, so that a simple tool that sorts members comes to the same hash.
pub fn plain(value: Value) -> Value {
    match value {
        Value::Array(items) => items.into_iter().map(plain).collect(),
        Value::Object(members) => {
            let members = members.into_iter();
            members.map(|(name, value)| (name, plain(value))).collect()
        }
        Value::Number(number) => {
            let whole = numeral(&number).parse::<i64>();
            whole.map_or(Value::Number(number), Value::from)
        }
        other => other,
    }
}

/// SHA-256 of [`text`], in hexadecimal.
pub fn sha256(value: &Value) -> String {
    hex(text(value).as_bytes())
}

/// SHA-256 of these bytes, in hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    format!("{:x}", Sha256::digest(bytes))
}

fn numeral(number: &Number) -> String {
    match number.as_f64() {
        Some(float) if number.is_f64() && float.fract() == 0.0 && float.abs() <= EXACT => {
            format!("{float:.0}")
        }
        _ => number.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn order_space_and_the_shape_of_a_number_do_not_matter() {
        let written = r#"{ "b" : [ 1.0, 0.5, -1, null ], "a": {"y":"\u00e9\n","x":true} }"#;
        let value: Value = serde_json::from_str(written).expect("JSON");
        let form = "{\"a\":{\"x\":true,\"y\":\"é\\n\"},\"b\":[1,0.5,-1,null]}";
        assert_eq!(text(&value), form);
        assert_eq!(text(&serde_json::from_str(form).expect("JSON")), form);
        assert_eq!(sha256(&value), hex(form.as_bytes()));
        let plain = plain(value);
        assert_eq!(plain.to_string(), form, "a map that is sorted already");
        assert_eq!(plain["b"][0].to_string(), "1");
    }

    #[test]
    fn another_value_is_another_hash() {
        let values = [
            json!({"a": 1}),
            json!({"a": "1"}),
            json!({"a": [1]}),
            json!({"b": 1}),
            json!([]),
        ];
        let hashes: std::collections::BTreeSet<_> = values.iter().map(sha256).collect();
        assert_eq!(hashes.len(), values.len());
    }
}
