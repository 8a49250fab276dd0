//! `remat` trains neural networks within a memory budget on any GPU that WebGPU reaches.

pub mod checkpoint;
pub mod dtype;
pub mod error;
pub mod fuse;
pub mod gpu;
mod grad;
pub mod gradcheck;
pub mod graph;
pub mod nn;
pub mod ops;
pub mod optim;
pub mod params;
pub mod plan;
pub mod profile;
pub mod random;
pub mod save;
pub mod shared;
pub mod solve;
pub mod step;

pub use error::{Error, Result};
