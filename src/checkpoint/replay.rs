//! Walks the passes under a decision and repeats what was dropped.
//!
//! A value made in forward has a *level*: the innermost region around its
//! producer and all its forward readers. At the root it is kept. Deeper, it is
//! dropped after its last forward reader; when a backward pass reads it, its
//! producer is replayed, and before that the producers of whatever is missing.
//! Only demanded passes are replayed, so a replay stops early by itself, and
//! since backward runs last region first, so do the replays.
//!
//! A replayed value stays until its last backward reader if the pass that
//! demanded it lies within the value's region. Otherwise it was rebuilt on the
//! way to something outside, and is gone after that one demand: the interior
//! of an inner segment is rebuilt again when its own gradients are made, and
//! takes no memory until then.
//!
//! Nothing here recurses: a chain may be as long as memory allows.

use std::collections::BTreeMap;

use crate::checkpoint::Decision;
use crate::checkpoint::facts::{Facts, NONE};
use crate::checkpoint::paths::ROOT;
use crate::error::{Error, Result};
use crate::fuse::program::{Mark, Operand, PassId, Phase};

/// One pass in the order of encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Step {
    /// Which pass.
    pub(crate) pass: u32,
    /// True if it ran before.
    pub(crate) replay: bool,
    /// Index of its first operand in [`Trace::reads`] and [`Trace::makes`].
    pub(crate) first_operand: u32,
}

/// Passes and replays, with the instance that each operand means.
#[derive(Debug, Clone, Default)]
pub(crate) struct Trace {
    /// In order.
    pub(crate) steps: Vec<Step>,
    /// Per operand the instance read, or `NONE`.
    pub(crate) reads: Vec<u32>,
    /// Per operand the instance made, or `NONE`.
    pub(crate) makes: Vec<u32>,
    /// The storage of each instance.
    pub(crate) storage: Vec<u32>,
    /// The step that makes each instance; `NONE` for externals.
    pub(crate) born: Vec<u32>,
    /// The instance of the same storage made before this one, or `NONE`.
    pub(crate) earlier: Vec<u32>,
    /// The newest instance of each storage, or `NONE`.
    pub(crate) newest: Vec<u32>,
}

impl Trace {
    /// Adds an instance that `step` makes.
    pub(crate) fn add_instance(&mut self, storage: u32, step: u32) -> u32 {
        let id = self.storage.len() as u32;
        self.storage.push(storage);
        self.born.push(step);
        self.earlier.push(self.newest[storage as usize]);
        self.newest[storage as usize] = id;
        id
    }
}

/// Repeats of a walk that is not worth going on with.
const STEPS_PER_PASS: usize = 64;
const STEPS_AT_LEAST: usize = 1 << 18;

/// Walks `order` (all wanted passes that are not late) under a decision.
///
/// # Errors
/// [`Error::Policy`] if the decision repeats passes beyond all reason;
/// [`Error::PlanCheck`] if a value is read that cannot be made again.
pub(crate) fn replay(facts: &Facts<'_>, order: &[u32], decision: &Decision) -> Result<Trace> {
    let mut walk = Walk::new(facts, order, decision);
    for (position, &pass) in order.iter().enumerate() {
        walk.now = position as u32;
        walk.sweep = facts.program.sweep_of(PassId(pass)) as u32;
        for operand in &facts.program.passes[pass as usize].operands {
            if let Some(read) = operand.read() {
                if !walk.available(read.0) {
                    walk.demand(read.0, decision.paths.of_pass(pass as usize))?;
                }
            }
        }
        walk.emit(pass, None);
        if walk.trace.steps.len() > STEPS_AT_LEAST.max(order.len().saturating_mul(STEPS_PER_PASS)) {
            return Err(Error::Policy {
                policy: "replay".to_owned(),
                detail: format!(
                    "more than {STEPS_PER_PASS} replays per pass; nest fewer segments or let them hold less"
                ),
            });
        }
    }
    Ok(walk.trace)
}

struct Walk<'a> {
    facts: &'a Facts<'a>,
    decision: &'a Decision,
    levels: Levels,
    trace: Trace,
    /// The instance that a read of this storage means now, if `until` allows.
    current: Vec<u32>,
    /// The last position at which it is there.
    until: Vec<u32>,
    now: u32,
    /// The sweep of the pass at `now`.
    sweep: u32,
    pending: Vec<(u32, u32)>,
}

/// Per storage: its region and its last readers, by position in the order.
struct Levels {
    level: Vec<u32>,
    dropped: Vec<bool>,
    last_forward: Vec<u32>,
    /// By storage and sweep: a call of `gradients` does not keep what it has had
    /// rebuilt for a later one, so that several take no more memory than one.
    last_backward: BTreeMap<(u32, u32), u32>,
}

