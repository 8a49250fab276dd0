//! Picking and adding by number along an axis: `gather`, `scatter_add`,
//! `index_select`, `index_add`, `one_hot`.
//!
//! ```text
//! gather        y[.., j, ..] = x[.., ids[.., j, ..], ..]
//! scatter_add   y = x; y[.., ids[.., j, ..], ..] += s[.., j, ..]
//! index_select  y[.., j, ..] = x[.., ids[j], ..]
//! index_add     y = x; y[.., ids[j], ..] += s[.., j, ..]
//! one_hot       y[.., v] = 1 where ids[..] = v, else 0
//! ```
//!
//! The semantics are PyTorch's (`torch.gather`, `Tensor.scatter_add`, ..) but for
//! numbers that are no place of the axis: those give NaN, and nothing is added for
//! them. What is added is so by the gradient of [`Tensor::embedding`], which sorts the
//! numbers and adds in a fixed order: no atomics, the same bits in every run. Sorting
//! picks with the same op, and its gradient picks too, by the inverse of the order.

use super::embedding;
use super::kernel::word;
use super::{CallOperand, GradientCall, KernelCall, KernelCalls, KernelContext, KernelOp, Lowering, Op};
use crate::dtype::{DType, Layout, Shape, TensorType, count};
use crate::error::{Error, Result};
use crate::fuse::program::Cost;
use crate::graph::Tensor;

const TAKE: &str = include_str!("../../shaders/gather.wgsl");

/// Of x `[O, R, I]` the elements at places `[O, K, I]` along R. A third operand,
/// `[O, R, I]`, may tell for each element of x where alone in the result it stands:
/// with the two exchanged, the op is then its own gradient.
#[derive(Debug, Clone, Copy)]
struct Gather {
    /// The word that stands where the place is not in `0..R`.
    missing: u32,
}

impl Op for Gather {
    fn name(&self) -> &'static str {
        "gather"
    }
    fn output_types(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        Ok(vec![TensorType::new(inputs[0].dtype, inputs[1].shape.clone())])
    }
    fn gradient(&self, call: &GradientCall<'_>) -> Result<Vec<Option<Tensor>>> {
        let (x, places, g) = (&call.inputs[0], &call.inputs[1], call.grad()?);
        let mut all = vec![None; call.inputs.len()];
        all[0] = Some(if g.element_count() == 0 || x.element_count() == 0 {
            // Of no elements nothing comes back.
            g.recorder().zeros(x.shape())?
        } else if let Some(inverse) = call.inputs.get(2) {
            g.apply_with(Self { missing: 0 }, &[inverse, places])?
        } else {
            let (flat, rows) = (x.flat_numbers(self.name(), 1, places)?, count(g.dims()));
            embedding::add_rows(&g.reshape([rows, 1])?, &flat.reshape([rows])?, count(x.dims()))?.reshape(x.shape())?
        });
        Ok(all)
    }
    fn lowering(&self) -> Lowering<'_> {
        Lowering::Kernel(self)
    }
}

impl KernelOp for Gather {
    fn accepts(&self, operand: usize, layout: &Layout) -> bool {
        // The inverse is not bound.
        operand == 2 || (layout.is_contiguous() && layout.offset == 0)
    }
    fn kernels(&self, context: &KernelContext<'_>) -> Result<KernelCalls> {
        let (from, to) = (context.inputs[0].ty, context.outputs[0]);
        let elements = to.shape.element_count();
        let dims = to.shape.dims();
        let extents = [elements, dims[2] as u64, from.shape.dims()[1] as u64, dims[1] as u64].map(word);
        Ok(KernelCalls {
            scratch_bytes: Vec::new(),
            calls: vec![KernelCall {
                name: self.name(),
                source: TAKE.into(),
                constants: Vec::new(),
                operands: vec![CallOperand::Input(0), CallOperand::Input(1), CallOperand::Output(0)],
                uniforms: [&extents[..], &[self.missing, 0, 0, 0]].concat(),
                grid: context.profile.split_grid(elements.div_ceil(64)),
                cost: Cost { flops: 0.0, bytes: 12.0 * elements as f64 },
            }],
        })
    }
}

