//! Report → decision → exit code.
