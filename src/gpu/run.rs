//! A planned step, ready to run again and again.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use super::arena::Lease;
use super::bind::{self, Op, Spaces, encode};
use super::device::{Gpu, Inner};
use super::input::InputData;
use super::memory::{BufferCategory, DeviceBuffer};
use super::output::{Output, Ring, RunOutputs};
use super::pipeline::Compiled;
use super::transfer::Staging;
use super::verify::{Verified, Watch};
use super::wait::{Signal, Turn};
use crate::error::{Error, Result};
use crate::fuse::program::Program;
use crate::params::{Params, Slot};
use crate::plan::{OUTPUT_SLOTS, Plan};
use crate::shared::{Shared, lock};

/// Runs handed to the device and not known to be done.
#[derive(Debug, Default)]
pub(super) struct InFlight {
    runs: VecDeque<Signal>,
}

/// How many earlier runs may be in flight when one is submitted.
const EARLIER_RUNS: usize = 2;

impl Inner {
    /// Waits until at most two earlier runs are in flight. The caller has the turn.
    async fn room(&self) -> Result<()> {
        loop {
            let oldest = {
                let mut in_flight = lock(&self.in_flight);
                in_flight.runs.retain(|signal| !signal.is_set());
                if in_flight.runs.len() <= EARLIER_RUNS {
                    break;
                }
                in_flight.runs.front().cloned()
            };
            if let Some(oldest) = oldest {
                oldest.wait().await;
            }
        }
        self.faults.check()
    }
}

/// A step on the device: pipelines, buffers and bind groups of one plan.
///
/// Steps of one device run one at a time and share its arena.
#[derive(Debug)]
pub struct Executable {
    // Bind groups go before the buffers that they name.
    bound: Mutex<Bound>,
    kernels: Vec<Shared<Compiled>>,
    own: OwnBuffers,
    ring: Shared<Ring>,
    _lease: Lease,
    staging: Mutex<Vec<Vec<u8>>>,
    program: Shared<Program>,
    plan: Plan,
    params: Params,
    gpu: Gpu,
}

/// Buffers that belong to one step.
#[derive(Debug, Default)]
struct OwnBuffers {
    uniform: Option<DeviceBuffer>,
    uploads: Vec<Option<DeviceBuffer>>,
    constants: Vec<Option<DeviceBuffer>>,
}

/// What depends on buffers that may be replaced between runs.
#[derive(Debug, Default)]
struct Bound {
    arena_generation: u64,
    params_generation: u64,
    slots: Vec<Shared<Slot>>,
    spaces: Spaces,
    ops: Vec<Op>,
    submits: Vec<Range<usize>>,
    ready: bool,
}

impl Executable {
    /// Creates what the plan needs: pipelines, buffers, bind groups; makes
    /// the states that it uses; uploads constants and uniform words, once.
    ///
    /// # Errors
    /// [`Error::PlanCheck`] or [`Error::Limit`] if the plan cannot be bound
    /// here, [`Error::OutOfMemory`], [`Error::Validation`] naming a kernel,
    /// [`Error::UnknownState`], [`Error::DeviceLost`]. Nothing stays allocated.
    pub async fn new(gpu: &Gpu, program: Shared<Program>, plan: Plan, params: &Params) -> Result<Self> {
        let inner = &gpu.inner;
        inner.faults.check()?;
        params.check_device(gpu)?;
        bind::verify(&program, &plan, &inner.profile)?;
        let kernels = inner.compile(&program.kernels).await?;
        let _turn = inner.turn.acquire().await;
        let own = OwnBuffers::new(inner, &program, &plan).await?;
        let mut slots = Vec::new();
        if plan.slot_bytes > 0 {
            for slot in 0..OUTPUT_SLOTS {
                let what = format!("output slot {slot}");
                slots.push(inner.allocate(&what, plan.slot_bytes, BufferCategory::Output).await?);
            }
        }
        let ring = Ring {
            inner: inner.clone(),
            slots,
            readback: inner
                .optional("read-back of outputs", plan.peak.readback, BufferCategory::Readback)
                .await?
                .map(Staging::new),
            runs: AtomicU64::new(0),
            order: Mutex::default(),
            reading: Turn::default(),
        };
        let slack = if inner.poison { 0xFF } else { 0 };
        let executable = Self {
            bound: Mutex::default(),
            kernels,
            own,
            ring: Shared::new(ring),
            _lease: Lease::new(inner, &plan.arena_blocks),
            staging: Mutex::new(plan.upload_blocks.iter().map(|&n| vec![slack; n as usize]).collect()),
            program,
            plan,
            params: params.clone(),
            gpu: gpu.clone(),
        };
        executable.prepare().await?;
        Ok(executable)
    }