/// The elements of lines `[O, R, I]` at the first places `[O, K, I]` of their order,
/// of which `rank [O, R, I]` is the inverse.
pub(super) fn take_sorted(lines: &Tensor, places: &Tensor, rank: &Tensor) -> Result<Tensor> {
    lines.apply_with(Gather { missing: 0 }, &[places, rank])
}

fn expect_ids(op: &'static str, operand: usize, ids: &Tensor) -> Result<()> {
    if matches!(ids.dtype(), DType::I32 | DType::U32) {
        return Ok(());
    }
    Err(Error::DType { op, operand, found: ids.dtype(), expected: "i32 or u32" })
}

fn misfit(op: &'static str, tensors: &[&Tensor], detail: &str) -> Error {
    Error::Shape { op, shapes: tensors.iter().map(|t| t.shape().clone()).collect(), detail: detail.into() }
}

impl Tensor {
    /// Fails unless `ids` are integers with the extents of `self` but in `axis`.
    fn check_places(&self, op: &'static str, axis: usize, ids: &Self) -> Result<()> {
        expect_ids(op, 1, ids)?;
        let same = ids.rank() == self.rank()
            && ids.dims().iter().zip(self.dims()).enumerate().all(|(i, (a, b))| i == axis || a == b);
        if !same {
            let detail = "the numbers must have the tensor's extents in every axis but the one picked from";
            return Err(misfit(op, &[self, ids], detail));
        }
        Ok(())
    }

    /// For `ids` as `self` but in `axis`: the number of each picked element in
    /// row-major order of `self`. One outside the axis becomes one outside the tensor.
    pub(super) fn flat_numbers(&self, op: &'static str, axis: usize, ids: &Self) -> Result<Self> {
        self.check_places(op, axis, ids)?;
        let total = u32::try_from(self.element_count()).ok().filter(|&n| n < u32::MAX);
        let Some(total) = total else {
            return Err(misfit(op, &[self, ids], "more than 2^32 - 2 elements cannot be numbered"));
        };
        let extent = self.dims()[axis];
        let strides = self.shape().contiguous_strides();
        let recorder = self.recorder();
        // A negative number becomes one far beyond every extent.
        let ids = ids.to_u32()?;
        let mut flat = ids.mul_scalar(strides[axis] as u32)?;
        for (other, &stride) in strides.iter().enumerate() {
            if other != axis && ids.dims()[other] > 1 {
                let place = recorder.iota(ids.shape(), other)?.mul_scalar(stride as u32)?;
                flat = flat.add(&place)?;
            }
        }
        // An axis has no more parts than the tensor elements, or the tensor has none at all.
        let inside = ids.lt_scalar(u32::try_from(extent).unwrap_or(total))?;
        inside.where_(&flat, &recorder.full_u32(ids.shape(), total)?)
    }

    /// `y[.., j, ..] = self[.., ids[.., j, ..], ..]` along `axis`; `ids` (`i32` or
    /// `u32`) has the tensor's extents in every other axis. Result: the shape of `ids`.
    /// A number that is no place of the axis gives NaN, or 0 (false) of other types.
    ///
    /// # Errors
    /// [`Error::Argument`] for an axis that is not there, [`Error::Shape`] and
    /// [`Error::DType`] if the operands do not fit.
    pub fn gather(&self, axis: isize, ids: &Self) -> Result<Self> {
        let at = self.axis("gather", axis)?;
        self.check_places("gather", at, ids)?;
        if self.element_count() == 0 && ids.element_count() > 0 {
            return Err(misfit("gather", &[self, ids], "the tensor has no elements"));
        }
        let dims = self.dims();
        let [outer, inner] = [&dims[..at], &dims[at + 1..]].map(count);
        let lines = self.reshape([outer, dims[at], inner])?;
        let places = ids.reshape([outer, ids.dims()[at], inner])?;
        let missing = if self.dtype().is_float() { f32::NAN.to_bits() } else { 0 };
        lines.apply_with(Gather { missing }, &[&places])?.reshape(ids.shape())
    }

