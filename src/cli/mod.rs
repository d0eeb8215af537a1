//! Arguments, wiring, opening files.
