//! Every reason code that a judgement can carry, with one sentence each: documentation and reports read this.

use crate::verdict::Verdict::{self, Allowed, Blocked, Error, Escaped, Inconclusive, Skipped};

/// The verdict that it goes with, code and sentence. `refused` is what BROKEN says too.
#[rustfmt::skip] // one code a line
pub const REASONS: &[(Verdict, &str, &str)] = &[
    (Escaped, "canary-reached", "A canary outside the sandbox saw this trial's token."),
    (Escaped, "secret-read", "A secret of the host was read inside."),
    (Escaped, "host-file-written", "The host found a file of this trial in a folder of its own."),
    (Escaped, "process-seen", "A process of the host was found from inside."),
    (Escaped, "process-signalled", "A process of the host got a signal from inside."),
    (Escaped, "ceiling-passed", "More was used than the ceiling allows."),
    (Escaped, "timeout-passed", "It ran longer than the promised timeout."),
    (Escaped, "survivor", "A process outlived the run."),
    (Escaped, "breach", "The attempt is itself the breach, and it worked."),
    (Escaped, "engine-answers", "A container engine answered inside: who may speak to it is root on its host."),
    (Escaped, "written-outside-scratch", "A file was made where the policy allows none."),
    (Escaped, "stopped-by-harness", "The harness's outer limiter, not the sandbox, had to stop it."),
    (Error, "backend-failed", "The backend could not run the trial."),
    (Error, "launcher-missing", "The launcher could not be started."),
    (Error, "engine-address", "Where the container engine listens could not be made out."),
    (Error, "engine-missing", "No container engine listens where one was named."),
    (Error, "engine-permission", "This user may not use the container engine."),
    (Error, "engine-refused", "The container engine does not take connections."),
    (Error, "engine-tls", "The container engine could not be spoken to over TLS."),
    (Error, "engine-version", "The container engine speaks another version of its interface."),
    (Error, "engine-architecture", "The container engine runs on another architecture than the probe."),
    (Error, "engine-timeout", "The container engine did not answer in time."),
    (Error, "engine-gone", "The container engine was lost while it was used."),
    (Error, "engine-failed", "The container engine refused what it was asked."),
    (Error, "container-gone", "Somebody else removed the container."),
    (Error, "image-missing", "There is no such image."),
    (Error, "image-architecture", "The image is for another architecture."),
    (Error, "registry-unauthorized", "The registry does not give the image to this user."),
    (Error, "registry-rate-limited", "The registry gives no more images for now."),
    (Error, "registry-unreachable", "The engine does not reach the registry."),
    (Error, "registry-timeout", "The registry did not go on."),
    (Error, "registry-failed", "The image could not be pulled."),
    (Error, "runtime-missing", "The engine does not have the configured runtime."),
    (Error, "runtime-differs", "The engine took another runtime than the configured one."),
    (Error, "network-missing", "The engine does not have the configured network."),
    (Error, "mount-missing", "The engine does not see what is to be mounted."),
    (Error, "limit-not-applied", "A limit in force differs from the configured one."),
    (Error, "digest-mismatch", "What ran is not what was configured."),
    (Error, "launcher-hangs", "The launcher did not end when its probe had."),
    (Error, "left-behind", "Something of the trial could not be removed."),
    (Inconclusive, "not-compared", "A file was read that could not be compared with the host's."),
    (Error, "network-changed", "The sandbox's network came up after the attempt had been made."),
    (Error, "outside-range", "The probe ran where the canaries cannot be reached from; nothing was sent."),
    (Error, "outside-limiter", "The probe ran where it can be neither bounded nor counted; no load was put on."),
    (Error, "harness-failed", "The harness itself failed."),
    (Error, "contradiction", "Two records contradict each other."),
    (Inconclusive, "no-start-record", "The probe never said that it runs: nothing was tried."),
    (Inconclusive, "no-input", "The probe ran and found its standard input empty: the launcher does not pass it on."),
    (Inconclusive, "foreign-record", "Something answered that is not this trial's probe."),
    (Inconclusive, "not-begun", "The probe ran and did not begin the attempt."),
    (Inconclusive, "not-finished", "The attempt was begun, and it did not come to its end."),
    (Inconclusive, "not-tried", "A part of the attempt was not made."),
    (Inconclusive, "not-able", "Nothing shows that this attempt gets through where nothing should stop it."),
    (Inconclusive, "target-not-alive", "The target was not alive while it was tried: its silence proves nothing."),
    (Inconclusive, "no-internet-canary", "There may be a way out of the sandbox, and no canary stands where the internet begins: what this machine's own addresses do not hear may go past them. `[range] internet` names one."),
    (Inconclusive, "control-failed", "The control failed in a way that could be the probe's own fault."),
    (Inconclusive, "not-refused", "Neither a refusal nor a proven absence."),
    (Inconclusive, "connected-unseen", "A connection was accepted, and neither our canary nor an answer says by whom."),
    (Inconclusive, "too-few-tries", "Fewer than three tries went unanswered: one can be lost by chance."),
    (Inconclusive, "watched-too-short", "The host did not watch for long enough after the attempt."),
    (
        Inconclusive,
        "swapped-out",
        "All of it was held inside, as the probe says, and the host counted no more than the ceiling: the rest can only \
         have gone to swap. help: bound both together, with `memswap_limit` at what `mem_limit` is.",
    ),
    (Inconclusive, "no-count", "The host did not count what the ceiling is about."),
    (Inconclusive, "not-throttled", "Little was used, but no ceiling was seen at work: the machine may have been busy."),
    (Inconclusive, "masked-by-memory", "The memory ceiling ended it before the ceiling on scratch space could."),
    (Inconclusive, "per-process", "One process was stopped, and not the total: several together may take more."),
    (Inconclusive, "per-user", "A limit of one user stopped it; a ceiling on all processes together was not seen at work."),
    (Inconclusive, "per-file", "One file came to its largest size, and not the total: several together may take more."),
    (Inconclusive, "truncated", "There was more to look at than the probe looks at: the rest is not known."),
    (Inconclusive, "answered-by-another", "Something that is not our canary answered: who it is, and what it would give to others, is not known."),
    (Inconclusive, "resolver-elsewhere", "The sandbox's own resolver took the question, and whom it asks is not known: it may have been passed on."),
    (Inconclusive, "other-network", "The sandbox has a way out of another network than the one our canaries stand in: their silence says nothing about it."),
    (Inconclusive, "nosuid-helper", "Only the mount that our set-uid helper lies on was seen to refuse, and the host did not see no_new_privs."),
    (Inconclusive, "no-helper", "No set-uid helper could be executed, and the host did not see no_new_privs."),
    (Inconclusive, "no-witness", "The host did not see the probe, and the verdict would rest on that."),
    (Inconclusive, "not-ended", "The run was not ended in the way that this case is about."),
    // BLOCKED; `refused` also BROKEN
    (Blocked, "refused", "It was refused."),
    (Blocked, "rejected", "The connection was rejected: a firewall, or nothing of the host's there."),
    (Blocked, "dropped", "Nothing came through and nothing answered, while the target was alive."),
    (Blocked, "intercepted", "The sandbox's own resolver answered by itself: it asks our name server alone, which never saw the question."),
    (Blocked, "no-route", "The sandbox has no way out."),
    (Blocked, "family-absent", "The sandbox has no such kind of socket."),
    (Blocked, "absent", "What was looked for is not there."),
    (Blocked, "permission", "It is there, but this user may not use it: one setting holds it."),
    (Blocked, "private", "It worked on the sandbox's own copy; the host saw nothing of it."),
    (Blocked, "powerless", "The namespace was made, and it gave no power."),
    (Blocked, "own-kernel", "It worked on a kernel that is proven not to be the host's."),
    (Blocked, "confined", "It worked over a user namespace of the sandbox's own, which gives no power over the host."),
    (Blocked, "ceiling", "The ceiling held."),
    (Blocked, "killed", "The sandbox ended it, and nothing was left."),
    (Allowed, "worked", "What must work does."),
    // SKIPPED, decided by the plan
    (Skipped, "not-applicable", "This machine or this policy does not have what the case is about."),
    (Skipped, "needs-range", "The canaries stand on the host's own network, which this attempt must not touch."),
    (Skipped, "needs-limiter", "The attempt could hurt its host and cannot be bounded here."),
];

/// Whether the code is one of ours.
pub fn is_known(code: &str) -> bool {
    REASONS.iter().any(|(_, known, _)| *known == code)
}

/// The sentence of a code; empty for one that is not ours.
pub fn sentence(code: &str) -> &'static str {
    REASONS
        .iter()
        .find(|(_, known, _)| *known == code)
        .map_or("", |(_, _, sentence)| sentence)
}
