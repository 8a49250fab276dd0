//! Sorting along one axis: `sort`, `argsort`, `topk`, `median`.
//!
//! ```text
//! argsort   order: the places of x, smallest (or largest) element first; no gradient
//! sort      y_k = x[order_k]                   dx_r = g[rank_r]
//! topk      the first k of that                dx_r = rank_r < k ? g[rank_r] : 0
//! ```
//!
//! The order is stable: equal elements keep theirs. NaN counts as the largest.
//! `rank`, the inverse of `order`, makes the gradient a gather: nothing is
//! scattered and no two elements are added, so it has one result on every run.
//!
//! Order and rank are values of the recording, made by one op and marked to be
//! saved, under every policy: backward and replays read them and never decide the
//! order anew. That keeps two words for each element of x where backward needs them.
//!
//! Blocks of 16 are sorted by counting, then neighbouring runs are merged: each
//! element searches the other run for its place, in log2(R / 16) dispatches.

use super::kernel::{specialised, word};
use super::{CallOperand, GradientCall, KernelCall, KernelCalls, KernelContext, KernelOp, Lowering, Op};
use crate::dtype::{DType, TensorType, count};
use crate::error::{Error, Result};
use crate::fuse::program::Cost;
use crate::graph::Tensor;
use crate::shared::Shared;

const BLOCKS: &str =
    concat!(include_str!("../../shaders/shared/sort.wgsl"), include_str!("../../shaders/sort_blocks.wgsl"));
const MERGE: &str =
    concat!(include_str!("../../shaders/shared/sort.wgsl"), include_str!("../../shaders/sort_merge.wgsl"));
const RANKS: &str = include_str!("../../shaders/sort_ranks.wgsl");

/// Places of a block that one invocation per element sorts by counting.
const BLOCK: u64 = 16;

/// `[O, R, I] -> order [O, R, I], rank [O, R, I]`, both i32.
#[derive(Debug, Clone, Copy)]
struct Sort {
    descending: bool,
}

impl Op for Sort {
    fn name(&self) -> &'static str {
        "argsort"
    }
    fn output_types(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        let ty = TensorType::new(DType::I32, inputs[0].shape.clone());
        Ok(vec![ty.clone(), ty])
    }
    fn gradient(&self, _: &GradientCall<'_>) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![None])
    }
    fn lowering(&self) -> Lowering<'_> {
        Lowering::Kernel(self)
    }
}

impl KernelOp for Sort {
    fn kernels(&self, context: &KernelContext<'_>) -> Result<KernelCalls> {
        let ty = context.inputs[0].ty;
        let dims = ty.shape.dims();
        let (extent, inner) = (dims[1] as u64, dims[2] as u64);
        let elements = ty.shape.element_count();
        let nan_above = if ty.dtype.is_float() { 0x7f80_0000_u32 } else { u32::MAX };
        let constants = vec![("DESCENDING", f64::from(u8::from(self.descending))), ("NAN_ABOVE", f64::from(nan_above))];
        let call = |text: &'static str, constants, operands, run, steps: u64| KernelCall {
            name: "argsort",
            source: specialised(text, ty.dtype, true),
            constants,
            operands,
            uniforms: vec![word(elements), word(inner), word(extent), word(run)],
            grid: context.profile.split_grid(elements.div_ceil(64)),
            cost: Cost { flops: (steps * elements) as f64, bytes: 4.0 * (3 + steps) as f64 * elements as f64 },
        };
        let mut result = KernelCalls::default();
        let mut run = BLOCK;
        // The last run is the output, those before it are scratch.
        let target = |scratch: &mut Vec<u64>, last: bool| {
            if last {
                return (CallOperand::Output(0), CallOperand::OutputRead(0));
            }
            scratch.push(elements * 4);
            (CallOperand::Scratch(scratch.len() - 1), CallOperand::ScratchRead(scratch.len() - 1))
        };
        let (to, mut from) = target(&mut result.scratch_bytes, run >= extent);
        result.calls.push(call(BLOCKS, constants.clone(), vec![CallOperand::Input(0), to], run, BLOCK));
        while run < extent {
            let (to, next) = target(&mut result.scratch_bytes, 2 * run >= extent);
            let steps = u64::from(run.ilog2());
            result.calls.push(call(MERGE, constants.clone(), vec![CallOperand::Input(0), from, to], run, steps));
            from = next;
            run *= 2;
        }
        result.calls.push(call(RANKS, Vec::new(), vec![from, CallOperand::Output(1)], 0, 1));
        Ok(result)
    }
}

