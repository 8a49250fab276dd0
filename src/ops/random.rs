//! Random numbers and dropout, counter-based: seed, step, stream and element
//! index in, numbers out (Philox 4x32-10). There is no generator state, and a
//! replay draws the same numbers.
//!
//! ```text
//! rand_uniform  u = (bits >> 8) 2^-24, in [0, 1)
//! rand_normal   sqrt(-2 log u) cos(2 pi v), or sin       (Box and Muller 1958)
//! rand_int      low + floor(bits (high - low) / 2^32)
//! permutation   the order of random bits, equals by their place
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
const NORMAL: &str = include_str!("../../shaders/shared/normal.wgsl");

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

/// The standard normal number of element `index`: the twin of `random_normal` in
/// `shaders/shared/normal.wgsl`, computed in `f64`; adapters agree with it to 1e-5.
#[must_use]
pub fn random_normal(index: u32, stream: u32, step: u32, seed: u32) -> f64 {
    let four = philox([index >> 2, 0, stream, step], [seed, 0]);
    let at = (index & 2) as usize;
    let u = f64::from((four[at] >> 8) + 1) / 16_777_216.0;
    let angle = std::f64::consts::TAU * f64::from(four[at + 1] >> 8) / 16_777_216.0;
    let radius = (-2.0 * u.ln()).sqrt();
    radius * if index & 1 == 0 { angle.cos() } else { angle.sin() }
}

fn draw(call: &ElementCall<'_>, function: &str, seed: usize) -> String {
    let (seed, step) = (&call.operands[seed], &call.operands[seed + 1]);
    format!("{function}({}, {}, {step}, {seed})", call.index, call.words[0])
}

/// What is drawn.
#[derive(Debug, Clone, Copy)]
enum Draw {
    Uniform,
    Normal,
    /// Where a uniform number is below this.
    Below(f32),
    /// Whole words.
    Bits,
    /// Whole numbers from the first on, this many.
    Whole(i32, u32),
}

/// Random numbers; operands seed and step.
#[derive(Debug)]
struct Random {
    stream: u32,
    draw: Draw,
}

impl Op for Random {
    fn name(&self) -> &'static str {
        match self.draw {
            Draw::Uniform => "rand_uniform",
            Draw::Normal => "rand_normal",
            Draw::Below(_) => "bernoulli",
            Draw::Bits => "rand_bits",
            Draw::Whole(..) => "rand_int",
        }
    }
    fn output_types(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        let dtype = match self.draw {
            Draw::Uniform | Draw::Normal => DType::F32,
            Draw::Below(_) => DType::Bool,
            Draw::Bits => DType::U32,
            Draw::Whole(..) => DType::I32,
        };
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
        match self.draw {
            Draw::Uniform => draw(call, "random_uniform", 0),
            Draw::Normal => draw(call, "random_normal", 0),
            Draw::Below(_) => format!("{} < bitcast<f32>({})", draw(call, "random_uniform", 0), call.words[1]),
            Draw::Bits => draw(call, "random_bits", 0),
            Draw::Whole(..) => {
                let bits = draw(call, "random_bits", 0);
                format!("bitcast<i32>({} + multiply_high({bits}, {}))", call.words[1], call.words[2])
            }
        }
    }
    fn words(&self) -> Vec<u32> {
        match self.draw {
            Draw::Uniform | Draw::Normal | Draw::Bits => vec![self.stream],
            Draw::Below(p) => vec![self.stream, p.to_bits()],
            Draw::Whole(low, count) => vec![self.stream, low as u32, count],
        }
    }
    fn functions(&self) -> &'static [&'static str] {
        if matches!(self.draw, Draw::Normal) { &[PHILOX, NORMAL] } else { &[PHILOX] }
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
            Err(Error::DType { op: "dropout", operand: 0, found, expected: "f32 or f16" })
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
        format!("select(0.0, {x} * bitcast<f32>({scale}), {} >= bitcast<f32>({p}))", draw(call, "random_uniform", 1))
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
    fn random(&self, shape: &Shape, draw: Draw) -> Result<Tensor> {
        let (seed, step) = (self.seed()?.broadcast_to(shape)?, self.step_count()?.broadcast_to(shape)?);
        seed.apply_with(Random { stream: self.next_random_stream(), draw }, &[&step])
    }

    /// Uniform `f32` numbers in `[0, 1)`, others in every step: they follow
    /// from the inputs `"seed"` and `"step"` of the run.
    ///
    /// # Errors
    /// As [`Recorder::input`].
    pub fn rand_uniform(&self, shape: impl Into<Shape>) -> Result<Tensor> {
        self.random(&shape.into(), Draw::Uniform)
    }

    /// `bool` values that are true with probability `p`, others in every step.
    ///
    /// # Errors
    /// [`Error::Argument`] unless `0 <= p <= 1`; else as [`Recorder::input`].
    pub fn bernoulli(&self, shape: impl Into<Shape>, p: f32) -> Result<Tensor> {
        probability("bernoulli", p, false)?;
        self.random(&shape.into(), Draw::Below(p))
    }

    /// Standard normal `f32` numbers, others in every step, by Box and Muller's
    /// method. Adapters agree to 1e-5. Scale and shift them for another
    /// deviation and mean.
    ///
    /// # Errors
    /// As [`Recorder::input`].
    pub fn rand_normal(&self, shape: impl Into<Shape>) -> Result<Tensor> {
        self.random(&shape.into(), Draw::Normal)
    }

    /// Whole `i32` numbers in `low..high`, others in every step, the same on every
    /// adapter. Where `high - low` is no power of two, some are likelier than
    /// others by up to `(high - low) / 2^32`.
    ///
    /// # Errors
    /// [`Error::Argument`] unless `low < high`; else as [`Recorder::input`].
    pub fn rand_int(&self, shape: impl Into<Shape>, low: i32, high: i32) -> Result<Tensor> {
        if low >= high {
            return Err(Error::Argument {
                op: "rand_int",
                argument: "low",
                value: low.to_string(),
                detail: format!("it must be below high = {high}"),
            });
        }
        let count = high.wrapping_sub(low) as u32;
        self.random(&shape.into(), Draw::Whole(low, count))
    }

    /// The numbers `0..count` in random order as `i32`, another one in every step,
    /// the same on every adapter: a random word for each number is sorted, equals
    /// by the number.
    ///
    /// # Errors
    /// As [`Recorder::input`].
    pub fn permutation(&self, count: usize) -> Result<Tensor> {
        self.random(&Shape(vec![count]), Draw::Bits)?.argsort(0, false)
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
