//! The device: the only room that knows wgpu.
//!
//! ```text
//! device, adapter   opening, limits, faults kept until somebody asks
//! memory            the one place that creates buffers, and their count
//! wait              signals, the native waiting thread, a lock that is awaited
//! transfer          host to device and back, staging bounded by submitting
//! pipeline          kernels become pipelines, once
//! arena             memory of transient values, shared by all living steps
//! bind, run, output a planned step becomes bind groups, submits and values
//! poison            NaN into recycled memory, for tests
//! ```
//!
//! Nothing here blocks except what is named `*_blocking`, natively.

mod adapter;
mod arena;
mod bind;
mod device;
mod fault;
mod input;
mod memory;
mod output;
mod pipeline;
mod poison;
mod run;
mod transfer;
mod verify;
mod wait;

pub use adapter::Power;
#[doc(hidden)]
pub use device::Inject;
pub use device::{Gpu, GpuBuilder, LimitsMode};
pub use input::InputData;
pub use memory::{BufferCategory, CategoryBytes, MemoryStats};
pub(crate) use memory::{DeviceBuffer, Handle};
pub use output::{Output, RunOutputs};
#[doc(hidden)]
pub use poison::fill_kernel;
pub use run::Executable;
pub use verify::Verified;
#[doc(hidden)]
pub use verify::compare_kernel;
