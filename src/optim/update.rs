//! The op behind every update that treats each element alike: it reads states
//! and gradients and overwrites the states, in one pass.
//!
//! The formula is a WGSL text with a struct `Rule` of numbers and a function
//!
//! ```text
//! fn update(w: Rule, lr: f32, step: u32, e: Elements) -> Elements
//! ```
//!
//! on `Block`s: four neighbours, or one element where the count is no multiple
//! of 4. `Elements` has a field of type `Block` per state and per stream, by
//! name, states first; what it hands back in the states is written.

use std::fmt::Write;

use super::no_gradient;
use crate::dtype::{DType, TensorType};
use crate::error::{Error, Result};
use crate::fuse::program::Cost;
use crate::graph::Tensor;
use crate::ops::kernel::{specialised, word};
use crate::ops::{CallOperand, GradientCall, KernelCall, KernelCalls, KernelContext, KernelOp, Lowering, Op};
use crate::shared::Shared;

/// The aliases that [`specialised`] narrows.
const ALIASES: &str = "alias Element = f32;\nalias Block = vec4<f32>;\n";

/// A scalar operand of an update.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UpdateScalar {
    /// The learning rate, f32.
    Lr,
    /// The number of the step from 0, u32.
    Step,
    /// Nothing is written where it is not 0, u32.
    Skip,
}

impl UpdateScalar {
    const fn declaration(self) -> (&'static str, DType) {
        match self {
            Self::Lr => ("lr", DType::F32),
            Self::Step => ("step", DType::U32),
            Self::Skip => ("skip", DType::U32),
        }
    }
}

/// One update: operands are states, then streams, then scalars.
#[derive(Debug, Clone)]
pub(super) struct Update {
    /// Its name in reports and errors.
    pub(super) name: &'static str,
    /// The formula's names of the states, which are overwritten.
    pub(super) states: Vec<&'static str>,
    /// The formula's names of what else is read per element.
    pub(super) streams: Vec<&'static str>,
    /// Scalars, in order.
    pub(super) scalars: Vec<UpdateScalar>,
    /// WGSL, as the module says.
    pub(super) formula: &'static str,
    /// The learning rate is multiplied by this.
    pub(super) lr_factor: f64,
    /// The fields of `Rule`.
    pub(super) words: Vec<u32>,
    /// `state_writes`.
    writes: Vec<usize>,
}

impl Update {
    pub(super) fn new(name: &'static str, states: &[&'static str], streams: &[&'static str]) -> Self {
        Self {
            name,
            states: states.to_vec(),
            streams: streams.to_vec(),
            scalars: Vec::new(),
            formula: "",
            lr_factor: 1.0,
            words: Vec::new(),
            writes: (0..states.len()).collect(),
        }
    }

    pub(super) fn formula(mut self, formula: &'static str, words: Vec<u32>) -> Self {
        self.formula = formula;
        self.words = words;
        self
    }

    pub(super) fn scalar(mut self, scalar: UpdateScalar) -> Self {
        self.scalars.push(scalar);
        self
    }

    /// Records the update.
    pub(super) fn record(self, operands: &[&Tensor]) -> Result<()> {
        let Some(first) = operands.first() else { return Ok(()) };
        first.recorder().clone().record(Shared::new(self), operands)?;
        Ok(())
    }

    fn elementwise(&self) -> usize {
        self.states.len() + self.streams.len()
    }

