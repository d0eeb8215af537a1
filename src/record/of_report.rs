//! From a report to the record of it.

use super::configured::Configured;
use super::model::{Audited, Came, InForce, LibraryFacts, Record, Run, VERSION, Verdicts};
use super::statement::is_hex;
use crate::case::Library;
use crate::report::{Report, SandboxReport};

/// The record of this audit. `configured` are its sandboxes as they were configured, in the report's order; what the
/// report says of them is for people, without secrets. `project` is the SHA-256 of the project file.
pub fn of_report(
    report: &Report,
    library: &Library,
    configured: &[Configured],
    project: Option<String>,
) -> Record {
    let mut subject: Vec<(String, String)> = Vec::new();
    let mut sandboxes = Vec::new();
    for sandbox in &report.sandboxes {
        let name = &sandbox.sandbox.name;
        let Some(as_configured) = configured.iter().find(|other| other.name == *name) else {
            continue;
        };
        let digests = digests(sandbox);
        for known in &digests {
            if !subject.contains(known) {
                subject.push(known.clone());
            }
        }
        let mut digests: Vec<String> = digests.into_iter().map(|(_, digest)| digest).collect();
        digests.sort();
        digests.dedup();
        sandboxes.push(Audited {
            name: name.clone(),
            settings: as_configured.settings.clone(),
            policy: as_configured.policy.clone(),
            in_force: InForce {
                digests,
                read: sandbox.in_force.clone(),
                notes: sandbox.notes.clone(),
                failed: sandbox.failed.clone(),
            },
            verdicts: verdicts(report, library, as_configured),
        });
    }
    Record {
        subject,
        run: Run {
            record: VERSION,
            version: report.tool.version.to_owned(),
            started: report.started.clone(),
            seconds: (report.elapsed.as_secs_f64() * 1000.0).round() / 1000.0,
            exit_code: report.gate.exit_code,
            incomplete: report.incomplete.clone(),
        },
        library: LibraryFacts {
            digest: library.digest.clone(),
            cases: library.cases.len(),
        },
        project,
        sandboxes,
    }
}

fn verdicts(report: &Report, library: &Library, sandbox: &Configured) -> Verdicts {
    let trials = report
        .trials
        .iter()
        .filter(|trial| trial.sandbox == sandbox.name);
    let tried: std::collections::BTreeMap<String, Came> = trials
        .map(|trial| {
            let came = Came {
                verdict: trial.judgement.verdict,
                reason: trial.judgement.reason.to_owned(),
                gates: trial.gates,
                waived: trial.waived.clone(),
            };
            (trial.case.clone(), came)
        })
        .collect();
    let of_level = library
        .cases
        .iter()
        .filter(|case| case.level <= sandbox.level);
    Verdicts {
        left_out: of_level
            .map(|case| case.id.clone())
            .filter(|id| !tried.contains_key(id))
            .collect(),
        tried,
    }
}

/// Everything that the report pins the sandbox by, name and SHA-256: what stands behind it, and of an image each of the
/// digests that it goes by.
fn digests(sandbox: &SandboxReport) -> Vec<(String, String)> {
    let of_image = |name: &str| matches!(name, "image digests" | "image descriptor" | "image id");
    let texts = sandbox.digest.iter().chain(
        sandbox
            .in_force
            .iter()
            .filter(|(name, _)| of_image(name))
            .map(|(_, value)| value),
    );
    let mut found: Vec<(String, String)> = Vec::new();
    for text in texts {
        let (before, mut name) = (
            text.rsplit_once(" sha256:").map_or("", |(name, _)| name),
            "",
        );
        if !before.contains("sha256:") {
            name = before; // `PATH sha256:…`, and a path may hold spaces
        }
        for word in text.split(' ') {
            let Some((repository, digest)) = word.rsplit_once("sha256:") else {
                continue;
            };
            let repository = repository.trim_end_matches('@');
            let name = [repository, name].into_iter().find(|name| !name.is_empty());
            let known = found.iter().any(|(_, there)| there == digest);
            if is_hex(digest) && !known {
                found.push((
                    name.unwrap_or(&sandbox.sandbox.name).to_owned(),
                    digest.to_owned(),
                ));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn every_digest_of_an_image_is_one_of_the_subject() {
        let hex = |c: &str| c.repeat(64);
        let of = |digest: &str, in_force: &[(&str, String)]| {
            let mut sandbox = sample::sandbox("agent");
            sandbox.digest = Some(digest.into());
            sandbox.in_force = in_force
                .iter()
                .map(|(n, v)| ((*n).into(), v.clone()))
                .collect();
            digests(&sandbox)
        };
        let (a, b, c) = (hex("a"), hex("b"), hex("c"));
        let image = [
            ("image id", format!("sha256:{b}")),
            (
                "image digests",
                format!("reg/python@sha256:{a} other@sha256:{c}"),
            ),
            ("image variables", format!("sha256:{}", hex("d"))),
        ];
        assert_eq!(
            of(&format!("reg/python@sha256:{a}"), &image),
            [
                ("reg/python".into(), a.clone()),
                ("agent".into(), b),
                ("other".into(), c)
            ]
        );
        let launcher = of(&format!("/opt/my tools/bwrap sha256:{a}"), &[]);
        assert_eq!(launcher, [("/opt/my tools/bwrap".into(), a)]);
        assert_eq!(of("/rootfs (a folder, not pinned)", &[]), []);
        assert_eq!(of("x sha256:123", &[]), []);
    }
}
