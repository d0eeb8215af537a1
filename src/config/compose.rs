//! The values that Compose writes as one text: mounts, users, capabilities, security options.
//!
//! Each function says in a few words what is wrong; the caller knows where it stands.

use std::path::Path;

use super::model::{BackendKind, Settings, Tmpfs, User, Volume, VolumeSource, named_capabilities};
use crate::diag::schema;

/// What is wrong with a value.
#[derive(Debug, PartialEq, Eq)]
pub enum Wrong {
    /// It is malformed: what was expected.
    Malformed(&'static str),
    /// It has a meaning in Compose that this backend cannot express: what to do instead.
    NotExpressible(&'static str),
}

use Wrong::{Malformed, NotExpressible};

/// `/scratch:size=64m`; on an engine other options too, `/scratch:size=64m,noexec,mode=1777`.
pub fn tmpfs(text: &str, backend: BackendKind) -> Result<Tmpfs, Wrong> {
    let (path, list) = text.split_once(':').unwrap_or((text, ""));
    let mut size = None;
    let mut options = Vec::new();
    for option in list.split(',').filter(|option| !option.is_empty()) {
        if let Some(bytes) = option.strip_prefix("size=") {
            let bytes = schema::bytes(bytes).filter(|bytes| *bytes > 0);
            size = Some(bytes.ok_or(Malformed("write a size such as `size=64m`"))?);
        } else if backend != BackendKind::Docker {
            return Err(NotExpressible("`size=` is the only option here"));
        } else {
            mount_option(option)?;
            options.push(option.to_owned());
        }
    }
    Ok(Tmpfs {
        path: inside(path)?,
        size,
        options,
    })
}

fn mount_option(option: &str) -> Result<(), Wrong> {
    let is_number = |text: &str, radix| u32::from_str_radix(text, radix).is_ok();
    let good = match option.split_once('=') {
        Some(("mode", mode)) => mode.len() <= 4 && is_number(mode, 8),
        Some(("uid" | "gid", id)) => is_number(id, 10),
        Some(_) => false,
        None => matches!(
            option,
            "noexec" | "exec" | "nosuid" | "suid" | "nodev" | "dev"
        ),
    };
    good.then_some(()).ok_or(NotExpressible(
        "the options here are `size=`, `mode=`, `uid=`, `gid=`, and `noexec`, `nosuid`, `nodev` and their opposites",
    ))
}

/// `/host:/inside:ro`, a relative host path being below `base`; on an engine also `name:/inside:ro` and `/inside`.
pub fn volume(text: &str, base: &Path, backend: BackendKind) -> Result<Volume, Wrong> {
    let engine = backend == BackendKind::Docker;
    let mut parts = text.split(':');
    let (source, target) = match (parts.next(), parts.next()) {
        (Some(source), Some(target)) => (Some(source), target),
        (Some(target), None) if engine => (None, target),
        _ => {
            return Err(NotExpressible(
                "anonymous volumes need an engine; write \"/host:/inside\"",
            ));
        }
    };
    let read_only = match (parts.next(), parts.next()) {
        (None, _) | (Some("rw"), None) => false,
        (Some("ro"), None) => true,
        _ => return Err(NotExpressible("the only options here are `ro` and `rw`")),
    };
    let source = match source {
        None => VolumeSource::Anonymous,
        Some(host) if host.starts_with(['/', '.']) => VolumeSource::Host(base.join(host)),
        Some(_) if !engine => {
            return Err(NotExpressible(
                "named volumes need an engine; a folder begins with `/` or `./`",
            ));
        }
        Some(name) if is_name(name) => VolumeSource::Named(name.to_owned()),
        Some(_) => {
            return Err(Malformed(
                "a folder begins with `/` or `./`, and the name of a volume is made of letters, digits, `_`, `.` and `-`",
            ));
        }
    };
    Ok(Volume {
        source,
        inside: inside(target)?,
        read_only,
    })
}

/// What engines take for the name of a volume, a network, a runtime, a profile.
pub fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'))
}

/// `65534:65534`. In the embedded sandbox `65534` stands for both; an engine looks up what is no number, and the group
/// of a uid that comes alone, in the image.
pub fn user(text: &str, backend: BackendKind) -> Result<User, Wrong> {
    let id = |text: &str| text.parse::<u32>().ok().filter(|id| *id != u32::MAX);
    let engine = backend == BackendKind::Docker;
    let (uid, gid) = match text.split_once(':') {
        Some(both) => both,
        None if engine => (text, ""),
        None => (text, text),
    };
    let known = |text: &str| id(text).is_some() || is_user_name(text);
    match (id(uid), id(gid)) {
        (Some(uid), Some(gid)) => Ok(User::Ids(uid, gid)),
        _ if !engine => Err(NotExpressible(
            "there is no user database inside: write numbers, \"UID:GID\"",
        )),
        _ if known(uid) && (known(gid) || !text.contains(':')) => Ok(User::Named(text.to_owned())),
        _ => Err(Malformed("write \"UID:GID\", \"name\" or \"name:group\"")),
    }
}

/// The name of a user or group; one that is all digits would be a number.
pub fn is_user_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'))
}

