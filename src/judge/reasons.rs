//! Every reason code that a judgement can carry, with one sentence each: documentation and reports read this.

/// Code and sentence, in the order of the verdicts they go with.
pub const REASONS: &[(&str, &str)] = &[
    // ESCAPED
    (
        "canary-reached",
        "A canary outside the sandbox saw this trial's token.",
    ),
    ("secret-read", "A secret of the host was read inside."),
    (
        "host-file-written",
        "The host found a file of this trial in a folder of its own.",
    ),
    (
        "process-seen",
        "A process of the host was found from inside.",
    ),
    (
        "process-signalled",
        "A process of the host got a signal from inside.",
    ),
    ("ceiling-passed", "More was used than the ceiling allows."),
    ("timeout-passed", "It ran longer than the promised timeout."),
    ("survivor", "A process outlived the run."),
    ("breach", "The attempt is itself the breach, and it worked."),
    (
        "written-outside-scratch",
        "A file was made where the policy allows none.",
    ),
    (
        "stopped-by-harness",
        "The harness's outer limiter, not the sandbox, had to stop it.",
    ),
    // ERROR
    ("backend-failed", "The backend could not run the trial."),
    ("launcher-missing", "The launcher could not be started."),
    (
        "limit-not-applied",
        "A limit in force differs from the configured one.",
    ),
    ("digest-mismatch", "What ran is not what was configured."),
    (
        "runtime-mismatch",
        "Another runtime answered than the configured one.",
    ),
    (
        "launcher-hangs",
        "The launcher did not end when its probe had.",
    ),
    (
        "left-behind",
        "Something of the trial could not be removed.",
    ),
    ("harness-failed", "The harness itself failed."),
    ("contradiction", "Two records contradict each other."),
    // INCONCLUSIVE
    (
        "no-start-record",
        "The probe never said that it runs: nothing was tried.",
    ),
    (
        "no-input",
        "The probe ran and found its standard input empty: the launcher does not pass it on.",
    ),
    (
        "foreign-record",
        "Something answered that is not this trial's probe.",
    ),
    ("not-begun", "The probe ran and did not begin the attempt."),
    (
        "not-finished",
        "The attempt was begun, and it did not come to its end.",
    ),
    ("not-tried", "A part of the attempt was not made."),
    (
        "not-able",
        "Nothing shows that this attempt gets through where nothing should stop it.",
    ),
    (
        "target-not-alive",
        "The target was not alive while it was tried: its silence proves nothing.",
    ),
    (
        "no-internet-canary",
        "There may be a way out of the sandbox, and no canary stood where the internet would be.",
    ),
    (
        "control-failed",
        "The control failed in a way that could be the probe's own fault.",
    ),
    ("not-refused", "Neither a refusal nor a proven absence."),
    (
        "connected-unseen",
        "A connection was accepted, and neither our canary nor an answer says by whom.",
    ),
    (
        "too-few-tries",
        "Fewer than three tries went unanswered: one can be lost by chance.",
    ),
    (
        "watched-too-short",
        "The host did not watch for long enough after the attempt.",
    ),
    (
        "no-count",
        "The host did not count what the ceiling is about.",
    ),
    (
        "not-throttled",
        "Little was used, but no ceiling was seen at work: the machine may have been busy.",
    ),
    (
        "masked-by-memory",
        "The memory ceiling ended it before the ceiling on scratch space could.",
    ),
    (
        "no-helper",
        "No set-uid helper could be executed, and the host did not see no_new_privs.",
    ),
    (
        "no-witness",
        "The host did not see the probe, and the verdict would rest on that.",
    ),
    (
        "not-ended",
        "The run was not ended in the way that this case is about.",
    ),
    // BLOCKED; `refused` also BROKEN
    ("refused", "It was refused."),
    (
        "rejected",
        "The connection was rejected: a firewall, or nothing of the host's there.",
    ),
    (
        "dropped",
        "Nothing came through and nothing answered, while the target was alive.",
    ),
    (
        "intercepted",
        "Somebody in between answered; our canary never saw it.",
    ),
    ("no-route", "The sandbox has no way out."),
    ("family-absent", "The sandbox has no such kind of socket."),
    ("absent", "What was looked for is not there."),
    (
        "permission",
        "It is there, but this user may not use it: one setting holds it.",
    ),
    (
        "private",
        "It worked on the sandbox's own copy; the host saw nothing of it.",
    ),
    ("powerless", "The namespace was made, and it gave no power."),
    (
        "own-kernel",
        "It worked on a kernel that is proven not to be the host's.",
    ),
    (
        "confined",
        "It worked over a user namespace of the sandbox's own, which gives no power over the host.",
    ),
    ("ceiling", "The ceiling held."),
    ("killed", "The sandbox ended it, and nothing was left."),
    // ALLOWED
    ("worked", "What must work does."),
    // SKIPPED, decided by the plan
    (
        "not-applicable",
        "This machine or this policy does not have what the case is about.",
    ),
    (
        "needs-range",
        "The canaries stand on the host's own network, which this attempt must not touch.",
    ),
    (
        "needs-limiter",
        "The attempt could hurt its host and cannot be bounded here.",
    ),
];

/// Whether the code is one of ours.
pub fn is_known(code: &str) -> bool {
    REASONS.iter().any(|(known, _)| *known == code)
}

/// The sentence of a code; empty for one that is not ours.
pub fn sentence(code: &str) -> &'static str {
    REASONS
        .iter()
        .find(|(known, _)| *known == code)
        .map_or("", |(_, sentence)| sentence)
}
