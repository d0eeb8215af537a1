//! The sandbox that our agent's code runs in, attacked: each case is a test.

fn main() {
    escape_audit::test::Gate::from_project("escape-audit.toml")
        .sandbox("agent")
        .cases("cases")
        .main();
}