impl Tensor {
    /// `[O, R, I]`, order and rank of the sort along `axis`.
    fn sorted(&self, op: &'static str, axis: isize, descending: bool) -> Result<[Self; 3]> {
        if self.dtype() == DType::Bool {
            return Err(Error::DType { op, operand: 0, found: DType::Bool, expected: "f32, f16, i32 or u32" });
        }
        let axis = self.axis(op, axis)?;
        let dims = self.dims();
        let [outer, inner] = [&dims[..axis], &dims[axis + 1..]].map(count);
        let lines = self.reshape([outer, dims[axis], inner])?;
        let mut outputs = self.recorder().record(Shared::new(Sort { descending }), &[&lines])?;
        let (Some(rank), Some(order)) = (outputs.pop(), outputs.pop()) else {
            return Err(Error::NoGradient { op, detail: "the sort handed nothing back".into() });
        };
        Ok([lines, order.must_save(), rank.must_save()])
    }

    /// The first `count` along `axis` of the sorted tensor, and their places.
    fn first_sorted(&self, op: &'static str, axis: isize, descending: bool, count: usize) -> Result<(Self, Self)> {
        let mut dims = self.dims().to_vec();
        dims[self.axis(op, axis)?] = count;
        let [lines, order, rank] = self.sorted(op, axis, descending)?;
        let places = order.narrow(1, 0, count)?;
        let values = super::gather::take_sorted(&lines, &places, &rank)?;
        Ok((values.reshape(dims.clone())?, places.reshape(dims)?))
    }

    /// The elements along `axis` in rising order, or falling where `descending`,
    /// and the places `i32` that they had. Stable: equal elements keep their order.
    /// NaN counts as the largest. `f32`, `i32` or `u32`. The gradient goes back by
    /// the places, which are not decided anew.
    ///
    /// # Errors
    /// [`Error::Argument`] for an axis that is not there, [`Error::DType`] for `bool`.
    pub fn sort(&self, axis: isize, descending: bool) -> Result<(Self, Self)> {
        let extent = self.dims()[self.axis("sort", axis)?];
        self.first_sorted("sort", axis, descending, extent)
    }

    /// The places of the elements along `axis` in rising order, or falling where
    /// `descending`, as `i32`; otherwise as [`Tensor::sort`]. It has no gradient.
    ///
    /// # Errors
    /// As [`Tensor::sort`].
    pub fn argsort(&self, axis: isize, descending: bool) -> Result<Self> {
        let [_, order, _] = self.sorted("argsort", axis, descending)?;
        order.reshape(self.shape())
    }

    /// The `k` largest elements along `axis`, largest first, or the `k` smallest,
    /// smallest first, where `largest` is false; and their places as `i32`. Of
    /// equal elements the first come first. Otherwise as [`Tensor::sort`].
    ///
    /// # Errors
    /// As [`Tensor::sort`]; [`Error::Argument`] if `k` is above the axis' extent.
    pub fn topk(&self, k: usize, axis: isize, largest: bool) -> Result<(Self, Self)> {
        let extent = self.dims()[self.axis("topk", axis)?];
        if k > extent {
            return Err(Error::Argument {
                op: "topk",
                argument: "k",
                value: k.to_string(),
                detail: format!("axis {axis} of shape {} has {extent} parts", self.shape()),
            });
        }
        self.first_sorted("topk", axis, largest, k)
    }

    /// The middle element along `axis`, the lower of two, as PyTorch's `median`
    /// has it. `keep` leaves the axis with extent 1.
    ///
    /// # Errors
    /// As [`Tensor::sort`]; [`Error::Argument`] if the axis has no elements.
    pub fn median(&self, axis: isize, keep: bool) -> Result<Self> {
        let at = self.axis("median", axis)?;
        let extent = self.dims()[at];
        if extent == 0 {
            return Err(Error::Argument {
                op: "median",
                argument: "axis",
                value: axis.to_string(),
                detail: format!("there is no element to choose in a tensor of shape {}", self.shape()),
            });
        }
        let (values, _) = self.first_sorted("median", axis, false, extent)?;
        let middle = values.narrow(axis, (extent - 1) / 2, 1)?;
        if keep { Ok(middle) } else { middle.squeeze(axis) }
    }
}
