//! A plan becomes dispatches with everything resolved, ready for a tight loop.

use super::device::Inner;
use super::fault::scoped;
use super::pipeline::Compiled;
use crate::error::{Error, Result};
use crate::fuse::program::{Operand, Pass, Program};
use crate::plan::{Instance, Location, Plan, Space};
use crate::profile::DeviceProfile;
use crate::shared::Shared;

/// One dispatch, resolved.
#[derive(Debug)]
pub(super) struct Op {
    pub(super) kernel: Shared<Compiled>,
    pub(super) group: wgpu::BindGroup,
    pub(super) grid: [u32; 3],
    pub(super) cost_ns: f64,
    /// The plan's dispatch that it is; none for poison and comparisons.
    pub(super) dispatch: Option<u32>,
}

/// Encodes dispatches into one compute pass.
pub(super) fn encode(encoder: &mut wgpu::CommandEncoder, ops: &[Op]) {
    let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
    let mut bound: Option<&Shared<Compiled>> = None;
    for op in ops {
        if bound.is_none_or(|kernel| !Shared::ptr_eq(kernel, &op.kernel)) {
            pass.set_pipeline(&op.kernel.pipeline);
            bound = Some(&op.kernel);
        }
        pass.set_bind_group(0, &op.group, &[]);
        pass.dispatch_workgroups(op.grid[0], op.grid[1], op.grid[2]);
    }
}

/// The buffers behind each space, by index.
#[derive(Debug, Default)]
pub(super) struct Spaces {
    pub(super) arena: Vec<Option<wgpu::Buffer>>,
    pub(super) uploads: Vec<Option<wgpu::Buffer>>,
    pub(super) constants: Vec<Option<wgpu::Buffer>>,
    pub(super) states: Vec<Option<wgpu::Buffer>>,
    pub(super) uniform: Option<wgpu::Buffer>,
}

impl Spaces {
    pub(super) fn buffer(&self, space: Space) -> Result<&wgpu::Buffer> {
        let (buffers, index) = match space {
            Space::Arena(i) => (&self.arena, i),
            Space::Upload(i) => (&self.uploads, i),
            Space::Constant(i) => (&self.constants, i),
            Space::State(i) => (&self.states, i),
        };
        buffers
            .get(index as usize)
            .and_then(Option::as_ref)
            .ok_or_else(|| Error::PlanCheck { dispatch: 0, detail: format!("{space:?} has no buffer") })
    }
}

/// Proves that the plan can be bound on this device: indices exist, ranges lie
/// within their blocks, are aligned, within the limits, and do not overlap in
/// one dispatch (a browser refuses that, wgpu silently accepts it).
pub(super) fn verify(program: &Program, plan: &Plan, profile: &DeviceProfile) -> Result<()> {
    for (index, dispatch) in plan.dispatches.iter().enumerate() {
        let fail = |detail: String| Err(Error::PlanCheck { dispatch: index, detail });
        let pass = verify_pass(program, plan, profile, index)?;
        let mut bound: Vec<Location> = Vec::with_capacity(pass.operands.len());
        for (operand, id) in dispatch.instances.iter().enumerate() {
            let Some(instance) = plan.instances.get(id.0 as usize) else {
                return fail(format!("{}: there is no instance {}", pass.name, id.0));
            };
            verify_instance(program, plan, profile, instance, index)?;
            if let (Operand::InPlace { .. }, Some(made)) = (pass.operands[operand], dispatch.made[operand]) {
                if plan.instances.get(made.0 as usize).is_none_or(|m| m.location != instance.location) {
                    return fail(format!("{}: operand {operand} is in place, but moves", pass.name));
                }
            }
            let here = instance.location;
            let overlaps = |other: &&Location| {
                other.space == here.space
                    && other.offset < here.offset + here.bytes
                    && here.offset < other.offset + other.bytes
            };
            if let Some(other) = bound.iter().find(overlaps) {
                return fail(format!("{}: operand {operand} at {here:?} overlaps {other:?}", pass.name));
            }
            bound.push(here);
        }
    }
    verify_ends(program, plan)
}