/// A capability by Compose's name (`NET_RAW`) or the kernel's (`CAP_NET_RAW`), as the kernel's. `ALL` stands for every one.
pub fn capability(text: &str) -> Result<Vec<String>, Wrong> {
    let name = text.to_ascii_uppercase();
    let name = name.strip_prefix("CAP_").unwrap_or(&name);
    if name == "ALL" {
        return Ok(named_capabilities(&CAPABILITIES));
    }
    if CAPABILITIES.contains(&name) {
        return Ok(vec![format!("CAP_{name}")]);
    }
    Err(Malformed(
        "write the name of a capability as in capabilities(7), such as \"NET_RAW\", or \"ALL\"",
    ))
}

/// One entry of `security_opt`, applied to the settings of the embedded sandbox.
pub fn security_opt(text: &str, settings: &mut Settings) -> Result<(), Wrong> {
    let (name, value) = text.split_once(['=', ':']).unwrap_or((text, "true"));
    match (name, value) {
        ("no-new-privileges", "true") => settings.no_new_privileges = true,
        ("no-new-privileges", "false") => settings.no_new_privileges = false,
        ("seccomp", "unconfined") => settings.seccomp = false,
        ("systempaths", "unconfined") => settings.masked_paths = false,
        ("seccomp", _) => {
            return Err(NotExpressible(
                "the embedded filter is the only one here; `seccomp=unconfined` takes it away",
            ));
        }
        ("apparmor" | "label", _) => {
            return Err(NotExpressible(
                "this backend applies no security module; remove it",
            ));
        }
        _ => {
            return Err(Malformed(
                "write \"no-new-privileges\", \"seccomp=unconfined\" or \"systempaths=unconfined\"",
            ));
        }
    }
    Ok(())
}

/// An absolute path inside the sandbox, without a way up.
pub fn inside(path: &str) -> Result<String, Wrong> {
    let climbs = path.split('/').any(|part| part == "..");
    if path.starts_with('/') && !climbs {
        Ok(path.to_owned())
    } else {
        Err(Malformed("write an absolute path without `..`"))
    }
}

/// The kernel's capabilities, in its order.
const CAPABILITIES: [&str; 41] = [
    "CHOWN",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "FOWNER",
    "FSETID",
    "KILL",
    "SETGID",
    "SETUID",
    "SETPCAP",
    "LINUX_IMMUTABLE",
    "NET_BIND_SERVICE",
    "NET_BROADCAST",
    "NET_ADMIN",
    "NET_RAW",
    "IPC_LOCK",
    "IPC_OWNER",
    "SYS_MODULE",
    "SYS_RAWIO",
    "SYS_CHROOT",
    "SYS_PTRACE",
    "SYS_PACCT",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_NICE",
    "SYS_RESOURCE",
    "SYS_TIME",
    "SYS_TTY_CONFIG",
    "MKNOD",
    "LEASE",
    "AUDIT_WRITE",
    "AUDIT_CONTROL",
    "SETFCAP",
    "MAC_OVERRIDE",
    "MAC_ADMIN",
    "SYSLOG",
    "WAKE_ALARM",
    "BLOCK_SUSPEND",
    "AUDIT_READ",
    "PERFMON",
    "BPF",
    "CHECKPOINT_RESTORE",
];

#[cfg(test)]
mod tests {
    use super::*;
    use BackendKind::{Docker, Oci};
    use std::path::PathBuf;

