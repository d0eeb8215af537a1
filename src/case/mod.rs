//! Cases: one TOML file each, one attempt, what proves that it got through, the protection that stops it.

pub mod model;

pub use model::{
    Attempt, CanaryKind, Case, Ceiling, Danger, Expect, KilledBy, Level, MemoryDose, NEEDS, Need,
    Position, Proof, Severity, SpinUntil, Status, Transport, UnixTarget, Weakened, WriteInto,
};
