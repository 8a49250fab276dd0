//! From a schedule to a plan: everything gets its place.

use std::collections::BTreeMap;

use crate::checkpoint::facts::{Facts, NONE, round_up};
use crate::error::{Error, Result};
use crate::fuse::program::{Operand, PassId, Program, StorageId, StorageKind};
use crate::plan::place::{BlockLimit, LARGEST_BUFFER, Placement, Unit, place};
use crate::plan::schedule::{Measure, Schedule};
use crate::plan::{Dispatch, Instance, InstanceId, Location, OUTPUT_SLOTS, OutputPlacement, PeakBytes, Plan, Space};
use crate::profile::DeviceProfile;

/// What is the same under every policy: all buffers but the arena.
#[derive(Debug, Clone)]
pub(crate) struct Fixed {
    align: u64,
    block_limit: BlockLimit,
    inputs: Vec<Option<Location>>,
    upload_blocks: Vec<u64>,
    constants: Vec<Option<Location>>,
    constant_blocks: Vec<u64>,
    /// Per pass the first byte of its uniform words.
    uniform_offset: Vec<u64>,
    uniform_bytes: u64,
    /// Per output the first byte in a slot.
    slot_offset: Vec<u64>,
    slot_bytes: u64,
    /// Peak without the arena.
    pub(crate) peak: PeakBytes,
}

impl Fixed {
    /// Packs inputs, constants, uniform words and outputs.
    ///
    /// # Errors
    /// [`Error::Limit`] for a value that no buffer or binding of the device
    /// can hold; [`Error::PlanCheck`] for a pass with too many bindings or
    /// workgroups, or an output longer than its storage.
    pub(crate) fn new(facts: &Facts<'_>, profile: &DeviceProfile) -> Result<Self> {
        let program = facts.program;
        refuse_large_values(facts, profile)?;
        refuse_large_passes(facts, profile)?;
        let align = profile.offset_alignment_bytes.max(4);
        let block_limit = BlockLimit::new(profile.max_buffer_bytes, align);
        let mut input_bytes = vec![None; program.inputs.len()];
        let mut constant_bytes = vec![None; program.constants.len()];
        for storage in &program.storages {
            match storage.kind {
                StorageKind::Input(i) => input_bytes[i as usize] = Some(storage.bytes),
                StorageKind::Constant(i) => constant_bytes[i as usize] = Some(storage.bytes),
                StorageKind::Transient | StorageKind::State(_) => {}
            }
        }
        let (inputs, upload_blocks) = pack(&input_bytes, Space::Upload, block_limit, align);
        let (constants, constant_blocks) = pack(&constant_bytes, Space::Constant, block_limit, align);
        let (uniform_offset, uniform_bytes) = pack_uniforms(facts, align);
        let (slot_offset, slot_bytes) = pack_outputs(program, align)?;
        for (what, bytes) in [("the uniform words", uniform_bytes), ("an output slot", slot_bytes)] {
            refuse(what, bytes, "maxBufferSize", profile.max_buffer_bytes, profile)?;
        }
        let sum = |blocks: &[u64]| blocks.iter().fold(0_u64, |sum, &b| sum.saturating_add(b));
        let peak = PeakBytes {
            state: program.states.iter().fold(0, |sum, s| sum.saturating_add(s.ty.size_bytes())),
            arena: 0,
            upload: sum(&upload_blocks),
            constant: sum(&constant_blocks),
            uniform: uniform_bytes,
            output: slot_bytes.saturating_mul(OUTPUT_SLOTS),
            readback: slot_bytes,
        };
        Ok(Self {
            align,
            block_limit,
            inputs,
            upload_blocks,
            constants,
            constant_blocks,
            uniform_offset,
            uniform_bytes,
            slot_offset,
            slot_bytes,
            peak,
        })
    }

    /// Places the transient values of a schedule; `live_bytes` as measured.
    pub(crate) fn place(&self, facts: &Facts<'_>, schedule: &Schedule, live_bytes: u64) -> Placed {
        let mut unit_of = vec![NONE; schedule.lives.len()];
        let mut units: Vec<Unit> = Vec::new();
        for (instance, life) in schedule.lives.iter().enumerate().skip(facts.externals.len()) {
            if life.grown_from != NONE {
                // Made later than what it lies on: that one has its unit already.
                let unit = unit_of[life.grown_from as usize];
                unit_of[instance] = unit;
                units[unit as usize].last = life.last;
                continue;
            }
            let storage = schedule.trace.storage[instance] as usize;
            unit_of[instance] = units.len() as u32;
            units.push(Unit {
                first: life.first,
                last: life.last,
                size: facts.size[storage],
                bytes: facts.program.storages[storage].bytes,
            });
        }
        let placement = place(&units, self.block_limit, live_bytes);
        Placed { placement, unit_of }
    }

