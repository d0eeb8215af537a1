//! The values that Compose writes as one text: mounts, users, capabilities, security options.
//!
//! Each function says in a few words what is wrong; the caller knows where it stands.

use std::path::Path;

use super::model::{Settings, Tmpfs, Volume};
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

/// `/scratch:size=64m`.
pub fn tmpfs(text: &str) -> Result<Tmpfs, Wrong> {
    let (path, options) = text.split_once(':').unwrap_or((text, ""));
    let mut size = None;
    for option in options.split(',').filter(|option| !option.is_empty()) {
        let bytes = option
            .strip_prefix("size=")
            .ok_or(NotExpressible("`size=` is the only option here"))?;
        let bytes = schema::bytes(bytes).filter(|bytes| *bytes > 0);
        size = Some(bytes.ok_or(Malformed("write a size such as `size=64m`"))?);
    }
    Ok(Tmpfs {
        path: inside(path)?,
        size,
    })
}

/// `/host:/inside:ro`; a relative host path is below `base`.
pub fn volume(text: &str, base: &Path) -> Result<Volume, Wrong> {
    let mut parts = text.split(':');
    let (Some(host), Some(target)) = (parts.next(), parts.next()) else {
        return Err(NotExpressible(
            "anonymous volumes need an engine; write \"/host:/inside\"",
        ));
    };
    let read_only = match (parts.next(), parts.next()) {
        (None, _) | (Some("rw"), None) => false,
        (Some("ro"), None) => true,
        _ => return Err(NotExpressible("the only options here are `ro` and `rw`")),
    };
    if !host.starts_with('/') && !host.starts_with('.') {
        return Err(NotExpressible(
            "named volumes need an engine; a folder begins with `/` or `./`",
        ));
    }
    Ok(Volume {
        host: base.join(host),
        inside: inside(target)?,
        read_only,
    })
}

/// `65534:65534`, or `65534` for both.
pub fn user(text: &str) -> Result<(u32, u32), Wrong> {
    let id = |text: &str| text.parse::<u32>().ok().filter(|id| *id != u32::MAX);
    let (uid, gid) = text.split_once(':').unwrap_or((text, text));
    match (id(uid), id(gid)) {
        (Some(uid), Some(gid)) => Ok((uid, gid)),
        _ => Err(NotExpressible(
            "there is no user database inside: write numbers, \"UID:GID\"",
        )),
    }
}

/// A capability by Compose's name (`NET_RAW`) or the kernel's (`CAP_NET_RAW`), as the kernel's. `ALL` stands for every one.
pub fn capability(text: &str) -> Result<Vec<String>, Wrong> {
    let name = text.to_ascii_uppercase();
    let name = name.strip_prefix("CAP_").unwrap_or(&name);
    if name == "ALL" {
        return Ok(CAPABILITIES
            .iter()
            .map(|cap| format!("CAP_{cap}"))
            .collect());
    }
    if CAPABILITIES.contains(&name) {
        return Ok(vec![format!("CAP_{name}")]);
    }
    Err(Malformed(
        "write the name of a capability as in capabilities(7), such as \"NET_RAW\", or \"ALL\"",
    ))
}

/// One entry of `security_opt`, applied to the settings.
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
    use std::path::PathBuf;

    #[test]
    fn tmpfs_reads_a_path_and_a_size() {
        let mount = tmpfs("/scratch:size=64m").expect("valid");
        assert_eq!(
            (mount.path.as_str(), mount.size),
            ("/scratch", Some(64 << 20))
        );
        assert_eq!(tmpfs("/tmp").expect("valid").size, None);
        assert!(matches!(tmpfs("/tmp:noexec"), Err(NotExpressible(_))));
        assert!(matches!(tmpfs("tmp"), Err(Malformed(_))));
        assert!(matches!(tmpfs("/tmp/../etc"), Err(Malformed(_))));
        assert!(matches!(tmpfs("/tmp:size=0"), Err(Malformed(_))));
    }

    #[test]
    fn volumes_are_bind_mounts() {
        let base = Path::new("/project");
        let data = volume("./data:/data:ro", base).expect("valid");
        assert_eq!(
            (data.host, data.read_only),
            (PathBuf::from("/project/./data"), true)
        );
        assert!(!volume("/a:/b", base).expect("valid").read_only);
        for wrong in ["data:/data", "/data", "/a:/b:z", "/a:/b:ro:x"] {
            assert!(
                matches!(volume(wrong, base), Err(NotExpressible(_))),
                "{wrong}"
            );
        }
        assert!(matches!(volume("/a:b", base), Err(Malformed(_))));
    }

    #[test]
    fn users_are_numbers() {
        assert_eq!(user("1000"), Ok((1000, 1000)));
        assert_eq!(user("1000:0"), Ok((1000, 0)));
        assert!(user("nobody").is_err() && user("1:").is_err() && user("4294967295").is_err());
    }

    #[test]
    fn capabilities_go_by_either_name() {
        assert_eq!(capability("net_raw"), Ok(vec!["CAP_NET_RAW".to_owned()]));
        assert_eq!(capability("CAP_NET_RAW"), capability("NET_RAW"));
        assert_eq!(capability("ALL").map(|all| all.len()), Ok(41));
        assert!(capability("NET_RAWW").is_err());
    }
}
