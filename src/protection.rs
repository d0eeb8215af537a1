//! The closed vocabulary of protections: what a sandbox can have, and what a case can name in `[weakened]`.

use serde::Serialize;

/// One thing that can be taken away from a sandbox. Each backend maps it to its own settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protection {
    /// A network namespace of its own, with no interface but loopback.
    Network,
    /// A read-only root file system.
    ReadOnly,
    /// A ceiling on memory.
    Memory,
    /// The ceiling on memory covers swap too.
    Swap,
    /// A ceiling on the number of processes and threads.
    Pids,
    /// A ceiling on CPU time a second.
    Cpu,
    /// An empty set of capabilities.
    Capabilities,
    /// `no_new_privs`: a set-uid program gains nothing.
    NoNewPrivileges,
    /// A filter on system calls.
    Seccomp,
    /// An unprivileged user instead of root.
    User,
    /// A process namespace of its own.
    PidNamespace,
    /// An IPC namespace of its own.
    IpcNamespace,
    /// The kernel's sensitive files in `/proc` and `/sys` are hidden.
    MaskedPaths,
    /// An environment that inherits nothing.
    Environment,
    /// No file or folder of the host inside.
    HostFiles,
    /// A ceiling on the size of scratch space.
    ScratchSize,
    /// The sandbox ends what runs longer than promised.
    Timeout,
    /// The sandbox cuts off what prints more than promised.
    Output,
    /// The end of the sandbox is the end of every process in it, not only of the first.
    Cleanup,
}

/// Every protection, with its name in TOML and one line of meaning: parser, documentation and `--without` read this.
pub const PROTECTIONS: &[(Protection, &str, &str)] = &[
    (
        Protection::Network,
        "network",
        "a network namespace with nothing but loopback",
    ),
    (
        Protection::ReadOnly,
        "read-only",
        "a read-only root file system",
    ),
    (Protection::Memory, "memory", "a ceiling on memory"),
    (Protection::Swap, "swap", "the memory ceiling covers swap"),
    (
        Protection::Pids,
        "pids",
        "a ceiling on processes and threads",
    ),
    (Protection::Cpu, "cpu", "a ceiling on CPU time"),
    (Protection::Capabilities, "capabilities", "no capabilities"),
    (
        Protection::NoNewPrivileges,
        "no-new-privileges",
        "set-uid programs gain nothing",
    ),
    (Protection::Seccomp, "seccomp", "a system call filter"),
    (Protection::User, "user", "an unprivileged user"),
    (
        Protection::PidNamespace,
        "pid-namespace",
        "a process namespace",
    ),
    (
        Protection::IpcNamespace,
        "ipc-namespace",
        "an IPC namespace",
    ),
    (
        Protection::MaskedPaths,
        "masked-paths",
        "hidden files in /proc and /sys",
    ),
    (
        Protection::Environment,
        "environment",
        "an environment that inherits nothing",
    ),
    (
        Protection::HostFiles,
        "host-files",
        "no file of the host inside",
    ),
    (
        Protection::ScratchSize,
        "scratch-size",
        "a ceiling on scratch space",
    ),
    (
        Protection::Timeout,
        "timeout",
        "an end to what runs too long",
    ),
    (
        Protection::Output,
        "output",
        "an end to what prints too much",
    ),
    (
        Protection::Cleanup,
        "cleanup",
        "the end of the sandbox ends all its processes",
    ),
];

impl Protection {
    /// The name in TOML and on the command line.
    pub fn name(self) -> &'static str {
        PROTECTIONS
            .iter()
            .find(|(p, _, _)| *p == self)
            .map_or("", |(_, name, _)| name)
    }

    /// The protection of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        PROTECTIONS
            .iter()
            .find(|(_, n, _)| *n == name)
            .map(|(p, _, _)| *p)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_protection_has_one_name() {
        for (protection, name, _) in PROTECTIONS {
            assert_eq!(protection.name(), *name);
            assert_eq!(Protection::from_name(name), Some(*protection));
            let json = serde_json::to_string(protection).expect("serialises");
            assert_eq!(json, format!("\"{name}\""));
        }
    }
}
