//! 16-bit floats: conversions to the bit, ops against `f32`, training in mixed precision.
#![allow(clippy::allow_attributes, clippy::unwrap_used, reason = "tests")]

#[path = "../common/engine.rs"]
mod engine;
#[path = "../common/models.rs"]
#[allow(dead_code, reason = "shared by several tests, none of which uses all of it")]
mod models;

mod casts;
mod networks;
mod ops;
mod training;
