//! What the program exits with: a constant and a sentence each. No report format changes them.

/// Everything that was tried held, and something was tried.
pub const HELD: i32 = 0;
/// At least one attempt escaped, or something that must work is broken. Outranks [`UNDECIDED`] and [`NOTHING_RAN`].
pub const ESCAPED: i32 = 1;
/// The command line, the project file or a case is wrong, or the machine lacks what is needed; nothing ran.
pub const USAGE: i32 = 2;
/// Nothing escaped, but not everything is known: INCONCLUSIVE, ERROR, a sandbox that could not be audited, a waiver that
/// ended, or something that a baseline knows and the audit does not show.
pub const UNDECIDED: i32 = 3;
/// No case ran, in at least one of the sandboxes. Skipped cases did not run; those that do not gate do not count.
pub const NOTHING_RAN: i32 = 4;
/// SIGHUP: hung up before the end.
pub const HUNG_UP: i32 = 129;
/// SIGINT: interrupted before the end.
pub const INTERRUPTED: i32 = 130;
/// SIGTERM: terminated before the end.
pub const TERMINATED: i32 = 143;

/// Every exit code with its sentence, for reports and documentation.
pub const ALL: &[(i32, &str)] = &[
    (HELD, "everything that was tried held"),
    (
        ESCAPED,
        "something escaped, or something that must work is broken",
    ),
    (
        USAGE,
        "the command line, the configuration or a case is wrong; nothing ran",
    ),
    (
        UNDECIDED,
        "something could not be decided, or not be shown to hold",
    ),
    (NOTHING_RAN, "nothing ran, so nothing is proven"),
    (HUNG_UP, "hung up before the end; the report is partial"),
    (
        INTERRUPTED,
        "interrupted before the end; the report is partial",
    ),
    (
        TERMINATED,
        "terminated before the end; the report is partial",
    ),
];

/// What an exit code says.
pub fn sentence(code: i32) -> &'static str {
    ALL.iter()
        .find(|(known, _)| *known == code)
        .map_or("the program failed", |(_, sentence)| sentence)
}
