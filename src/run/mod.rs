//! Carries a plan out: canaries, backend, judge, events; always sweeps.

pub mod dose;
pub mod observe;
pub mod records;
pub mod session;
