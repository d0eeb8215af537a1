//! From the plan to the tests: their names, why some are ignored, and what the selected ones take. Pure.

use std::collections::BTreeSet;

use crate::case::Case;
use crate::config::Sandbox;
use crate::plan::Planned;
use crate::record::test_name;

/// The last word in the name of the test that fails where nothing is tried in a sandbox.
const GATE: &str = "gate";

/// One test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Test {
    pub(super) name: String,
    pub(super) sandbox: String,
    /// The case; `None` for the gate of the sandbox.
    pub(super) case: Option<String>,
    /// Why it is not tried unless it is asked for.
    pub(super) ignored: Option<String>,
}

/// Every test there is, in the order of the plan; the gate of each sandbox last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Listed(Vec<Test>);

impl Listed {
    pub(super) fn of(planned: &[Planned], cases: &[Case], sandboxes: &[Sandbox]) -> Self {
        let mut tests = Vec::new();
        for (index, sandbox) in sandboxes.iter().enumerate() {
            for trial in planned.iter().filter(|trial| trial.sandbox == index) {
                let case = &cases[trial.case];
                let skipped = trial.skip.as_ref();
                let skipped = skipped.map(|skip| format!("{}: {}", skip.reason, skip.sentence));
                tests.push(Test {
                    name: test_name(&sandbox.name, &case.id),
                    sandbox: sandbox.name.clone(),
                    case: Some(case.id.clone()),
                    ignored: skipped.or_else(|| {
                        (!trial.gates).then(|| "experimental: it does not gate".into())
                    }),
                });
            }
            tests.push(Test {
                name: test_name(&sandbox.name, GATE),
                sandbox: sandbox.name.clone(),
                case: None,
                ignored: None,
            });
        }
        Self(tests)
    }

    pub(super) fn tests(&self) -> impl Iterator<Item = &Test> {
        self.0.iter()
    }

    /// Sandbox and case of those of the named tests that try a case.
    pub(super) fn trials(&self, names: &[&str]) -> BTreeSet<(String, String)> {
        let named = self
            .0
            .iter()
            .filter(|test| names.contains(&test.name.as_str()));
        named
            .filter_map(|test| Some((test.sandbox.clone(), test.case.clone()?)))
            .collect()
    }

    pub(super) fn why_ignored(&self, name: &str) -> Option<&str> {
        let test = self.0.iter().find(|test| test.name == name)?;
        test.ignored.as_deref()
    }

    /// Whether there is a case that is tried in this sandbox unless somebody selects otherwise.
    pub(super) fn tries_something(&self, sandbox: &str) -> bool {
        let mut tests = self.0.iter();
        tests.any(|test| test.sandbox == sandbox && test.case.is_some() && test.ignored.is_none())
    }
}
