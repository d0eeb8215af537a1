use super::*;
use crate::case::{Filter, Level, Partition, Severity};
use std::os::unix::fs::symlink;

const CASE: &str = r#"
title = "t"
severity = "low"
level = "standard"
why = "w"
fix = "f"
[attempt.environment]
[escaped]
secret = true
[weakened]
remove = ["environment"]
"#;

fn dir_with(files: &[(&str, &[u8])]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a folder");
    for (name, bytes) in files {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs::write(path, bytes).expect("written");
    }
    dir
}

fn codes(dir: &Path) -> Vec<&'static str> {
    let mistakes = Library::load(&[dir.to_owned()]).expect_err("refused");
    let mut codes: Vec<_> = mistakes.iter().map(|mistake| mistake.code.name()).collect();
    codes.sort_unstable();
    codes
}

#[test]
fn every_file_of_the_library_is_a_case() {
    fn files(dir: &Path) -> Vec<PathBuf> {
        let entries = fs::read_dir(dir)
            .expect("readable")
            .map(|entry| entry.expect("readable").path());
        entries
            .flat_map(|path| {
                if path.is_dir() {
                    files(&path)
                } else {
                    vec![path]
                }
            })
            .collect()
    }
    let library = Library::load(&[]).unwrap_or_else(|mistakes| panic!("{mistakes}"));
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("escapes");
    let mut on_disk: Vec<String> = files(&root)
        .iter()
        .map(|path| {
            path.strip_prefix(&root)
                .expect("below")
                .with_extension("")
                .display()
                .to_string()
        })
        .collect();
    on_disk.sort();
    assert_eq!(library.ids(), on_disk);
    assert!(
        library
            .cases
            .iter()
            .all(|case| library.get(&case.id) == Some(case))
    );
}

#[test]
fn private_cases_join_the_library_and_change_its_digest() {
    let dir = dir_with(&[
        ("acme/vault.toml", CASE.as_bytes()),
        ("README.md", b"#"),
        ("acme/README.md", b"#"),
        (".git/x", b""),
    ]);
    let own = Library::load(&[]).expect("valid");
    let both =
        Library::load(&[dir.path().to_owned()]).unwrap_or_else(|mistakes| panic!("{mistakes}"));
    assert_eq!(both.cases.len(), own.cases.len() + 1);
    assert!(both.get("acme/vault").is_some() && both.digest != own.digest);
}

#[test]
fn a_duplicate_id_names_both_files() {
    let dir = dir_with(&[("network/tcp-egress.toml", CASE.as_bytes())]);
    let said = Library::load(&[dir.path().to_owned()])
        .expect_err("refused")
        .to_string();
    assert!(said.contains("error[duplicate-id]"), "{said}");
    assert!(said.contains("escapes/network/tcp-egress.toml"), "{said}");
    assert!(
        said.contains(
            &dir.path()
                .join("network/tcp-egress.toml")
                .display()
                .to_string()
        ),
        "{said}"
    );
}

#[test]
fn all_files_are_read_before_anything_is_said() {
    let dir = dir_with(&[
        ("a/one.toml", b"x = 1"),
        ("a/two.toml", b"y = 1"),
        ("a/three.tml", b""),
        ("four.toml", b""),
    ]);
    let codes = codes(dir.path());
    assert_eq!(
        codes.iter().filter(|code| **code == "unknown-key").count(),
        2
    );
    assert!(
        codes.contains(&"not-a-case") && codes.contains(&"bad-id"),
        "{codes:?}"
    );
}

#[test]
fn what_cannot_be_read_is_a_mistake_and_not_a_smaller_library() {
    assert_eq!(codes(Path::new("/nonexistent")), ["unreadable"]);
    assert_eq!(
        codes(Path::new("/proc/self/status")),
        ["unreadable"],
        "a file is no folder"
    );
    assert_eq!(codes(dir_with(&[]).path()), ["no-cases"]);
    assert_eq!(codes(dir_with(&[("README.md", b"#")]).path()), ["no-cases"]);
    assert_eq!(
        codes(dir_with(&[("a/b.toml", b"title = \"\xff\"")]).path()),
        ["not-utf8"]
    );
    assert_eq!(
        codes(dir_with(&[("a/b.toml", &[b' '; LARGEST_FILE as usize + 1])]).path()),
        ["too-large"]
    );
    assert_eq!(
        codes(dir_with(&[("a/b/c.toml", CASE.as_bytes())]).path()),
        ["bad-id"]
    );
    assert_eq!(
        codes(dir_with(&[("a/B_c.toml", CASE.as_bytes())]).path()),
        ["bad-id"]
    );
    let both = dir_with(&[("A/B_c.toml", CASE.replace("title", "titel").as_bytes())]);
    assert_eq!(codes(both.path()), ["bad-id", "unknown-key"]);

    let dir = dir_with(&[("a/b.toml", CASE.as_bytes())]);
    symlink("loop.toml", dir.path().join("a/loop.toml")).expect("linked");
    assert_eq!(codes(dir.path()), ["unreadable"]);
    let dir = dir_with(&[("a/b.toml", CASE.as_bytes())]);
    symlink("..", dir.path().join("a/up")).expect("linked");
    assert_eq!(codes(dir.path()), ["bad-id"]);
    let dir = dir_with(&[("a/b.toml", CASE.as_bytes())]);
    nix::unistd::mkfifo(
        &dir.path().join("a/pipe.toml"),
        nix::sys::stat::Mode::S_IRWXU,
    )
    .expect("made");
    assert_eq!(codes(dir.path()), ["unreadable"], "a pipe must not hang");
}