    #[test]
    fn tmpfs_reads_a_path_and_a_size() {
        let mount = tmpfs("/scratch:size=64m", Oci).expect("valid");
        assert_eq!(
            (mount.path.as_str(), mount.size),
            ("/scratch", Some(64 << 20))
        );
        assert_eq!(tmpfs("/tmp", Oci).expect("valid").size, None);
        assert!(matches!(tmpfs("/tmp:noexec", Oci), Err(NotExpressible(_))));
        for backend in [Oci, Docker] {
            for wrong in ["tmp", "/tmp/../etc", "/tmp:size=0"] {
                assert!(
                    matches!(tmpfs(wrong, backend), Err(Malformed(_))),
                    "{wrong}"
                );
            }
        }
    }

    #[test]
    fn an_engine_takes_the_other_options_of_a_tmpfs() {
        let mount = tmpfs("/t:noexec,size=1m,mode=1777,uid=1", Docker).expect("valid");
        assert_eq!(mount.options, ["noexec", "mode=1777", "uid=1"]);
        assert_eq!(mount.size, Some(1 << 20));
        for wrong in [
            "/t:ro",
            "/t:mode=9",
            "/t:mode=",
            "/t:uid=me",
            "/t:huge=always",
        ] {
            assert!(
                matches!(tmpfs(wrong, Docker), Err(NotExpressible(_))),
                "{wrong}"
            );
        }
    }

    #[test]
    fn volumes_of_the_embedded_sandbox_are_bind_mounts() {
        let base = Path::new("/project");
        let data = volume("./data:/data:ro", base, Oci).expect("valid");
        assert_eq!(
            data.source,
            VolumeSource::Host(PathBuf::from("/project/./data"))
        );
        assert!(data.read_only);
        assert!(!volume("/a:/b", base, Oci).expect("valid").read_only);
        for wrong in ["data:/data", "/data", "/a:/b:z", "/a:/b:ro:x"] {
            assert!(
                matches!(volume(wrong, base, Oci), Err(NotExpressible(_))),
                "{wrong}"
            );
        }
        assert!(matches!(volume("/a:b", base, Oci), Err(Malformed(_))));
    }

    #[test]
    fn an_engine_has_volumes_of_its_own() {
        let read = |text| volume(text, Path::new("/project"), Docker);
        let cache = read("cache:/cache:ro").expect("valid");
        assert_eq!(cache.source, VolumeSource::Named("cache".into()));
        assert!(cache.read_only);
        assert_eq!(
            read("/data").expect("valid").source,
            VolumeSource::Anonymous
        );
        for wrong in ["~/data:/data", "-x:/data", "data", "/data:ro", ":/data"] {
            assert!(matches!(read(wrong), Err(Malformed(_))), "{wrong}");
        }
        assert!(matches!(read("cache:/cache:z"), Err(NotExpressible(_))));
    }

    #[test]
    fn users_of_the_embedded_sandbox_are_numbers() {
        assert_eq!(user("1000", Oci), Ok(User::Ids(1000, 1000)));
        assert_eq!(user("1000:0", Oci), Ok(User::Ids(1000, 0)));
        for wrong in ["nobody", "1:", "4294967295"] {
            assert!(user(wrong, Oci).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_engine_looks_users_up() {
        assert_eq!(user("1000:0", Docker), Ok(User::Ids(1000, 0)));
        for named in [
            "nobody",
            "app:staff",
            "app:100",
            "1000",
            "_apt",
            "1000:staff",
        ] {
            assert_eq!(
                user(named, Docker),
                Ok(User::Named(named.into())),
                "{named}"
            );
        }
        for wrong in ["1:", ":1", "a b", "4294967295", "a:b:c", "-x"] {
            assert!(user(wrong, Docker).is_err(), "{wrong}");
        }
        let is_root = |text| user(text, Docker).expect("valid").is_root();
        assert!(is_root("0") && is_root("root:staff") && is_root("0:0") && is_root("0:staff"));
        assert!(!is_root("1000") && !is_root("rooted") && !User::OfTheImage.is_root());
    }

    #[test]
    fn capabilities_go_by_either_name() {
        assert_eq!(capability("net_raw"), Ok(vec!["CAP_NET_RAW".to_owned()]));
        assert_eq!(capability("CAP_NET_RAW"), capability("NET_RAW"));
        assert_eq!(capability("ALL").map(|all| all.len()), Ok(41));
        assert!(capability("NET_RAWW").is_err());
    }
}