fn verify_pass<'a>(program: &'a Program, plan: &Plan, profile: &DeviceProfile, index: usize) -> Result<&'a Pass> {
    let fail = |detail: String| Err(Error::PlanCheck { dispatch: index, detail });
    let dispatch = &plan.dispatches[index];
    let Some(pass) = program.passes.get(dispatch.pass.index()) else {
        return fail(format!("there is no pass {}", dispatch.pass.0));
    };
    let count = pass.operands.len();
    if count > profile.max_storage_buffers as usize {
        return Err(Error::Limit {
            what: format!("{} (operands, not bytes)", pass.name),
            size_bytes: count as u64,
            limit: "maxStorageBuffersPerShaderStage",
            limit_bytes: u64::from(profile.max_storage_buffers),
            adapter: profile.name.clone(),
        });
    }
    if pass.kernel.index() >= program.kernels.len() {
        return fail(format!("{}: there is no kernel {}", pass.name, pass.kernel.0));
    }
    if dispatch.instances.len() != count || dispatch.made.len() != count {
        return fail(format!("{} has {count} operands, not {}", pass.name, dispatch.instances.len()));
    }
    let end = dispatch.uniform_offset.saturating_add(4 * pass.uniforms.len() as u64);
    if !pass.uniforms.is_empty() && (!dispatch.uniform_offset.is_multiple_of(256) || end > plan.uniform_bytes) {
        return fail(format!("{}: uniform words at {} do not fit", pass.name, dispatch.uniform_offset));
    }
    Ok(pass)
}

/// Proves that inputs, constants and outputs lie where bytes can be copied to and from.
fn verify_ends(program: &Program, plan: &Plan) -> Result<()> {
    let fail = |detail: String| Err(Error::PlanCheck { dispatch: plan.dispatches.len(), detail });
    let fits = |place: &Option<Location>, bytes: u64| match place {
        None => bytes == 0,
        Some(place) => {
            let block = match place.space {
                Space::Upload(i) => plan.upload_blocks.get(i as usize),
                Space::Constant(i) => plan.constant_blocks.get(i as usize),
                Space::Arena(_) | Space::State(_) => None,
            };
            place.bytes >= bytes && block.is_some_and(|&length| place.offset.saturating_add(bytes) <= length)
        }
    };
    if plan.inputs.len() != program.inputs.len() || plan.constants.len() != program.constants.len() {
        return fail("inputs or constants without a place".into());
    }
    for (info, place) in program.inputs.iter().zip(&plan.inputs) {
        // An input that nothing reads may have no place; its data is checked and left out.
        if place.is_some() && !fits(place, info.ty.size_bytes()) {
            return fail(format!("the input {} cannot lie at {place:?}", info.name));
        }
    }
    for (bytes, place) in program.constants.iter().zip(&plan.constants) {
        if place.is_some() && !fits(place, bytes.len() as u64) {
            return fail(format!("a constant of {} bytes cannot lie at {place:?}", bytes.len()));
        }
    }
    for output in &plan.outputs {
        let held = plan.instances.get(output.instance.0 as usize).map_or(0, |i| i.location.bytes);
        let info = program.outputs.get(output.output as usize);
        let ends = output.slot_offset.saturating_add(output.bytes) <= plan.slot_bytes;
        if held < output.bytes || !ends || info.is_none_or(|info| info.ty.size_bytes() != output.bytes) {
            return fail(format!("output {} cannot be handed back from {output:?}", output.output));
        }
    }
    Ok(())
}

fn verify_instance(
    program: &Program,
    plan: &Plan,
    profile: &DeviceProfile,
    instance: &Instance,
    dispatch: usize,
) -> Result<()> {
    let place = instance.location;
    let name = program.storages.get(instance.storage.index()).map_or("?", |s| s.name.as_str());
    let block = |blocks: &[u64], index: u32| blocks.get(index as usize).copied();
    let length = match place.space {
        Space::Arena(i) => block(&plan.arena_blocks, i),
        Space::Upload(i) => block(&plan.upload_blocks, i),
        Space::Constant(i) => block(&plan.constant_blocks, i),
        Space::State(i) => program.states.get(i as usize).map(|s| s.ty.size_bytes()),
    };
    if place.bytes > profile.max_binding_bytes {
        return Err(Error::Limit {
            what: name.to_owned(),
            size_bytes: place.bytes,
            limit: "maxStorageBufferBindingSize",
            limit_bytes: profile.max_binding_bytes,
            adapter: profile.name.clone(),
        });
    }
    let aligned = place.offset.is_multiple_of(profile.offset_alignment_bytes.max(4)) && place.bytes.is_multiple_of(4);
    let inside = length.is_some_and(|length| place.offset.saturating_add(place.bytes) <= length);
    if place.bytes == 0 || !aligned || !inside {
        return Err(Error::PlanCheck { dispatch, detail: format!("{name} cannot lie at {place:?}") });
    }
    Ok(())
}

