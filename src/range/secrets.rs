//! The user's own secrets, so that a sandbox that leaks them is seen even where no decoy could be put. Their values
//! stay in memory and are compared by salted hash; nothing here can be printed.

use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use nix::libc;

use crate::secret_words;

/// As much of a file as the probe reads.
const LONGEST: u64 = 1 << 20;

/// A value that must not be read inside, under the name by which the report calls it.
pub(super) struct Secret {
    /// The variable's name, or the file's path on the host.
    pub(super) name: String,
    pub(super) value: Vec<u8>,
    /// One of the user's own, not a decoy.
    pub(super) real: bool,
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Secret({})", self.name)
    }
}

/// What only this host has. `/etc/shadow` counts where it holds a password.
const HOST_FACTS: &[&str] = &[
    "/etc/machine-id",
    "/var/lib/dbus/machine-id",
    "/etc/shadow",
    "/etc/ssh/ssh_host_ecdsa_key.pub",
    "/etc/ssh/ssh_host_ed25519_key.pub",
    "/etc/ssh/ssh_host_rsa_key.pub",
];

/// The secrets among these variables.
pub(super) fn of_environment(
    variables: impl IntoIterator<Item = (String, String)>,
) -> impl Iterator<Item = Secret> {
    variables
        .into_iter()
        .filter(|(name, value)| looks_secret(name, value))
        .map(|(name, value)| Secret {
            name,
            value: value.into_bytes(),
            real: true,
        })
}

fn looks_secret(name: &str, value: &str) -> bool {
    (secret_words::is_name(name) || secret_words::password_in(value).is_some())
        && !secret_words::is_public(name)
        && value.len() >= 8
        // The place of a secret is none.
        && !is_place(value)
}

/// Whether this is the path of something. One in sixty-four of all keys in base64 begins with a `/` too, and holds nothing
/// that base64 does not: such a value is a path where this machine has the folder that it begins with.
fn is_place(value: &str) -> bool {
    const SHORTEST_KEY: usize = 16;
    let Some(path) = value.strip_prefix('/') else {
        return false;
    };
    let of_a_key = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '+' | '=');
    let has = |is: fn(&char) -> bool| value.chars().any(|c| is(&c));
    let mixed = has(char::is_ascii_uppercase) && has(char::is_ascii_lowercase);
    let may_be_a_key = value.len() >= SHORTEST_KEY && mixed && value.chars().all(of_a_key);
    let first = path.split('/').next().unwrap_or_default();
    !may_be_a_key || (!first.is_empty() && Path::new("/").join(first).is_dir())
}

/// The user's own files at the places that the cases look at: in these home folders, and at fixed paths.
pub(super) fn of_paths(watched: &[String], homes: &[PathBuf]) -> Vec<Secret> {
    let everywhere = watched.iter().flat_map(|path| match in_home(path) {
        Some(rest) => homes.iter().map(|home| home.join(rest)).collect(),
        None => vec![PathBuf::from(path)],
    });
    everywhere
        .filter(|path| path.is_absolute())
        .filter_map(|path| of_file(&path))
        .collect()
}

/// What follows `{home}/` in the path of a case.
pub(super) fn in_home(path: &str) -> Option<&str> {
    path.strip_prefix("{home}/")
}

/// What only this host has, as far as this user may read it.
pub(super) fn of_host() -> Vec<Secret> {
    HOST_FACTS
        .iter()
        .filter_map(|path| of_file(Path::new(path)))
        .filter(|secret| secret.name != "/etc/shadow" || secret.value.contains(&b'$'))
        .collect()
}

fn of_file(path: &Path) -> Option<Secret> {
    let value = read(path)?;
    // An empty file, or the placeholder of an image that was never started, is like any other.
    let says_nothing = value.len() < 8 || value.trim_ascii() == b"uninitialized";
    (!says_nothing).then(|| Secret {
        name: path.to_string_lossy().into_owned(),
        value,
        real: true,
    })
}

/// What a regular file holds; anything else, a pipe above all, is never waited for.
pub(super) fn read(path: &Path) -> Option<Vec<u8>> {
    let file = File::options()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path)
        .ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut value = Vec::new();
    file.take(LONGEST).read_to_end(&mut value).ok()?;
    Some(value)
}

/// The home folders of this user: the variable's, and the one of the user database. Each once.
pub(super) fn homes() -> Vec<PathBuf> {
    let variable = std::env::var_os("HOME").map(PathBuf::from);
    let user = nix::unistd::User::from_uid(nix::unistd::geteuid());
    let database = user.ok().flatten().map(|user| user.dir);
    // Under sudo the secrets that matter are those of who called it.
    let caller = ["SUDO_UID", "PKEXEC_UID"]
        .iter()
        .filter_map(|name| std::env::var(name).ok()?.parse().ok())
        .filter_map(|uid: u32| nix::unistd::User::from_uid(uid.into()).ok().flatten())
        .map(|user| user.dir);
    let mut homes: Vec<PathBuf> = Vec::new();
    for home in variable.into_iter().chain(database).chain(caller) {
        let home = fs::canonicalize(&home).unwrap_or(home);
        if home.is_dir() && home != Path::new("/") && !homes.contains(&home) {
            homes.push(home);
        }
    }
    homes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_known_by_its_name_and_has_a_value_worth_guarding() {
        for (name, value, expected) in [
            ("MY_TOKEN", "abcdefgh", true),
            ("db_password", "hunter2hunter2", true),
            ("MY_TOKEN", "short", false),
            ("PATHS", "abcdefgh", false),
            ("DB_PASS", "hunter2hunter2", true),
            ("MYSQL_PWD", "hunter2hunter2", true),
            ("PWD", "/home/somebody", false),
            ("COMPASS", "north-by-west", false),
            ("DATABASE_URL", "postgres://app:hunter2@db/app", true),
            ("DATABASE_URL", "postgres://app@db:5432/app", false),
            ("HOMEPAGE", "https://a.example/x:y@z", false),
            ("GOOGLE_APPLICATION_CREDENTIALS", "/home/a/key.json", false),
            ("DB_PASSWORD_FILE", "/run/secrets/db", false),
            ("SSH_KEY_PATH", "/usr/Alice/DeployKey2", false),
            (
                "AWS_SECRET_ACCESS_KEY",
                "/JalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
                true,
            ),
            ("A_KEY", "//alrXUtnFEMIK7M", true),
            ("GPG_KEY", "7169605F62C751356D054A26A821E680E5FA6305", false),
        ] {
            assert_eq!(looks_secret(name, value), expected, "{name}={value}");
        }
    }

    #[test]
    fn what_holds_nothing_or_blocks_is_no_secret() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            fs::write(folder.path().join(name), text).unwrap();
            of_file(&folder.path().join(name))
        };
        assert!(file("id", "0123456789abcdef\n").is_some());
        assert!(file("empty", "").is_none());
        assert!(file("placeholder", "uninitialized\n").is_none());
        let pipe = folder.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(of_file(&pipe).is_none());
        assert!(of_file(folder.path()).is_none());
    }

    #[test]
    fn a_secret_never_prints_its_value() {
        let secret = of_environment([("A_KEY".into(), "do not show".into())]).next();
        assert!(!format!("{secret:?}").contains("do not show"));
    }
}
