//! A second opinion: proves a plan by walking it.
//!
//! Written apart from the planner and sharing only data types with it: the
//! walk keeps, for each block of the arena, which instance's bytes lie where.
//! An instance of a storage is right if its bytes were written whole by a
//! dispatch of the storage's producer, whose operands were right; since every
//! storage has one producer, that is all there is to prove about values.

use std::collections::BTreeMap;

use crate::error::{Error, Result};
use crate::fuse::program::{Category, Operand, Pass, PassId, Phase, Program, StorageId, StorageKind};
use crate::plan::{Dispatch, InstanceId, Location, OUTPUT_SLOTS, PeakBytes, Plan, Space};
use crate::profile::DeviceProfile;

/// Proves that a plan computes what its program says, within the limits of a
/// device and in the memory that it states.
///
/// # Errors
/// [`Error::PlanCheck`] naming the dispatch and the values of the first fault.
pub fn check(program: &Program, plan: &Plan, profile: &DeviceProfile) -> Result<()> {
    let mut checker = Checker {
        program,
        plan,
        profile,
        blocks: vec![BTreeMap::new(); plan.arena_blocks.len()],
        made_at: vec![None; plan.instances.len()],
        last_use: vec![0; plan.instances.len()],
        ended: vec![false; plan.instances.len()],
        overwritten: vec![None; program.storages.len()],
        runs: vec![0; program.passes.len()],
    };
    checker.places()?;
    checker.uniforms()?;
    for (index, dispatch) in plan.dispatches.iter().enumerate() {
        checker.dispatch(index, dispatch)?;
    }
    checker.outputs()?;
    checker.passes()?;
    checker.lifetimes()?;
    checker.sums()
}

struct Checker<'a> {
    program: &'a Program,
    plan: &'a Plan,
    profile: &'a DeviceProfile,
    /// Per arena block: first byte -> (end, instance) of what was written last.
    blocks: Vec<BTreeMap<u64, (u64, InstanceId)>>,
    made_at: Vec<Option<usize>>,
    last_use: Vec<usize>,
    /// Another instance was made at its place.
    ended: Vec<bool>,
    /// Per state storage the dispatch that overwrote it.
    overwritten: Vec<Option<usize>>,
    runs: Vec<u32>,
}

fn fail<T>(dispatch: usize, detail: String) -> Result<T> {
    Err(Error::PlanCheck { dispatch, detail })
}

fn overlap(a: &Location, b: &Location) -> bool {
    a.space == b.space && a.offset < b.offset.saturating_add(b.bytes) && b.offset < a.offset.saturating_add(a.bytes)
}

fn rounded(bytes: u64, to: u64) -> u128 {
    u128::from(bytes).div_ceil(u128::from(to)) * u128::from(to)
}

