//! For tests: readers and schemas that were not written here, so that something else than our own eyes judges what is
//! written. Where one is missing the test says so, aloud; where it has to be there (the test range, CI), the test fails.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// What a program made of what it was given.
pub(crate) struct Said {
    pub(crate) ok: bool,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// Runs a program over this text; nothing where it is not there.
pub(crate) fn filter(program: &str, arguments: &[&str], text: &str) -> Option<Said> {
    let child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut child) = child else {
        return missing(program);
    };
    let mut stdin = child.stdin.take().expect("a pipe");
    let text = text.to_owned();
    // One that ends early reads no further, and its words must not wait for ours.
    let writer = std::thread::spawn(move || stdin.write_all(text.as_bytes()));
    let output = child.wait_with_output().expect("it ends");
    let _ = writer.join();
    Some(Said {
        ok: output.status.success(),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}

/// What a browser makes of a page, as HTML again, once its scripts have run. It may talk to nobody.
pub(crate) fn browse(page: &str) -> Option<String> {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("page.html");
    std::fs::write(&file, page).expect("written");
    let profile = format!(
        "--user-data-dir={}",
        folder.path().join("profile").display()
    );
    let address = format!("file://{}", file.display());
    let arguments = [
        "--headless=new",
        "--no-sandbox", // root's tests have none to give it
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--proxy-server=127.0.0.1:9",
        "--host-resolver-rules=MAP * ~NOTFOUND",
        &profile,
        "--dump-dom",
        &address,
    ];
    let there = |name: &&&str| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).any(|folder| folder.join(name).is_file())
    };
    let browsers = ["chromium", "google-chrome", "chromium-browser"];
    let Some(browser) = browsers.iter().find(there) else {
        return missing("chromium");
    };
    let said = filter(browser, &arguments, "")?;
    assert!(said.ok && said.out.contains("</html>"), "{}", said.err);
    Some(said.out)
}

/// A file that `fixtures/schemas/fetch` puts into its cache.
pub(crate) fn schema(name: &str) -> Option<PathBuf> {
    let path = cache()?.join(name);
    path.is_file().then_some(path).or_else(|| missing(name))
}

/// A Python that has this package.
pub(crate) fn python(package: &str) -> Option<String> {
    let python = cache()?.join("python/bin/python");
    let there = python.is_file();
    there
        .then(|| python.to_string_lossy().into_owned())
        .or_else(|| missing(package))
}

fn cache() -> Option<PathBuf> {
    let folder = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let range = folder("ESCAPE_AUDIT_RANGE_DIR").or_else(|| {
        let cache = folder("XDG_CACHE_HOME").or_else(|| Some(folder("HOME")?.join(".cache")))?;
        Some(cache.join("escape-audit-range"))
    })?;
    Some(range.join("schemas"))
}

/// The rule of `tests/it/support.rs`: what ESCAPE_AUDIT_REQUIRE names has to be there.
fn missing<T>(what: &str) -> Option<T> {
    let set = |name: &str, value: &str| std::env::var(name).is_ok_and(|is| is == value);
    let required = std::env::var("ESCAPE_AUDIT_REQUIRE").unwrap_or_default();
    let must = set("ESCAPE_AUDIT_RANGE_TEST", "1")
        || set("CI", "true")
        || required.split(',').any(|word| word == "schemas");
    assert!(
        !must,
        "`{what}` is missing, and must not be here: fixtures/schemas/fetch brings it"
    );
    let test = std::thread::current().name().unwrap_or("?").to_owned();
    // Not `eprintln`, which the test harness swallows when a test passes.
    let _ = writeln!(std::io::stderr(), "{test}: SKIPPED, for want of `{what}`");
    None
}
