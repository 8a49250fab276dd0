//! Verified runs: what a pass makes at first is copied aside, and whatever a replay
//! makes of it later is compared with the copy, bit for bit, on the device.

use super::bind::{Op, Spaces, encode, entry};
use super::device::Inner;
use super::memory::{BufferCategory, DeviceBuffer};
use super::pipeline::Compiled;
use super::transfer::ReadRange;
use crate::error::{Error, Result};
use crate::fuse::program::{Kernel, Program};
use crate::plan::{Location, Plan};
use crate::shared::Shared;

/// Threads per workgroup of the kernel.
const GROUP: u64 = 256;
/// Ranges of a binding begin at multiples of this, in bytes.
const ALIGN: u64 = 256;
/// Nothing differs: count, and the first place, which the kernel lowers.
const NO_DIFFERENCE: [u32; 2] = [0, u32::MAX];

/// What a verified run compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Verified {
    /// Dispatches that repeated an earlier pass.
    pub replayed_passes: u32,
    /// Values that they made.
    pub values: u32,
    /// The bytes of those values, each of which was compared.
    pub bytes: u64,
}

/// The kernel that compares two ranges, for whoever checks all kernels.
#[doc(hidden)]
#[must_use]
pub fn compare_kernel() -> Kernel {
    Kernel {
        name: "compare".into(),
        source: include_str!("compare.wgsl").into(),
        entry: "compare",
        constants: Vec::new(),
        operand_count: 3,
        uniform_words: 0,
    }
}

/// A range of the copies.
#[derive(Debug, Clone, Copy)]
struct Aside {
    block: usize,
    offset: u64,
}

/// What is done after a dispatch.
#[derive(Debug)]
enum Action {
    Keep { from: Location, to: Aside },
    Compare(Op),
}

/// One comparison, in the order of the plan.
#[derive(Debug)]
struct Compared {
    dispatch: usize,
    pass: String,
    value: String,
    bytes: u64,
}

/// Copies, comparisons and where they happen, for one run of a plan.
#[derive(Debug)]
pub(super) struct Watch {
    copies: Vec<DeviceBuffer>,
    differences: Option<DeviceBuffer>,
    after: Vec<Vec<Action>>,
    compared: Vec<Compared>,
    replayed_passes: u32,
}

impl Watch {
    /// Makes room for the copies; the bind groups name the buffers as they are now.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if the copies do not fit beside the step.
    pub(super) async fn new(inner: &Inner, program: &Program, plan: &Plan, spaces: &Spaces) -> Result<Self> {
        let kernel = inner.compile(&[compare_kernel()]).await?.remove(0);
        let mut room = Blocks::new(inner.profile.max_buffer_bytes);
        let mut replayed = vec![false; program.passes.len()];
        for dispatch in plan.dispatches.iter().filter(|d| d.replay) {
            replayed[dispatch.pass.index()] = true;
        }
        // Per pass and operand: where the first result is kept.
        let mut kept: Vec<Vec<Option<Aside>>> = vec![Vec::new(); program.passes.len()];
        for dispatch in plan.dispatches.iter().filter(|d| !d.replay && replayed[d.pass.index()]) {
            let place = |made: &Option<crate::plan::InstanceId>| {
                made.map(|id| room.place(plan.instances[id.0 as usize].location.bytes))
            };
            kept[dispatch.pass.index()] = dispatch.made.iter().map(place).collect();
        }
        let mut copies = Vec::new();
        for (block, &bytes) in room.bytes.iter().enumerate() {
            copies.push(inner.allocate(&format!("first results {block}"), bytes, BufferCategory::Arena).await?);
        }
        let values: usize = plan.dispatches.iter().filter(|d| d.replay).map(|d| d.made.iter().flatten().count()).sum();
        let differences = match values {
            0 => None,
            n => Some(inner.allocate("comparisons", n as u64 * ALIGN, BufferCategory::Arena).await?),
        };
        let replayed_passes = plan.replayed_passes;
        let mut watch = Self { copies, differences, after: Vec::new(), compared: Vec::new(), replayed_passes };
        for (index, dispatch) in plan.dispatches.iter().enumerate() {
            let mut actions = Vec::new();
            let pass = &program.passes[dispatch.pass.index()];
            for (made, aside) in dispatch.made.iter().zip(&kept[dispatch.pass.index()]) {
                let (Some(made), Some(to)) = (made, *aside) else { continue };
                let instance = &plan.instances[made.0 as usize];
                let from = instance.location;
                if dispatch.replay {
                    actions.push(Action::Compare(watch.comparison(inner, &kernel, spaces, from, to)?));
                    let value = program.storage(instance.storage).name.clone();
                    watch.compared.push(Compared {
                        dispatch: index,
                        pass: pass.name.clone(),
                        value,
                        bytes: from.bytes,
                    });
                } else {
                    actions.push(Action::Keep { from, to });
                }
            }
            watch.after.push(actions);
        }
        Ok(watch)
    }

