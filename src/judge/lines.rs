//! Evidence as lines for a person: short, the strongest first, and bounded.

use std::borrow::Borrow;

use crate::case::{CanaryKind, Ceiling, Position};
use crate::evidence::{Count, Step, Target, Touch, outcome_name};

/// So many different steps are shown.
const MOST: usize = 8;

/// `connect tcp://203.0.113.10:4711: ENETUNREACH`
pub fn of_step(step: &Step) -> String {
    let outcome = outcome_name(step.outcome);
    if step.target.is_empty() {
        format!("{}: {outcome}", step.what)
    } else {
        format!("{} {}: {outcome}", step.what, step.target)
    }
}

/// As [`of_step`], the same one after another once with its number, the first few.
pub fn of_steps<S: Borrow<Step>>(steps: impl IntoIterator<Item = S>) -> Vec<String> {
    let mut counted: Vec<(String, usize)> = Vec::new();
    for step in steps {
        let line = of_step(step.borrow());
        match counted.last_mut() {
            Some((last, times)) if *last == line => *times += 1,
            _ => counted.push((line, 1)),
        }
    }
    let more = counted.len().saturating_sub(MOST);
    counted.truncate(MOST);
    let mut lines: Vec<String> = counted
        .into_iter()
        .map(|(line, times)| match times {
            1 => line,
            times => format!("{line} (×{times})"),
        })
        .collect();
    if more > 0 {
        lines.push(format!("and {more} more"));
    }
    lines
}

/// `the TCP canary at 203.0.113.10:4711 saw this trial's token after 12 ms`; of one of these targets, whose it is.
pub fn of_touch(touch: &Touch, targets: &[Target]) -> String {
    let target = targets
        .iter()
        .find(|target| target.address == touch.address);
    format!(
        "the {}{} canary at {} saw this trial's token after {} ms{}",
        target.map_or("", |target| whose(target.position)),
        canary(touch.canary),
        touch.address,
        touch.at_ms,
        if touch.late {
            ", when the run had ended"
        } else {
            ""
        },
    )
}

/// `the TCP canary at 203.0.113.10:4711 was alive and silent`
pub fn of_target(target: &Target) -> String {
    format!(
        "the {}{} canary at {} was {}",
        whose(target.position),
        canary(target.canary),
        target.address,
        match (target.alive, target.position) {
            (true, _) => "alive and silent",
            (false, Position::Sibling) => "not alive, or not to be reached from its host either",
            (false, _) => "not alive",
        },
    )
}

/// `processes: 80, ceiling 64 (pids.peak)`
pub fn of_count(count: &Count) -> String {
    let (what, scale, unit, digits) = match count.what {
        Ceiling::Pids => ("processes", 1.0, "", 0),
        Ceiling::Cpu => ("processor time", 1.0, " CPUs", 2),
        Ceiling::Memory => ("memory", 1024.0 * 1024.0, " MiB", 1),
        Ceiling::Swap => ("memory and swap", 1024.0 * 1024.0, " MiB", 1),
        Ceiling::Disk => ("written", 1024.0 * 1024.0, " MiB", 1),
        Ceiling::Output => ("output", 1024.0 * 1024.0, " MiB", 1),
    };
    format!(
        "{what}: {:.digits$}{unit}, ceiling {:.digits$}{unit} ({}{})",
        count.value / scale,
        count.ceiling / scale,
        if count.by_host { "" } else { "by the probe: " },
        count.source,
    )
}

/// One in another sandbox is told from the host's own.
fn whose(position: Position) -> &'static str {
    match position {
        Position::Sibling => "sibling's ",
        _ => "",
    }
}

fn canary(kind: CanaryKind) -> &'static str {
    match kind {
        CanaryKind::Tcp => "TCP",
        CanaryKind::Udp => "UDP",
        CanaryKind::Dns => "DNS",
        CanaryKind::Http => "HTTP",
        CanaryKind::Unix => "Unix socket",
        CanaryKind::Engine => "engine",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_siblings_canary_is_told_from_the_hosts() {
        let mut target = Target {
            canary: CanaryKind::Tcp,
            position: Position::Sibling,
            address: "tcp://172.17.0.3:9".into(),
            alive: false,
            beyond: false,
        };
        let touch = Touch {
            canary: CanaryKind::Tcp,
            address: target.address.clone(),
            at_ms: 7,
            late: false,
            saw: Vec::new(),
        };
        let at = "TCP canary at tcp://172.17.0.3:9";
        let told = of_touch(&touch, std::slice::from_ref(&target));
        assert_eq!(
            told,
            format!("the sibling's {at} saw this trial's token after 7 ms")
        );
        let told = of_target(&target);
        assert!(told.starts_with(&format!("the sibling's {at} was not alive, or")));
        target.position = Position::Gateway;
        let told = of_touch(&touch, std::slice::from_ref(&target));
        assert!(told.starts_with(&format!("the {at} saw")), "{told}");
        assert_eq!(of_target(&target), format!("the {at} was not alive"));
    }
}
