//! The forms in which Compose writes one thing: short and long, with units and without, as the one that our keys take.

use super::compose_yaml::{Node, Value};

/// What is wrong with a value, and what to do about it.
pub type Wrong = (String, &'static str);

/// A flag, in any of the words that Compose takes.
pub fn flag(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" | "y" | "t" | "1" => Some(true),
        "false" | "no" | "off" | "n" | "f" | "0" => Some(false),
        _ => None,
    }
}

/// A size in bytes as Compose reads it: `512m`, `1.5 GiB`, `64kb`; powers of 1024.
pub fn size(text: &str) -> Option<u64> {
    let text = text.trim().to_ascii_lowercase();
    let end = text
        .find(|c: char| !(c.is_ascii_digit() || c == '.'))
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let unit = unit.trim_start();
    let factor: u64 = match unit.strip_suffix('b').unwrap_or(unit) {
        "" => 1,
        "k" | "ki" => 1 << 10,
        "m" | "mi" => 1 << 20,
        "g" | "gi" => 1 << 30,
        "t" | "ti" => 1 << 40,
        _ => return None,
    };
    match number.parse::<u64>() {
        Ok(whole) => whole.checked_mul(factor),
        Err(_) => {
            let bytes = number.parse::<f64>().ok()? * factor as f64;
            // What is larger is no size of this world's machines.
            (0.0..1e18).contains(&bytes).then_some(bytes as u64)
        }
    }
}

/// A mount as our `volumes` or `tmpfs` have it.
#[derive(Debug, PartialEq, Eq)]
pub enum Mount {
    /// `SOURCE:TARGET:ro`, or `TARGET` alone; the source may name a volume of the file.
    Volume {
        /// A path, the name of a volume, or none.
        source: Option<String>,
        /// Where.
        target: String,
        /// Not writable.
        read_only: bool,
    },
    /// `TARGET:size=…`.
    Tmpfs(String),
}

const MOUNT_HELP: &str =
    "this version mounts folders, volumes and scratch space, read-only or not: leave the rest out";

/// An entry of `volumes`.
pub fn mount(node: &Node) -> Result<Mount, Wrong> {
    match node.text() {
        Some(text) => short_mount(text),
        None => long_mount(node),
    }
}

fn short_mount(text: &str) -> Result<Mount, Wrong> {
    let parts: Vec<&str> = text.split(':').collect();
    let (source, target, options) = match parts[..] {
        [target] => (None, target, ""),
        [source, target] => (Some(source), target, ""),
        [source, target, options] => (Some(source), target, options),
        _ => {
            return Err((
                format!("`{text}` is no mount"),
                "write \"SOURCE:TARGET:ro\"",
            ));
        }
    };
    let mut read_only = false;
    for option in options.split(',').filter(|option| !option.is_empty()) {
        match option {
            "ro" => read_only = true,
            // Words without an effect on Linux, or on the first filling of a new volume alone.
            "rw" | "cached" | "delegated" | "consistent" | "nocopy" | "rprivate" => {}
            _ => {
                return Err((
                    format!("the mount option `{option}` cannot be expressed"),
                    MOUNT_HELP,
                ));
            }
        }
    }
    Ok(Mount::Volume {
        source: source.map(str::to_owned),
        target: target.to_owned(),
        read_only,
    })
}