    /// Peak with an arena of this length.
    pub(crate) const fn peak_with(&self, arena: u64) -> PeakBytes {
        PeakBytes { arena, ..self.peak }
    }

    fn external_location(&self, program: &Program, storage: usize) -> Option<Location> {
        match program.storages[storage].kind {
            StorageKind::Transient => None,
            StorageKind::Input(i) => self.inputs[i as usize],
            StorageKind::Constant(i) => self.constants[i as usize],
            StorageKind::State(i) => {
                Some(Location { space: Space::State(i), offset: 0, bytes: program.storages[storage].bytes })
            }
        }
    }
}

/// A schedule's transient values at their places.
#[derive(Debug, Clone)]
pub(crate) struct Placed {
    /// Addresses of units.
    pub(crate) placement: Placement,
    /// The unit of each instance, `NONE` for externals.
    unit_of: Vec<u32>,
}

/// Puts everything together.
pub(crate) fn build(
    facts: &Facts<'_>,
    fixed: &Fixed,
    schedule: &Schedule,
    measure: &Measure,
    placed: &Placed,
    policy: String,
) -> Result<Plan> {
    let program = facts.program;
    let instances = instances(facts, fixed, schedule, placed)?;
    let mut outputs = Vec::new();
    for (index, instance) in schedule.outputs.iter().enumerate() {
        if let Some(instance) = *instance {
            outputs.push(OutputPlacement {
                output: index as u32,
                instance: InstanceId(instance),
                slot_offset: fixed.slot_offset[index],
                bytes: program.outputs[index].ty.size_bytes(),
            });
        }
    }
    Ok(Plan {
        policy,
        dispatches: (0..schedule.order.len()).map(|d| dispatch(program, fixed, schedule, d)).collect(),
        instances,
        arena_blocks: placed.placement.blocks.clone(),
        upload_blocks: fixed.upload_blocks.clone(),
        constant_blocks: fixed.constant_blocks.clone(),
        inputs: fixed.inputs.clone(),
        constants: fixed.constants.clone(),
        uniform_bytes: fixed.uniform_bytes,
        outputs,
        slot_bytes: fixed.slot_bytes,
        offset_alignment_bytes: fixed.align,
        peak: fixed.peak_with(placed.placement.total()),
        live_peak_bytes: measure.live_bytes,
        activation_peak_bytes: measure.activation_bytes,
        replayed_passes: measure.replays,
        cost_ns: measure.cost_ns,
        replay_cost_ns: measure.replay_cost_ns,
        notes: Vec::new(),
    })
}

fn instances(facts: &Facts<'_>, fixed: &Fixed, schedule: &Schedule, placed: &Placed) -> Result<Vec<Instance>> {
    let program = facts.program;
    let mut instances = Vec::with_capacity(schedule.lives.len());
    for (index, life) in schedule.lives.iter().enumerate() {
        let storage = schedule.trace.storage[index] as usize;
        let bytes = program.storages[storage].bytes;
        let location = match placed.unit_of[index] {
            NONE => fixed.external_location(program, storage).ok_or_else(|| Error::PlanCheck {
                dispatch: schedule.order.len(),
                detail: format!("{} has no place", program.storages[storage].name),
            })?,
            unit => {
                let (block, offset) = placed.placement.block_and_offset(unit as usize);
                Location { space: Space::Arena(block), offset, bytes }
            }
        };
        instances.push(Instance { storage: StorageId(storage as u32), location, first: life.first, last: life.last });
    }
    Ok(instances)
}

fn dispatch(program: &Program, fixed: &Fixed, schedule: &Schedule, index: usize) -> Dispatch {
    let step = schedule.step(index);
    let operands = &program.passes[step.pass as usize].operands;
    let begin = step.first_operand as usize;
    let end = begin + operands.len();
    let pairs = || schedule.trace.reads[begin..end].iter().zip(&schedule.trace.makes[begin..end]);
    Dispatch {
        pass: PassId(step.pass),
        replay: step.replay,
        instances: pairs().map(|(&read, &made)| InstanceId(if read == NONE { made } else { read })).collect(),
        made: operands
            .iter()
            .zip(pairs())
            .map(|(operand, (_, &made))| match operand {
                Operand::Write(_) | Operand::InPlace { .. } => Some(InstanceId(made)),
                Operand::Read(_) | Operand::StateWrite(_) => None,
            })
            .collect(),
        uniform_offset: fixed.uniform_offset[step.pass as usize],
    }
}

