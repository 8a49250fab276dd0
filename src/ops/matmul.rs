//! Matrix products.
//!
//! ```text
//! matmul    C[b, m, n] = sum_k A[b, m, k] * B[b, k, n]     dA = g B^T     dB = A^T g
//! matmul_t  C[b, m, n] = sum_k A[b, m, k] * B[b, n, k]     dA = g B       dB = g^T A
//! ```
//!
//! Operands are read through their strides: transposed and permuted views cost
//! no copy. A matrix `B` without batch axes is shared by all of `A`'s, whose
//! leading axes are then rows of one product, so that its gradient is one
//! product too. An elementwise chain on the result is fused into the store.

use std::borrow::Cow;

use super::binary::same_types;
use super::kernel::{check_rounds, word};
use super::{CallOperand, GradientCall, KernelCall, KernelCalls, KernelContext, KernelOp, Lowering, Op, OperandView};
use crate::dtype::{Layout, Shape, TensorType, collapse_together, count};
use crate::error::{Error, Result};
use crate::fuse::program::Cost;
use crate::graph::Tensor;
use crate::profile::{AdapterClass, DeviceProfile};

const IDENTITY: &str = include_str!("../../shaders/shared/epilogue_identity.wgsl");
const REGISTER: &str = concat!(
    include_str!("../../shaders/shared/matmul_uniforms.wgsl"),
    include_str!("../../shaders/matmul_register.wgsl")
);
const TILED: &str =
    concat!(include_str!("../../shaders/shared/matmul_uniforms.wgsl"), include_str!("../../shaders/matmul_tiled.wgsl"));
const SCALAR: &str = concat!(
    include_str!("../../shaders/shared/matmul_uniforms.wgsl"),
    include_str!("../../shaders/matmul_scalar.wgsl")
);

/// The store loop of `matmul_tiled.wgsl` and `matmul_scalar.wgsl`, column by column,
const STORE_ONE: &str = "        for (var s = col; s < col_end; s++) {
            c[base + r * u.c_row + s] = epilogue_scalar(values.x, batch, r, s);
            values = values.yzww;
        }
";
/// and four columns at a time, for an N that is a multiple of 4.
const STORE_FOUR: &str = "        if (col < col_end) {
            c[(base + r * u.c_row + col) / 4u] = epilogue_vec4(values, batch, r, col);
        }
";
/// The declaration of C for the one and the other.
const SCALAR_C: &str = "@binding(3) var<storage, read_write> c: array<f32>;";
const VECTOR_C: &str = "@binding(3) var<storage, read_write> c: array<vec4<f32>>;";

/// Invocations per workgroup of `matmul_register.wgsl` and `matmul_scalar.wgsl`.
const WORKGROUP: u64 = 16;
/// The longest sum of one dispatch. One invocation walks along it, and Mesa's
/// software adapter ends its loops after 65,535 rounds, without a word; besides,
/// the rounding errors of shorter sums stay smaller. A multiple of 4.
const LONGEST_SUM: usize = 1 << 15;
/// The most parts that a longer sum is recorded in; what is longer still is one
/// dispatch, which a software adapter refuses.
const MOST_PARTS: usize = 4096;
/// From this many operations on a tile of 8 x 16 pays: it is a sixth faster than
/// 8 x 8 and takes a software adapter twice as long to compile.
const WIDE_TILE_FLOPS: u64 = 200_000_000;
/// With fewer workgroups than this of 128 x 128, 64 x 64 keeps a GPU busier.
const MANY_GROUPS: u64 = 64;

#[derive(Debug, Clone, Copy)]
struct Matmul {
    /// `B` is given as `[.., N, K]`.
    transposed_b: bool,
    /// `B` has no batch axes: `A`'s leading axes are rows.
    shared_b: bool,
}

impl Matmul {
    const fn label(&self) -> &'static str {
        if self.transposed_b { "matmul_t" } else { "matmul" }
    }
}