    /// This tensor with `source[.., j, ..]` added at `ids[.., j, ..]` along `axis`;
    /// `source` and `ids` have one shape. Repeated numbers add up, in rising `j`.
    ///
    /// # Errors
    /// As [`Tensor::gather`].
    pub fn scatter_add(&self, axis: isize, ids: &Self, source: &Self) -> Result<Self> {
        let Some(flat) = self.scattered("scatter_add", axis, ids, source)? else { return Ok(self.clone()) };
        let places = count(ids.dims());
        let sums = embedding::add_rows(&source.reshape([places, 1])?, &flat.reshape([places])?, count(self.dims()))?;
        self.add(&sums.reshape(self.shape())?)
    }

    /// `axis` first, and the rest flattened: `[parts, rest]`.
    fn rows_of(&self, at: usize) -> Result<Self> {
        let mut order: Vec<isize> = (0..self.rank() as isize).collect();
        order.remove(at);
        order.insert(0, at as isize);
        let front = self.permute(&order)?;
        let rest = count(&front.dims()[1..]);
        front.reshape([front.dims()[0], rest])
    }

    /// Undoes [`Tensor::rows_of`]: `[parts, rest]` to `dims` with `parts` at `at`.
    fn rows_back(&self, at: usize, dims: &[usize]) -> Result<Self> {
        let mut front = dims.to_vec();
        front.remove(at);
        front.insert(0, self.dims()[0]);
        let mut order: Vec<isize> = (1..dims.len() as isize).collect();
        order.insert(at, 0);
        self.reshape(Shape(front))?.permute(&order)
    }

    /// The parts of `axis` named by `ids [N]` (`i32` or `u32`), in that order.
    ///
    /// # Errors
    /// As [`Tensor::gather`].
    pub fn index_select(&self, axis: isize, ids: &Self) -> Result<Self> {
        const OP: &str = "index_select";
        let at = self.axis(OP, axis)?;
        self.expect_float(OP, 0)?;
        expect_ids(OP, 1, ids)?;
        if ids.rank() != 1 {
            return Err(misfit(OP, &[self, ids], "the numbers must be [N]"));
        }
        if self.dims()[at] == 0 && ids.element_count() > 0 {
            return Err(misfit(OP, &[self, ids], "the axis has no parts"));
        }
        self.rows_of(at)?.embedding(ids)?.rows_back(at, self.dims())
    }

    /// This tensor with `source[.., j, ..]` added to its part `ids[j]` of `axis`.
    ///
    /// # Errors
    /// As [`Tensor::gather`].
    pub fn index_add(&self, axis: isize, ids: &Self, source: &Self) -> Result<Self> {
        const OP: &str = "index_add";
        let at = self.axis(OP, axis)?;
        self.expect_float(OP, 0)?;
        source.expect_float(OP, 2)?;
        expect_ids(OP, 1, ids)?;
        let mut expected = self.dims().to_vec();
        expected[at] = count(ids.dims());
        if ids.rank() != 1 || source.dims() != expected {
            let detail = "the numbers must be [N], the source as the tensor with N parts of the axis";
            return Err(misfit(OP, &[self, ids, source], detail));
        }
        if source.element_count() == 0 || self.element_count() == 0 {
            return Ok(self.clone());
        }
        let sums = embedding::add_rows(&source.rows_of(at)?, ids, self.dims()[at])?;
        self.add(&sums.rows_back(at, self.dims())?)
    }

    /// `ids.shape + [classes]` of type `i32`: 1 where the last axis' place is the
    /// number, else 0. A number that is no class gives a row of zeros.
    ///
    /// # Errors
    /// [`Error::DType`] unless the numbers are `i32` or `u32`.
    pub fn one_hot(&self, classes: usize) -> Result<Self> {
        expect_ids("one_hot", 0, self)?;
        let mut dims = self.dims().to_vec();
        dims.push(classes);
        let place = self.recorder().iota(Shape(dims.clone()), dims.len() - 1)?;
        self.to_u32()?.unsqueeze(-1)?.broadcast_to(Shape(dims))?.eq(&place)?.to_i32()
    }
}
