//! A record as an in-toto Statement v1 with the predicate `test-result` v0.1, written and read.
//!
//! <https://github.com/in-toto/attestation/blob/main/spec/predicates/test-result.md>. Each descriptor of the
//! configuration that is ours holds its content as annotations, and their hash (see [`super::canonical`]) as its digest.

use std::collections::{BTreeMap, BTreeSet};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::canonical;
use super::model::{Audited, LibraryFacts, Record, TestResult, VERSION};

/// The statement's own type.
pub const STATEMENT: &str = "https://in-toto.io/Statement/v1";
/// The predicate's type.
pub const PREDICATE: &str = "https://in-toto.io/attestation/test-result/v0.1";

const RUN: &str = "escape-audit";
const LIBRARY: &str = "library";
const PROJECT: &str = "project-file";

/// What a statement is wrong in: where, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {why}")]
pub struct Malformed {
    /// The member, as `predicate.configuration`.
    pub place: String,
    /// What is wrong with it.
    pub why: String,
}

#[derive(Serialize, Deserialize)]
struct Statement {
    #[serde(rename = "_type")]
    kind: String,
    subject: Vec<Descriptor>,
    #[serde(rename = "predicateType")]
    predicate_type: String,
    predicate: Value,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Predicate {
    result: TestResult,
    configuration: Vec<Descriptor>,
    passed_tests: Vec<String>,
    warned_tests: Vec<String>,
    failed_tests: Vec<String>,
}

#[derive(Default, Serialize, Deserialize)]
struct Descriptor {
    #[serde(default)]
    name: String,
    digest: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    annotations: Map<String, Value>,
}

/// The record as a statement, with the result that it deserves.
pub fn write(record: &Record) -> Value {
    let mut configuration = vec![
        annotated(RUN, json!(record.run)),
        Descriptor {
            annotations: [("cases".to_owned(), json!(record.library.cases))]
                .into_iter()
                .collect(),
            ..digested(LIBRARY, &record.library.digest)
        },
    ];
    let project = record.project.as_ref();
    configuration.extend(project.map(|digest| digested(PROJECT, digest)));
    for sandbox in &record.sandboxes {
        configuration.extend(
            [
                ("settings", json!(sandbox.settings)),
                ("policy", json!(sandbox.policy)),
                ("in-force", json!(sandbox.in_force)),
                ("verdicts", json!(sandbox.verdicts)),
            ]
            .map(|(part, content)| annotated(&name(part, &sandbox.name), content)),
        );
    }
    let [passed_tests, warned_tests, failed_tests] = record.tests();
    let predicate = Predicate {
        result: record.deserves(),
        configuration,
        passed_tests,
        warned_tests,
        failed_tests,
    };
    json!(Statement {
        kind: STATEMENT.into(),
        subject: record
            .subject
            .iter()
            .map(|(name, digest)| digested(name, digest))
            .collect(),
        predicate_type: PREDICATE.into(),
        predicate: json!(predicate),
    })
}

/// The record of a statement, if every part of it agrees with every other: hashes with contents, lists and result with
/// verdicts. What in-toto lets others add is passed over; what is ours has to be just as it was written.
pub fn read(statement: Value) -> Result<Record, Malformed> {
    let statement: Statement = typed("the statement", statement)?;
    known("_type", &statement.kind, STATEMENT)?;
    known("predicateType", &statement.predicate_type, PREDICATE)?;
    let predicate: Predicate = typed("predicate", statement.predicate)?;
    let subject = statement
        .subject
        .into_iter()
        .map(|subject| Ok((subject.name.clone(), sha256(&subject)?)))
        .collect::<Result<Vec<_>, _>>()?;
    require(!subject.is_empty(), "subject", "names nothing")?;

    let mut parts = Parts::new(predicate.configuration)?;
    let library = parts.take(LIBRARY)?;
    let digest = sha256(&library)?;
    let cases = library.annotations.get("cases").and_then(Value::as_u64);
    let cases = cases.and_then(|cases| usize::try_from(cases).ok());
    let cases = cases.ok_or_else(|| malformed(LIBRARY, "does not say how many cases it has"))?;
    let project = match parts.0.contains_key(PROJECT) {
        true => Some(sha256(&parts.take(PROJECT)?)?),
        false => None,
    };
    let run = parts.typed(RUN)?;
    let mut sandboxes = Vec::new();
    while let Some(sandbox) = parts.next_sandbox() {
        sandboxes.push(Audited {
            settings: parts.typed(&name("settings", &sandbox))?,
            policy: parts.typed(&name("policy", &sandbox))?,
            in_force: parts.typed(&name("in-force", &sandbox))?,
            verdicts: parts.typed(&name("verdicts", &sandbox))?,
            name: sandbox,
        });
    }
    if let Some(more) = parts.0.keys().next() {
        return Err(malformed(
            "predicate.configuration",
            &format!("`{more}` belongs to nothing"),
        ));
    }
    let record = Record {
        subject,
        run,
        library: LibraryFacts { digest, cases },
        project,
        sandboxes,
    };
    let version = record.run.record;
    require(
        version == VERSION,
        RUN,
        &format!("version {version} of the record is not known, only {VERSION}"),
    )?;
    let lists = [
        predicate.passed_tests,
        predicate.warned_tests,
        predicate.failed_tests,
    ];
    for ((told, follows), place) in
        lists
            .iter()
            .zip(record.tests())
            .zip(["passedTests", "warnedTests", "failedTests"])
    {
        let set = |list: &[String]| list.iter().cloned().collect::<BTreeSet<_>>();
        let agrees = told.len() == follows.len() && set(told) == set(&follows);
        require(agrees, place, "is not what follows from the verdicts")?;
    }
    let (told, deserved) = (predicate.result.name(), record.deserves().name());
    require(
        told == deserved,
        "result",
        &format!("says {told}, and {deserved} follows from the verdicts"),
    )?;
    Ok(record)
}

/// The descriptors of the configuration that are not read yet, by name.
struct Parts(BTreeMap<String, Descriptor>);

impl Parts {
    fn new(descriptors: Vec<Descriptor>) -> Result<Self, Malformed> {
        let mut parts = BTreeMap::new();
        for descriptor in descriptors {
            let name = descriptor.name.clone();
            if parts.insert(name.clone(), descriptor).is_some() {
                return Err(malformed(
                    "predicate.configuration",
                    &format!("`{name}` is there twice"),
                ));
            }
        }
        Ok(Self(parts))
    }