impl Op for Matmul {
    fn name(&self) -> &'static str {
        self.label()
    }

    fn output_types(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        let (a, b) = (&inputs[0].shape, &inputs[1].shape);
        for (operand, input) in inputs.iter().enumerate() {
            if !input.dtype.is_float() {
                return Err(Error::DType { op: self.label(), operand, found: input.dtype, expected: "f32 or f16" });
            }
        }
        same_types(self.label(), inputs)?;
        let (batch_a, batch_b) = (a.rank().saturating_sub(2), b.rank().saturating_sub(2));
        let shared = batch_b == 0;
        let fits = a.rank() >= 2
            && b.rank() >= 2
            && (shared || a.0[..batch_a] == b.0[..batch_b])
            && a.0[a.rank() - 1] == b.0[b.rank() - if self.transposed_b { 1 } else { 2 }];
        if !fits {
            return Err(Error::Shape {
                op: self.label(),
                shapes: vec![a.clone(), b.clone()],
                detail: if self.transposed_b {
                    "expected [.., M, K] and [.., N, K] with equal K and batch axes".into()
                } else {
                    "expected [.., M, K] and [.., K, N] with equal K and batch axes".into()
                },
            });
        }
        let mut dims = a.0.clone();
        let n = b.0[b.rank() - if self.transposed_b { 2 } else { 1 }];
        dims[a.rank() - 1] = n;
        Ok(vec![TensorType::new(inputs[0].dtype, dims)])
    }

    fn gradient(&self, call: &GradientCall<'_>) -> Result<Vec<Option<Tensor>>> {
        let (a, b, g) = (&call.inputs[0], &call.inputs[1], call.grad()?);
        let da = if !call.needed[0] {
            None
        } else if self.transposed_b {
            Some(g.matmul_op(b, false)?)
        } else {
            Some(g.matmul_op(b, true)?)
        };
        let db = if !call.needed[1] {
            None
        } else if b.rank() == 2 && a.rank() != 2 {
            let (a, g) = (a.as_rows()?, g.as_rows()?);
            Some(self.weight_gradient(&a, &g)?)
        } else {
            Some(self.weight_gradient(a, g)?)
        };
        Ok(vec![da, db])
    }

    fn lowering(&self) -> Lowering<'_> {
        Lowering::Kernel(self)
    }
}

impl Matmul {
    fn weight_gradient(&self, a: &Tensor, g: &Tensor) -> Result<Tensor> {
        if self.transposed_b {
            g.transpose(-2, -1)?.matmul_op(a, false)
        } else {
            a.transpose(-2, -1)?.matmul_op(g, false)
        }
    }
}

/// Strides of one operand: two batch axes, rows, columns, and where it starts.
#[derive(Debug, Clone, Copy, Default)]
struct MatrixStrides {
    batch: [u64; 2],
    row: u64,
    col: u64,
    offset: u64,
}

/// Sizes and strides of a product, as the kernels see it.
#[derive(Debug)]
struct Problem {
    batch: [u64; 2],
    m: u64,
    n: u64,
    k: u64,
    a: MatrixStrides,
    b: MatrixStrides,
}

impl Problem {
    fn new(a: &Layout, b: &Layout, transposed_b: bool) -> Option<Self> {
        let shared = b.shape.rank() == 2;
        let a = if shared { a.reshaped(&rows_shape(&a.shape))? } else { a.clone() };
        let (rank, batch_rank) = (a.shape.rank(), a.shape.rank() - 2);
        let batch_shape = Shape(a.shape.0[..batch_rank].to_vec());
        let (batch, strides) = collapse_together(
            &batch_shape,
            &[&a.strides[..batch_rank], if shared { &[] } else { &b.strides[..batch_rank] }],
        );
        if batch.rank() > 2 {
            return None;
        }
        let two = |list: &[u64], empty: u64| match list {
            [] => [1, empty],
            [one] => [1, *one],
            [first, second, ..] => [*first, *second],
        };
        let sizes: Vec<u64> = batch.0.iter().map(|&d| d as u64).collect();
        let strides_of = |i: usize| match strides[i].as_slice() {
            [] => [0, 0],
            [one] => [0, *one],
            [first, second, ..] => [*first, *second],
        };
        let b_rank = b.shape.rank();
        let (b_row, b_col) = if transposed_b { (b_rank - 1, b_rank - 2) } else { (b_rank - 2, b_rank - 1) };
        Some(Self {
            batch: two(&sizes, 1),
            m: a.shape.0[rank - 2] as u64,
            n: b.shape.0[b_col] as u64,
            k: a.shape.0[rank - 1] as u64,
            a: MatrixStrides {
                batch: strides_of(0),
                row: a.strides[rank - 2],
                col: a.strides[rank - 1],
                offset: a.offset,
            },
            b: MatrixStrides { batch: strides_of(1), row: b.strides[b_row], col: b.strides[b_col], offset: b.offset },
        })
    }

