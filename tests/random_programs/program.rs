//! Random training steps that are always legal: every value is `[ROWS, WIDTH]`.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::BoxedStrategy;
use remat::dtype::{DType, TensorType};
use remat::error::Result;
use remat::fuse::program::{Category, Mark};
use remat::graph::{Recorder, Tensor};
use remat::params::{Init, Params};

pub(crate) const ROWS: usize = 6;
pub(crate) const WIDTH: usize = 8;
/// Weights that any number of products may share.
const WEIGHTS: usize = 3;

/// How a branch and the value that it left from come together again.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Join {
    Add,
    Multiply,
    /// Side by side, then a product back to the width.
    Concatenate,
}

/// One thing done to the latest value.
#[derive(Debug, Clone)]
pub(crate) enum Part {
    Unary(u8),
    /// With an earlier value, counted back.
    Binary(u8, usize),
    Product(usize),
    /// Mean, variance, softmax or a norm over an axis.
    Reduction(u8),
    Dropout(u8),
    Branch(Vec<Part>, Join),
    Segment(Vec<Part>, Option<Mark>),
    /// Adds the latest value's mean to a state, which commits once per run.
    State,
    /// Hands a value back from the run, with a name, wherever it was made.
    Output(usize),
    MarkedValue(Mark),
}

/// A step: what it computes, and whose gradients are asked how often.
#[derive(Debug, Clone)]
pub(crate) struct Program {
    pub(crate) parts: Vec<Part>,
    pub(crate) gradients_twice: bool,
}

fn marks() -> impl Strategy<Value = Mark> {
    prop_oneof![Just(Mark::Save), Just(Mark::Recompute)]
}

fn parts(depth: u32) -> BoxedStrategy<Vec<Part>> {
    let leaf = prop_oneof![
        4 => (0..12_u8).prop_map(Part::Unary),
        3 => (0..4_u8, 0..6_usize).prop_map(|(op, back)| Part::Binary(op, back)),
        4 => (0..WEIGHTS).prop_map(Part::Product),
        2 => (0..5_u8).prop_map(Part::Reduction),
        1 => (1..8_u8).prop_map(Part::Dropout),
        1 => Just(Part::State),
        1 => (0..6_usize).prop_map(Part::Output),
        1 => marks().prop_map(Part::MarkedValue),
    ];
    if depth == 0 {
        return vec(leaf, 1..4).boxed();
    }
    let joins = prop_oneof![Just(Join::Add), Just(Join::Multiply), Just(Join::Concatenate)];
    let segment = (parts(depth - 1), prop_oneof![4 => Just(None), 1 => marks().prop_map(Some)]);
    let part = prop_oneof![
        6 => leaf,
        2 => (parts(depth - 1), joins).prop_map(|(parts, join)| Part::Branch(parts, join)),
        4 => segment.prop_map(|(parts, mark)| Part::Segment(parts, mark)),
    ];
    vec(part, 1..6).boxed()
}

pub(crate) fn programs() -> impl Strategy<Value = Program> {
    (parts(3), any::<bool>()).prop_map(|(parts, gradients_twice)| Program { parts, gradients_twice })
}

/// Names given to values; policies by name pick among them.
pub(crate) const NAMES: [&str; 2] = ["even", "odd"];

struct Recording<'a> {
    r: &'a Recorder,
    params: &'a Params,
    weights: Vec<Tensor>,
    outputs: Vec<Tensor>,
    states: usize,
}