impl Inner {
    /// Every dispatch of a verified plan with its bind group, poison included if it is on.
    pub(super) async fn bind(
        &self,
        program: &Program,
        plan: &Plan,
        kernels: &[Shared<Compiled>],
        spaces: &Spaces,
    ) -> Result<Vec<Op>> {
        let fill = if self.poison { Some(self.compile_fill().await?) } else { None };
        let (ops, caught) = {
            let scope = self.device.push_error_scope(wgpu::ErrorFilter::Validation);
            (self.bind_all(program, plan, kernels, spaces, fill.as_ref()), scope.pop())
        };
        let caught = caught.await;
        let ops = ops?;
        scoped(&self.faults, caught, "binding the buffers of a step")?;
        Ok(ops)
    }

    fn bind_all(
        &self,
        program: &Program,
        plan: &Plan,
        kernels: &[Shared<Compiled>],
        spaces: &Spaces,
        fill: Option<&Shared<Compiled>>,
    ) -> Result<Vec<Op>> {
        let mut ops = Vec::with_capacity(plan.dispatches.len());
        if let Some(fill) = fill {
            // A value of an earlier run must not pass for one of this run.
            for (block, &bytes) in plan.arena_blocks.iter().enumerate().filter(|(_, bytes)| **bytes > 0) {
                ops.extend(self.fill_ops(fill, spaces.buffer(Space::Arena(block as u32))?, 0, bytes));
            }
        }
        for (index, dispatch) in plan.dispatches.iter().enumerate() {
            let pass = &program.passes[dispatch.pass.index()];
            let kernel = &kernels[pass.kernel.index()];
            let mut entries = Vec::with_capacity(1 + pass.operands.len());
            if let Some(uniform) = spaces.uniform.as_ref().filter(|_| !pass.uniforms.is_empty()) {
                // A struct's length is a multiple of its alignment, at most 16.
                let words = (4 * pass.uniforms.len() as u64).next_multiple_of(16);
                let size = words.min(uniform.size() - dispatch.uniform_offset);
                entries.push(entry(0, uniform, dispatch.uniform_offset, size));
            }
            for (operand, id) in dispatch.instances.iter().enumerate() {
                let place = plan.instances[id.0 as usize].location;
                let buffer = spaces.buffer(place.space)?;
                entries.push(entry(operand as u32 + 1, buffer, place.offset, place.bytes));
                if let (Some(fill), Operand::Write(_)) = (fill, pass.operands[operand]) {
                    ops.extend(self.fill_ops(fill, buffer, place.offset, place.bytes));
                }
            }
            let group = self.device.create_bind_group(&wgpu::BindGroupDescriptor {
                label: Some(&pass.name),
                layout: &kernel.layout,
                entries: &entries,
            });
            let rates = self.profile.rates;
            let work = (pass.cost.flops / rates.flops_per_ns).max(pass.cost.bytes / rates.bytes_per_ns);
            let cost_ns = work + rates.dispatch_ns;
            ops.push(Op { kernel: kernel.clone(), group, grid: pass.grid, cost_ns, dispatch: Some(index as u32) });
        }
        Ok(ops)
    }
}

pub(super) fn entry(binding: u32, buffer: &wgpu::Buffer, offset: u64, bytes: u64) -> wgpu::BindGroupEntry<'_> {
    wgpu::BindGroupEntry {
        binding,
        resource: wgpu::BindingResource::Buffer(wgpu::BufferBinding {
            buffer,
            offset,
            size: wgpu::BufferSize::new(bytes),
        }),
    }
}
