//! What GitHub's own reader makes of the page: the tables keep their shape, and nothing of a stranger is a mark.

use super::*;
use crate::report::{outside, sample};

fn written(report: &Report) -> String {
    page(report, LIMIT)
}

#[test]
fn the_worst_is_first_with_all_that_a_person_needs() {
    let text = written(&sample::report());
    assert!(text.starts_with(
        "## ❌ escape-audit: something escaped, or something that must work is broken\n\n**3 escaped** · **1 broken** · "
    ));
    let at = |needle: &str| {
        text.find(needle)
            .unwrap_or_else(|| panic!("{needle} in:\n{text}"))
    };
    assert!(at("| ❌ ESCAPED | oci | <code>network/escaped</code> |") < at("| ❌ BROKEN | oci |"));
    assert!(at("| ❌ BROKEN | oci |") < at("| ⚠️ ERROR | lost | | | could not be audited"));
    assert!(
        at("| ⚠️ ERROR | lost |") < at("ESCAPED (does not fail the build: experimental) | runner")
    );
    at("**What would have held it:** network (a network namespace");
    at("**Fix:** Run without a network");
    at("**To repeat it:** <code>escape-audit run --sandbox oci --case network/escaped</code>");
    at("**⚠️ Note:** sandbox not engaged");
    at("not-applicable: This machine has no swap.");
}

#[test]
fn what_does_not_fit_is_counted_and_the_worst_fits_first() {
    let mut report = sample::empty();
    report.sandboxes = vec![sample::sandbox("a")];
    for n in 0..40 {
        for verdict in [Verdict::Inconclusive, Verdict::Escaped, Verdict::Blocked] {
            let id = format!("network/{}-{n}", verdict.name().to_lowercase());
            report.trials.push(sample::trial("a", &id, verdict));
        }
    }
    report.incomplete = Some("interrupted".into());
    let whole = written(&report);
    assert!(!whole.contains("Left out here"));
    for limit in [3_000, 10_000, 20_000, whole.len() - 1] {
        let text = page(&report, limit);
        assert!(text.len() <= limit, "{} of {limit}", text.len());
        assert!(text.contains("**⚠️ Incomplete:** interrupted"));
        assert!(text.contains("| ❌ ESCAPED | a | <code>network/escaped-0</code>"));
        let said = text
            .split("Left out here, for want of room:** ")
            .nth(1)
            .expect("counts");
        let rows = text.matches("| critical |").count();
        if rows < 80 {
            assert!(
                said.contains(&format!("{} lines of what went wrong", 80 - rows)),
                "{said}"
            );
        }
        let details = text.matches("**Tried:**").count();
        if details < 80 {
            assert!(
                said.contains(&format!("{} details of what", 80 - details)),
                "{said}"
            );
        }
        if details < 40 {
            assert!(!text.contains("**Tried:** INCONCLUSIVE"));
            assert!(
                !text.contains("<b>INCONCLUSIVE</b>"),
                "the mild before the worst"
            );
        }
    }
}

#[test]
fn a_summary_is_never_refused_for_its_size() {
    let mut report = sample::hostile_report();
    let trials = report.trials.clone();
    for _ in 0..200 {
        report.trials.extend(trials.clone());
    }
    let text = written(&report);
    assert!(
        text.len() <= LIMIT && text.len() > LIMIT / 2,
        "{}",
        text.len()
    );
    assert!(text.contains("Left out here"));
}

/// cmark-gfm is what GitHub reads Markdown with.
#[test]
fn githubs_reader_finds_our_tables_and_nothing_of_a_stranger() {
    const RENDER: &str = "import sys, cmarkgfm\n\
        from cmarkgfm.cmark import Options\n\
        print(cmarkgfm.github_flavored_markdown_to_html(sys.stdin.buffer.read().decode(), options=Options.CMARK_OPT_UNSAFE))";
    let Some(python) = outside::python("cmarkgfm") else {
        return;
    };
    let report = sample::hostile_report();
    let text = written(&report);
    let said = outside::filter(&python, &["-c", RENDER], &text).expect("it was there");
    assert!(said.ok, "{}", said.err);
    let html = said.out;
    // Ours, and no other: the elements that the page is made of.
    let ours = [
        "h2", "h3", "p", "strong", "table", "thead", "tbody", "tr", "th", "td", "code", "details",
        "summary", "b", "ul", "li", "pre", "sub",
    ];
    for tag in html.split('<').skip(1) {
        let name = tag
            .trim_start_matches('/')
            .split(['>', ' '])
            .next()
            .expect("a name");
        assert!(ours.contains(&name), "<{name}> in\n{html}");
        assert_eq!(
            tag.split('>').next().map(|tag| tag.contains(' ')),
            Some(false),
            "<{tag}"
        );
    }
    // Heads, and: four findings and the lost sandbox, a line in force in each sandbox, seven trials.
    assert_eq!(html.matches("<tr>").count(), 1 + 5 + 2 + 2 + 1 + 7);
    assert_eq!(html.matches("<table>").count(), 4);
    assert_eq!(
        html.matches("<details>").count(),
        html.matches("</details>").count()
    );
    assert_eq!(html.matches("<h2>").count(), 1);
    // A bar in a text divides no cell.
    let cells: Vec<&str> = html.split("<td>").skip(1).collect();
    let hostile = cells.iter().filter(|cell| cell.contains("ATTACHMENT"));
    assert!(hostile.clone().count() > 10);
    for cell in hostile {
        assert!(cell.contains("ATTACHMENT|/etc/passwd"), "{cell}");
    }
    // Still to be read, as it was.
    assert!(
        html.contains("&lt;script&gt;alert(1)&lt;/script&gt;"),
        "{html}"
    );
    assert!(html.contains("[x](javascript:alert(1))"), "{html}");
}