/// Packs values one after the other into blocks, for the whole run.
fn pack(
    bytes: &[Option<u64>],
    space: fn(u32) -> Space,
    limit: BlockLimit,
    align: u64,
) -> (Vec<Option<Location>>, Vec<u64>) {
    let units: Vec<Unit> =
        bytes.iter().flatten().map(|&bytes| Unit { first: 0, last: 0, size: round_up(bytes, align), bytes }).collect();
    let live = units.iter().fold(0_u64, |sum, u| sum.saturating_add(u.size));
    let placement = place(&units, limit, live);
    let mut unit = 0..units.len();
    let locations = bytes
        .iter()
        .map(|bytes| {
            let bytes = (*bytes)?;
            let (block, offset) = placement.block_and_offset(unit.next()?);
            Some(Location { space: space(block), offset, bytes })
        })
        .collect();
    (locations, placement.blocks)
}

/// One place per distinct list of words: passes with equal words share it.
fn pack_uniforms(facts: &Facts<'_>, align: u64) -> (Vec<u64>, u64) {
    let mut known: BTreeMap<&[u32], u64> = BTreeMap::new();
    let mut offsets = vec![0; facts.program.passes.len()];
    let mut end = 0_u64;
    for (index, pass) in facts.program.passes.iter().enumerate() {
        if facts.wanted[index] && !pass.uniforms.is_empty() {
            offsets[index] = *known.entry(&pass.uniforms).or_insert_with(|| {
                let offset = end;
                end = round_up(end + 4 * pass.uniforms.len() as u64, align);
                offset
            });
        }
    }
    (offsets, end)
}

fn pack_outputs(program: &Program, align: u64) -> Result<(Vec<u64>, u64)> {
    let mut offsets = Vec::with_capacity(program.outputs.len());
    let mut end = 0_u64;
    for output in &program.outputs {
        offsets.push(end);
        if let Some(storage) = output.storage {
            let (bytes, held) = (output.ty.size_bytes(), program.storage(storage).bytes);
            if bytes > held {
                return Err(Error::PlanCheck {
                    dispatch: program.passes.len(),
                    detail: format!("the output {} has {bytes} bytes, its storage {held}", output.name),
                });
            }
            end = end.saturating_add(round_up(bytes, 4));
        }
    }
    Ok((offsets, round_up(end, align)))
}

fn refuse(what: &str, size_bytes: u64, limit: &'static str, limit_bytes: u64, profile: &DeviceProfile) -> Result<()> {
    if size_bytes <= limit_bytes {
        return Ok(());
    }
    Err(Error::Limit { what: what.to_owned(), size_bytes, limit, limit_bytes, adapter: profile.name.clone() })
}

fn refuse_large_values(facts: &Facts<'_>, profile: &DeviceProfile) -> Result<()> {
    for (index, storage) in facts.program.storages.iter().enumerate() {
        let producer = facts.producer[index];
        if producer != NONE && !facts.wanted[producer as usize] {
            continue;
        }
        refuse(&storage.name, storage.bytes, "maxStorageBufferBindingSize", profile.max_binding_bytes, profile)?;
        let largest = profile.max_buffer_bytes.min(LARGEST_BUFFER);
        refuse(&storage.name, storage.bytes, "maxBufferSize", largest, profile)?;
    }
    for state in &facts.program.states {
        let largest = profile.max_buffer_bytes.min(LARGEST_BUFFER);
        refuse(&state.name, state.ty.size_bytes(), "maxBufferSize", largest, profile)?;
    }
    Ok(())
}

fn refuse_large_passes(facts: &Facts<'_>, profile: &DeviceProfile) -> Result<()> {
    let fail = |dispatch: usize, detail: String| Err(Error::PlanCheck { dispatch, detail });
    for (index, pass) in facts.program.passes.iter().enumerate().filter(|&(p, _)| facts.wanted[p]) {
        if pass.operands.len() > profile.max_storage_buffers as usize {
            let (bound, most) = (pass.operands.len(), profile.max_storage_buffers);
            return fail(index, format!("{} binds {bound} storage buffers, {} allows {most}", pass.name, profile.name));
        }
        if pass.grid.iter().any(|&n| n > profile.max_workgroups_per_dimension) {
            let most = profile.max_workgroups_per_dimension;
            return fail(index, format!("{} has the grid {:?}, {} allows {most}", pass.name, pass.grid, profile.name));
        }
    }
    Ok(())
}
