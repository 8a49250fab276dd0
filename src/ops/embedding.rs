//! Embedding: rows of a table by their numbers.
//!
//! ```text
//! y[n, :] = weight[ids[n], :]      dweight[v, :] = sum of g[n, :] where ids[n] = v
//! ```
//!
//! The gradient gathers, since floating-point scatter would need atomics and
//! have no fixed order: a counting sort lists the places of each number, in
//! order, and each row adds up its places. Both directions are linear in the
//! floating-point operand and each other's gradient.

use super::kernel::{MOST_ROUNDS, check_rounds, span, specialised, word};
use super::{CallOperand, GradientCall, KernelCall, KernelCalls, KernelContext, KernelOp, Lowering, Op};
use crate::dtype::{DType, Shape, TensorType, count};
use crate::error::{Error, Result};
use crate::fuse::program::Cost;
use crate::graph::Tensor;
use crate::profile::DeviceProfile;

const FORWARD: &str = include_str!("../../shaders/embedding.wgsl");
const SORT: &str = include_str!("../../shaders/embedding_sort.wgsl");
const GRAD: &str = include_str!("../../shaders/embedding_grad.wgsl");

/// `weight [V, D], ids [N] -> y [N, D]`.
#[derive(Debug, Clone, Copy)]
struct Embedding;

/// `g [N, D], ids [N] -> dweight [V, D]`.
#[derive(Debug, Clone, Copy)]
struct EmbeddingGrad {
    rows: usize,
}

/// Whether columns come in fours, and the width in blocks.
fn blocks(columns: usize) -> (bool, u64) {
    let wide = columns.is_multiple_of(4);
    (wide, if wide { columns as u64 / 4 } else { columns as u64 })
}

impl Op for Embedding {
    fn name(&self) -> &'static str {
        "embedding"
    }
    fn output_types(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        let shape = [inputs[1].shape.dims()[0], inputs[0].shape.dims()[1]];
        Ok(vec![TensorType::new(inputs[0].dtype, shape)])
    }
    fn gradient(&self, call: &GradientCall<'_>) -> Result<Vec<Option<Tensor>>> {
        let (weight, ids, g) = (&call.inputs[0], &call.inputs[1], call.grad()?);
        // Without places there is nothing to sort.
        let dweight = if g.element_count() == 0 { weight.filled(0.0)? } else { add_rows(g, ids, weight.dims()[0])? };
        Ok(vec![Some(dweight), None])
    }
    fn lowering(&self) -> Lowering<'_> {
        Lowering::Kernel(self)
    }
}

impl KernelOp for Embedding {
    fn kernels(&self, context: &KernelContext<'_>) -> Result<KernelCalls> {
        let rows = context.inputs[0].ty.shape.dims()[0];
        let dims = context.outputs[0].shape.dims();
        let (wide, width) = blocks(dims[1]);
        let span = span(context.profile, dims[0] as u64, width);
        let spans = width.div_ceil(span);
        let count = dims[0] as u64 * spans;
        let call = KernelCall {
            name: self.name(),
            source: specialised(FORWARD, DType::F32, wide),
            constants: Vec::new(),
            operands: vec![CallOperand::Input(0), CallOperand::Input(1), CallOperand::Output(0)],
            uniforms: vec![
                word(count),
                word(width),
                word(rows as u64),
                f32::NAN.to_bits(),
                word(span),
                word(spans),
                0,
                0,
            ],
            grid: context.profile.split_grid(count.div_ceil(64)),
            cost: Cost { flops: 0.0, bytes: 8.0 * (dims[0] * dims[1]) as f64 },
        };
        Ok(KernelCalls { scratch_bytes: Vec::new(), calls: vec![call] })
    }
}

impl Op for EmbeddingGrad {
    fn name(&self) -> &'static str {
        "embedding_grad"
    }
    fn output_types(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        Ok(vec![TensorType::new(inputs[0].dtype, [self.rows, inputs[0].shape.dims()[1]])])
    }
    fn gradient(&self, call: &GradientCall<'_>) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![Some(call.grad()?.apply_with(Embedding, &[&call.inputs[1]])?), None])
    }
    fn lowering(&self) -> Lowering<'_> {
        Lowering::Kernel(self)
    }
}