    fn comparison(
        &self,
        inner: &Inner,
        kernel: &Shared<Compiled>,
        spaces: &Spaces,
        from: Location,
        to: Aside,
    ) -> Result<Op> {
        let lacking = || Error::PlanCheck { dispatch: 0, detail: "a comparison has no place".into() };
        let differences = self.differences.as_ref().ok_or_else(lacking)?;
        let at = self.compared.len() as u64 * ALIGN;
        inner.stage(differences.raw(), at, bytemuck::cast_slice(&NO_DIFFERENCE));
        let group = inner.device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: Some("compare"),
            layout: &kernel.layout,
            entries: &[
                entry(1, spaces.buffer(from.space)?, from.offset, from.bytes),
                entry(2, self.copies[to.block].raw(), to.offset, from.bytes),
                entry(3, differences.raw(), at, size_of_val(&NO_DIFFERENCE) as u64),
            ],
        });
        let grid = inner.profile.split_grid((from.bytes / 4).div_ceil(GROUP));
        Ok(Op { kernel: kernel.clone(), group, grid, cost_ns: from.bytes as f64, dispatch: None })
    }

    /// Encodes dispatches with what is done after each.
    pub(super) fn encode(&self, encoder: &mut wgpu::CommandEncoder, ops: &[Op], spaces: &Spaces) -> Result<()> {
        let mut begin = 0;
        for (index, op) in ops.iter().enumerate() {
            let Some(actions) = op.dispatch.map(|d| &self.after[d as usize]).filter(|a| !a.is_empty()) else {
                continue;
            };
            encode(encoder, &ops[begin..=index]);
            begin = index + 1;
            for action in actions {
                match action {
                    Action::Compare(op) => encode(encoder, std::slice::from_ref(op)),
                    Action::Keep { from, to } => encoder.copy_buffer_to_buffer(
                        spaces.buffer(from.space)?,
                        from.offset,
                        self.copies[to.block].raw(),
                        to.offset,
                        from.bytes,
                    ),
                }
            }
        }
        encode(encoder, &ops[begin..]);
        Ok(())
    }

    /// Reads what was found.
    ///
    /// # Errors
    /// [`Error::ReplayDiffers`] naming the first pass that made other bits.
    pub(super) async fn verdict(&self, inner: &Inner) -> Result<Verified> {
        let mut verified = Verified { replayed_passes: self.replayed_passes, ..Verified::default() };
        let Some(differences) = &self.differences else { return Ok(verified) };
        let range = ReadRange { buffer: differences.raw().clone(), offset: 0, bytes: differences.bytes() };
        let read = inner.read_ranges("comparisons", &[range]).await?;
        let words: Vec<u32> = read.iter().flat_map(|bytes| bytemuck::pod_collect_to_vec::<u8, u32>(bytes)).collect();
        for (compared, found) in self.compared.iter().zip(words.chunks(ALIGN as usize / 4)) {
            if found[0] > 0 {
                return Err(Error::ReplayDiffers {
                    dispatch: compared.dispatch,
                    pass: compared.pass.clone(),
                    value: compared.value.clone(),
                    words: u64::from(found[0]),
                    first_word: u64::from(found[1]),
                });
            }
            verified.values += 1;
            verified.bytes += compared.bytes;
        }
        Ok(verified)
    }
}

/// Blocks of copies, each within the largest buffer.
#[derive(Debug)]
struct Blocks {
    most: u64,
    bytes: Vec<u64>,
}

impl Blocks {
    const fn new(most: u64) -> Self {
        Self { most, bytes: Vec::new() }
    }

    fn place(&mut self, bytes: u64) -> Aside {
        let rounded = bytes.next_multiple_of(ALIGN);
        let fits = self.bytes.last().is_some_and(|&used| used.saturating_add(rounded) <= self.most);
        if !fits {
            self.bytes.push(0);
        }
        let block = self.bytes.len() - 1;
        let offset = self.bytes[block];
        self.bytes[block] += rounded;
        Aside { block, offset }
    }
}
