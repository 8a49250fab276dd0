//! State that lives across runs, owned by dotted name.

mod freeze;
mod init;
mod table;

pub use init::Init;
pub(crate) use table::Slot;
use table::Table;

use std::collections::HashSet;
use std::sync::Mutex;

use crate::dtype::{DType, Element, Shape, TensorType};
use crate::error::{Error, Result};
use crate::fuse::program::{Category, StateInfo};
use crate::gpu::{BufferCategory, DeviceBuffer, Gpu};
use crate::shared::{Shared, lock};

/// Parameters, moments, running statistics, counters, caches: named device
/// memory, shared by any number of steps without copies.
///
/// A cheap handle; clones share everything. Creating a state registers it;
/// memory is taken when something asynchronous first needs it, so that models
/// are built without awaiting. Every call that touches the device waits for its
/// turn between runs: what is read is the state after the runs submitted before.
#[derive(Debug, Clone)]
pub struct Params {
    inner: Shared<ParamsInner>,
}

#[derive(Debug)]
struct ParamsInner {
    gpu: Option<Gpu>,
    seed: u64,
    table: Mutex<Table>,
}

/// A state: name and type, and where its memory is.
#[derive(Debug, Clone)]
pub struct Param {
    slot: Shared<Slot>,
    params: Params,
}

impl Param {
    /// Its dotted name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.slot.name
    }

    /// Its data type and shape.
    #[must_use]
    pub fn ty(&self) -> &TensorType {
        &self.slot.ty
    }

    /// What it counts as in reports.
    #[must_use]
    pub fn category(&self) -> Category {
        self.slot.category
    }

    /// Its place in the order of creation.
    #[must_use]
    pub fn index(&self) -> usize {
        self.slot.index
    }

    /// The state that it belongs to.
    #[must_use]
    pub fn params(&self) -> &Params {
        &self.params
    }

    /// What a program says of it.
    #[must_use]
    pub fn info(&self) -> StateInfo {
        StateInfo { name: self.slot.name.clone(), ty: self.slot.ty.clone(), category: self.slot.category }
    }
}

/// A state as the host holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateData {
    /// Its dotted name.
    pub name: String,
    /// Data type and shape.
    pub ty: TensorType,
    /// Parameter or Optimizer.
    pub category: Category,
    /// The values, row-major, as the device holds them (little-endian words).
    pub bytes: Vec<u8>,
}

impl StateData {
    /// The values as elements.
    ///
    /// # Errors
    /// [`Error::Data`] if they are of another type.
    pub fn values<T: Element>(&self) -> Result<Vec<T>> {
        check_element::<T>("read", &self.name, &self.ty)?;
        Ok(bytemuck::pod_collect_to_vec(&self.bytes))
    }
}

/// Bytes that the states of a [`Params`] hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StateBytes {
    /// In use by states.
    pub live_bytes: u64,
    /// In use, or released and kept for reuse.
    pub reserved_bytes: u64,
    /// States that took a released buffer instead of a new one.
    pub reused_buffers: u64,
}

impl Params {
    /// No states yet, on this device. `seed` decides the random first values.
    #[must_use]
    pub fn new(gpu: &Gpu, seed: u64) -> Self {
        Self::make(Some(gpu.clone()), seed)
    }

    /// Names and types only, without a device: enough to record and plan models.
    #[must_use]
    pub fn offline(seed: u64) -> Self {
        Self::make(None, seed)
    }

    fn make(gpu: Option<Gpu>, seed: u64) -> Self {
        Self { inner: Shared::new(ParamsInner { gpu, seed, table: Mutex::default() }) }
    }