    /// [`Self::new`], blocking.
    ///
    /// # Errors
    /// As [`Self::new`].
    #[cfg(not(target_arch = "wasm32"))]
    pub fn new_blocking(gpu: &Gpu, program: Shared<Program>, plan: Plan, params: &Params) -> Result<Self> {
        pollster::block_on(Self::new(gpu, program, plan, params))
    }

    /// The plan.
    #[must_use]
    pub const fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The program.
    #[must_use]
    pub const fn program(&self) -> &Shared<Program> {
        &self.program
    }

    /// Bytes that this step holds at its peak, counted from the buffers as
    /// they are: states used, arena blocks, the step's own buffers. Equal to
    /// the plan's peak unless a larger step shares the arena.
    #[must_use]
    pub fn measured_peak_bytes(&self) -> u64 {
        let sum = |buffers: &[Option<DeviceBuffer>]| buffers.iter().flatten().map(DeviceBuffer::bytes).sum::<u64>();
        let one = |buffer: &Option<DeviceBuffer>| buffer.as_ref().map_or(0, DeviceBuffer::bytes);
        let states: u64 = lock(&self.bound).slots.iter().map(|slot| slot.bytes()).sum();
        let own = one(&self.own.uniform) + sum(&self.own.uploads) + sum(&self.own.constants);
        let slots: u64 = self.ring.slots.iter().map(DeviceBuffer::bytes).sum();
        states
            + lock(&self.gpu.inner.arena).bytes()
            + own
            + slots
            + self.ring.readback.as_ref().map_or(0, Staging::bytes)
    }

