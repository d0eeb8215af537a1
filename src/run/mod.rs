//! Carries a plan out: canaries, backend, judge, events; always sweeps.
