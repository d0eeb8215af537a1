//! Cases × sandboxes × filters → trials, and skips with their reasons.
