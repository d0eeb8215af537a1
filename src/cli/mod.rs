//! Arguments, wiring, opening files.

/// The program.
pub fn main() -> i32 {
    0
}
