//! A plan in words and as a curve of memory over time.

use std::fmt;

use crate::checkpoint::ByteSize;
use crate::checkpoint::facts::round_up;
use crate::fuse::program::{Category, Operand, Phase, Program};
use crate::plan::{Instance, Plan, Space};

/// Bytes in use during one dispatch, by what they are for.
///
/// Transient values count in whole alignments; states, inputs and the rest are
/// the same throughout a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LiveBytes {
    /// Parameters and other state that the model reads.
    pub parameters: u64,
    /// State of optimisers.
    pub optimizer: u64,
    /// Values of forward, and replays of them.
    pub activations: u64,
    /// Gradients of activations.
    pub gradients: u64,
    /// Gradients of parameters.
    pub parameter_gradients: u64,
    /// Scratch of kernels.
    pub workspace: u64,
    /// Upload blocks.
    pub inputs: u64,
    /// Constants, uniform words, output slots, read-back.
    pub other: u64,
}

impl LiveBytes {
    /// The sum.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.transient()
            .saturating_add(self.parameters)
            .saturating_add(self.optimizer)
            .saturating_add(self.inputs)
            .saturating_add(self.other)
    }

    /// The part that lies in the arena.
    #[must_use]
    pub const fn transient(&self) -> u64 {
        self.activations
            .saturating_add(self.gradients)
            .saturating_add(self.parameter_gradients)
            .saturating_add(self.workspace)
    }

    fn of(&mut self, category: Category) -> &mut u64 {
        match category {
            Category::Parameter => &mut self.parameters,
            Category::Optimizer => &mut self.optimizer,
            Category::Activation => &mut self.activations,
            Category::Gradient => &mut self.gradients,
            Category::ParameterGradient => &mut self.parameter_gradients,
            Category::Workspace => &mut self.workspace,
            Category::Input => &mut self.inputs,
            Category::Other => &mut self.other,
        }
    }

    /// Where a transient value of this category is counted: always in the arena's part.
    const fn transient_category(category: Category) -> Category {
        match category {
            Category::Gradient | Category::ParameterGradient | Category::Workspace => category,
            _ => Category::Activation,
        }
    }
}

/// Says so if a plan has as many bytes alive at its peak as one that keeps everything.
pub(super) fn gain_note(plan: &Plan, none_live_bytes: u64) -> Option<String> {
    if plan.live_peak_bytes < none_live_bytes {
        return None;
    }
    Some(format!(
        "this policy gains nothing: {} are alive at its peak, {} under policy none, {} passes are replayed; \
         no segment makes more in its interior than it reads and leaves at its boundary",
        ByteSize::new(plan.live_peak_bytes),
        ByteSize::new(none_live_bytes),
        plan.replayed_passes
    ))
}

impl Plan {
    /// `planned_peak_bytes`: the most that this step takes.
    #[must_use]
    pub const fn planned_peak_bytes(&self) -> u64 {
        self.peak.total()
    }

    /// The instances that forward leaves for backward: made by a first run of a
    /// forward pass, read by a later pass that is no first run of one. Values
    /// that are only handed back are not among them.
    #[must_use]
    pub fn saved<'a>(&'a self, program: &Program) -> Vec<&'a Instance> {
        let forward = |index: usize| {
            let dispatch = &self.dispatches[index];
            !dispatch.replay && program.pass(dispatch.pass).phase == Phase::Forward
        };
        let mut read_later = vec![false; self.instances.len()];
        for dispatch in &self.dispatches {
            let pass = program.pass(dispatch.pass);
            if pass.phase == Phase::Backward || dispatch.replay {
                for (operand, instance) in pass.operands.iter().zip(&dispatch.instances) {
                    if operand.read().is_some() {
                        read_later[instance.0 as usize] = true;
                    }
                }
            }
        }
        self.instances
            .iter()
            .zip(read_later)
            .filter(|(instance, read_later)| {
                *read_later && matches!(instance.location.space, Space::Arena(_)) && forward(instance.first as usize)
            })
            .map(|(instance, _)| instance)
            .collect()
    }

    /// Bytes in use during each dispatch.
    #[must_use]
    pub fn timeline(&self, program: &Program) -> Vec<LiveBytes> {
        let mut constant = LiveBytes {
            inputs: self.peak.upload,
            other: self.peak.constant + self.peak.uniform + self.peak.output + self.peak.readback,
            ..LiveBytes::default()
        };
        for state in &program.states {
            *constant.of(state.category) += state.ty.size_bytes();
        }
        let consumed = self.consumed(program);
        let count = self.dispatches.len();
        let mut begins = vec![LiveBytes::default(); count + 1];
        let mut ends = vec![LiveBytes::default(); count + 2];
        for (instance, consumed) in self.instances.iter().zip(consumed) {
            if matches!(instance.location.space, Space::Arena(_)) {
                let category = LiveBytes::transient_category(program.storage(instance.storage).category);
                let bytes = round_up(instance.location.bytes, self.offset_alignment_bytes);
                let end = if consumed { instance.last } else { instance.last + 1 };
                *begins[instance.first as usize].of(category) += bytes;
                *ends[end as usize].of(category) += bytes;
            }
        }
        let mut live = constant;
        (0..count)
            .map(|dispatch| {
                for category in
                    [Category::Activation, Category::Gradient, Category::ParameterGradient, Category::Workspace]
                {
                    let more = *begins[dispatch].of(category);
                    let less = *ends[dispatch].of(category);
                    let at = live.of(category);
                    *at = *at + more - less;
                }
                live
            })
            .collect()
    }

    /// Per instance: another one is made at its place.
    fn consumed(&self, program: &Program) -> Vec<bool> {
        let mut consumed = vec![false; self.instances.len()];
        for dispatch in &self.dispatches {
            for (operand, instance) in program.pass(dispatch.pass).operands.iter().zip(&dispatch.instances) {
                if let Operand::InPlace { .. } = operand {
                    consumed[instance.0 as usize] = true;
                }
            }
        }
        consumed
    }

    /// The plan in words. `to_string()` gives a summary; `{:#}` every dispatch
    /// with offsets and lifetimes besides.
    #[must_use]
    pub const fn report<'a>(&'a self, program: &'a Program) -> Report<'a> {
        Report { plan: self, program }
    }
}