fn long_mount(node: &Node) -> Result<Mount, Wrong> {
    let entries = node.entries().unwrap_or_default();
    let text = |key: &str| node.get(key).and_then(Node::text);
    let kind = text("type").unwrap_or("volume");
    let Some(target) = text("target") else {
        return Err((
            "a mount without `target`".into(),
            "say where it appears: `target: /data`",
        ));
    };
    let mut options = Vec::new();
    for (word, value) in entries {
        let below = value.entries().unwrap_or_default();
        match (word.text.as_str(), kind) {
            ("type" | "source" | "target" | "read_only" | "consistency", _) => {}
            ("bind", "bind") => {
                let plain = below.iter().all(|(word, value)| match word.text.as_str() {
                    "create_host_path" => true,
                    "propagation" => value.text() == Some("rprivate"),
                    _ => value.is_empty(),
                });
                if !plain {
                    return Err(("this kind of `bind` cannot be expressed".into(), MOUNT_HELP));
                }
            }
            ("volume", "volume") => {
                let plain = below.iter().all(|(word, value)| {
                    matches!(word.text.as_str(), "nocopy" | "labels") || value.is_empty()
                });
                if !plain {
                    return Err((
                        "a part of a volume cannot be mounted here".into(),
                        MOUNT_HELP,
                    ));
                }
            }
            ("tmpfs", "tmpfs") => {
                for (word, value) in below {
                    let said = value.text().unwrap_or_default();
                    match word.text.as_str() {
                        "size" => match size(said) {
                            Some(0) => {}
                            Some(bytes) => options.push(format!("size={bytes}")),
                            None => {
                                return Err((format!("`{said}` is no size"), "write it as `64m`"));
                            }
                        },
                        // Plain digits are a decimal number in YAML unless they begin with a zero.
                        "mode" => options.push(format!("mode={}", mode(said)?)),
                        other => {
                            return Err((
                                format!("`tmpfs.{other}` cannot be expressed"),
                                MOUNT_HELP,
                            ));
                        }
                    }
                }
            }
            _ if value.is_empty() => {}
            (other, _) if other.starts_with("x-") => {}
            (other, _) => {
                return Err((
                    format!("`{other}` of a mount of type `{kind}` cannot be expressed"),
                    MOUNT_HELP,
                ));
            }
        }
    }
    let read_only = match text("read_only") {
        Some(said) => {
            flag(said).ok_or_else(|| (format!("`{said}` is no flag"), "write `true` or `false`"))?
        }
        None => false,
    };
    match kind {
        "tmpfs" if read_only => Err(("scratch space that is read-only".into(), MOUNT_HELP)),
        "tmpfs" if options.is_empty() => Ok(Mount::Tmpfs(target.to_owned())),
        "tmpfs" => Ok(Mount::Tmpfs(format!("{target}:{}", options.join(",")))),
        "bind" | "volume" => Ok(Mount::Volume {
            source: source(kind, text("source").filter(|source| !source.is_empty()))?,
            target: target.to_owned(),
            read_only,
        }),
        other => Err((
            format!("a mount of type `{other}` cannot be expressed"),
            MOUNT_HELP,
        )),
    }
}

/// What is mounted, as the short form has it, where a path is known by its beginning.
fn source(kind: &str, source: Option<&str>) -> Result<Option<String>, Wrong> {
    match (kind, source) {
        ("bind", None) => Err((
            "a mount of type `bind` without `source`".into(),
            "say which folder: `source: ./data`",
        )),
        ("bind", Some(path)) if !path.starts_with(['/', '.', '~']) => Ok(Some(format!("./{path}"))),
        ("volume", Some(path)) if path.starts_with(['.', '~']) || path.contains('/') => Err((
            format!("`{path}` is a path, and a mount of type `volume` names a volume"),
            "write `type: bind` for a folder of the host's",
        )),
        _ => Ok(source.map(str::to_owned)),
    }
}

fn mode(text: &str) -> Result<String, Wrong> {
    let number = match text.strip_prefix("0o").or_else(|| text.strip_prefix('0')) {
        Some("") => Some(0),
        Some(octal) => u32::from_str_radix(octal, 8).ok(),
        None => text.parse().ok(),
    };
    let number = number.filter(|mode| *mode <= 0o7777);
    number
        .map(|mode| format!("{mode:o}"))
        .ok_or_else(|| (format!("`{text}` is no mode"), "write it as `01777`"))
}

/// A bound on one process or user: its name, soft and hard.
pub fn ulimit(name: &str, node: &Node) -> Result<(String, i64, i64), Wrong> {
    let number = |node: Option<&Node>| {
        let text = node.and_then(Node::text).unwrap_or_default();
        text.parse::<i64>()
            .ok()
            .filter(|number| *number >= -1)
            .ok_or_else(|| {
                (
                    format!("`{name}` is not a number or `soft` and `hard`"),
                    "write `nproc: 64`, or `soft` and `hard` below it",
                )
            })
    };
    match &node.value {
        Value::Map(_) => Ok((
            name.to_owned(),
            number(node.get("soft"))?,
            number(node.get("hard"))?,
        )),
        _ => {
            let both = number(Some(node))?;
            Ok((name.to_owned(), both, both))
        }
    }
}

/// A device, as the engine takes it: its path here, its path inside, what may be done with it.
pub fn device(node: &Node) -> Result<(String, String, String), Wrong> {
    let wrong = || {
        (
            "this is no device of the machine".to_owned(),
            "write \"/dev/fuse:/dev/fuse:rwm\"",
        )
    };
    let (source, target, allowed) = match node.text() {
        Some(text) => {
            let parts: Vec<&str> = text.split(':').collect();
            match parts[..] {
                [source] => (source, source, "rwm"),
                [source, allowed] if !allowed.starts_with('/') => (source, source, allowed),
                [source, target] => (source, target, "rwm"),
                [source, target, allowed] => (source, target, allowed),
                _ => return Err(wrong()),
            }
        }
        None => {
            let text = |key: &str| node.get(key).and_then(Node::text);
            let source = text("source").ok_or_else(wrong)?;
            (
                source,
                text("target").unwrap_or(source),
                text("permissions").unwrap_or("rwm"),
            )
        }
    };
    let good = source.starts_with('/')
        && target.starts_with('/')
        && !allowed.is_empty()
        && allowed.chars().all(|c| matches!(c, 'r' | 'w' | 'm'));
    match good {
        true => Ok((source.to_owned(), target.to_owned(), allowed.to_owned())),
        false => Err(wrong()),
    }
}

