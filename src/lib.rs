//! `remat` trains neural networks within a memory budget on any GPU that WebGPU reaches.

pub mod checkpoint;
pub mod dtype;
pub mod error;
pub mod fuse;
mod grad;
pub mod graph;
pub mod ops;
pub mod params;
pub mod plan;
pub mod profile;
pub mod shared;
