//! `remat` trains neural networks within a memory budget on any GPU that WebGPU reaches.

pub mod dtype;
pub mod error;
pub mod fuse;
pub mod gpu;
pub mod params;
pub mod plan;
pub mod profile;
pub mod random;
pub mod shared;
