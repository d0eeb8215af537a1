//! Docker Engine, and what speaks its interface: the sandbox that most people have.

pub mod call;
pub mod container;
pub mod endpoint;
pub mod engine;
pub mod image;
pub mod owner;
pub mod streams;
pub mod sweep;
