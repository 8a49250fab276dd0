//! The one place that creates buffers, and the count of what they hold.

use std::sync::{Arc, Mutex};

use super::device::Inner;
use super::fault::{Faults, scoped};
use crate::error::{Error, Result};
use crate::shared::lock;

/// What a device buffer is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BufferCategory {
    /// One state of a [`crate::params::Params`].
    State,
    /// A block of the arena.
    Arena,
    /// Inputs of a run.
    Upload,
    /// Constants of a step.
    Constant,
    /// Uniform words of a step.
    Uniform,
    /// The ring of output slots of a step.
    Output,
    /// Memory that the host can read.
    Readback,
}

impl BufferCategory {
    /// Every category, in the order of [`MemoryStats::categories`].
    pub const ALL: [Self; 7] =
        [Self::State, Self::Arena, Self::Upload, Self::Constant, Self::Uniform, Self::Output, Self::Readback];

    /// Name for labels and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::State => "state",
            Self::Arena => "arena",
            Self::Upload => "upload",
            Self::Constant => "constant",
            Self::Uniform => "uniform",
            Self::Output => "output",
            Self::Readback => "readback",
        }
    }

    fn usage(self) -> wgpu::BufferUsages {
        use wgpu::BufferUsages as U;
        match self {
            Self::State | Self::Arena | Self::Upload | Self::Constant => U::STORAGE | U::COPY_SRC | U::COPY_DST,
            Self::Uniform => U::UNIFORM | U::COPY_DST,
            Self::Output => U::COPY_SRC | U::COPY_DST,
            Self::Readback => U::MAP_READ | U::COPY_DST,
        }
    }
}

/// Bytes of one category of buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CategoryBytes {
    /// In use.
    pub live_bytes: u64,
    /// Held from the device: in use, or kept for reuse.
    pub reserved_bytes: u64,
    /// The most that was reserved since the last reset.
    pub peak_bytes: u64,
    /// Number of buffers held.
    pub buffers: u64,
}

/// What the engine holds of the device's memory, counted where buffers are
/// created. wgpu's own staging is not in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemoryStats {
    /// The sum over all categories; its peak is the peak of the sum.
    pub total: CategoryBytes,
    /// Per category, in the order of [`BufferCategory::ALL`].
    pub categories: [CategoryBytes; 7],
}

impl MemoryStats {
    /// The bytes of one category.
    #[must_use]
    pub const fn of(&self, category: BufferCategory) -> CategoryBytes {
        self.categories[category as usize]
    }

    fn each(&mut self, category: BufferCategory, change: impl Fn(&mut CategoryBytes)) {
        for bytes in [&mut self.total, &mut self.categories[category as usize]] {
            change(bytes);
            bytes.peak_bytes = bytes.peak_bytes.max(bytes.reserved_bytes);
        }
    }
}

/// The count, shared by every buffer of a device.
#[derive(Debug, Clone, Default)]
pub(super) struct Ledger {
    stats: Arc<Mutex<MemoryStats>>,
}

impl Ledger {
    pub(super) fn stats(&self) -> MemoryStats {
        *lock(&self.stats)
    }

    pub(super) fn reset_peak(&self) {
        let mut stats = lock(&self.stats);
        for category in BufferCategory::ALL {
            stats.categories[category as usize].peak_bytes = stats.of(category).reserved_bytes;
        }
        stats.total.peak_bytes = stats.total.reserved_bytes;
    }

    fn change(&self, category: BufferCategory, change: impl Fn(&mut CategoryBytes)) {
        lock(&self.stats).each(category, change);
    }
}

/// A buffer of the device, counted as long as it lives and destroyed with it:
/// its memory comes back at once, not when a collector or a bind group that
/// still names it goes away.
#[derive(Debug)]
pub(crate) struct DeviceBuffer {
    raw: wgpu::Buffer,
    category: BufferCategory,
    in_use: bool,
    ledger: Ledger,
}