/// Whether a device is one that every container has, or gives nothing without a privilege that cases try. What any other
/// one gives (a disk, the machine's memory, a bus) no case tries.
pub fn is_harmless_device(source: &str) -> bool {
    const HARMLESS: [&str; 9] = [
        "full", "fuse", "kvm", "net/tun", "null", "random", "tty", "urandom", "zero",
    ];
    let name = source.strip_prefix("/dev/");
    name.is_some_and(|name| HARMLESS.contains(&name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diag::Source;

    fn node(text: &str) -> Node {
        super::super::compose_yaml::parse(&Source::new("c.yaml", text)).expect("valid")
    }

    fn volume(source: Option<&str>, target: &str, read_only: bool) -> Mount {
        Mount::Volume {
            source: source.map(str::to_owned),
            target: target.to_owned(),
            read_only,
        }
    }

    #[test]
    fn sizes_and_flags_are_read_as_compose_reads_them() {
        for (text, bytes) in [
            ("512m", 512 << 20),
            ("1.5g", 3 << 29),
            ("64 KiB", 64 << 10),
            ("1GB", 1 << 30),
            ("4096", 4096),
            ("2b", 2),
        ] {
            assert_eq!(size(text), Some(bytes), "{text}");
        }
        for wrong in ["", "m", "1x", "-1", "1.2.3m", "99999999999999999999g"] {
            assert_eq!(size(wrong), None, "{wrong}");
        }
        assert_eq!(
            (flag("Yes"), flag("off"), flag("maybe")),
            (Some(true), Some(false), None)
        );
    }

    #[test]
    fn both_forms_of_a_mount_mean_the_same() {
        for (short, long) in [
            (
                "./a:/a:ro",
                "{type: bind, source: ./a, target: /a, read_only: true, bind: {create_host_path: false}}",
            ),
            (
                "cache:/c",
                "{source: cache, target: /c, volume: {nocopy: true}}",
            ),
            ("/c", "{type: volume, target: /c}"),
        ] {
            assert_eq!(mount(&node(short)), mount(&node(long)), "{short}");
        }
        assert_eq!(
            mount(&node("a:/b:ro,cached")),
            Ok(volume(Some("a"), "/b", true))
        );
        let scratch = mount(&node(
            "{type: tmpfs, target: /t, tmpfs: {size: 64m, mode: 01777}}",
        ));
        assert_eq!(
            scratch,
            Ok(Mount::Tmpfs(format!("/t:size={},mode=1777", 64 << 20)))
        );
        assert_eq!(mode("1023"), Ok("1777".into()));
        for wrong in [
            "a:/b:z",
            "a:/b:ro:x",
            "{type: bind, source: /a, target: /b, bind: {propagation: shared}}",
            "{type: volume, source: a, target: /b, volume: {subpath: c}}",
            "{type: npipe, source: a, target: /b}",
            "{type: bind, source: /a}",
            "{type: bind, target: /a}",
            "{type: volume, source: ./a, target: /b}",
            "{type: volume, source: /a, target: /b}",
            "{type: volume, source: ~/a, target: /b}",
            "{type: tmpfs, target: /t, tmpfs: {size: huge}}",
        ] {
            assert!(mount(&node(wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn ulimits_and_devices_have_two_forms_too() {
        assert_eq!(ulimit("nproc", &node("64")), Ok(("nproc".into(), 64, 64)));
        assert_eq!(
            ulimit("nofile", &node("{soft: 1, hard: 2}")),
            Ok(("nofile".into(), 1, 2))
        );
        assert!(
            ulimit("nproc", &node("{soft: 1}")).is_err() && ulimit("nproc", &node("x")).is_err()
        );
        let fuse = (
            "/dev/fuse".to_owned(),
            "/dev/fuse".to_owned(),
            "rw".to_owned(),
        );
        assert_eq!(device(&node("/dev/fuse:rw")), Ok(fuse.clone()));
        assert_eq!(
            device(&node("{source: /dev/fuse, permissions: rw}")),
            Ok(fuse)
        );
        assert!(
            device(&node("vendor.com/gpu=0")).is_err() && device(&node("/dev/a:/dev/b:x")).is_err()
        );
    }
}