    fn batches(&self) -> u64 {
        self.batch[0] * self.batch[1]
    }

    /// A lies along M rather than along K.
    fn a_transposed(&self) -> bool {
        self.a.col != 1 && self.k > 1
    }

    /// B lies along K rather than along N.
    fn b_transposed(&self) -> bool {
        self.b.col != 1 && self.n > 1
    }

    /// One axis of each operand is contiguous: what the tiled kernels need.
    fn has_unit_strides(&self) -> bool {
        let a = if self.a_transposed() { self.a.row } else { self.a.col };
        let b = if self.b_transposed() { self.b.row } else { self.b.col };
        a == 1 && b == 1
    }

    /// Every load and store of four neighbours is aligned.
    fn is_vectorised(&self) -> bool {
        let by_four = |n: u64| n.is_multiple_of(4);
        let a_other = if self.a_transposed() { self.a.col } else { self.a.row };
        let b_other = if self.b_transposed() { self.b.col } else { self.b.row };
        let batch_ok = |strides: [u64; 2]| (0..2).all(|i| self.batch[i] == 1 || by_four(strides[i]));
        self.has_unit_strides()
            && self.k > 0
            && by_four(self.k)
            && by_four(self.n)
            && (!self.a_transposed() || by_four(self.m))
            && [a_other, b_other, self.a.offset, self.b.offset].into_iter().all(by_four)
            && batch_ok(self.a.batch)
            && batch_ok(self.b.batch)
    }

    fn words(&self) -> Vec<u32> {
        let (a, b) = (self.a, self.b);
        let c_row = self.n;
        let c_batch = [self.batch[1] * self.m * self.n, self.m * self.n];
        [
            self.batch[0],
            self.batch[1],
            self.m,
            self.n,
            self.k,
            a.batch[0],
            a.batch[1],
            a.row,
            a.col,
            b.batch[0],
            b.batch[1],
            b.row,
            b.col,
            c_batch[0],
            c_batch[1],
            c_row,
            a.offset,
            b.offset,
            0,
            0,
        ]
        .iter()
        .map(|&w| word(w))
        .collect()
    }
}

/// `[.., M, K]` as `[rows, K]`.
fn rows_shape(shape: &Shape) -> Shape {
    let last = shape.0.last().copied().unwrap_or(1);
    let rows = count(&shape.0[..shape.rank().saturating_sub(1)]);
    Shape(vec![rows, last])
}

struct Chosen {
    source: &'static str,
    constants: Vec<(&'static str, f64)>,
    groups: u64,
}

fn flag(on: bool) -> f64 {
    if on { 1.0 } else { 0.0 }
}

/// The kernel for a product: a matter of sizes, strides and the device's
/// class alone, so that every replay runs the same one.
fn choose(problem: &Problem, class: AdapterClass) -> Chosen {
    let layout = vec![("A_TRANSPOSED", flag(problem.a_transposed())), ("B_TRANSPOSED", flag(problem.b_transposed()))];
    let tiles = |rows: u64, cols: u64| problem.batches() * problem.m.div_ceil(rows) * problem.n.div_ceil(cols);
    if class == AdapterClass::Cpu {
        if problem.is_vectorised() {
            let flops = 2 * problem.batches() * problem.m * problem.n * problem.k;
            let (row_blocks, col_blocks) = if problem.m <= 4 || problem.n <= 8 {
                (1, 2)
            } else if flops < WIDE_TILE_FLOPS {
                (2, 2)
            } else {
                (2, 4)
            };
            let mut constants = layout;
            constants.extend([("ROW_BLOCKS", row_blocks as f64), ("COL_BLOCKS", col_blocks as f64)]);
            let groups = tiles(4 * row_blocks, 4 * col_blocks).div_ceil(WORKGROUP);
            return Chosen { source: REGISTER, constants, groups };
        }
    } else if problem.has_unit_strides() {
        let large = problem.m >= 128 && problem.n >= 128 && tiles(128, 128) >= MANY_GROUPS;
        let blocks = if large { 2 } else { 1 };
        let mut constants = layout;
        constants.push(("BLOCKS", blocks as f64));
        return Chosen { source: TILED, constants, groups: tiles(64 * blocks, 64 * blocks) };
    }
    let extent = if problem.m.min(problem.n) >= 64 { 8 } else { 4 };
    let tile = |size: u64| if size == 1 { 1 } else { extent };
    // One row of several columns is not among the kernel's tiles.
    let (rows, cols) = if problem.n == 1 { (tile(problem.m), 1) } else { (extent, extent) };
    Chosen {
        source: SCALAR,
        constants: vec![("ROWS", rows as f64), ("COLS", cols as f64)],
        groups: tiles(rows, cols).div_ceil(WORKGROUP),
    }
}

impl KernelOp for Matmul {
    fn accepts(&self, operand: usize, layout: &Layout) -> bool {
        let rank = layout.shape.rank();
        if rank <= 2 {
            return true;
        }
        if self.shared_b {
            return operand == 1 || layout.reshaped(&rows_shape(&layout.shape)).is_some();
        }
        // Up to two batch axes have strides of their own; more must be joined to one.
        let batch = Layout {
            shape: Shape(layout.shape.0[..rank - 2].to_vec()),
            strides: layout.strides[..rank - 2].to_vec(),
            offset: 0,
        };
        batch.shape.rank() <= 2 || batch.collapsed().shape.rank() <= 1
    }

