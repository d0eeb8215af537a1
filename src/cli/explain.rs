//! `explain CASE`: what is tried, what proves it, what stops it, why it matters and what to do.

use std::io::{self, Write};

use crate::case::select::OWN_CASES;
use crate::case::{
    Attempt, Case, Danger, Expect, KilledBy, Library, MemoryDose, Need, SpinUntil, Status,
    Transport, UnixTarget, WriteInto, proof,
};
use crate::diag::schema::Named as _;
use crate::diag::{Code, Diagnostic, Diagnostics, suggest};
use crate::protection::{PROTECTIONS, Protection};
use crate::safe_text::SafeText;

const WIDTH: usize = 80;

/// The case of this id, or a mistake that says which was probably meant.
pub fn find<'l>(library: &'l Library, id: &str) -> Result<&'l Case, Diagnostics> {
    library.get(id).ok_or_else(|| {
        let ids = library.ids();
        // `tcp-egress` alone is what people type.
        let bare = ids
            .iter()
            .find(|known| known.rsplit('/').next() == Some(id));
        let close = match bare {
            Some(known) => format!("did you mean `{known}`?"),
            None => match crate::diag::closest(id, ids.iter().copied()) {
                Some(_) => format!("{} {OWN_CASES}", suggest(id, &ids)),
                None => format!("`escape-audit list` shows every case. {OWN_CASES}"),
            },
        };
        Diagnostic::new(Code::NoMatch, format!("there is no case `{id}`"), close).into()
    })
}

/// Everything about one case, for a person.
pub fn explain(case: &Case, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{}\n{}\n", case.id, case.title)?;
    writeln!(out, "{}", headline(case))?;
    section(out, "What is tried", &tried(&case.attempt))?;
    match case.expect {
        Expect::Allowed => section(
            out,
            "What is expected",
            &["It works. Otherwise the case is BROKEN.".into()],
        )?,
        Expect::Blocked => {
            let proofs: Vec<String> = case
                .escaped
                .iter()
                .map(|proof| proof::words(*proof).to_owned())
                .collect();
            section(out, "What proves that it escaped", &proofs)?;
            section(out, "What stops it", &stops(case))?;
        }
    }
    let needs: Vec<String> = case
        .needs
        .iter()
        .map(|need| need_words(*need).to_owned())
        .collect();
    section(
        out,
        "What it needs (else it is skipped, with the reason)",
        &needs,
    )?;
    section(out, "Why it matters", std::slice::from_ref(&case.why))?;
    section(out, "How to fix it", std::slice::from_ref(&case.fix))?;
    verbatim(out, "Where to read more", &case.references)?;
    let place = format!("{} (sha256 {})", case.source.display(), &case.digest[..12]);
    verbatim(out, "Where it is written", &[place])
}

fn headline(case: &Case) -> String {
    let mut lines = format!(
        "{} severity, level {}, danger {} ({})",
        case.severity.word(),
        case.level.word(),
        u8::from(case.danger),
        danger_words(case.danger)
    );
    if case.status == Status::Experimental {
        lines.push_str("\nexperimental: it is shown and never gates");
    }
    if !case.techniques.is_empty() {
        lines.push_str(&format!("\nMITRE ATT&CK {}", case.techniques.join(", ")));
    }
    if !case.tags.is_empty() {
        lines.push_str(&format!("\ntags {}", case.tags.join(", ")));
    }
    lines
}

/// Lines that must not be broken: addresses and paths are there to be copied.
fn verbatim(out: &mut dyn Write, title: &str, lines: &[String]) -> io::Result<()> {
    if lines.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n{title}")?;
    lines
        .iter()
        .try_for_each(|line| writeln!(out, "  {}", SafeText::line(line)))
}

fn section(out: &mut dyn Write, title: &str, lines: &[String]) -> io::Result<()> {
    if lines.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n{title}")?;
    let bullet = if lines.len() > 1 { "- " } else { "" };
    for line in lines {
        let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
        for (at, part) in SafeText::line(&line).wrapped(WIDTH - 4).iter().enumerate() {
            let lead = if at == 0 {
                bullet
            } else {
                &"  "[..bullet.len()]
            };
            writeln!(out, "  {lead}{part}")?;
        }
    }
    Ok(())
}