    fn take(&mut self, name: &str) -> Result<Descriptor, Malformed> {
        let part = self.0.remove(name);
        part.ok_or_else(|| malformed("predicate.configuration", &format!("`{name}` is missing")))
    }

    /// What the annotations say, whose hash has to be the digest.
    fn typed<T: DeserializeOwned>(&mut self, name: &str) -> Result<T, Malformed> {
        let part = self.take(name)?;
        let (told, content) = (sha256(&part)?, Value::Object(part.annotations));
        let hash = canonical::sha256(&content);
        require(
            told == hash,
            name,
            &format!("its digest is {told}, and that of its content {hash}"),
        )?;
        typed(name, content)
    }

    fn next_sandbox(&self) -> Option<String> {
        let mut names = self.0.keys();
        names.find_map(|key| Some(key.strip_prefix("settings/")?.to_owned()))
    }
}

fn name(part: &str, sandbox: &str) -> String {
    format!("{part}/{sandbox}")
}

fn digested(name: &str, digest: &str) -> Descriptor {
    Descriptor {
        name: name.into(),
        digest: [("sha256".to_owned(), digest.to_owned())].into(),
        annotations: Map::new(),
    }
}

fn annotated(name: &str, content: Value) -> Descriptor {
    let digest = canonical::sha256(&content);
    let Value::Object(annotations) = canonical::plain(content) else {
        return digested(name, &digest);
    };
    Descriptor {
        annotations,
        ..digested(name, &digest)
    }
}

/// The descriptor's SHA-256: 64 digits in lower case, as they are compared.
fn sha256(descriptor: &Descriptor) -> Result<String, Malformed> {
    let digest = descriptor
        .digest
        .get("sha256")
        .filter(|digest| is_hex(digest));
    digest
        .cloned()
        .ok_or_else(|| malformed(&descriptor.name, "has no SHA-256 of 64 hexadecimal digits"))
}

/// Whether this is a SHA-256 as it is written.
pub fn is_hex(text: &str) -> bool {
    text.len() == 64
        && text
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

fn typed<T: DeserializeOwned>(place: &str, value: Value) -> Result<T, Malformed> {
    serde_json::from_value(value).map_err(|error| malformed(place, &error.to_string()))
}

fn known(place: &str, found: &str, wanted: &str) -> Result<(), Malformed> {
    require(
        found == wanted,
        place,
        &format!("is `{found}`, and only `{wanted}` is known"),
    )
}

fn require(holds: bool, place: &str, why: &str) -> Result<(), Malformed> {
    if holds {
        Ok(())
    } else {
        Err(malformed(place, why))
    }
}

fn malformed(place: &str, why: &str) -> Malformed {
    Malformed {
        place: place.into(),
        why: why.into(),
    }
}
