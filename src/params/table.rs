//! The states by name, and buffers released and kept for reuse.

use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

use super::{Init, StateBytes};
use crate::dtype::{DType, Shape, TensorType};
use crate::error::{Error, Result};
use crate::fuse::program::Category;
use crate::gpu::{DeviceBuffer, Handle};
use crate::shared::{Shared, lock};

/// One state.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) name: String,
    pub(crate) ty: TensorType,
    pub(crate) category: Category,
    pub(super) index: usize,
    pub(super) init: Init,
    /// Steps recorded now do not train it.
    pub(super) frozen: AtomicBool,
    buffer: Mutex<Option<DeviceBuffer>>,
}

impl Slot {
    /// A handle of its memory, if it has any.
    pub(crate) fn handle(&self) -> Option<Handle> {
        lock(&self.buffer).as_ref().map(DeviceBuffer::handle)
    }

    /// Bytes of its memory, 0 if it has none yet.
    pub(crate) fn bytes(&self) -> u64 {
        lock(&self.buffer).as_ref().map_or(0, DeviceBuffer::bytes)
    }

    pub(super) fn lacks_memory(&self) -> bool {
        self.ty.size_bytes() > 0 && lock(&self.buffer).is_none()
    }

    pub(super) fn fill(&self, buffer: DeviceBuffer) {
        *lock(&self.buffer) = Some(buffer);
    }

    /// Proves that values of this type, shape and count fit.
    pub(super) fn check_data(&self, op: &'static str, dtype: DType, shape: &Shape, count: usize) -> Result<()> {
        let same = dtype == self.ty.dtype || (dtype == DType::U32 && self.ty.dtype == DType::Bool);
        if same && *shape == self.ty.shape && count as u64 == shape.element_count() {
            return Ok(());
        }
        let (name, own) = (self.name.clone(), self.ty.shape.clone());
        let found = format!("{count} values of {dtype} as {shape}");
        Err(Error::Data { op, name, dtype: self.ty.dtype, shape: own, found })
    }

    pub(super) fn conflict(&self, asked: &TensorType) -> Error {
        Error::StateConflict {
            name: self.name.clone(),
            existing_dtype: self.ty.dtype,
            existing_shape: self.ty.shape.clone(),
            dtype: asked.dtype,
            shape: asked.shape.clone(),
        }
    }
}

/// States by name, in the order of creation.
#[derive(Debug, Default)]
pub(super) struct Table {
    slots: Vec<Shared<Slot>>,
    by_name: HashMap<String, usize>,
    /// Released buffers by length.
    free: BTreeMap<u64, Vec<DeviceBuffer>>,
    created: usize,
    reused: u64,
    generation: u64,
}

impl Table {
    pub(super) fn create(
        &mut self,
        name: &str,
        ty: TensorType,
        category: Category,
        init: Init,
    ) -> Result<Shared<Slot>> {
        if let Some(slot) = self.get(name) {
            return if slot.ty == ty { Ok(slot) } else { Err(slot.conflict(&ty)) };
        }
        let buffer = Mutex::default();
        let (name, index, frozen) = (name.to_owned(), self.created, AtomicBool::new(false));
        let slot = Shared::new(Slot { name: name.clone(), ty, category, index, init, frozen, buffer });
        self.created += 1;
        self.by_name.insert(name, self.slots.len());
        self.slots.push(slot.clone());
        Ok(slot)
    }

    pub(super) fn get(&self, name: &str) -> Option<Shared<Slot>> {
        self.by_name.get(name).map(|&index| self.slots[index].clone())
    }

    /// The state of this name, or the error that suggests others.
    pub(super) fn find(&self, op: &'static str, name: &str) -> Result<Shared<Slot>> {
        self.get(name).ok_or_else(|| Error::UnknownState { op, name: name.to_owned(), similar: self.similar(name) })
    }

    pub(super) fn slots(&self) -> Vec<Shared<Slot>> {
        self.slots.clone()
    }

    pub(super) fn remove(&mut self, name: &str) -> Result<()> {
        let slot = self.find("remove", name)?;
        if let Some(mut buffer) = lock(&slot.buffer).take() {
            buffer.set_in_use(false);
            self.free.entry(buffer.bytes()).or_default().push(buffer);
        }
        self.slots.retain(|s| !Shared::ptr_eq(s, &slot));
        self.by_name = self.slots.iter().enumerate().map(|(i, s)| (s.name.clone(), i)).collect();
        self.generation += 1;
        Ok(())
    }

    /// A released buffer of exactly this length.
    pub(super) fn reuse(&mut self, bytes: u64) -> Option<DeviceBuffer> {
        let kept = self.free.get_mut(&bytes)?;
        let mut buffer = kept.pop()?;
        if kept.is_empty() {
            self.free.remove(&bytes);
        }
        buffer.set_in_use(true);
        self.reused += 1;
        Some(buffer)
    }

    pub(super) fn trim(&mut self) {
        self.free.clear();
    }

    pub(super) fn bytes(&self) -> StateBytes {
        let live_bytes: u64 = self.slots.iter().map(|slot| slot.bytes()).sum();
        let kept: u64 = self.free.values().flatten().map(DeviceBuffer::bytes).sum();
        StateBytes { live_bytes, reserved_bytes: live_bytes + kept, reused_buffers: self.reused }
    }

    pub(super) const fn generation(&self) -> u64 {
        self.generation
    }

    /// Up to three names that look like this one, the nearest first.
    pub(super) fn similar(&self, name: &str) -> Vec<String> {
        let far = (name.chars().count() / 3).max(2);
        let mut near: Vec<(usize, &str)> =
            self.slots.iter().map(|s| (distance(name, &s.name), s.name.as_str())).filter(|(d, _)| *d <= far).collect();
        near.sort_unstable();
        near.into_iter().take(3).map(|(_, name)| name.to_owned()).collect()
    }
}

/// Edit distance (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replace = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replace.min(row[j] + 1).min(row[j + 1] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::distance;

    #[test]
    fn distance_counts_edits() {
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("blocks.0.w", "blocks.0.w"), 0);
    }
}
