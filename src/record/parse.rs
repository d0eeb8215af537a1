//! JSON of a stranger: bounded in size and depth, and no member twice, of which each reader would take another one.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::Malformed;

/// No record comes near it.
pub const LARGEST: u64 = 16 * 1024 * 1024;

/// Reads one JSON value and nothing after it. Its depth is bounded by the parser.
pub fn parse(bytes: &[u8]) -> Result<Value, Malformed> {
    let fail = |why: String| Malformed {
        place: "the file".into(),
        why,
    };
    if bytes.len() as u64 > LARGEST {
        return Err(fail(format!("is larger than {} MiB", LARGEST >> 20)));
    }
    let strict: Strict = serde_json::from_slice(bytes)
        .map_err(|error| fail(format!("is no JSON that can be relied on: {error}")))?;
    Ok(strict.0)
}

struct Strict(Value);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Any).map(Self)
    }
}

struct Any;

impl<'de> Visitor<'de> for Any {
    type Value = Value;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(Strict(item)) = items.next_element()? {
            list.push(item);
        }
        Ok(list.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(name) = members.next_key::<String>()? {
            let Strict(value) = members.next_value()?;
            if map.contains_key(&name) {
                return Err(A::Error::custom(format!(
                    "the member {name:?} is there twice"
                )));
            }
            map.insert(name, value);
        }
        Ok(map.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_readers_would_take_differently_is_refused() {
        let fails = |bytes: &[u8]| parse(bytes).expect_err("refused").why;
        assert!(fails(br#"{"a": 1, "b": {"c": 1, "c": 2}}"#).contains("\"c\" is there twice"));
        assert!(fails(br#"{"a": 1} {}"#).contains("trailing"));
        assert!(fails(b"").contains("EOF"));
        assert!(fails(b"{\"a\": \"\xff\"}").contains("no JSON"));
        assert!(fails(br#"{"a": NaN}"#).contains("no JSON"));
        let deep = "[".repeat(100_000) + &"]".repeat(100_000);
        assert!(fails(deep.as_bytes()).contains("recursion limit"));
        assert!(fails(&vec![b' '; LARGEST as usize + 1]).contains("larger than 16 MiB"));
    }

    #[test]
    fn everything_else_is_read_as_it_is() {
        let text = r#"{"a":[null,true,-1,18446744073709551615,0.5,"\u0000é"],"b":{}}"#;
        let value = parse(text.as_bytes()).expect("JSON");
        assert_eq!(value, serde_json::from_str::<Value>(text).expect("JSON"));
    }
}
