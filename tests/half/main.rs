//! 16-bit floats: conversions to the bit, ops against `f32`, training in mixed precision.
#![allow(clippy::allow_attributes, clippy::unwrap_used, reason = "tests")]

#[path = "../common/engine.rs"]
mod engine;

mod casts;
mod ops;
