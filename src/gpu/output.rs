//! Values that a run hands back, read when they are wanted.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use super::device::Inner;
use super::memory::DeviceBuffer;
use super::transfer::{ReadRange, Staging};
use super::wait::Turn;
use crate::dtype::{DType, Element, Shape, TensorType};
use crate::error::{Error, Result};
use crate::plan::OUTPUT_SLOTS;
use crate::shared::{Shared, lock};

/// A step's ring of output slots, and the buffer through which it is read.
#[derive(Debug)]
pub(super) struct Ring {
    pub(super) inner: Shared<Inner>,
    /// One buffer per slot; none if no output has an element.
    pub(super) slots: Vec<DeviceBuffer>,
    pub(super) readback: Option<Staging>,
    /// Runs begun so far; the next one has this number.
    pub(super) runs: AtomicU64,
    /// Held over a check of a slot and the submit that copies from it, and over
    /// the submits of a run, so that neither falls between the other's.
    pub(super) order: Mutex<()>,
    /// Whoever reads through the read-back buffer.
    pub(super) reading: Turn,
}

impl Ring {
    /// The slot of this run.
    pub(super) fn slot(&self, run: u64) -> Option<&DeviceBuffer> {
        self.slots.get((run % OUTPUT_SLOTS) as usize)
    }

    fn check(&self, run: u64) -> Result<()> {
        let latest = self.runs.load(Ordering::Acquire) - 1;
        if latest - run >= OUTPUT_SLOTS {
            return Err(Error::OutputOverwritten { run, latest, kept: OUTPUT_SLOTS });
        }
        Ok(())
    }
}

/// What a run handed back. The values are on the device until they are read.
#[derive(Debug, Clone)]
pub struct RunOutputs {
    /// Number of the run, counted from 0 per step.
    pub run: u64,
    /// Dispatches of the plan that were encoded for it, replays included.
    pub dispatches: u32,
    /// The outputs, in recorded order.
    pub outputs: Vec<Output>,
}

/// One value that a run handed back.
///
/// It can be read until its slot is used again, three runs later, also after
/// the step is gone; it keeps the slots' memory while it lives.
#[derive(Debug, Clone)]
pub struct Output {
    pub(super) ring: Shared<Ring>,
    pub(super) run: u64,
    pub(super) index: usize,
    pub(super) name: String,
    pub(super) ty: TensorType,
    /// Place within the slot and length; none if the value has no elements.
    pub(super) place: Option<(u64, u64)>,
}

impl Output {
    /// Number of the run that made it.
    #[must_use]
    pub const fn run(&self) -> u64 {
        self.run
    }

    /// Its index among the run's outputs.
    #[must_use]
    pub const fn index(&self) -> usize {
        self.index
    }

    /// Its label.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its data type and shape.
    #[must_use]
    pub const fn ty(&self) -> &TensorType {
        &self.ty
    }

    /// Its shape.
    #[must_use]
    pub const fn shape(&self) -> &Shape {
        &self.ty.shape
    }

    /// Waits for the run and reads the values, row-major. Truth values are read as `u32`.
    ///
    /// # Errors
    /// [`Error::Data`] for another element type, [`Error::OutputOverwritten`]
    /// if the slot was used again, [`Error::Read`], [`Error::DeviceLost`].
    pub async fn read<T: Element>(&self) -> Result<Vec<T>> {
        self.check_type::<T>("read")?;
        let mut bytes = self.bytes().await?;
        bytes.truncate(self.ty.data_bytes() as usize);
        Ok(bytemuck::pod_collect_to_vec(&bytes))
    }

    /// Waits for the run and reads the only value of a one-element output.
    ///
    /// # Errors
    /// As [`Self::read`]; [`Error::Data`] if there is not exactly one element.
    pub async fn item<T: Element>(&self) -> Result<T> {
        if self.ty.shape.element_count() != 1 {
            return Err(self.data_error("item", "a request for its only element".into()));
        }
        let values = self.read::<T>().await?;
        values.first().copied().ok_or_else(|| self.data_error("item", "no element".into()))
    }

    /// [`Self::read`], blocking.
    ///
    /// # Errors
    /// As [`Self::read`].
    #[cfg(not(target_arch = "wasm32"))]
    pub fn read_blocking<T: Element>(&self) -> Result<Vec<T>> {
        pollster::block_on(self.read())
    }

    /// [`Self::item`], blocking.
    ///
    /// # Errors
    /// As [`Self::item`].
    #[cfg(not(target_arch = "wasm32"))]
    pub fn item_blocking<T: Element>(&self) -> Result<T> {
        pollster::block_on(self.item())
    }

    async fn bytes(&self) -> Result<Vec<u8>> {
        let ring = &self.ring;
        ring.inner.faults.check()?;
        ring.check(self.run)?;
        let Some((offset, bytes)) = self.place else { return Ok(Vec::new()) };
        let (Some(slot), Some(readback)) = (ring.slot(self.run), &ring.readback) else { return Ok(Vec::new()) };
        let reading = ring.reading.acquire().await;
        let buffer = slot.raw().clone();
        let range = ReadRange { buffer, offset, bytes };
        // The queue keeps the order: a copy submitted while the slot is still
        // this run's is right, whatever is submitted while it is waited for.
        let gate = || {
            let order = lock(&ring.order);
            ring.check(self.run).map(|()| Some(order))
        };
        let read = ring.inner.read_through(&self.name, std::slice::from_ref(&range), readback, gate).await?;
        drop(reading);
        Ok(read.into_iter().next().unwrap_or_default())
    }

    fn check_type<T: Element>(&self, op: &'static str) -> Result<()> {
        let fits = T::DTYPE == self.ty.dtype || (T::DTYPE == DType::U32 && self.ty.dtype == DType::Bool);
        if fits { Ok(()) } else { Err(self.data_error(op, format!("a request for {}", T::DTYPE))) }
    }

    fn data_error(&self, op: &'static str, found: String) -> Error {
        Error::Data { op, name: self.name.clone(), dtype: self.ty.dtype, shape: self.ty.shape.clone(), found }
    }
}
