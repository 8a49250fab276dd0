//! What every decision about one program needs to know of it, gathered once.

use crate::error::{Error, Result};
use crate::fuse::program::{Mark, Operand, Pass, Phase, Program, StorageKind};
use crate::profile::{DeviceProfile, Rates};

/// No pass, no instance, no position.
pub(crate) const NONE: u32 = u32::MAX;

/// Rounds up to a multiple of `to`; saturates.
pub(crate) fn round_up(bytes: u64, to: u64) -> u64 {
    bytes.div_ceil(to).saturating_mul(to)
}

/// Estimated time of one dispatch of this pass.
pub(crate) fn pass_cost_ns(pass: &Pass, rates: &Rates) -> f64 {
    let work = (pass.cost.flops / rates.flops_per_ns).max(pass.cost.bytes / rates.bytes_per_ns);
    work + rates.dispatch_ns
}

/// Lookups over a program, by index of pass or storage.
#[derive(Debug)]
pub(crate) struct Facts<'p> {
    /// The program.
    pub(crate) program: &'p Program,
    /// The pass that makes a storage, or `NONE`.
    pub(crate) producer: Vec<u32>,
    /// Passes whose work somebody wants: an output or a state.
    pub(crate) wanted: Vec<bool>,
    /// Passes that write state or depend on one that does: never replayed, put
    /// into the order when all else stands.
    pub(crate) late: Vec<bool>,
    /// Storages that a run hands back.
    pub(crate) handed_back: Vec<bool>,
    /// The user's wish for each storage: its own, or that of the innermost
    /// marked segment around its producer.
    pub(crate) marks: Vec<Option<Mark>>,
    /// The one instance of a storage that no pass makes, or `NONE`.
    pub(crate) external: Vec<u32>,
    /// Storages that no pass makes, in order: instance `i` is a life of `externals[i]`.
    pub(crate) externals: Vec<u32>,
    /// Bytes of a storage, rounded up to the alignment of offsets.
    pub(crate) size: Vec<u64>,
    /// Estimated time of each pass.
    pub(crate) cost_ns: Vec<f64>,
    reader_start: Vec<u32>,
    readers: Vec<u32>,
}

impl<'p> Facts<'p> {
    /// Gathers them.
    ///
    /// # Errors
    /// [`Error::PlanCheck`] if two passes write one state, if an output is a
    /// state that the run overwrites, or an output is overwritten in place.
    pub(crate) fn new(program: &'p Program, profile: &DeviceProfile) -> Result<Self> {
        let producer: Vec<u32> = program.producers().iter().map(|p| p.map_or(NONE, |p| p.0)).collect();
        let mut handed_back = vec![false; program.storages.len()];
        for storage in program.outputs.iter().filter_map(|o| o.storage) {
            handed_back[storage.index()] = true;
        }
        let wanted = wanted_passes(program, &handed_back);
        let late = late_passes(program);
        let (reader_start, readers) = reader_lists(program, &wanted);
        let externals: Vec<u32> = (0..program.storages.len() as u32)
            .filter(|&s| program.storages[s as usize].kind != StorageKind::Transient)
            .collect();
        let mut external = vec![NONE; program.storages.len()];
        for (instance, &storage) in externals.iter().enumerate() {
            external[storage as usize] = instance as u32;
        }
        let align = profile.offset_alignment_bytes.max(4);
        let size = program.storages.iter().map(|s| round_up(s.bytes, align)).collect();
        let cost_ns = program.passes.iter().map(|p| pass_cost_ns(p, &profile.rates)).collect();
        let facts = Self {
            program,
            producer,
            wanted,
            late,
            handed_back,
            marks: marks(program),
            external,
            externals,
            size,
            cost_ns,
            reader_start,
            readers,
        };
        facts.refuse_overwrites()?;
        Ok(facts)
    }

    /// The wanted passes that read a storage, in recorded order.
    pub(crate) fn readers_of(&self, storage: usize) -> &[u32] {
        &self.readers[self.reader_start[storage] as usize..self.reader_start[storage + 1] as usize]
    }

    /// True if a pass may run again: it is a forward pass and not late.
    pub(crate) fn replayable(&self, pass: u32) -> bool {
        pass != NONE && !self.late[pass as usize] && self.program.passes[pass as usize].phase == Phase::Forward
    }

    /// True if a storage is made by a pass that may run again, and may be dropped.
    pub(crate) fn remakable(&self, storage: usize) -> bool {
        self.marks[storage] != Some(Mark::Save) && self.replayable(self.producer[storage])
    }

