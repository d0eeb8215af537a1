//! The same sandbox without its ceiling on processes. It fails, so that everybody sees what that looks like; a repository
//! of your own leaves this file out.

fn main() {
    escape_audit::test::Gate::from_project("escape-audit.toml")
        .sandbox("weakened")
        .only("resources/fork-bomb")
        .only("works/*")
        .main();
}