impl<'a> Checker<'a> {
    fn name(&self, storage: StorageId) -> &'a str {
        self.program.storages.get(storage.index()).map_or("(no such storage)", |s| &s.name)
    }

    fn end(&self) -> usize {
        self.plan.dispatches.len()
    }

    fn align(&self) -> u64 {
        self.profile.offset_alignment_bytes.max(4)
    }

    /// Every instance lies in its block, at its length, aligned, within limits.
    fn places(&self) -> Result<()> {
        if self.plan.offset_alignment_bytes != self.align() {
            return fail(self.end(), "planned for another alignment".to_owned());
        }
        for instance in &self.plan.instances {
            let Some(storage) = self.program.storages.get(instance.storage.index()) else {
                return fail(self.end(), format!("an instance of storage {} exists", instance.storage.0));
            };
            let at = &instance.location;
            let place_fits = match storage.kind {
                StorageKind::Transient => matches!(at.space, Space::Arena(_)),
                StorageKind::Input(i) => self.plan.inputs.get(i as usize) == Some(&Some(*at)),
                StorageKind::Constant(i) => self.plan.constants.get(i as usize) == Some(&Some(*at)),
                StorageKind::State(i) => at.space == Space::State(i) && at.offset == 0,
            };
            if !place_fits || at.bytes != storage.bytes || !at.offset.is_multiple_of(self.align()) {
                return fail(instance.first as usize, format!("{} lies at {at:?}", storage.name));
            }
            if at.bytes > self.profile.max_binding_bytes {
                return fail(instance.first as usize, format!("{} is larger than a binding", storage.name));
            }
            if at.offset.checked_add(at.bytes).is_none_or(|end| end > self.space_bytes(at.space)) {
                return fail(instance.first as usize, format!("{} reaches beyond the end of its block", storage.name));
            }
        }
        self.packed(&self.plan.inputs, "inputs")?;
        self.packed(&self.plan.constants, "constants")?;
        self.block_lengths()
    }

    fn space_bytes(&self, space: Space) -> u64 {
        let block = |blocks: &[u64], index: u32| blocks.get(index as usize).copied().unwrap_or(0);
        match space {
            Space::Arena(index) => block(&self.plan.arena_blocks, index),
            Space::Upload(index) => block(&self.plan.upload_blocks, index),
            Space::Constant(index) => block(&self.plan.constant_blocks, index),
            Space::State(index) => self.program.states.get(index as usize).map_or(0, |s| s.ty.size_bytes()),
        }
    }

    /// What lies there for the whole run does not overlap.
    fn packed(&self, places: &[Option<Location>], what: &str) -> Result<()> {
        let mut places: Vec<Location> = places.iter().flatten().copied().collect();
        places.sort_by_key(|l| (l.space, l.offset));
        match places.windows(2).find(|pair| overlap(&pair[0], &pair[1])) {
            Some(pair) => fail(self.end(), format!("two {what} overlap: {:?} and {:?}", pair[0], pair[1])),
            None => Ok(()),
        }
    }

    /// A block ends with its last placed byte and is no larger than a buffer.
    fn block_lengths(&self) -> Result<()> {
        let ends = |blocks: &[u64], places: &mut dyn Iterator<Item = Location>, space: fn(u32) -> Space| {
            let mut ends = vec![0_u64; blocks.len()];
            for place in places {
                if let Some(end) = (0..blocks.len()).find(|&b| space(b as u32) == place.space).map(|b| &mut ends[b]) {
                    *end = (*end).max(place.offset + place.bytes);
                }
            }
            ends
        };
        let arena = ends(&self.plan.arena_blocks, &mut self.plan.instances.iter().map(|i| i.location), Space::Arena);
        let upload = ends(&self.plan.upload_blocks, &mut self.plan.inputs.iter().flatten().copied(), Space::Upload);
        let constant =
            ends(&self.plan.constant_blocks, &mut self.plan.constants.iter().flatten().copied(), Space::Constant);
        let groups = [
            ("arena", arena, &self.plan.arena_blocks),
            ("upload", upload, &self.plan.upload_blocks),
            ("constant", constant, &self.plan.constant_blocks),
        ];
        for (what, ends, blocks) in groups {
            if ends != *blocks {
                return fail(
                    self.end(),
                    format!("{what} blocks are stated as {blocks:?}, placed bytes end at {ends:?}"),
                );
            }
            if blocks.iter().any(|&bytes| bytes > self.profile.max_buffer_bytes) {
                return fail(self.end(), format!("an {what} block of {blocks:?} is larger than a buffer"));
            }
        }
        Ok(())
    }

    /// Words of different content do not share bytes.
    fn uniforms(&self) -> Result<()> {
        let mut ranges: BTreeMap<u64, (&[u32], usize)> = BTreeMap::new();
        for (index, dispatch) in self.plan.dispatches.iter().enumerate() {
            let Some(pass) = self.program.passes.get(dispatch.pass.index()) else {
                return fail(index, format!("pass {} does not exist", dispatch.pass.0));
            };
            if pass.uniforms.is_empty() {
                continue;
            }
            if !dispatch.uniform_offset.is_multiple_of(self.align()) {
                return fail(index, format!("the words of {} begin at {}", pass.name, dispatch.uniform_offset));
            }
            let (words, _) = *ranges.entry(dispatch.uniform_offset).or_insert((&pass.uniforms, index));
            if *words != *pass.uniforms {
                return fail(index, format!("the words of {} lie where others do", pass.name));
            }
        }
        let mut end = 0_u64;
        for (&offset, &(words, index)) in &ranges {
            if offset < end {
                return fail(index, format!("uniform words at {offset} overlap the ones before"));
            }
            end = offset + 4 * words.len() as u64;
        }
        if u128::from(self.plan.uniform_bytes) != rounded(end, self.align()) {
            return fail(self.end(), format!("the uniform buffer has {} bytes", self.plan.uniform_bytes));
        }
        Ok(())
    }

    fn dispatch(&mut self, index: usize, dispatch: &Dispatch) -> Result<()> {
        let pass = self.program.pass(dispatch.pass);
        self.form(index, dispatch, pass)?;
        for (operand, &instance) in pass.operands.iter().zip(&dispatch.instances) {
            if let Some(storage) = operand.read() {
                self.read(index, pass, storage, instance)?;
            }
        }
        for (operand, (&instance, &made)) in pass.operands.iter().zip(dispatch.instances.iter().zip(&dispatch.made)) {
            match (*operand, made) {
                (Operand::StateWrite(state), _) => {
                    if let Some(before) = self.overwritten[state.index()].replace(index) {
                        return fail(index, format!("{} was overwritten by dispatch {before}", self.name(state)));
                    }
                }
                (Operand::InPlace { .. }, Some(made)) => {
                    self.ended[instance.0 as usize] = true;
                    self.write(index, made)?;
                }
                (Operand::Write(_), Some(made)) => self.write(index, made)?,
                _ => {}
            }
        }
        let runs = &mut self.runs[dispatch.pass.index()];
        if dispatch.replay != (*runs > 0) {
            return fail(index, format!("{} is marked replay: {}, ran {runs} times", pass.name, dispatch.replay));
        }
        *runs += 1;
        Ok(())
    }

    /// Operands and instances fit together, and what is bound does not overlap.
    fn form(&self, index: usize, dispatch: &Dispatch, pass: &Pass) -> Result<()> {
        if dispatch.instances.len() != pass.operands.len() || dispatch.made.len() != pass.operands.len() {
            return fail(index, format!("{} has {} bindings", pass.name, dispatch.instances.len()));
        }
        if pass.operands.len() > self.profile.max_storage_buffers as usize {
            return fail(index, format!("{} binds too many storage buffers", pass.name));
        }
        if pass.grid.iter().any(|&n| n == 0 || n > self.profile.max_workgroups_per_dimension) {
            return fail(index, format!("{} has the grid {:?}", pass.name, pass.grid));
        }
        let mut bound: Vec<(StorageId, Location)> = Vec::with_capacity(pass.operands.len());
        for (operand, (&instance, &made)) in pass.operands.iter().zip(dispatch.instances.iter().zip(&dispatch.made)) {
            let of = self.storage_of(index, instance)?;
            let made_of = made.map(|m| self.storage_of(index, m)).transpose()?;
            let at = self.plan.instances[instance.0 as usize].location;
            let fits = match *operand {
                Operand::Read(s) | Operand::StateWrite(s) => of == s && made.is_none(),
                Operand::Write(s) => of == s && made == Some(instance),
                Operand::InPlace { input, output } => {
                    let same_place = made.is_some_and(|m| self.plan.instances[m.0 as usize].location == at);
                    of == input && made_of == Some(output) && same_place
                }
            };
            if !fits {
                return fail(index, format!("{} means {operand:?} but is given {}", pass.name, self.name(of)));
            }
            if let Some((other, _)) = bound.iter().find(|(_, place)| overlap(place, &at)) {
                let (a, b) = (self.name(of), self.name(*other));
                return fail(index, format!("{} binds {a} and {b}, which overlap", pass.name));
            }
            bound.push((of, at));
        }
        Ok(())
    }

    fn storage_of(&self, index: usize, instance: InstanceId) -> Result<StorageId> {
        match self.plan.instances.get(instance.0 as usize) {
            Some(found) => Ok(found.storage),
            None => fail(index, format!("instance {} does not exist", instance.0)),
        }
    }

    fn read(&mut self, index: usize, pass: &Pass, storage: StorageId, instance: InstanceId) -> Result<()> {
        let name = self.name(storage);
        if let Some(by) = self.overwritten[storage.index()] {
            return fail(index, format!("{} reads the state {name}, overwritten by dispatch {by}", pass.name));
        }
        self.last_use[instance.0 as usize] = index;
        if let Some(found) = self.lies_elsewhere(instance) {
            return fail(index, format!("{} reads {name}, but finds {found}", pass.name));
        }
        Ok(())
    }

    /// What lies where a transient instance should, if it is something else.
    fn lies_elsewhere(&self, instance: InstanceId) -> Option<String> {
        let at = &self.plan.instances[instance.0 as usize].location;
        let Space::Arena(block) = at.space else { return None };
        match self.blocks[block as usize].get(&at.offset) {
            Some(&(end, found)) if found == instance && end == at.offset + at.bytes => None,
            Some(&(_, found)) if found != instance => {
                let storage = self.plan.instances[found.0 as usize].storage;
                Some(format!("instance {} of {} instead of {}", found.0, self.name(storage), instance.0))
            }
            _ => Some("bytes that were never written or only in part".to_owned()),
        }
    }

    /// Puts an instance's bytes in place; what it overlaps is gone, wholly.
    fn write(&mut self, index: usize, instance: InstanceId) -> Result<()> {
        let at = self.plan.instances[instance.0 as usize].location;
        if let Some(before) = self.made_at[instance.0 as usize].replace(index) {
            return fail(index, format!("instance {} was made by dispatch {before}", instance.0));
        }
        self.last_use[instance.0 as usize] = index;
        let Space::Arena(block) = at.space else {
            return fail(index, format!("instance {} is written outside of the arena", instance.0));
        };
        let block = &mut self.blocks[block as usize];
        let end = at.offset + at.bytes;
        while let Some((&begin, &(other_end, _))) = block.range(..end).next_back() {
            if other_end <= at.offset {
                break;
            }
            block.remove(&begin);
        }
        block.insert(at.offset, (end, instance));
        Ok(())
    }

    /// Outputs are there when the run ends, each in its own part of a slot.
    fn outputs(&mut self) -> Result<()> {
        let end = self.end();
        let mut placed = vec![false; self.program.outputs.len()];
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for output in &self.plan.outputs {
            let Some(info) = self.program.outputs.get(output.output as usize) else {
                return fail(end, format!("output {} does not exist", output.output));
            };
            let of = self.storage_of(end, output.instance)?;
            if Some(of) != info.storage || output.bytes != info.ty.size_bytes() {
                return fail(end, format!("the output {} is given {}", info.name, self.name(of)));
            }
            if let Some(by) = self.overwritten[of.index()] {
                return fail(end, format!("the output {} is overwritten by dispatch {by}", info.name));
            }
            if let Some(found) = self.lies_elsewhere(output.instance) {
                return fail(end, format!("the output {} is not there at the end: {found}", info.name));
            }
            if std::mem::replace(&mut placed[output.output as usize], true) || !output.slot_offset.is_multiple_of(4) {
                return fail(end, format!("the output {} has slot offset {}", info.name, output.slot_offset));
            }
            self.last_use[output.instance.0 as usize] = end;
            ranges.push((output.slot_offset, output.slot_offset.saturating_add(output.bytes)));
        }
        if let Some(missing) = (0..placed.len()).find(|&o| !placed[o] && self.program.outputs[o].storage.is_some()) {
            return fail(end, format!("the output {} has no place", self.program.outputs[missing].name));
        }
        ranges.sort_unstable();
        let apart = ranges.windows(2).all(|pair| pair[0].1 <= pair[1].0);
        if !apart
            || ranges.iter().any(|r| r.1 > self.plan.slot_bytes)
            || !self.plan.slot_bytes.is_multiple_of(self.align())
        {
            return fail(end, "outputs do not fit into their slot".to_owned());
        }
        Ok(())
    }

    /// State writes ran once, and everything that somebody needs ran.
    fn passes(&self) -> Result<()> {
        let mut needed = vec![false; self.program.storages.len()];
        for storage in self.program.outputs.iter().filter_map(|o| o.storage) {
            needed[storage.index()] = true;
        }
        for (index, pass) in self.program.passes.iter().enumerate().rev() {
            let writes_state = pass.phase == Phase::Update;
            let makes_needed = pass.operands.iter().filter_map(|o| o.made()).any(|s| needed[s.index()]);
            let runs = self.runs[PassId(index as u32).index()];
            if writes_state && runs != 1 {
                return fail(self.end(), format!("{} writes state and ran {runs} times", pass.name));
            }
            if (writes_state || makes_needed) && runs == 0 {
                return fail(self.end(), format!("{} never ran", pass.name));
            }
            if writes_state || makes_needed {
                for read in pass.operands.iter().filter_map(|o| o.read()) {
                    needed[read.index()] = true;
                }
            }
        }
        Ok(())
    }

    /// Lifetimes are as stated.
    fn lifetimes(&self) -> Result<()> {
        for (index, instance) in self.plan.instances.iter().enumerate() {
            let transient = matches!(instance.location.space, Space::Arena(_));
            let first = self.made_at[index].unwrap_or(0);
            if transient && self.made_at[index].is_none() {
                return fail(self.end(), format!("{} has an instance that nobody makes", self.name(instance.storage)));
            }
            if (instance.first as usize, instance.last as usize) != (first, self.last_use[index]) {
                return fail(
                    first,
                    format!(
                        "{} is stated to live from {} to {}, but lives from {first} to {}",
                        self.name(instance.storage),
                        instance.first,
                        instance.last,
                        self.last_use[index]
                    ),
                );
            }
        }
        Ok(())
    }

    /// Peaks, counts and costs are as stated.
    fn sums(&self) -> Result<()> {
        let plan = self.plan;
        let sum = |blocks: &[u64]| blocks.iter().fold(0_u64, |sum, &b| sum.saturating_add(b));
        let peak = PeakBytes {
            state: self.program.states.iter().fold(0, |sum, s| sum.saturating_add(s.ty.size_bytes())),
            arena: sum(&plan.arena_blocks),
            upload: sum(&plan.upload_blocks),
            constant: sum(&plan.constant_blocks),
            uniform: plan.uniform_bytes,
            output: plan.slot_bytes.saturating_mul(OUTPUT_SLOTS),
            readback: plan.slot_bytes,
        };
        if peak != plan.peak {
            return fail(self.end(), format!("the peak is stated as {:?}, but is {peak:?}", plan.peak));
        }
        let (live, activation) = self.live_peaks();
        let stated = (u128::from(plan.live_peak_bytes), u128::from(plan.activation_peak_bytes));
        if (live.min(u128::from(u64::MAX)), activation.min(u128::from(u64::MAX))) != stated {
            return fail(self.end(), format!("live peaks are stated as {stated:?}, but are {:?}", (live, activation)));
        }
        let replays = plan.dispatches.iter().filter(|d| d.replay).count();
        if replays != plan.replayed_passes as usize {
            return fail(self.end(), format!("{} replays are stated, {replays} found", plan.replayed_passes));
        }
        let cost = |replays_only: bool| -> f64 {
            let counted = plan.dispatches.iter().filter(|d| d.replay || !replays_only);
            counted.map(|d| self.cost_ns(self.program.pass(d.pass))).sum()
        };
        let close = |a: f64, b: f64| (a - b).abs() <= 1e-9 * a.abs().max(b.abs());
        if !close(cost(false), plan.cost_ns) || !close(cost(true), plan.replay_cost_ns) {
            return fail(self.end(), format!("the cost is stated as {} ns, but is {}", plan.cost_ns, cost(false)));
        }
        Ok(())
    }

    fn cost_ns(&self, pass: &Pass) -> f64 {
        let rates = &self.profile.rates;
        (pass.cost.flops / rates.flops_per_ns).max(pass.cost.bytes / rates.bytes_per_ns) + rates.dispatch_ns
    }

    /// Largest sums of live bytes, by adding and removing as the walk found it.
    fn live_peaks(&self) -> (u128, u128) {
        let mut born: Vec<Vec<usize>> = vec![Vec::new(); self.end() + 1];
        let mut dead: Vec<Vec<usize>> = vec![Vec::new(); self.end() + 2];
        for (index, made) in self.made_at.iter().enumerate() {
            if let Some(made) = *made {
                born[made].push(index);
                // One that another is made on top of is counted as that one from then on.
                dead[self.last_use[index] + usize::from(!self.ended[index])].push(index);
            }
        }
        let size = |index: usize| rounded(self.plan.instances[index].location.bytes, self.align());
        let counts = |index: usize| {
            self.program.storage(self.plan.instances[index].storage).category != Category::ParameterGradient
        };
        let (mut live, mut activation) = (0_u128, 0_u128);
        let (mut live_peak, mut activation_peak) = (0, 0);
        for dispatch in 0..self.end() {
            for &index in &dead[dispatch] {
                live -= size(index);
                activation -= if counts(index) { size(index) } else { 0 };
            }
            for &index in &born[dispatch] {
                live += size(index);
                activation += if counts(index) { size(index) } else { 0 };
            }
            live_peak = live_peak.max(live);
            activation_peak = activation_peak.max(activation);
        }
        (live_peak, activation_peak)
    }
}