    /// The kernel, without the aliases.
    fn source(&self) -> String {
        let names: Vec<&str> = self.states.iter().chain(&self.streams).copied().collect();
        let list = |text: &dyn Fn(&str) -> String| names.iter().map(|n| text(n)).collect::<Vec<_>>().join(", ");
        let mut text = format!("struct Elements {{ {} }}\n\n{}\n", list(&|n| format!("{n}: Block")), self.formula);
        text.push_str("struct Words {\n    count: u32,\n    lr_factor: f32,\n    @align(16) rule: Rule,\n}\n\n");
        text.push_str("@group(0) @binding(0) var<uniform> u: Words;\n");
        let elements = names.iter().map(|name| (format!("all_{name}"), "Block"));
        let scalars = self.scalars.iter().map(|s| s.declaration()).map(|(n, t)| (format!("one_{n}"), t.wgsl_storage()));
        for (index, (name, ty)) in elements.chain(scalars).enumerate() {
            let binding = index + 1;
            let _ = writeln!(text, "@group(0) @binding({binding}) var<storage, read_write> {name}: array<{ty}>;");
        }
        text.push_str(
            "\n@compute @workgroup_size(64)\n\
             fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {\n    \
             let i = (id.z * groups.y + id.y) * (groups.x * 64u) + id.x;\n    \
             if (i >= u.count) {\n        return;\n    }\n",
        );
        let has = |scalar| self.scalars.contains(&scalar);
        if has(UpdateScalar::Skip) {
            text.push_str("    if (one_skip[0] != 0u) {\n        return;\n    }\n");
        }
        let lr = if has(UpdateScalar::Lr) { "one_lr[0] * u.lr_factor" } else { "u.lr_factor" };
        let step = if has(UpdateScalar::Step) { "one_step[0]" } else { "1u" };
        let loads = list(&|n| format!("all_{n}[i]"));
        let _ = writeln!(text, "    let e = update(u.rule, {lr}, {step}, Elements({loads}));");
        for state in &self.states {
            let _ = writeln!(text, "    all_{state}[i] = e.{state};");
        }
        text.push_str("}\n");
        text
    }
}

impl Op for Update {
    fn name(&self) -> &'static str {
        self.name
    }
    fn output_types(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        let (elements, scalars) = inputs.split_at(self.elementwise());
        if !elements.iter().all(|t| *t == elements[0]) {
            return Err(Error::Shape {
                op: self.name,
                shapes: elements.iter().map(|t| t.shape.clone()).collect(),
                detail: format!("{} must have one type", [&self.states[..], &self.streams].concat().join(", ")),
            });
        }
        for (index, (found, scalar)) in scalars.iter().zip(&self.scalars).enumerate() {
            let (_, dtype) = scalar.declaration();
            if found.dtype != dtype {
                let expected = if dtype == DType::F32 { "f32" } else { "u32" };
                let operand = elements.len() + index;
                return Err(Error::DType { op: self.name, operand, found: found.dtype, expected });
            }
            if found.shape.element_count() != 1 {
                return Err(Error::Shape {
                    op: self.name,
                    shapes: vec![found.shape.clone()],
                    detail: format!("{} must be one element", scalar.declaration().0),
                });
            }
        }
        Ok(Vec::new())
    }
    fn gradient(&self, call: &GradientCall<'_>) -> Result<Vec<Option<Tensor>>> {
        no_gradient(self.name, call)
    }
    fn lowering(&self) -> Lowering<'_> {
        Lowering::Kernel(self)
    }
    fn state_writes(&self) -> &[usize] {
        &self.writes
    }
}

impl KernelOp for Update {
    fn kernels(&self, context: &KernelContext<'_>) -> Result<KernelCalls> {
        let ty = context.inputs[0].ty;
        let elements = ty.shape.element_count();
        if elements == 0 {
            return Ok(KernelCalls::default());
        }
        let wide = elements.is_multiple_of(4);
        let count = if wide { elements / 4 } else { elements };
        let mut uniforms = vec![word(count), (self.lr_factor as f32).to_bits(), 0, 0];
        uniforms.extend(&self.words);
        uniforms.resize(uniforms.len().next_multiple_of(4), 0);
        let states = self.states.len();
        let mut operands: Vec<CallOperand> = (0..states).map(CallOperand::State).collect();
        operands.extend((states..context.inputs.len()).map(CallOperand::Input));
        let words = (2 * states + self.streams.len()) as f64;
        let call = KernelCall {
            name: self.name,
            source: format!("{}{}", specialised(ALIASES, ty.dtype, wide), self.source()).into(),
            constants: Vec::new(),
            operands,
            uniforms,
            grid: context.profile.split_grid(count.div_ceil(64)),
            cost: Cost { flops: 4.0 * words * elements as f64, bytes: 4.0 * words * elements as f64 },
        };
        Ok(KernelCalls { scratch_bytes: Vec::new(), calls: vec![call] })
    }
}

/// A number as a field of `Rule`.
pub(super) const fn bits(value: f64) -> u32 {
    (value as f32).to_bits()
}
