//! The words that the harness and the probe share: what travels into a sandbox, and what comes out of it.
//!
//! The program of this package runs inside sandboxes, so this library depends on nothing at all: no
//! allocation-free tricks, no serialisation framework, only lines of text that any carrier can write.

pub mod engine;
pub mod mounts;
pub mod packet;
pub mod sha256;
pub mod target;
pub mod token;
pub mod wire;
