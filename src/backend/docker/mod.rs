//! Docker Engine, and what speaks its interface: the sandbox that most people have.
//!
//! [`endpoint`] says where an engine listens, [`engine`] who answered, [`image`] what containers are made of, [`probe`]
//! how the probe comes in. [`spec`] turns settings into a container, [`container`] and [`streams`] carry it through its
//! life, [`in_force`] compares what the engine made of it, [`owner`] and [`sweep`] remove what a killed run left.
//! [`posts`] puts canaries beside it, and [`sandbox`] puts them together.

pub mod call;
pub mod container;
pub mod endpoint;
pub mod engine;
pub mod health;
pub mod host;
pub mod image;
pub mod in_force;
pub mod like;
pub mod owner;
pub mod pin;
pub mod posts;
pub mod probe;
pub mod pull;
pub mod sandbox;
pub mod spec;
pub mod streams;
pub mod sweep;

pub use sandbox::Docker;