impl Recording<'_> {
    fn unary(x: &Tensor, op: u8) -> Result<Tensor> {
        match op {
            0 => x.tanh(),
            1 => x.gelu(),
            2 => x.silu(),
            3 => x.relu(),
            4 => x.sigmoid(),
            5 => x.sin(),
            6 => x.neg(),
            7 => x.mul_scalar(0.7_f32),
            8 => x.add_scalar(0.3_f32),
            9 => x.transpose(0, 1)?.reshape([ROWS, WIDTH]),
            10 => x.tanh()?.exp(),
            _ => x.clamp(-0.9, 0.9),
        }
    }

    fn reduction(x: &Tensor, op: u8) -> Result<Tensor> {
        match op {
            0 => x.sub(&x.mean(&[1], true)?),
            1 => x.softmax(-1),
            2 => x.layer_norm(None, None, 1e-5),
            3 => x.mul(&x.sum(&[0], true)?.tanh()?),
            _ => x.sub(&x.max(&[1], true)?),
        }
    }

    fn part(&mut self, part: &Part, values: &mut Vec<Tensor>) -> Result<()> {
        let latest = values[values.len() - 1].clone();
        let back = |count: usize| values[values.len() - 1 - count.min(values.len() - 1)].clone();
        let made = match part {
            Part::Unary(op) => Self::unary(&latest, *op)?,
            Part::Binary(op, count) => {
                let other = back(*count);
                match op {
                    0 => latest.add(&other)?,
                    1 => latest.sub(&other)?,
                    2 => latest.mul(&other)?,
                    _ => latest.maximum(&other)?,
                }
            }
            Part::Product(weight) => latest.matmul(&self.weights[*weight])?,
            Part::Reduction(op) => Self::reduction(&latest, *op)?,
            Part::Dropout(tenths) => latest.dropout(f32::from(*tenths) / 10.0)?,
            Part::Branch(parts, join) => {
                let mut inside = vec![latest.clone()];
                self.all(parts, &mut inside)?;
                let other = inside.swap_remove(inside.len() - 1);
                match join {
                    Join::Add => latest.add(&other)?,
                    Join::Multiply => latest.mul(&other)?,
                    Join::Concatenate => {
                        let both = Tensor::cat(&[&self.weights[0], &self.weights[1]], 0)?;
                        Tensor::cat(&[&latest, &other], 1)?.matmul(&both)?
                    }
                }
            }
            Part::Segment(parts, mark) => {
                let r = self.r.clone();
                let body = |mut inside: Vec<Tensor>| -> Result<Vec<Tensor>> {
                    self.all(parts, &mut inside)?;
                    // Two values go out, where there are two.
                    Ok(inside.split_off(inside.len().saturating_sub(2)))
                };
                let inputs = vec![back(1), latest];
                let out = match mark {
                    Some(mark) => r.checkpoint_marked("marked", *mark, inputs, body)?,
                    None => r.checkpoint(inputs, body)?,
                };
                values.extend(out);
                return Ok(());
            }
            Part::State => {
                let name = format!("state{}", self.states);
                self.states += 1;
                let ty = TensorType::new(DType::F32, [1, 1]);
                let state = self.params.create_typed(&name, ty, Category::Other, Init::Constant(0.5))?;
                let mean = latest.mean(&[0, 1], true)?;
                self.r.assign(&state, &self.r.state(&state)?.mul_scalar(0.9_f32)?.add(&mean)?)?;
                latest.mul(&self.r.state(&state)?.tanh()?)?
            }
            Part::Output(count) => {
                let named = back(*count).mul_scalar(0.5_f32)?.named(NAMES[self.outputs.len() % NAMES.len()]);
                self.outputs.push(named.clone());
                named
            }
            Part::MarkedValue(Mark::Save) => latest.tanh()?.must_save(),
            Part::MarkedValue(Mark::Recompute) => latest.tanh()?.must_recompute(),
        };
        values.push(made);
        Ok(())
    }

    fn all(&mut self, parts: &[Part], values: &mut Vec<Tensor>) -> Result<()> {
        parts.iter().try_for_each(|part| self.part(part, values))
    }
}

/// Records the step: its loss, its gradients (by weights and input), what it names.
pub(crate) fn record(program: &Program, params: &Params, r: &Recorder) -> Result<Vec<Tensor>> {
    let init = Init::Normal { mean: 0.0, std: 0.4 };
    let weights = (0..WEIGHTS).map(|i| r.param(&params.create(&format!("w{i}"), [WIDTH, WIDTH], init.clone())?));
    let weights = weights.collect::<Result<Vec<_>>>()?;
    let x = r.input::<f32>("x", [ROWS, WIDTH])?;
    let mut recording = Recording { r, params, weights, outputs: Vec::new(), states: 0 };
    // Every weight and the input have a gradient, whatever follows.
    let mut first = x.clone();
    for weight in &recording.weights {
        first = first.matmul(weight)?.tanh()?;
    }
    let mut values = vec![x.clone(), first];
    recording.all(&program.parts, &mut values)?;
    let last = &values[values.len() - 1];
    let loss = last.add(&values[1])?.tanh()?.sqr()?.mean_all()?;
    let wrt: Vec<&Tensor> = recording.weights.iter().collect();
    let mut outputs = vec![loss.clone()];
    if program.gradients_twice {
        outputs.extend(r.gradients(&loss, &[&recording.weights[0]])?);
    }
    outputs.extend(r.gradients(&loss, &wrt)?);
    outputs.append(&mut recording.outputs);
    Ok(outputs)
}
