//! Sandbox escape audits.