fn stops(case: &Case) -> Vec<String> {
    let mut lines = Vec::new();
    if !case.weakened.remove.is_empty() {
        lines.push(set_words(&case.weakened.remove));
    }
    for (backend, fixture) in &case.weakened.fixtures {
        lines.push(format!(
            "On `{backend}` no setting: `fixtures/{fixture}` shows what lets it through."
        ));
    }
    let settings = case.weakened.by_backend.iter();
    for (backend, protections) in settings.filter(|(_, set)| !set.is_empty()) {
        lines.push(format!("On `{backend}`: {}", set_words(protections)));
    }
    lines
}

fn set_words(protections: &[Protection]) -> String {
    let words = protections.iter().filter_map(|protection| {
        let known = PROTECTIONS.iter().find(|(known, _, _)| known == protection);
        known.map(|(_, name, meaning)| format!("`{name}` ({meaning})"))
    });
    match &words.collect::<Vec<_>>()[..] {
        [one] => format!("{one}. Without it, the attempt must get through."),
        all => format!(
            "Any one of {}: which of them suffices depends on the kernel and on the user. Without all of them, the \
             attempt must get through.",
            all.join(", ")
        ),
    }
}

fn danger_words(danger: Danger) -> &'static str {
    match danger {
        Danger::Looks => "it only looks",
        Danger::Changes => "it changes the sandbox's own state",
        Danger::Loads => "it loads resources, in a fixed dose",
        Danger::Hurts => "it could hurt the host if it worked",
    }
}

fn need_words(need: Need) -> &'static str {
    match need {
        Need::Swap => "swap space that is counted",
        Need::Ipv6 => "IPv6 on this machine",
        Need::SpareCpus => "more CPUs than the quota",
        Need::NotRoot => "a sandbox whose user is not root",
        Need::HarnessRoot => "root outside, to plant what is tried",
        Need::SetUidProgram => "root outside or a container engine, to plant a set-uid program",
        Need::PromisedTimeout => "a promised timeout",
        Need::PromisedOutput => "a promised ceiling on output",
        Need::PidsCeiling => "a promised ceiling on processes",
        Need::MemoryCeiling => "a promised ceiling on memory",
        Need::CpuCeiling => "a promised ceiling on CPU time",
        Need::DiskCeiling => "a promised ceiling on scratch space",
        Need::Scratch => "a place that may be written",
        Need::Range => "canaries where no packet can leave the machine",
    }
}

