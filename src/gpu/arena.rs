//! The arena: memory for transient values, shared by all living steps, each
//! block as long as the longest that a living step asks for.

use super::device::Inner;
use super::memory::{BufferCategory, DeviceBuffer};
use crate::error::Result;
use crate::shared::{Shared, lock};

/// Blocks, and what the living steps ask for.
#[derive(Debug, Default)]
pub(super) struct Arena {
    blocks: Vec<Option<DeviceBuffer>>,
    demands: Vec<(u64, Vec<u64>)>,
    leases: u64,
    generation: u64,
}

impl Arena {
    fn needed(&self) -> Vec<u64> {
        let count = self.demands.iter().map(|(_, blocks)| blocks.len()).max().unwrap_or(0);
        let longest = |block| self.demands.iter().filter_map(|(_, d)| d.get(block)).copied().max().unwrap_or(0);
        (0..count).map(longest).collect()
    }

    fn length(&self, block: usize) -> u64 {
        self.blocks.get(block).and_then(Option::as_ref).map_or(0, DeviceBuffer::bytes)
    }

    fn fits(&self, needed: &[u64]) -> bool {
        (0..needed.len().max(self.blocks.len())).all(|b| self.length(b) == needed.get(b).copied().unwrap_or(0))
    }

    /// Drops blocks of another length than needed; lists those to be made.
    fn clear_unfit(&mut self, needed: &[u64]) -> Vec<usize> {
        for block in 0..self.blocks.len() {
            if self.length(block) != needed.get(block).copied().unwrap_or(0) {
                self.blocks[block] = None;
                self.generation += 1;
            }
        }
        self.blocks.resize_with(needed.len(), || None);
        (0..needed.len()).filter(|&b| needed[b] > 0 && self.blocks[b].is_none()).collect()
    }

    /// Handles of the blocks; a block of length 0 has none.
    pub(super) fn handles(&self) -> Vec<Option<wgpu::Buffer>> {
        self.blocks.iter().map(|b| b.as_ref().map(|b| b.raw().clone())).collect()
    }

    /// Bytes of all blocks as they are now.
    pub(super) fn bytes(&self) -> u64 {
        self.blocks.iter().flatten().map(DeviceBuffer::bytes).sum()
    }
}

/// A living step's claim on the arena.
#[derive(Debug)]
pub(super) struct Lease {
    inner: Shared<Inner>,
    id: u64,
}

impl Lease {
    pub(super) fn new(inner: &Shared<Inner>, blocks: &[u64]) -> Self {
        let mut arena = lock(&inner.arena);
        arena.leases += 1;
        let id = arena.leases;
        arena.demands.push((id, blocks.to_vec()));
        drop(arena);
        Self { inner: inner.clone(), id }
    }
}

impl Drop for Lease {
    /// Frees the blocks that no living step uses; shrinking the others has to
    /// wait for the next run, since it allocates.
    fn drop(&mut self) {
        let mut arena = lock(&self.inner.arena);
        arena.demands.retain(|(id, _)| *id != self.id);
        let needed = arena.needed();
        for block in 0..arena.blocks.len() {
            if needed.get(block).copied().unwrap_or(0) == 0 && arena.blocks[block].take().is_some() {
                arena.generation += 1;
            }
        }
    }
}

impl Inner {
    /// Makes the arena as long as the living steps need. The caller has the turn.
    /// Returns its generation, which changes whenever a block does.
    pub(super) async fn ensure_arena(&self) -> Result<u64> {
        let needed = {
            let arena = lock(&self.arena);
            let needed = arena.needed();
            if arena.fits(&needed) {
                return Ok(arena.generation);
            }
            needed
        };
        // What runs still in flight use is freed only when they end: waiting
        // for that first keeps the old and the new block from living together.
        self.idle().await?;
        let missing = lock(&self.arena).clear_unfit(&needed);
        self.poll();
        for block in missing {
            let made = self.allocate(&format!("arena block {block}"), needed[block], BufferCategory::Arena).await?;
            if self.poison {
                self.poison_whole(made.raw()).await?;
            }
            let mut arena = lock(&self.arena);
            if block >= arena.blocks.len() {
                arena.blocks.resize_with(block + 1, || None);
            }
            arena.blocks[block] = Some(made);
            arena.generation += 1;
        }
        Ok(lock(&self.arena).generation)
    }
}