impl Levels {
    fn new(facts: &Facts<'_>, order: &[u32], decision: &Decision) -> Self {
        let program = facts.program;
        let count = program.storages.len();
        let mut levels = Self {
            level: vec![ROOT; count],
            dropped: vec![false; count],
            last_forward: vec![0; count],
            last_backward: BTreeMap::new(),
        };
        for (position, &pass) in order.iter().enumerate() {
            let position = position as u32;
            let node = decision.paths.of_pass(pass as usize);
            let sweep = program.sweep_of(PassId(pass)) as u32;
            let forward = program.passes[pass as usize].phase == Phase::Forward;
            for operand in &program.passes[pass as usize].operands {
                if let Some(read) = operand.read() {
                    let read = read.index();
                    if forward {
                        levels.level[read] = decision.paths.common(levels.level[read], node);
                        levels.last_forward[read] = position;
                    } else {
                        levels.last_backward.insert((read as u32, sweep), position);
                    }
                }
                if let Some(made) = operand.made() {
                    levels.level[made.index()] = node;
                    levels.last_forward[made.index()] = position;
                }
            }
        }
        for storage in 0..count {
            if facts.handed_back[storage] || !facts.remakable(storage) {
                levels.level[storage] = ROOT;
            }
        }
        for storage in &decision.kept {
            if facts.marks[storage.index()] != Some(Mark::Recompute) {
                levels.level[storage.index()] = ROOT;
            }
        }
        for storage in 0..count {
            let marked = facts.marks[storage] == Some(Mark::Recompute) && facts.remakable(storage);
            let wished = marked && !facts.handed_back[storage];
            levels.dropped[storage] = wished || levels.level[storage] != ROOT;
        }
        for storage in &decision.evicted {
            let remade = facts.remakable(storage.index()) && !facts.handed_back[storage.index()];
            levels.dropped[storage.index()] |= remade;
        }
        levels
    }
}

impl<'a> Walk<'a> {
    fn new(facts: &'a Facts<'a>, order: &[u32], decision: &'a Decision) -> Self {
        let count = facts.program.storages.len();
        let externals = facts.externals.len();
        Self {
            facts,
            decision,
            levels: Levels::new(facts, order, decision),
            trace: Trace {
                steps: Vec::with_capacity(order.len() * 2),
                storage: facts.externals.clone(),
                born: vec![NONE; externals],
                earlier: vec![NONE; externals],
                newest: facts.external.clone(),
                ..Trace::default()
            },
            current: facts.external.clone(),
            until: vec![NONE; count],
            now: 0,
            sweep: 0,
            pending: Vec::new(),
        }
    }

    fn available(&self, storage: u32) -> bool {
        self.current[storage as usize] != NONE && self.until[storage as usize] >= self.now
    }

    /// Replays what is missing to have `storage`, for a pass in region `region`.
    fn demand(&mut self, storage: u32, region: u32) -> Result<()> {
        self.push_producer(storage)?;
        while let Some(&(pass, at)) = self.pending.last() {
            let operands = &self.facts.program.passes[pass as usize].operands;
            let missing = operands[at as usize..]
                .iter()
                .position(|o| o.read().is_some_and(|s| !self.available(s.0)))
                .map(|skip| at as usize + skip);
            match missing {
                Some(index) => {
                    if let Some(top) = self.pending.last_mut() {
                        top.1 = index as u32 + 1;
                    }
                    if let Some(read) = operands[index].read() {
                        self.push_producer(read.0)?;
                    }
                }
                None => {
                    self.pending.pop();
                    self.emit(pass, Some(region));
                }
            }
        }
        Ok(())
    }

    fn push_producer(&mut self, storage: u32) -> Result<()> {
        let producer = self.facts.producer[storage as usize];
        if !self.facts.replayable(producer) {
            return Err(Error::PlanCheck {
                dispatch: self.trace.steps.len(),
                detail: format!(
                    "{} is read again but cannot be made again",
                    self.facts.program.storages[storage as usize].name
                ),
            });
        }
        self.pending.push((producer, 0));
        Ok(())
    }

    /// Encodes a pass: for the first time, or again on behalf of a region.
    fn emit(&mut self, pass: u32, replay_for: Option<u32>) {
        let step = self.trace.steps.len() as u32;
        let first_operand = self.trace.reads.len() as u32;
        self.trace.steps.push(Step { pass, replay: replay_for.is_some(), first_operand });
        for operand in &self.facts.program.passes[pass as usize].operands {
            let read = operand.read().map_or(NONE, |s| self.current[s.index()]);
            if let Operand::InPlace { input, .. } = operand {
                self.current[input.index()] = NONE;
            }
            self.trace.reads.push(read);
            let made = operand.made().map_or(NONE, |s| self.make(s.0, step, replay_for));
            self.trace.makes.push(made);
        }
    }

    fn make(&mut self, storage: u32, step: u32, replay_for: Option<u32>) -> u32 {
        let instance = self.trace.add_instance(storage, step);
        // A replay that also repeats a value still there writes it to scratch.
        if replay_for.is_some() && self.available(storage) {
            return instance;
        }
        let index = storage as usize;
        self.current[index] = instance;
        self.until[index] = match replay_for {
            None if self.levels.dropped[index] => self.levels.last_forward[index],
            None => NONE,
            Some(_) if self.levels.level[index] == ROOT => NONE,
            Some(region) => match self.levels.last_backward.get(&(storage, self.sweep)) {
                Some(&last) if last > self.now && self.decision.paths.contains(self.levels.level[index], region) => {
                    last
                }
                _ => self.now,
            },
        };
        instance
    }
}