#[test]
fn a_folder_too_deep_gets_the_one_that_was_meant() {
    let dir = dir_with(&[("a/b.toml", CASE.as_bytes())]);
    let meant = dir.path().display().to_string();
    for wrong in ["a", "a/b.toml"] {
        let said = Library::load_folder(&dir.path().join(wrong)).expect_err("refused");
        let said = said.to_string();
        assert!(
            said.contains(&format!("did you mean the folder `{meant}`?")),
            "{said}"
        );
    }
}

#[test]
fn a_filter_narrows_and_a_typo_in_it_is_a_mistake() {
    let library = Library::load(&[]).expect("valid");
    let all = library.cases.len();
    let count = |filter: Filter| filter.select(&library).map(|cases| cases.len());
    let one = |text: &str| vec![text.to_owned()];
    assert_eq!(count(Filter::default()), Ok(all));
    assert_eq!(
        count(Filter {
            cases: one("network/tcp-egress"),
            ..Filter::default()
        }),
        Ok(1)
    );
    let network = count(Filter {
        cases: one("network"),
        ..Filter::default()
    })
    .expect("a category");
    assert_eq!(
        count(Filter {
            cases: one("network/*"),
            ..Filter::default()
        }),
        Ok(network)
    );
    assert_eq!(
        count(Filter {
            skips: one("network/*"),
            ..Filter::default()
        }),
        Ok(all - network)
    );
    assert_eq!(
        count(Filter {
            cases: one("network/*"),
            skips: one("*/*"),
            ..Filter::default()
        }),
        Ok(0)
    );
    let critical = count(Filter {
        severity: Some(Severity::Critical),
        ..Filter::default()
    })
    .expect("valid");
    assert!(critical > 0 && critical < all);
    let standard = count(Filter {
        level: Some(Level::Standard),
        ..Filter::default()
    })
    .expect("valid");
    assert!(standard > 30 && standard < all);
    assert!(
        count(Filter {
            tags: one("ci"),
            ..Filter::default()
        })
        .is_ok_and(|n| n > 0 && n < all)
    );

    for (filter, help) in [
        (
            Filter {
                cases: one("network/tcp-egres"),
                ..Filter::default()
            },
            "did you mean `network/tcp-egress`?",
        ),
        (
            Filter {
                cases: one("netwrok"),
                ..Filter::default()
            },
            "did you mean `network`?",
        ),
        (
            Filter {
                skips: one("xyz*"),
                ..Filter::default()
            },
            "`escape-audit list` shows every case",
        ),
        (
            Filter {
                cases: one("a["),
                ..Filter::default()
            },
            "use `*`",
        ),
        (
            Filter {
                tags: one("clod"),
                ..Filter::default()
            },
            "did you mean `cloud`?",
        ),
    ] {
        let said = filter.select(&library).expect_err("refused").to_string();
        assert!(said.contains(help), "{said}");
    }
}

#[test]
fn the_parts_of_the_library_share_it_out() {
    let library = Library::load(&[]).expect("valid");
    for of in [1, 2, 3, 7, 100] {
        let mut all: Vec<&str> = Vec::new();
        for part in 1..=of {
            let partition = format!("hash:{part}/{of}").parse().expect("a part");
            let filter = Filter {
                partition: Some(partition),
                ..Filter::default()
            };
            let chosen = filter.select(&library).expect("a selection");
            if of <= 3 {
                assert!(
                    chosen.len() > library.cases.len() / 8,
                    "part {part} of {of}"
                );
            }
            all.extend(chosen.iter().map(|case| case.id.as_str()));
        }
        all.sort_unstable();
        assert_eq!(all, library.ids(), "every case is in one part of {of}");
    }
    // The same on every machine, and whatever other cases there are.
    for (text, is_in) in [("hash:1/3", false), ("hash:2/3", false), ("hash:3/3", true)] {
        let part: Partition = text.parse().expect("a part");
        assert_eq!(part.has("network/tcp-egress"), is_in, "{text}");
        assert_eq!(part.to_string(), text);
    }
    for wrong in [
        "1/2",
        "hash:0/2",
        "hash:3/2",
        "hash:1/0",
        "hash:1",
        "hash:1/9999",
        "count:1/2",
    ] {
        assert!(wrong.parse::<Partition>().is_err(), "{wrong}");
    }
}