    fn refuse_overwrites(&self) -> Result<()> {
        let fail = |dispatch: usize, detail: String| Err(Error::PlanCheck { dispatch, detail });
        let mut writer = vec![NONE; self.program.storages.len()];
        for (index, pass) in self.program.passes.iter().enumerate() {
            for operand in &pass.operands {
                match *operand {
                    Operand::StateWrite(state) => {
                        let name = &self.program.storage(state).name;
                        if writer[state.index()] != NONE {
                            return fail(index, format!("{} writes the state {name}, written before", pass.name));
                        }
                        if self.handed_back[state.index()] {
                            return fail(
                                index,
                                format!("{} overwrites the state {name}, which the run hands back; copy it", pass.name),
                            );
                        }
                        writer[state.index()] = index as u32;
                    }
                    Operand::InPlace { input, .. } if self.handed_back[input.index()] => {
                        let name = &self.program.storage(input).name;
                        return fail(index, format!("{} overwrites the output {name} in place", pass.name));
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }
}

/// Walks back from outputs and state writes: what they need, transitively.
fn wanted_passes(program: &Program, handed_back: &[bool]) -> Vec<bool> {
    let mut needed = handed_back.to_vec();
    let mut wanted = vec![false; program.passes.len()];
    for (index, pass) in program.passes.iter().enumerate().rev() {
        let made = pass.operands.iter().filter_map(|o| o.made());
        wanted[index] = pass.phase == Phase::Update || made.into_iter().any(|s| needed[s.index()]);
        if wanted[index] {
            for read in pass.operands.iter().filter_map(|o| o.read()) {
                needed[read.index()] = true;
            }
        }
    }
    wanted
}

/// The wish for each storage. A segment's wish to recompute is for what it alone
/// reads in the forward pass; what it hands on is for others to decide.
fn marks(program: &Program) -> Vec<Option<Mark>> {
    let mut marks: Vec<Option<Mark>> = program.storages.iter().map(|s| s.mark).collect();
    if program.segments.iter().all(|s| s.mark.is_none()) {
        return marks;
    }
    let marked = |pass: &Pass| {
        let path = program.segment_path(pass.segment);
        path.into_iter().rev().find_map(|id| program.segments[id.index()].mark.map(|mark| (id, mark)))
    };
    let mut read_outside = vec![false; program.storages.len()];
    let producers = program.producers();
    for pass in program.passes.iter().filter(|p| p.phase == Phase::Forward) {
        let path = program.segment_path(pass.segment);
        for read in pass.operands.iter().filter_map(|o| o.read()) {
            let owner = producers[read.index()].and_then(|p| marked(program.pass(p)));
            read_outside[read.index()] |= owner.is_some_and(|(segment, _)| !path.contains(&segment));
        }
    }
    for pass in program.passes.iter().filter(|p| p.phase == Phase::Forward) {
        let Some((_, mark)) = marked(pass) else { continue };
        for made in pass.operands.iter().filter_map(|o| o.made()) {
            let inside = !read_outside[made.index()];
            let wish = (mark == Mark::Save || inside).then_some(mark);
            marks[made.index()] = marks[made.index()].or(wish);
        }
    }
    marks
}

/// Passes that write state, and whatever reads what such a pass makes.
fn late_passes(program: &Program) -> Vec<bool> {
    let mut made_late = vec![false; program.storages.len()];
    let mut late = vec![false; program.passes.len()];
    for (index, pass) in program.passes.iter().enumerate() {
        late[index] =
            pass.phase == Phase::Update || pass.operands.iter().filter_map(|o| o.read()).any(|s| made_late[s.index()]);
        if late[index] {
            for made in pass.operands.iter().filter_map(|o| o.made()) {
                made_late[made.index()] = true;
            }
        }
    }
    late
}

fn reader_lists(program: &Program, wanted: &[bool]) -> (Vec<u32>, Vec<u32>) {
    let mut start = vec![0_u32; program.storages.len() + 1];
    let reads = |index: usize| program.passes[index].operands.iter().filter_map(|o| o.read());
    let running: Vec<usize> = (0..program.passes.len()).filter(|&p| wanted[p]).collect();
    for storage in running.iter().flat_map(|&p| reads(p)) {
        start[storage.index() + 1] += 1;
    }
    for at in 1..start.len() {
        start[at] += start[at - 1];
    }
    let mut next = start.clone();
    let mut readers = vec![0_u32; start.last().copied().unwrap_or(0) as usize];
    for &pass in &running {
        for storage in reads(pass) {
            readers[next[storage.index()] as usize] = pass as u32;
            next[storage.index()] += 1;
        }
    }
    (start, readers)
}
