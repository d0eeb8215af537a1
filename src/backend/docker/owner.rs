//! Who owns what stands on an engine: three labels, and when an owner is dead.
//!
//! An engine may be shared by several machines, and by containers of one machine that cannot see each other's processes.
//! So an owner is only judged by who shares its boot and its process namespace; any other's things are left alone until
//! they are older than every run.

use std::collections::HashMap;

use crate::host::proc;

/// The label that names the run.
pub const RUN: &str = "escape-audit.run";
/// The label that names the run's process: `pid:start:boot:namespace`.
pub const OWNER: &str = "escape-audit.owner";
/// The label that names the trial.
pub const TRIAL: &str = "escape-audit.trial";

/// After so many seconds nothing of a run is in use any more, wherever it runs.
const OLDER_THAN_ANY_RUN: i64 = 24 * 3600;

/// The labels of everything that this process makes.
pub fn labels(run: &str, trial: &str) -> HashMap<String, String> {
    [(RUN, run), (OWNER, &own()), (TRIAL, trial)]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// This process, as an owner.
pub fn own() -> String {
    let pid = std::process::id();
    let start = i32::try_from(pid).ok().and_then(proc::start_time);
    let namespace = proc::namespace("self", "pid").unwrap_or_default();
    let (start, boot) = (start.unwrap_or_default(), proc::boot_id());
    format!("{pid}:{start}:{boot}:{namespace}")
}

/// Whether nobody will ask for it any more. `age`: seconds since it was made, where that is known; `runs`: it is a
/// container that is running.
pub fn is_dead(owner: &str, age: Option<i64>, runs: bool) -> bool {
    let own = own();
    let (mut theirs, mut ours) = (owner.splitn(4, ':'), own.splitn(4, ':'));
    let (Some(pid), Some(start)) = (number::<i32>(theirs.next()), number::<u64>(theirs.next()))
    else {
        return false;
    };
    let same_place = theirs.eq(ours.by_ref().skip(2));
    if same_place {
        return proc::start_time(pid) != Some(start);
    }
    !runs && age.is_some_and(|age| age > OLDER_THAN_ANY_RUN)
}

fn number<T: std::str::FromStr>(text: Option<&str>) -> Option<T> {
    text?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_live_owner_is_never_taken_for_a_dead_one() {
        let day = OLDER_THAN_ANY_RUN + 1;
        assert!(!is_dead(&own(), Some(day), false), "we live");
        let parts: Vec<String> = own().split(':').map(str::to_owned).collect();
        let with = |at: usize, value: &str| {
            let mut parts = parts.clone();
            parts[at] = value.to_owned();
            parts.join(":")
        };
        assert!(
            is_dead(&with(1, "1"), Some(0), true),
            "its id was used again"
        );
        for elsewhere in [with(2, "another-boot"), with(3, "1")] {
            assert!(!is_dead(&elsewhere, Some(60), false), "who knows");
            assert!(!is_dead(&elsewhere, Some(day), true), "it runs");
            assert!(!is_dead(&elsewhere, None, false), "no age");
            assert!(is_dead(&elsewhere, Some(day), false), "nobody's");
        }
        assert!(
            !is_dead("something", Some(day), false),
            "not a word of ours"
        );
    }
}
