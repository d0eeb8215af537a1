//! The page: one file that asks for nothing, shows the worst first, and does nothing that a stranger wants. A real browser
//! tries the rest.

use super::*;
use crate::report::{outside, sample};

fn written(report: &Report) -> String {
    let mut out = Vec::new();
    write(report, &mut out).expect("a Vec takes everything");
    String::from_utf8(out).expect("UTF-8")
}

/// For the one who changes the page: `SHOW=FOLDER cargo test --lib html::tests::show -- --ignored`.
#[test]
#[ignore = "writes pages for the one who changes them"]
fn show() {
    let folder = std::env::var("SHOW").expect("a folder to write to");
    let mut partial = sample::report();
    partial.incomplete =
        Some("the audit was interrupted; only what was decided by then is here".into());
    for (name, report) in [
        ("sample", sample::report()),
        ("hostile", sample::hostile_report()),
        ("partial", partial),
        ("empty", sample::empty()),
    ] {
        std::fs::write(format!("{folder}/{name}.html"), written(&report)).expect("written");
    }
}

#[test]
fn the_worst_is_first_unfolded_and_says_what_to_do() {
    let page = written(&sample::report());
    let at = |needle: &str| {
        page.find(needle)
            .unwrap_or_else(|| panic!("{needle} in:\n{page}"))
    };
    assert!(
        at(r#"<span class="case">network/escaped"#) < at(r#"<span class="case">network/broken"#)
    );
    assert!(
        at(r#"<span class="case">network/broken"#)
            < at(r#"<span class="case">network/inconclusive"#)
    );
    assert!(at(r#"<span class="case">kernel/new"#) < at(r#"<span class="case">network/blocked"#));
    assert!(
        at("<b>lost</b> could not be audited: The launcher <code>bwrap</code>")
            < at("network/escaped")
    );
    assert_eq!(page.matches("<details class=\"trial").count(), 10);
    // Two escapes and the break; the escape that does not count stays folded.
    assert_eq!(
        page.matches(r#" open><summary><span class="badge">"#)
            .count(),
        3
    );
    at("Run without a network: <code>network_mode: none</code>.");
    at("What would have held it: network (a network namespace");
    at(r#"<a href="https://attack.mitre.org/techniques/T1048/" rel="#);
    at(r#"<pre class="repeat">escape-audit run --sandbox oci --case network/escaped</pre>"#);
    at("does not fail the build: experimental");
}

#[test]
fn it_asks_for_nothing_and_lets_nothing_run_but_its_own() {
    for report in [sample::report(), sample::hostile_report()] {
        let page = written(&report);
        let policy = "default-src 'none'; style-src 'sha256-";
        assert!(page.contains(policy), "{page}");
        for loads in [
            "<link", "<img", "<iframe", "<object", "<base", "@import", "url(",
        ] {
            assert!(!page.contains(loads), "{loads}");
        }
        assert_eq!(page.matches("<script>").count(), 1);
        assert_eq!(page.matches("</script>").count(), 1);
        // A style or a handler in a tag would need a hole in the policy.
        for tag in page
            .split('<')
            .skip(1)
            .filter_map(|tag| tag.split('>').next())
        {
            assert!(!tag.contains(" style=") && !tag.contains(" on"), "<{tag}>");
        }
        for address in page.split("href=\"").skip(1) {
            assert!(address.starts_with("https://"), "{}", &address[..40]);
        }
    }
}

#[test]
fn what_stands_between_back_ticks_is_code_and_nothing_else() {
    assert_eq!(
        Prose("a `b<c` d", 99).to_string(),
        "a <code>b&lt;c</code> d"
    );
    assert_eq!(Prose("a ` b", 99).to_string(), "a ` b");
    assert_eq!(Text("\"'&<>", 99).to_string(), "&quot;&#39;&amp;&lt;&gt;");
}

/// A real browser: our script and style run by their hashes, the filters work, and a stranger's text does nothing.
#[test]
fn a_browser_runs_our_script_and_nobody_elses() {
    let report = sample::hostile_report();
    let page = written(&report);
    let Some(dom) = outside::browse(&page) else {
        return;
    };
    assert!(dom.contains("7 of 7 shown"), "our own script did not run");
    assert!(!dom.contains("data-owned"), "a stranger's did");
    assert_eq!(dom.matches("<script>").count(), 1);
    assert_eq!(
        dom.matches("<img").count() + dom.matches("onload=\"").count(),
        0
    );
    assert_eq!(dom.matches("<details class=\"trial").count(), 7);
    // Still to be read, as it was.
    assert!(dom.contains("&lt;script&gt;alert(1)&lt;/script&gt;"));

    // The test sees what it looks for: the same page without its policy, and with one tag that got through.
    let holed = page
        .replace("default-src 'none'", "default-src 'unsafe-inline'")
        .replacen(
            "<main>",
            "<main><svg onload=document.body.dataset.owned=1></svg>",
            1,
        );
    let holed = holed.replace(
        &page[page.find("script-src").expect("one")..page.find("; base-uri").expect("one")],
        "",
    );
    let dom = outside::browse(&holed).expect("it was there");
    assert!(dom.contains("data-owned"), "nothing would be noticed");
}

/// With the policy in force, even what got past the escaping would not run.
#[test]
fn the_policy_holds_what_the_escaping_lets_through() {
    let page = written(&sample::report()).replacen(
        "<main>",
        "<main><svg onload=document.body.dataset.owned=1></svg><script>document.body.dataset.owned=1</script>",
        1,
    );
    if let Some(dom) = outside::browse(&page) {
        assert!(dom.contains("10 of 10 shown") && !dom.contains("data-owned"));
    }
}