    fn epilogue_shape(&self, inputs: &[&TensorType]) -> Option<[usize; 3]> {
        let (a, b) = (&inputs[0].shape, &inputs[1].shape);
        let n = if self.transposed_b { b.0[b.rank() - 2] } else { b.0[b.rank() - 1] };
        if b.rank() == 2 {
            return Some([1, rows_shape(a).0[0], n]);
        }
        let batch = count(&a.0[..a.rank() - 2]);
        Some([batch, a.0[a.rank() - 2], n])
    }

    fn kernels(&self, context: &KernelContext<'_>) -> Result<KernelCalls> {
        let (a, b): (&OperandView<'_>, &OperandView<'_>) = (&context.inputs[0], &context.inputs[1]);
        let problem = Problem::new(a.layout, b.layout, self.transposed_b).ok_or_else(|| Error::Shape {
            op: self.label(),
            shapes: vec![a.ty.shape.clone(), b.ty.shape.clone()],
            detail: "the operands' strides cannot be joined to two batch axes; reshape them first".into(),
        })?;
        let chosen = choose(&problem, context.profile.class);
        let rounds = if chosen.source == REGISTER { problem.k / 4 } else { problem.k };
        check_rounds(context.profile, self.label(), problem.k, rounds)?;
        // Tiles are four columns wide or a multiple, or N is 1.
        let text = if context.vector_stores && chosen.source != REGISTER && problem.n.is_multiple_of(4) {
            Cow::Owned(chosen.source.replace(STORE_ONE, STORE_FOUR).replace(SCALAR_C, VECTOR_C))
        } else {
            Cow::Borrowed(chosen.source)
        };
        let mut uniforms = problem.words();
        let epilogue = context.epilogue.map_or(IDENTITY, |e| e.source.as_str());
        uniforms.extend(context.epilogue.map_or(&[0; 4][..], |e| e.words.as_slice()));
        let outputs = (problem.batches() * problem.m * problem.n) as f64;
        let (flops, bytes) = context.epilogue.map_or((0.0, 0.0), |e| (e.flops, e.bytes));
        let cost = Cost {
            flops: outputs * (2.0 * problem.k as f64 + flops),
            bytes: (a.ty.size_bytes() + b.ty.size_bytes()) as f64 + outputs * (4.0 + bytes),
        };
        Ok(KernelCalls {
            scratch_bytes: Vec::new(),
            calls: vec![KernelCall {
                name: self.label(),
                source: Cow::Owned(format!("{epilogue}\n{text}")),
                constants: chosen.constants,
                operands: vec![CallOperand::Input(0), CallOperand::Input(1), CallOperand::Output(0)],
                uniforms,
                grid: split(context.profile, chosen.groups),
                cost,
            }],
        })
    }
}

fn split(profile: &DeviceProfile, groups: u64) -> [u32; 3] {
    profile.split_grid(groups.max(1))
}

impl Tensor {
    fn matmul_op(&self, other: &Self, transposed_b: bool) -> Result<Self> {
        let k = self.dims().last().copied().unwrap_or(0);
        let op = Matmul { transposed_b, shared_b: other.rank() == 2 };
        if k == 0 {
            // A sum of nothing; the shape rule still applies.
            let ty = op.output_types(&[self.ty(), other.ty()])?.swap_remove(0);
            return self.recorder().full_float(ty.dtype, ty.shape, 0.0);
        }
        // What cannot be addressed is recorded whole: fusion refuses it with the limit's
        // name, and its parts would be too many to record.
        if k <= LONGEST_SUM || k > MOST_PARTS * LONGEST_SUM {
            return self.apply_with(op, &[other]);
        }
        // The sum of products over parts of K, each added in the next one's store.
        op.output_types(&[self.ty(), other.ty()])?;
        let parts = k.div_ceil(LONGEST_SUM);
        let part = k.div_ceil(parts).next_multiple_of(4);
        let axis = if transposed_b { -1 } else { -2 };
        let mut sum: Option<Self> = None;
        for start in (0..k).step_by(part) {
            let length = part.min(k - start);
            let product = self.narrow(-1, start, length)?.apply_with(op, &[&other.narrow(axis, start, length)?])?;
            sum = Some(match sum {
                Some(before) => product.add(&before)?,
                None => product,
            });
        }
        sum.ok_or(Error::NoGradient { op: "matmul", detail: "no part".into() })
    }