    /// True if both are the same state.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        Shared::ptr_eq(&self.inner, &other.inner)
    }

    /// The seed of random first values.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.inner.seed
    }

    /// The device, unless made with [`Self::offline`].
    #[must_use]
    pub fn gpu(&self) -> Option<&Gpu> {
        self.inner.gpu.as_ref()
    }

    /// The f32 parameter of this name; registered now if it is new.
    ///
    /// # Errors
    /// [`Error::StateConflict`] if it exists with another type or shape,
    /// [`Error::Data`] if `init` does not fit.
    pub fn create(&self, name: &str, shape: impl Into<Shape>, init: Init) -> Result<Param> {
        self.create_typed(name, TensorType::new(DType::F32, shape), Category::Parameter, init)
    }

    /// The state of this name, type and category; registered now if it is new.
    ///
    /// # Errors
    /// As [`Self::create`].
    pub fn create_typed(&self, name: &str, ty: TensorType, category: Category, init: Init) -> Result<Param> {
        init.check(name, &ty)?;
        let slot = lock(&self.inner.table).create(name, ty, category, init)?;
        Ok(Param { slot, params: self.clone() })
    }

    /// The state of this name, if there is one.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Param> {
        lock(&self.inner.table).get(name).map(|slot| Param { slot, params: self.clone() })
    }

    /// Every name, in the order of creation.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        lock(&self.inner.table).slots().iter().map(|slot| slot.name.clone()).collect()
    }

    /// Every state, in the order of creation.
    #[must_use]
    pub fn all(&self) -> Vec<Param> {
        lock(&self.inner.table).slots().into_iter().map(|slot| Param { slot, params: self.clone() }).collect()
    }

    /// Forgets a state. Its memory is kept for the next state of its length
    /// until [`Self::trim`]. A step that uses it refuses its next run.
    ///
    /// # Errors
    /// [`Error::UnknownState`].
    pub fn remove(&self, name: &str) -> Result<()> {
        lock(&self.inner.table).remove(name)
    }

    /// Gives released memory back to the device.
    pub fn trim(&self) {
        lock(&self.inner.table).trim();
    }

    /// Bytes of these states.
    #[must_use]
    pub fn bytes(&self) -> StateBytes {
        lock(&self.inner.table).bytes()
    }

    /// Makes every state's memory and first values now.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] and others; nothing is made then.
    pub async fn materialize(&self) -> Result<()> {
        let gpu = self.device("materialize")?;
        let _turn = gpu.inner.take_turn().await?;
        let slots = lock(&self.inner.table).slots();
        self.materialize_slots(&slots).await
    }

    /// Reads one state; truth values are read as `u32`.
    ///
    /// # Errors
    /// [`Error::UnknownState`], [`Error::Data`] for another element type,
    /// [`Error::Read`], [`Error::DeviceLost`].
    pub async fn read<T: Element>(&self, name: &str) -> Result<Vec<T>> {
        let slot = lock(&self.inner.table).find("read", name)?;
        check_element::<T>("read", name, &slot.ty)?;
        let bytes = self.read_slots("read", std::slice::from_ref(&slot)).await?;
        Ok(bytes.first().map(|b| bytemuck::pod_collect_to_vec(b)).unwrap_or_default())
    }

    /// Reads every state, in the order of creation, all as of one moment.
    ///
    /// # Errors
    /// [`Error::Read`], [`Error::DeviceLost`].
    pub async fn read_all(&self) -> Result<Vec<StateData>> {
        let slots = lock(&self.inner.table).slots();
        let all = self.read_slots("read_all", &slots).await?;
        let data = |(slot, bytes): (&Shared<Slot>, Vec<u8>)| StateData {
            name: slot.name.clone(),
            ty: slot.ty.clone(),
            category: slot.category,
            bytes,
        };
        Ok(slots.iter().zip(all).map(data).collect())
    }

    /// Writes one state, before the runs submitted from now on.
    ///
    /// # Errors
    /// [`Error::UnknownState`], [`Error::Data`] for another type or length; nothing is written then.
    pub async fn write<T: Element>(&self, name: &str, values: &[T]) -> Result<()> {
        let slot = lock(&self.inner.table).find("write", name)?;
        slot.check_data("write", T::DTYPE, &slot.ty.shape, values.len())?;
        self.write_slots("write", &[(slot, bytemuck::cast_slice(values))]).await
    }

    /// Writes several f32, i32 or u32 states: name, shape, values.
    ///
    /// All names, shapes and lengths are checked before anything is written.
    ///
    /// # Errors
    /// [`Error::UnknownState`] with names that look like it, [`Error::Data`]; nothing is written then.
    pub async fn load<'a, T: Element>(
        &self,
        states: impl IntoIterator<Item = (&'a str, Shape, &'a [T])>,
    ) -> Result<()> {
        let mut checked = Vec::new();
        for (name, shape, values) in states {
            let slot = lock(&self.inner.table).find("load", name)?;
            slot.check_data("load", T::DTYPE, &shape, values.len())?;
            checked.push((slot, bytemuck::cast_slice(values)));
        }
        self.write_slots("load", &checked).await
    }

    /// Writes states that [`Self::read_all`] gave, of any type: what rebuilds
    /// the state on a new device after the loss of one.
    ///
    /// # Errors
    /// As [`Self::load`]; nothing is written then.
    pub async fn load_all(&self, states: &[StateData]) -> Result<()> {
        let mut checked = Vec::new();
        for state in states {
            let slot = lock(&self.inner.table).find("load_all", &state.name)?;
            let count = state.bytes.len() / state.ty.dtype.size_bytes() as usize;
            slot.check_data("load_all", state.ty.dtype, &state.ty.shape, count)?;
            checked.push((slot, state.bytes.as_slice()));
        }
        self.write_slots("load_all", &checked).await
    }

    async fn read_slots(&self, op: &'static str, slots: &[Shared<Slot>]) -> Result<Vec<Vec<u8>>> {
        let gpu = self.device(op)?;
        let _turn = gpu.inner.take_turn().await?;
        self.materialize_slots(slots).await?;
        let what = slots.first().map_or("state", |slot| slot.name.as_str());
        let places = slots.iter().map(|slot| (slot.handle(), slot.ty.size_bytes()));
        let mut all = gpu.inner.read_buffers(what, places).await?;
        for (bytes, slot) in all.iter_mut().zip(slots) {
            bytes.truncate(slot.ty.data_bytes() as usize);
        }
        Ok(all)
    }

    async fn write_slots(&self, op: &'static str, states: &[(Shared<Slot>, &[u8])]) -> Result<()> {
        let gpu = self.device(op)?;
        let _turn = gpu.inner.take_turn().await?;
        // All memory first: what is refused is refused before anything is written.
        let slots: Vec<Shared<Slot>> = states.iter().map(|(slot, _)| slot.clone()).collect();
        let mut made = self.allocate(gpu, &slots).await?;
        for (slot, bytes) in states {
            if let Some(at) = made.iter().position(|(of, _)| Shared::ptr_eq(of, slot)) {
                slot.fill(made.swap_remove(at).1);
            }
            if let Some(buffer) = slot.handle() {
                gpu.inner.write(&buffer, 0, bytes);
            }
            gpu.inner.settle().await?;
        }
        gpu.check()
    }

    /// The slots of these states, in order, as they are registered now.
    pub(crate) fn resolve(&self, states: &[StateInfo]) -> Result<Vec<Shared<Slot>>> {
        let table = lock(&self.inner.table);
        let find = |info: &StateInfo| {
            let slot = table.find("run", &info.name)?;
            if slot.ty == info.ty { Ok(slot) } else { Err(slot.conflict(&info.ty)) }
        };
        states.iter().map(find).collect()
    }

    /// Changes whenever a state is removed.
    pub(crate) fn generation(&self) -> u64 {
        lock(&self.inner.table).generation()
    }

    /// Refuses a device other than the one that holds the states.
    pub(crate) fn check_device(&self, gpu: &Gpu) -> Result<()> {
        let mine = self.device("step")?;
        if Shared::ptr_eq(&mine.inner, &gpu.inner) {
            return Ok(());
        }
        Err(Error::Argument {
            op: "step",
            argument: "params",
            value: format!("states on {}", mine.adapter_name()),
            detail: "the states must live on the device that runs the step".into(),
        })
    }

    /// Makes memory and first values of those that have none. The caller has the turn.
    pub(crate) async fn materialize_slots(&self, slots: &[Shared<Slot>]) -> Result<()> {
        let gpu = self.device("materialize")?;
        for (slot, buffer) in self.allocate(gpu, slots).await? {
            let handle = buffer.handle();
            if slot.init.is_zero() {
                gpu.inner.clear(&handle);
            } else {
                let mut done = 0;
                slot.init.pieces(self.inner.seed, &slot.name, &slot.ty, |piece| {
                    gpu.inner.write(&handle, done, piece);
                    done += piece.len() as u64;
                });
            }
            slot.fill(buffer);
            gpu.inner.settle().await?;
        }
        Ok(())
    }

    /// Buffers for those slots that have none, taken from what was
    /// released before; all or none.
    async fn allocate(&self, gpu: &Gpu, slots: &[Shared<Slot>]) -> Result<Vec<(Shared<Slot>, DeviceBuffer)>> {
        let mut made: Vec<(Shared<Slot>, DeviceBuffer)> = Vec::new();
        let mut seen = HashSet::new();
        for slot in slots.iter().filter(|slot| slot.lacks_memory()) {
            if !seen.insert(slot.index) {
                continue;
            }
            let bytes = slot.ty.size_bytes();
            let kept = lock(&self.inner.table).reuse(bytes);
            let buffer = match kept {
                Some(buffer) => buffer,
                None => gpu.inner.allocate(&slot.name, bytes, BufferCategory::State).await?,
            };
            made.push((slot.clone(), buffer));
        }
        Ok(made)
    }

    fn device(&self, op: &'static str) -> Result<&Gpu> {
        self.inner.gpu.as_ref().ok_or_else(|| Error::Argument {
            op,
            argument: "params",
            value: "Params::offline".into(),
            detail: "these states have names and types but no device; make them with Params::new".into(),
        })
    }
}