impl DeviceBuffer {
    /// The handle, for bindings and copies. It does not keep the memory alive.
    pub(super) fn raw(&self) -> &wgpu::Buffer {
        &self.raw
    }

    /// A handle that others may keep: it does not keep the memory alive.
    pub(crate) fn handle(&self) -> Handle {
        Handle(self.raw.clone())
    }

    /// Length in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.raw.size()
    }

    /// Counts the buffer as kept for reuse, or as in use again.
    pub(crate) fn set_in_use(&mut self, in_use: bool) {
        if self.in_use != in_use {
            self.in_use = in_use;
            let bytes = self.bytes();
            self.ledger.change(self.category, |c| {
                c.live_bytes = if in_use { c.live_bytes + bytes } else { c.live_bytes - bytes };
            });
        }
    }
}

impl Drop for DeviceBuffer {
    fn drop(&mut self) {
        self.raw.destroy();
        let (bytes, in_use) = (self.bytes(), self.in_use);
        self.ledger.change(self.category, |c| {
            c.reserved_bytes -= bytes;
            c.buffers -= 1;
            if in_use {
                c.live_bytes -= bytes;
            }
        });
    }
}

/// Names a buffer of the device, opaque outside of this room.
#[derive(Debug, Clone)]
pub(crate) struct Handle(pub(super) wgpu::Buffer);

/// Destroys a buffer whose creation was not seen through.
struct Unconfirmed(Option<wgpu::Buffer>);

impl Drop for Unconfirmed {
    fn drop(&mut self) {
        if let Some(raw) = &self.0 {
            raw.destroy();
        }
    }
}

impl Inner {
    /// Creates a buffer of `bytes` bytes and waits until the device has
    /// confirmed that it has the memory.
    ///
    /// # Errors
    /// [`Error::Limit`], [`Error::OutOfMemory`], [`Error::DeviceLost`] and
    /// [`Error::Validation`]; nothing stays allocated.
    pub(crate) async fn allocate(&self, what: &str, bytes: u64, category: BufferCategory) -> Result<DeviceBuffer> {
        self.faults.check()?;
        let limit_bytes = self.profile.max_buffer_bytes;
        if bytes > limit_bytes {
            return Err(Error::Limit {
                what: what.to_owned(),
                size_bytes: bytes,
                limit: "maxBufferSize",
                limit_bytes,
                adapter: self.profile.name.clone(),
            });
        }
        let refused = || Error::OutOfMemory {
            what: what.to_owned(),
            size_bytes: bytes,
            live_bytes: self.ledger.stats().total.reserved_bytes,
        };
        if self.injected_refusal() {
            return Err(refused());
        }
        // Scopes belong to the thread natively: no await while one is open.
        let (mut raw, validation, memory) = {
            let memory = self.device.push_error_scope(wgpu::ErrorFilter::OutOfMemory);
            let validation = self.device.push_error_scope(wgpu::ErrorFilter::Validation);
            let raw = self.device.create_buffer(&wgpu::BufferDescriptor {
                label: Some(&format!("remat {}: {what}", category.name())),
                size: bytes,
                usage: category.usage(),
                mapped_at_creation: false,
            });
            (Unconfirmed(Some(raw)), validation.pop(), memory.pop())
        };
        let (validation, memory) = (validation.await, memory.await);
        confirm(&self.faults, memory, validation, what, refused)?;
        let Some(raw) = raw.0.take() else { return Err(refused()) };
        self.ledger.change(category, |c| {
            c.live_bytes += bytes;
            c.reserved_bytes += bytes;
            c.buffers += 1;
        });
        Ok(DeviceBuffer { raw, category, in_use: true, ledger: self.ledger.clone() })
    }
}

fn confirm(
    faults: &Faults,
    memory: Option<wgpu::Error>,
    validation: Option<wgpu::Error>,
    what: &str,
    refused: impl Fn() -> Error,
) -> Result<()> {
    if memory.is_some() && !faults.is_lost() {
        return Err(refused());
    }
    scoped(faults, validation, &format!("creating the buffer {what}"))
}
