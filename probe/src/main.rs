//! The program that runs inside a sandbox.
fn main() {}