    /// `[.., M, K]` as `[rows, K]`.
    fn as_rows(&self) -> Result<Self> {
        self.reshape(rows_shape(self.shape()))
    }

    /// The matrix product `[.., M, K] x [.., K, N] -> [.., M, N]`. Batch axes
    /// broadcast; a vector `[K]` on the left is a row, on the right a column, and
    /// its axis is left out of the result (NumPy's `matmul`).
    ///
    /// # Errors
    /// [`Error::Shape`] or [`Error::DType`] if the operands do not fit.
    pub fn matmul(&self, other: &Self) -> Result<Self> {
        self.product(other, false)
    }

    /// The matrix product with the transposed right operand,
    /// `[.., M, K] x [.., N, K] -> [.., M, N]`: what a linear layer with weights
    /// `[out, in]` and attention scores need. No copy is made.
    ///
    /// # Errors
    /// [`Error::Shape`] or [`Error::DType`] if the operands do not fit.
    pub fn matmul_t(&self, other: &Self) -> Result<Self> {
        self.product(other, true)
    }

    fn product(&self, other: &Self, transposed_b: bool) -> Result<Self> {
        let op = Matmul { transposed_b, shared_b: other.rank() == 2 };
        let misfit = || Error::Shape {
            op: op.label(),
            shapes: vec![self.shape().clone(), other.shape().clone()],
            detail: "operands need at least one axis each and batch axes that broadcast".into(),
        };
        if self.rank() == 0 || other.rank() == 0 {
            return Err(misfit());
        }
        if self.rank() == 1 {
            let row = self.reshape([1, self.dims()[0]])?.product(other, transposed_b)?;
            let mut dims = row.dims().to_vec();
            dims.remove(dims.len() - if other.rank() == 1 { 1 } else { 2 });
            return row.reshape(dims);
        }
        if other.rank() == 1 {
            let k = other.dims()[0];
            let column = other.reshape(if transposed_b { [1, k] } else { [k, 1] })?;
            let product = self.product(&column, transposed_b)?;
            let dims = product.dims()[..product.rank() - 1].to_vec();
            return product.reshape(dims);
        }
        if other.rank() == 2 {
            return self.matmul_op(other, transposed_b);
        }
        let batch = |t: &Self| Shape(t.dims()[..t.rank() - 2].to_vec());
        let common = batch(self).broadcast(&batch(other)).ok_or_else(misfit)?;
        let expand = |t: &Self| {
            let mut dims = common.0.clone();
            dims.extend_from_slice(&t.dims()[t.rank() - 2..]);
            t.broadcast_to(dims)
        };
        expand(self)?.matmul_op(&expand(other)?, transposed_b)
    }

    /// `x W^T + b`: `[.., in] x [out, in] + [out] -> [.., out]` (PyTorch's `linear`).
    ///
    /// # Errors
    /// [`Error::Shape`] or [`Error::DType`] if the operands do not fit.
    pub fn linear(&self, weight: &Self, bias: Option<&Self>) -> Result<Self> {
        let product = self.matmul_t(weight)?;
        match bias {
            Some(bias) => product.add(bias),
            None => Ok(product),
        }
    }
}