impl KernelOp for EmbeddingGrad {
    fn kernels(&self, context: &KernelContext<'_>) -> Result<KernelCalls> {
        let dims = context.inputs[0].ty.shape.dims();
        let (places, rows) = (dims[0] as u64, self.rows as u64);
        let (wide, width) = blocks(dims[1]);
        let sort = sort_call(context.profile, self.name(), [places, rows], CallOperand::Input(1))?;
        let sum = KernelCall {
            name: self.name(),
            source: specialised(GRAD, DType::F32, wide),
            constants: Vec::new(),
            operands: vec![
                CallOperand::Input(0),
                CallOperand::ScratchRead(0),
                CallOperand::ScratchRead(1),
                CallOperand::Output(0),
            ],
            uniforms: vec![word(rows * width), word(width), 0, 0],
            grid: context.profile.split_grid((rows * width).div_ceil(64)),
            cost: Cost {
                flops: (places * dims[1] as u64) as f64,
                bytes: 4.0 * ((places + rows) * dims[1] as u64) as f64,
            },
        };
        Ok(KernelCalls { scratch_bytes: vec![rows * 4, places * 4], calls: vec![sort, sum] })
    }
}

/// The dispatch that sorts `places` numbers of an operand below `rows` into scratch 0,
/// `ends [rows]`, and scratch 1, `order [places]` (`shaders/embedding_sort.wgsl`).
pub(super) fn sort_call(
    profile: &DeviceProfile,
    op: &'static str,
    [places, rows]: [u64; 2],
    ids: CallOperand,
) -> Result<KernelCall> {
    let rounds = |per_round: u64| 2 * (places.div_ceil(per_round) + rows.div_ceil(per_round));
    let per_round = if rounds(1) <= MOST_ROUNDS { 1 } else { 16 };
    check_rounds(profile, op, places.max(rows), rounds(per_round))?;
    Ok(KernelCall {
        name: "embedding_sort",
        source: SORT.into(),
        constants: vec![("PER_ROUND", per_round as f64)],
        operands: vec![ids, CallOperand::Scratch(0), CallOperand::Scratch(1)],
        uniforms: vec![word(places), word(rows), 0, 0],
        grid: [1, 1, 1],
        // One invocation: its steps count as many times over as a device has lanes.
        cost: Cost { flops: 64.0 * (places + rows) as f64, bytes: 4.0 * (4 * places + 3 * rows) as f64 },
    })
}

/// `y[v, :]` = the sum of `source[n, :]` where `ids[n] = v`, for `rows` rows:
/// `source [N, D]` with `N` and `D` above 0, `ids [N]`.
pub(super) fn add_rows(source: &Tensor, ids: &Tensor, rows: usize) -> Result<Tensor> {
    source.apply_with(EmbeddingGrad { rows }, &[ids])
}

impl Tensor {
    /// Rows of this table `[V, D]` by their numbers: `ids` of any shape (`i32`
    /// or `u32`) give `ids.shape + [D]`. A number outside `0..V` gives a row of
    /// NaN and adds nothing to the gradient.
    ///
    /// # Errors
    /// [`Error::Shape`] if this is no table or has no rows, [`Error::DType`] for a
    /// table that is not `f32` or numbers that are not integers.
    pub fn embedding(&self, ids: &Self) -> Result<Self> {
        const OP: &str = "embedding";
        self.expect_float(OP, 0)?;
        if !matches!(ids.dtype(), DType::I32 | DType::U32) {
            return Err(Error::DType { op: OP, operand: 1, found: ids.dtype(), expected: "i32 or u32" });
        }
        let &[rows, columns] = self.dims() else {
            let shapes = vec![self.shape().clone(), ids.shape().clone()];
            return Err(Error::Shape { op: OP, shapes, detail: "the table must be [V, D]".into() });
        };
        if rows == 0 && ids.element_count() > 0 {
            let shapes = vec![self.shape().clone(), ids.shape().clone()];
            return Err(Error::Shape { op: OP, shapes, detail: "the table has no rows".into() });
        }
        let mut shape = ids.dims().to_vec();
        let flat = ids.reshape([count(&shape)])?;
        shape.push(columns);
        self.apply_with(Embedding, &[&flat])?.reshape(Shape(shape))
    }
}
