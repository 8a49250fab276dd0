//! Random numbers and dropout, counter-based: seed, step, stream and element
//! index in, numbers out (Philox 4x32-10). There is no generator state, and a
//! replay draws the same numbers.
//!
//! ```text
//! rand_uniform  u = (bits >> 8) 2^-24, in [0, 1)
//! bernoulli     u < p
//! dropout       u >= p ? x / (1 - p) : 0      the same of g, drawn again
//! ```
//!
//! Every random op of a recording has a stream of its own, numbered as
//! recorded. Element `i` takes word `i % 4` of the block with the counter
//! `(i / 4, 0, stream, step)` and the key `(seed, 0)`: the same bits on every
//! adapter. The mask of dropout is never stored: its gradient draws it again.

use super::{ElementCall, ElementwiseOp, GradientCall, Lowering, Op};
use crate::dtype::{DType, Shape, TensorType};
use crate::error::{Error, Result};
use crate::graph::{Recorder, Tensor};
use crate::random::{philox, unit};

const PHILOX: &str = include_str!("../../shaders/shared/philox.wgsl");

/// The number of element `index`: the twin of `random_bits` in
/// `shaders/shared/philox.wgsl`.
#[must_use]
pub fn random_bits(index: u32, stream: u32, step: u32, seed: u32) -> u32 {
    philox([index >> 2, 0, stream, step], [seed, 0])[(index & 3) as usize]
}

/// The same as an `f32` in `[0, 1)`: the twin of `random_uniform` in
/// `shaders/shared/philox.wgsl`.
#[must_use]
pub fn random_uniform(index: u32, stream: u32, step: u32, seed: u32) -> f32 {
    unit(random_bits(index, stream, step, seed))
}

fn draw(call: &ElementCall<'_>, seed: usize) -> String {
    let (seed, step) = (&call.operands[seed], &call.operands[seed + 1]);
    format!("random_uniform({}, {}, {step}, {seed})", call.index, call.words[0])
}

/// Uniform numbers, or where they are below `below`; operands seed and step.
#[derive(Debug)]
struct Random {
    stream: u32,
    below: Option<f32>,
}

impl Op for Random {
    fn name(&self) -> &'static str {
        if self.below.is_some() { "bernoulli" } else { "rand_uniform" }
    }
    fn output_types(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        let dtype = if self.below.is_some() { DType::Bool } else { DType::F32 };
        Ok(vec![TensorType::new(dtype, inputs[0].shape.clone())])
    }
    fn gradient(&self, _: &GradientCall<'_>) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![None, None])
    }
    fn lowering(&self) -> Lowering<'_> {
        Lowering::Elementwise(self)
    }
}

impl ElementwiseOp for Random {
    fn expression(&self, call: &ElementCall<'_>) -> String {
        let u = draw(call, 0);
        if self.below.is_some() { format!("{u} < bitcast<f32>({})", call.words[1]) } else { u }
    }
    fn words(&self) -> Vec<u32> {
        std::iter::once(self.stream).chain(self.below.map(f32::to_bits)).collect()
    }
    fn functions(&self) -> &'static [&'static str] {
        &[PHILOX]
    }
    fn flops(&self) -> f64 {
        100.0
    }
}

/// `u >= p ? x scale : 0`; operands x, seed and step.
#[derive(Debug, Clone)]
struct Dropout {
    stream: u32,
    p: f32,
}

impl Op for Dropout {
    fn name(&self) -> &'static str {
        "dropout"
    }
    fn output_types(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        let found = inputs[0].dtype;
        if found.is_float() {
            Ok(vec![inputs[0].clone()])
        } else {
            Err(Error::DType { op: "dropout", operand: 0, found, expected: "f32" })
        }
    }
    fn gradient(&self, call: &GradientCall<'_>) -> Result<Vec<Option<Tensor>>> {
        // Linear in x with the same stream: the very same op.
        let onward = call.grad()?.apply_with(self.clone(), &[&call.inputs[1], &call.inputs[2]])?;
        Ok(vec![Some(onward), None, None])
    }
    fn lowering(&self) -> Lowering<'_> {
        Lowering::Elementwise(self)
    }
}

impl ElementwiseOp for Dropout {
    fn expression(&self, call: &ElementCall<'_>) -> String {
        let (x, p, scale) = (&call.operands[0], &call.words[1], &call.words[2]);
        format!("select(0.0, {x} * bitcast<f32>({scale}), {} >= bitcast<f32>({p}))", draw(call, 1))
    }
    fn words(&self) -> Vec<u32> {
        vec![self.stream, self.p.to_bits(), (1.0 / (1.0 - self.p)).to_bits()]
    }
    fn functions(&self) -> &'static [&'static str] {
        &[PHILOX]
    }
    fn flops(&self) -> f64 {
        100.0
    }
}

fn probability(op: &'static str, p: f32, below_one: bool) -> Result<()> {
    let fits = if below_one { (0.0..1.0).contains(&p) } else { (0.0..=1.0).contains(&p) };
    if fits {
        return Ok(());
    }
    let range = if below_one { "0 <= p < 1" } else { "0 <= p <= 1" };
    Err(Error::Argument {
        op,
        argument: "p",
        value: p.to_string(),
        detail: format!("it must be a probability, {range}"),
    })
}

impl Recorder {
    fn random(&self, shape: &Shape, below: Option<f32>) -> Result<Tensor> {
        let (seed, step) = (self.seed()?.broadcast_to(shape)?, self.step_count()?.broadcast_to(shape)?);
        seed.apply_with(Random { stream: self.next_random_stream(), below }, &[&step])
    }

    /// Uniform `f32` numbers in `[0, 1)`, others in every step: they follow
    /// from the inputs `"seed"` and `"step"` of the run.
    ///
    /// # Errors
    /// As [`Recorder::input`].
    pub fn rand_uniform(&self, shape: impl Into<Shape>) -> Result<Tensor> {
        self.random(&shape.into(), None)
    }

    /// `bool` values that are true with probability `p`, others in every step.
    ///
    /// # Errors
    /// [`Error::Argument`] unless `0 <= p <= 1`; else as [`Recorder::input`].
    pub fn bernoulli(&self, shape: impl Into<Shape>, p: f32) -> Result<Tensor> {
        probability("bernoulli", p, false)?;
        self.random(&shape.into(), Some(p))
    }
}

impl Tensor {
    /// Each element set to 0 with probability `p`, the others divided by
    /// `1 - p`; which, follows from the inputs `"seed"` and `"step"` of the
    /// run. `p = 0` gives the tensor itself.
    ///
    /// # Errors
    /// [`Error::Argument`] unless `0 <= p < 1`; [`Error::DType`] unless f32.
    pub fn dropout(&self, p: f32) -> Result<Self> {
        probability("dropout", p, true)?;
        self.expect_float("dropout", 0)?;
        if p == 0.0 {
            return Ok(self.clone());
        }
        let recorder = self.recorder();
        let seed = recorder.seed()?.broadcast_to(self.shape())?;
        let step = recorder.step_count()?.broadcast_to(self.shape())?;
        self.apply_with(Dropout { stream: recorder.next_random_stream(), p }, &[&seed, &step])
    }
}