    /// Runs the step: uploads the inputs, encodes, submits. Awaits until at
    /// most two earlier runs are in flight; does not wait for this one.
    ///
    /// A future dropped before it is ready has run either nothing or all.
    ///
    /// # Errors
    /// [`Error::UnknownInput`], [`Error::MissingInput`], [`Error::Data`] for
    /// inputs that do not fit; what the device reported, [`Error::DeviceLost`].
    pub async fn run(&self, inputs: &[(&str, InputData<'_>)]) -> Result<RunOutputs> {
        let inner = &self.gpu.inner;
        inner.faults.check()?;
        let inputs = self.sort_inputs(inputs)?;
        let _turn = inner.turn.acquire().await;
        self.prepare().await?;
        inner.room().await?;
        self.submit(&inputs, None)
    }

    /// [`Self::run`] that also compares whatever a replay makes with what its pass
    /// made at first, bit for bit, on the device. For debugging: it holds a copy of
    /// every value that is replayed, splits the compute pass and waits for the run. It
    /// is a run like any other: states are written.
    ///
    /// # Errors
    /// As [`Self::run`]; [`Error::OutOfMemory`] if the copies do not fit;
    /// [`Error::ReplayDiffers`] naming the first pass that made other bits.
    pub async fn verify(&self, inputs: &[(&str, InputData<'_>)]) -> Result<(RunOutputs, Verified)> {
        let inner = &self.gpu.inner;
        inner.faults.check()?;
        let inputs = self.sort_inputs(inputs)?;
        let (outputs, watch) = {
            let _turn = inner.turn.acquire().await;
            self.prepare().await?;
            let spaces = self.spaces(&lock(&self.bound).slots);
            let watch = Watch::new(inner, &self.program, &self.plan, &spaces).await?;
            inner.room().await?;
            (self.submit(&inputs, Some(&watch))?, watch)
        };
        let verified = watch.verdict(inner).await?;
        Ok((outputs, verified))
    }

    /// [`Self::verify`], blocking.
    ///
    /// # Errors
    /// As [`Self::verify`].
    #[cfg(not(target_arch = "wasm32"))]
    pub fn verify_blocking(&self, inputs: &[(&str, InputData<'_>)]) -> Result<(RunOutputs, Verified)> {
        pollster::block_on(self.verify(inputs))
    }

    /// [`Self::run`], blocking until it is submitted.
    ///
    /// # Errors
    /// As [`Self::run`].
    #[cfg(not(target_arch = "wasm32"))]
    pub fn run_blocking(&self, inputs: &[(&str, InputData<'_>)]) -> Result<RunOutputs> {
        pollster::block_on(self.run(inputs))
    }

    /// The data of each input, in the program's order, checked.
    fn sort_inputs<'a, 'b>(&self, given: &'a [(&str, InputData<'b>)]) -> Result<Vec<&'a InputData<'b>>> {
        let infos = &self.program.inputs;
        let mut sorted: Vec<Option<&InputData<'b>>> = vec![None; infos.len()];
        for (name, data) in given {
            let Some(index) = infos.iter().position(|info| info.name == *name) else {
                let known = infos.iter().map(|info| info.name.clone()).collect();
                return Err(Error::UnknownInput { name: (*name).to_owned(), known });
            };
            let ty = &infos[index].ty;
            let wrong = |found: String| {
                let (name, dtype, shape) = ((*name).to_owned(), ty.dtype, ty.shape.clone());
                Err(Error::Data { op: "run", name, dtype, shape, found })
            };
            if data.dtype != ty.dtype || data.bytes().len() as u64 != ty.data_bytes() {
                return wrong(data.describe());
            }
            if sorted[index].replace(data).is_some() {
                return wrong("two values".into());
            }
        }
        let missing = |(index, data): (usize, Option<&'a InputData<'b>>)| {
            let info = &infos[index];
            let (dtype, shape) = (info.ty.dtype, info.ty.shape.clone());
            data.ok_or_else(|| Error::MissingInput { name: info.name.clone(), dtype, shape })
        };
        sorted.into_iter().enumerate().map(missing).collect()
    }

    /// Sees to it that states and arena exist and that the bind groups name
    /// them as they are now. The caller has the turn.
    async fn prepare(&self) -> Result<()> {
        let inner = &self.gpu.inner;
        // What other steps grow or free comes first: if it is refused, no state was made.
        let arena_generation = inner.ensure_arena().await?;
        let params_generation = self.params.generation();
        let stale = {
            let bound = lock(&self.bound);
            !bound.ready || bound.params_generation != params_generation
        };
        if stale {
            let slots = self.params.resolve(&self.program.states)?;
            self.params.materialize_slots(&slots).await?;
            let mut bound = lock(&self.bound);
            bound.slots = slots;
            bound.ready = false;
        }
        let spaces = {
            let bound = lock(&self.bound);
            if bound.ready && bound.arena_generation == arena_generation {
                return Ok(());
            }
            self.spaces(&bound.slots)
        };
        let ops = inner.bind(&self.program, &self.plan, &self.kernels, &spaces).await?;
        let mut bound = lock(&self.bound);
        bound.submits = split(&ops, inner.submit_ns);
        bound.ops = ops;
        bound.spaces = spaces;
        bound.arena_generation = arena_generation;
        bound.params_generation = params_generation;
        bound.ready = true;
        Ok(())
    }

    fn spaces(&self, slots: &[Shared<Slot>]) -> Spaces {
        let handles =
            |buffers: &[Option<DeviceBuffer>]| buffers.iter().map(|b| b.as_ref().map(|b| b.raw().clone())).collect();
        Spaces {
            arena: lock(&self.gpu.inner.arena).handles(),
            uploads: handles(&self.own.uploads),
            constants: handles(&self.own.constants),
            states: slots.iter().map(|slot| slot.handle().map(|handle| handle.0)).collect(),
            uniform: self.own.uniform.as_ref().map(|b| b.raw().clone()),
        }
    }

    /// Uploads, encodes and submits one run. There is no await in here: a run
    /// is handed over as a whole or not at all.
    fn submit(&self, inputs: &[&InputData<'_>], watch: Option<&Watch>) -> Result<RunOutputs> {
        let inner = &self.gpu.inner;
        let bound = lock(&self.bound);
        self.upload(inputs);
        let order = lock(&self.ring.order);
        let run = self.ring.runs.fetch_add(1, Ordering::AcqRel);
        let (mut index, mut dispatches) = (None, 0);
        for (at, range) in bound.submits.iter().enumerate() {
            let mut encoder = inner.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
            match (watch, range.is_empty()) {
                (_, true) => {}
                (None, false) => encode(&mut encoder, &bound.ops[range.clone()]),
                (Some(watch), false) => watch.encode(&mut encoder, &bound.ops[range.clone()], &bound.spaces)?,
            }
            dispatches += bound.ops[range.clone()].iter().filter(|op| op.dispatch.is_some()).count() as u32;
            if at + 1 == bound.submits.len() {
                self.copy_outputs(&mut encoder, &bound.spaces, run)?;
            }
            index = Some(inner.submit([encoder.finish()]));
        }
        drop(order);
        if let Some(index) = index {
            let signal = inner.done_signal(index);
            lock(&inner.in_flight).runs.push_back(signal);
        }
        inner.poll();
        inner.faults.check()?;
        Ok(self.outputs(run, dispatches))
    }

    fn upload(&self, inputs: &[&InputData<'_>]) {
        let mut staging = lock(&self.staging);
        for (data, place) in inputs.iter().zip(&self.plan.inputs) {
            if let Some(crate::plan::Location { space: crate::plan::Space::Upload(block), offset, .. }) = place {
                let (from, bytes) = (*offset as usize, data.bytes());
                staging[*block as usize][from..from + bytes.len()].copy_from_slice(bytes);
            }
        }
        for (bytes, buffer) in staging.iter().zip(&self.own.uploads) {
            if let Some(buffer) = buffer {
                self.gpu.inner.queue.write_buffer(buffer.raw(), 0, bytes);
            }
        }
    }

    fn copy_outputs(&self, encoder: &mut wgpu::CommandEncoder, spaces: &Spaces, run: u64) -> Result<()> {
        let Some(slot) = self.ring.slot(run) else { return Ok(()) };
        for output in &self.plan.outputs {
            let place = self.plan.instances[output.instance.0 as usize].location;
            let from = spaces.buffer(place.space)?;
            encoder.copy_buffer_to_buffer(from, place.offset, slot.raw(), output.slot_offset, output.bytes);
        }
        Ok(())
    }

    fn outputs(&self, run: u64, dispatches: u32) -> RunOutputs {
        let place = |index: usize| self.plan.outputs.iter().find(|o| o.output as usize == index);
        let output = |(index, info): (usize, &crate::fuse::program::OutputInfo)| Output {
            ring: self.ring.clone(),
            run,
            index,
            name: info.name.clone(),
            ty: info.ty.clone(),
            place: place(index).map(|o| (o.slot_offset, o.bytes)),
        };
        RunOutputs { run, dispatches, outputs: self.program.outputs.iter().enumerate().map(output).collect() }
    }
}

/// Cuts the list so that no submit is estimated above `submit_ns`, unless it
/// is a single dispatch. There is always one submit, for uploads and outputs.
fn split(ops: &[Op], submit_ns: f64) -> Vec<Range<usize>> {
    let mut submits = Vec::new();
    let (mut start, mut cost) = (0, 0.0);
    for (index, op) in ops.iter().enumerate() {
        if index > start && cost + op.cost_ns > submit_ns {
            submits.push(start..index);
            (start, cost) = (index, 0.0);
        }
        cost += op.cost_ns;
    }
    submits.push(start..ops.len());
    submits
}

impl OwnBuffers {
    async fn new(inner: &Inner, program: &Program, plan: &Plan) -> Result<Self> {
        let mut own = Self {
            uniform: inner.optional("uniform words", plan.uniform_bytes, BufferCategory::Uniform).await?,
            ..Self::default()
        };
        for &bytes in &plan.upload_blocks {
            own.uploads.push(inner.optional("inputs", bytes, BufferCategory::Upload).await?);
        }
        for &bytes in &plan.constant_blocks {
            own.constants.push(inner.optional("constants", bytes, BufferCategory::Constant).await?);
        }
        if let Some(uniform) = &own.uniform {
            inner.stage(uniform.raw(), 0, &uniform_words(program, plan));
        }
        for (bytes, place) in program.constants.iter().zip(&plan.constants) {
            let Some(place) = place else { continue };
            if let crate::plan::Space::Constant(block) = place.space {
                if let Some(Some(buffer)) = own.constants.get(block as usize) {
                    inner.stage(buffer.raw(), place.offset, bytes);
                }
            }
        }
        inner.settle().await?;
        Ok(own)
    }
}

/// All uniform words of a plan, each dispatch's at its offset.
fn uniform_words(program: &Program, plan: &Plan) -> Vec<u8> {
    let mut bytes = vec![0; plan.uniform_bytes as usize];
    for dispatch in &plan.dispatches {
        let words: &[u8] = bytemuck::cast_slice(&program.passes[dispatch.pass.index()].uniforms);
        let from = dispatch.uniform_offset as usize;
        if !words.is_empty() {
            bytes[from..from + words.len()].copy_from_slice(words);
        }
    }
    bytes
}

impl Inner {
    /// A buffer, or none for a length of 0.
    async fn optional(&self, what: &str, bytes: u64, category: BufferCategory) -> Result<Option<DeviceBuffer>> {
        if bytes == 0 { Ok(None) } else { self.allocate(what, bytes, category).await.map(Some) }
    }
}
