//! What every format promises, held against one report that holds everything.

use std::collections::BTreeSet;

use super::*;
use crate::report::sample;

#[test]
fn each_has_a_name_of_its_own_and_is_found_by_it() {
    let names: BTreeSet<&str> = FORMATS.iter().map(|format| format.name).collect();
    assert_eq!(names.len(), FORMATS.len());
    for format in &FORMATS {
        assert_eq!(named(format.name), Some(format));
        assert!(
            !format.name.contains('='),
            "{format:?} could not be asked for"
        );
    }
    assert_eq!(named("nope"), None);
}

/// Each of them shows the worst, and says of a report that is not whole why it is not.
#[test]
fn no_format_hides_an_escape_or_a_partial_report() {
    let mut report = sample::report();
    for format in &FORMATS {
        let text = format.text(&report);
        assert!(text.contains("network/escaped"), "{format:?}:\n{text}");
        assert!(text.contains("lost"), "{format:?}:\n{text}");
        assert!(!text.contains("interrupted"), "{format:?}:\n{text}");
    }
    report.incomplete = Some("the audit was interrupted after 3 of 36".into());
    for format in &FORMATS {
        let text = format.text(&report);
        assert!(text.contains("network/escaped"), "{format:?}:\n{text}");
        assert!(
            text.contains("interrupted after 3 of 36"),
            "{format:?}:\n{text}"
        );
    }
}