/// The attempt in words, with its arguments.
fn tried(attempt: &Attempt) -> Vec<String> {
    let one = |text: &str| vec![text.to_owned()];
    match attempt {
        Attempt::Run => one("Start the probe and wait for its first word."),
        Attempt::Environment { names } if names.is_empty() => {
            one("Read every variable of the own environment.")
        }
        Attempt::Environment { names } => vec![format!(
            "Read the variables {} of the own environment.",
            names.join(", ")
        )],
        Attempt::ProcessEnvironment => one(
            "Read the environment of PID 1, of the ancestors, and of every process that can be read.",
        ),
        Attempt::ReadFile { paths } => paths.iter().map(|path| file_words(path)).collect(),
        Attempt::WriteFile { into } => one(match into {
            WriteInto::OutsideScratch => {
                "Create a file on every mount and in well-known folders that the policy does not call writable."
            }
            WriteInto::Host => "Create a file in folders of the host that anybody may write to.",
            WriteInto::Scratch => "Create a file in each place that the policy calls writable.",
        }),
        Attempt::Connect {
            transport,
            positions,
        } => {
            let verb = match transport {
                Transport::Tcp => "Open a TCP connection over IPv4",
                Transport::Tcp6 => "Open a TCP connection over IPv6",
                Transport::Udp => "Send UDP datagrams",
            };
            let places: Vec<&str> = positions.iter().map(|position| position.word()).collect();
            vec![format!(
                "{verb} to a canary at each of these positions: {}.",
                places.join(", ")
            )]
        }
        Attempt::Http {
            urls,
            method,
            headers,
        } => {
            let with = if headers.is_empty() {
                String::new()
            } else {
                format!(" with the header {}", headers.join(", "))
            };
            urls.iter()
                .map(|url| format!("{method} {url}{with}"))
                .collect()
        }
        Attempt::Dns => {
            one("Ask the canary name server, over UDP and TCP, for a name that holds the token.")
        }
        Attempt::ConnectUnix { to } => one(match to {
            UnixTarget::Abstract => "Connect to a Unix socket with an abstract name.",
            UnixTarget::Path => "Connect to a Unix socket file of the host.",
        }),
        Attempt::EngineSocket { paths } if paths.is_empty() => one(
            "Connect to the sockets of container engines at their usual paths, and ask `GET /_ping`.",
        ),
        Attempt::EngineSocket { paths } => paths
            .iter()
            .map(|path| format!("Connect to {path}, and ask `GET /_ping`."))
            .collect(),
        Attempt::RawSocket => one("Open a raw socket and send a hand-made datagram."),
        Attempt::Spawn => one(
            "Start more processes than the ceiling allows. They sleep, and end with their parent.",
        ),
        Attempt::Allocate { dose } => one(match dose {
            MemoryDose::Memory => {
                "Touch more memory than the ceiling allows, in several processes."
            }
            MemoryDose::MemoryAndSwap => {
                "Touch more memory than memory and swap together allow, and hold it where it may be swapped out."
            }
            MemoryDose::Half => "Touch half of the promised memory.",
        }),
        Attempt::Spin { until } => one(match until {
            SpinUntil::Quota => "Spin on every CPU for a fixed time.",
            SpinUntil::Timeout => "Spin on one CPU for longer than the promised timeout.",
        }),
        Attempt::Fill => one(
            "Write more than the ceiling into every writable place, in several files, and remove them.",
        ),
        Attempt::Flood => one("Print more than the promised ceiling."),
        Attempt::ListProcesses => {
            one("Look for a process of the host in `/proc` and by its number.")
        }
        Attempt::Signal => {
            one("Signal a process of the host, with a signal that is ignored by default.")
        }
        Attempt::Outlive { killed_by } => {
            let end = match killed_by {
                KilledBy::Timeout => "the sandbox's own timeout ends the run",
                KilledBy::Launcher => "the launcher alone gets SIGKILL",
                KilledBy::Group => "the launcher's process group gets SIGKILL",
                KilledBy::Terminate => "the launcher gets SIGTERM",
            };
            vec![format!(
                "Leave a detached process behind that reports home for a fixed time; then {end}."
            )]
        }
        Attempt::Capabilities => {
            one("Read the capability sets, and use each dangerous capability that is there.")
        }
        Attempt::GainPrivileges => one("Execute a planted set-uid program."),
        Attempt::UserNamespace => one(
            "Make a user namespace by `unshare`, `clone` and `clone3`, and use a capability in it.",
        ),
        Attempt::Mount => {
            one("Mount an empty file system, by the old interface and by the new one.")
        }
        Attempt::Syscall { name, args, .. } => vec![format!("Call {name}({}).", args.join(", "))],
    }
}

fn file_words(path: &str) -> String {
    match path.strip_prefix("{home}") {
        Some(rest) => format!("Read ~{rest}, in each known home folder."),
        None if path == "{planted}" => {
            "Read every planted file, and files that only this host has.".into()
        }
        None => format!("Read {path}."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_of_the_library_can_be_explained() {
        let library = Library::load(&[]).expect("valid");
        for case in &library.cases {
            let mut out = Vec::new();
            explain(case, &mut out).expect("written");
            let text = String::from_utf8(out).expect("text");
            assert!(
                text.contains("Why it matters") && text.contains("How to fix it"),
                "{text}"
            );
            assert!(
                text.lines()
                    .all(|line| line.chars().count() <= WIDTH || line.contains("://")),
                "{text}"
            );
        }
    }

    #[test]
    fn a_wrong_id_says_which_was_meant() {
        let library = Library::load(&[]).expect("valid");
        assert!(find(&library, "network/tcp-egress").is_ok());
        for wrong in ["network/tcp-egres", "tcp-egress"] {
            let text = find(&library, wrong).expect_err("refused").to_string();
            assert!(
                text.contains("did you mean `network/tcp-egress`?"),
                "{text}"
            );
        }
        let text = find(&library, "zzzzzz").expect_err("refused").to_string();
        assert!(text.contains("escape-audit list"), "{text}");
    }
}