/// A plan that prints itself: see [`Plan::report`].
#[derive(Debug, Clone, Copy)]
pub struct Report<'a> {
    plan: &'a Plan,
    program: &'a Program,
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.summary(f)?;
        self.saved(f)?;
        self.replayed(f)?;
        if f.alternate() {
            self.dispatches(f)?;
            self.instances(f)?;
        }
        Ok(())
    }
}

impl Report<'_> {
    fn summary(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plan = self.plan;
        let line = |f: &mut fmt::Formatter<'_>, name: &str, bytes: u64| {
            writeln!(f, "  {name:<22} {bytes:>16}  {:>12}", ByteSize::new(bytes).to_string())
        };
        writeln!(f, "policy {}", plan.policy)?;
        line(f, "planned peak", plan.peak.total())?;
        line(f, "  state", plan.peak.state)?;
        line(f, "  arena", plan.peak.arena)?;
        line(f, "  inputs", plan.peak.upload)?;
        line(f, "  constants", plan.peak.constant)?;
        line(f, "  uniform words", plan.peak.uniform)?;
        line(f, "  outputs", plan.peak.output)?;
        line(f, "  read-back", plan.peak.readback)?;
        line(f, "live bytes at peak", plan.live_peak_bytes)?;
        line(f, "activation peak", plan.activation_peak_bytes)?;
        let blocks: Vec<String> = plan.arena_blocks.iter().map(u64::to_string).collect();
        writeln!(f, "  arena blocks           [{}]", blocks.join(", "))?;
        writeln!(
            f,
            "  dispatches             {:>16}  of which {} replays",
            plan.dispatches.len(),
            plan.replayed_passes
        )?;
        writeln!(
            f,
            "  estimated time         {:>13.3} ms  of which {:.3} ms for replays",
            plan.cost_ns / 1e6,
            plan.replay_cost_ns / 1e6
        )?;
        for note in &plan.notes {
            writeln!(f, "  note: {note}")?;
        }
        Ok(())
    }

    fn saved(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let saved = self.plan.saved(self.program);
        let bytes = saved.iter().fold(0_u64, |sum, i| sum.saturating_add(i.location.bytes));
        writeln!(f, "saved from forward to backward: {} values, {bytes} bytes", saved.len())?;
        for instance in saved {
            let storage = self.program.storage(instance.storage);
            writeln!(
                f,
                "  {:>12}  {}  (dispatches {} to {})",
                storage.bytes, storage.name, instance.first, instance.last
            )?;
        }
        Ok(())
    }

    fn replayed(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.plan.replayed_passes == 0 {
            return Ok(());
        }
        writeln!(f, "replayed:")?;
        for (index, dispatch) in self.plan.dispatches.iter().enumerate().filter(|(_, d)| d.replay) {
            let pass = self.program.pass(dispatch.pass);
            writeln!(f, "  {index:>6}  {}{}", pass.name, self.segment_suffix(pass.segment))?;
        }
        Ok(())
    }

    fn segment_suffix(&self, segment: Option<crate::fuse::program::SegmentId>) -> String {
        let path = self.program.segment_path(segment);
        if path.is_empty() {
            return String::new();
        }
        let names: Vec<&str> = path.iter().map(|s| self.program.segments[s.index()].name.as_str()).collect();
        format!("  in {}", names.join("/"))
    }

    fn dispatches(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "dispatches:")?;
        for (index, dispatch) in self.plan.dispatches.iter().enumerate() {
            let pass = self.program.pass(dispatch.pass);
            let mark = if dispatch.replay { 'R' } else { ' ' };
            write!(f, "  {index:>6} {mark} {} {:?}:", pass.name, pass.grid)?;
            for (operand, (instance, made)) in pass.operands.iter().zip(dispatch.instances.iter().zip(&dispatch.made)) {
                match (operand, made) {
                    (Operand::Read(_), _) => write!(f, " i{}", instance.0)?,
                    (Operand::StateWrite(_), _) => write!(f, " !i{}", instance.0)?,
                    (Operand::InPlace { .. }, Some(made)) => write!(f, " i{}=>i{}", instance.0, made.0)?,
                    _ => write!(f, " =>i{}", instance.0)?,
                }
            }
            if pass.uniforms.is_empty() {
                writeln!(f)?;
            } else {
                writeln!(f, " words@{}", dispatch.uniform_offset)?;
            }
        }
        Ok(())
    }

    fn instances(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "instances:")?;
        for (index, instance) in self.plan.instances.iter().enumerate() {
            let storage = self.program.storage(instance.storage);
            let place = match instance.location.space {
                Space::Arena(block) => format!("arena {block}"),
                Space::Upload(block) => format!("upload {block}"),
                Space::Constant(block) => format!("constant {block}"),
                Space::State(state) => format!("state {state}"),
            };
            writeln!(
                f,
                "  i{index} {} @ {place} + {} ({} bytes) dispatches {} to {}",
                storage.name, instance.location.offset, instance.location.bytes, instance.first, instance.last
            )?;
        }
        Ok(())
    }
}
