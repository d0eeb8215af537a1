//! Diagnostics with a place: every mistake of every file at once, with a `help:` line.