/// Blocking twins, natively.
#[cfg(not(target_arch = "wasm32"))]
impl Params {
    /// [`Self::materialize`], blocking.
    ///
    /// # Errors
    /// As [`Self::materialize`].
    pub fn materialize_blocking(&self) -> Result<()> {
        pollster::block_on(self.materialize())
    }

    /// [`Self::read`], blocking.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn read_blocking<T: Element>(&self, name: &str) -> Result<Vec<T>> {
        pollster::block_on(self.read(name))
    }

    /// [`Self::read_all`], blocking.
    ///
    /// # Errors
    /// As [`Self::read_all`].
    pub fn read_all_blocking(&self) -> Result<Vec<StateData>> {
        pollster::block_on(self.read_all())
    }

    /// [`Self::write`], blocking.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn write_blocking<T: Element>(&self, name: &str, values: &[T]) -> Result<()> {
        pollster::block_on(self.write(name, values))
    }

    /// [`Self::load`], blocking.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn load_blocking<'a, T: Element>(
        &self,
        states: impl IntoIterator<Item = (&'a str, Shape, &'a [T])>,
    ) -> Result<()> {
        pollster::block_on(self.load(states))
    }

    /// [`Self::load_all`], blocking.
    ///
    /// # Errors
    /// As [`Self::load_all`].
    pub fn load_all_blocking(&self, states: &[StateData]) -> Result<()> {
        pollster::block_on(self.load_all(states))
    }
}

fn check_element<T: Element>(op: &'static str, name: &str, ty: &TensorType) -> Result<()> {
    if T::DTYPE == ty.dtype || (T::DTYPE == DType::U32 && ty.dtype == DType::Bool) {
        return Ok(());
    }
    let (name, dtype, shape) = (name.to_owned(), ty.dtype, ty.shape.clone());
    Err(Error::Data { op, name, dtype, shape, found: format!("a request for {}", T::DTYPE) })
}
