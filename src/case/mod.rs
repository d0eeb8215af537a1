//! Cases: one TOML file each, one attempt, what proves that it got through, the protection that stops it.

mod attempt;
pub mod keys;
pub mod library;
pub mod metadata;
pub mod model;
pub mod names;
pub mod parse;
pub mod proof;
pub mod select;
pub mod syscalls;

pub use library::Library;
pub use model::{
    Attempt, CanaryKind, Case, Ceiling, Danger, Expect, KilledBy, Level, MemoryDose, NEEDS, Need,
    Position, Proof, Severity, SpinUntil, Status, Transport, UnixTarget, Weakened, WriteInto,
};
pub use select::{Filter, Partition};
