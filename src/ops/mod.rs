//! The operations, one file per op or close family.
//!
//! An op's file holds its formula and derivative (module docs), its shape
//! rule, its gradient rule, its cost, its kernel and grid, and the methods of
//! [`Tensor`] that record it. Users write ops of their own with the same traits.

mod activation;
mod adaptive_pool;
mod arrange;
mod assign;
mod attention;
mod attention_kernels;
mod batch_norm;
mod binary;
mod broadcast;
mod cast;
mod compare;
mod concat;
mod conv;
mod conv_rows;
mod cross_entropy;
mod detach;
mod digest;
mod einsum;
mod embedding;
mod fill;
mod functions;
mod gather;
mod index;
pub(crate) mod kernel;
mod layer_norm;
mod logsumexp;
mod losses;
mod matmul;
mod measure;
mod mixed;
mod norms;
mod permute;
mod pool;
mod pool1d;
pub mod random;
mod reduce;
mod resample;
mod reshape;
mod roll;
mod rope;
mod scan;
mod scatter;
mod select;
mod slice;
mod softmax;
mod sort;
mod split;
mod unary;
mod unfold;

pub use arrange::PadMode;
pub(crate) use assign::assign;
pub use attention::AttentionOptions;
pub use binary::Scalar;
pub(crate) use cast::TO_F32;
pub use conv::Conv2dOptions;
pub use cross_entropy::{CrossEntropyOptions, Reduction};
pub use digest::fingerprint;
pub use losses::NllOptions;
pub(crate) use reduce::column_sums;
pub use rope::RopeOptions;

use std::borrow::Cow;
use std::fmt::Debug;

use crate::dtype::{Layout, TensorType};
use crate::error::{Error, Result};
use crate::fuse::program::Cost;
use crate::graph::Tensor;
use crate::profile::DeviceProfile;
use crate::shared::MaybeSendSync;

/// One operation.
pub trait Op: Debug + MaybeSendSync {
    /// Its name, as errors and reports print it.
    fn name(&self) -> &'static str;

    /// The shape rule: types of the outputs for types of the inputs.
    ///
    /// # Errors
    /// [`Error::Shape`], [`Error::DType`] or [`Error::Argument`] naming the op.
    fn output_types(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>>;

    /// The gradient rule: one entry per input, `None` where no gradient flows
    /// (integer inputs, or inputs that are not needed).
    ///
    /// # Errors
    /// [`Error::NoGradient`] naming the op where it has none.
    fn gradient(&self, call: &GradientCall<'_>) -> Result<Vec<Option<Tensor>>>;

    /// How it becomes passes.
    fn lowering(&self) -> Lowering<'_>;

    /// Indices of the inputs that it overwrites; these are states. Such an op
    /// runs once per run and is never replayed.
    fn state_writes(&self) -> &[usize] {
        &[]
    }
}

/// What a gradient rule is given.
#[derive(Debug)]
pub struct GradientCall<'a> {
    /// The op's inputs.
    pub inputs: &'a [Tensor],
    /// The op's outputs.
    pub outputs: &'a [Tensor],
    /// The incoming gradient of each output, `None` where it is zero. At least
    /// one is there.
    pub grads: &'a [Option<Tensor>],
    /// Whether a gradient is wanted, per input.
    pub needed: &'a [bool],
}

impl GradientCall<'_> {
    /// The incoming gradient of an op with one output.
    ///
    /// # Errors
    /// [`Error::NoGradient`] if there is none, which the driver rules out.
    pub fn grad(&self) -> Result<&Tensor> {
        self.grads
            .first()
            .and_then(Option::as_ref)
            .ok_or(Error::NoGradient { op: "gradient", detail: "no incoming gradient".into() })
    }
}

/// How an op becomes passes.
#[derive(Debug)]
pub enum Lowering<'a> {
    /// No pass where strides suffice; a copy and a view otherwise.
    View(&'a dyn ViewOp),
    /// An expression per element, fused with its neighbours.
    Elementwise(&'a dyn ElementwiseOp),
    /// Hand-written kernels.
    Kernel(&'a dyn KernelOp),
}

/// An op that only looks at its input in another way.
pub trait ViewOp: Debug {
    /// The output's layout over the input's storage, or `None` if strides do
    /// not suffice for this input layout (they always do for a contiguous one).
    fn view(&self, input: &Layout) -> Option<Layout>;

    /// The same for each output, of an op with several.
    fn view_output(&self, output: usize, input: &Layout) -> Option<Layout> {
        let _ = output;
        self.view(input)
    }
}

/// What an elementwise op builds its WGSL expression from.
#[derive(Debug)]
pub struct ElementCall<'a> {
    /// One WGSL expression per operand, an identifier, of the operand's value type
    /// (`f32`, `i32`, `u32`, `bool`).
    pub operands: &'a [String],
    /// One WGSL expression of type `u32` per uniform word of [`ElementwiseOp::words`].
    pub words: &'a [String],
    /// The identifier of the element's row-major index (`u32`) in the output.
    pub index: &'static str,
}

/// An op whose every output element depends on the elements at the same place.
/// All operands have the output's shape (broadcasts are views, recorded before).
pub trait ElementwiseOp: Debug {
    /// The WGSL expression of one element.
    fn expression(&self, call: &ElementCall<'_>) -> String;

    /// Uniform words: numbers that are no part of the text, so that one
    /// pipeline serves every value of them (`value.to_bits()` for floats).
    fn words(&self) -> Vec<u32> {
        Vec::new()
    }

    /// True for an op without operands whose every element is the same: it
    /// stays itself under any view, so it is computed by whoever reads it.
    fn is_constant(&self) -> bool {
        false
    }

    /// WGSL texts of functions that the expression calls (from `shaders/shared/`).
    fn functions(&self) -> &'static [&'static str] {
        &[]
    }

    /// Floating-point operations per element.
    fn flops(&self) -> f64 {
        1.0
    }
}

/// An operand as a kernel sees it.
#[derive(Debug, Clone, Copy)]
pub struct OperandView<'a> {
    /// Data type and shape.
    pub ty: &'a TensorType,
    /// How it lies in its storage; the storage is bound as a whole.
    pub layout: &'a Layout,
}

/// What a kernel op is lowered with.
#[derive(Debug)]
pub struct KernelContext<'a> {
    /// Limits and class of the device.
    pub profile: &'a DeviceProfile,
    /// Inputs, every layout accepted by [`KernelOp::accepts`].
    pub inputs: &'a [OperandView<'a>],
    /// Types of the outputs, which are contiguous.
    pub outputs: &'a [&'a TensorType],
    /// True where an output is kept as `f16`. Kernels are written for `f32` and
    /// their operands' types say so; the engine rewrites their texts. It can do so
    /// only for stores of four neighbours, which are better then; others go
    /// through an `f32` copy.
    pub vector_stores: bool,
    /// WGSL text and uniform words of a fused epilogue, for ops that take one.
    pub epilogue: Option<&'a EpilogueCode>,
}

/// A fused epilogue: functions that a kernel calls on each element before storing it.
#[derive(Debug, Clone)]
pub struct EpilogueCode {
    /// WGSL text, with the declarations of its bindings.
    pub source: String,
    /// Uniform words, appended to the kernel's own.
    pub words: Vec<u32>,
    /// Floating-point operations per element.
    pub flops: f64,
    /// Bytes read per element of the output, for the cost.
    pub bytes: f64,
}

/// An op with kernels of its own.
pub trait KernelOp: Debug {
    /// Whether the kernel reads operand `operand` in this layout. Where it does
    /// not, a contiguous copy is made first.
    fn accepts(&self, operand: usize, layout: &Layout) -> bool {
        let _ = operand;
        layout.is_contiguous() && layout.offset == 0
    }

    /// If an elementwise chain that reads only this op's output may be fused
    /// into the kernel's store: the output seen as `[batch, rows, columns]`
    /// (any shape whose row-major order is the same).
    fn epilogue_shape(&self, inputs: &[&TensorType]) -> Option<[usize; 3]> {
        let _ = inputs;
        None
    }

    /// The dispatches, none with an empty grid. Not called if an output has no elements.
    ///
    /// # Errors
    /// [`Error::Limit`] and the like.
    fn kernels(&self, context: &KernelContext<'_>) -> Result<KernelCalls>;
}

/// Dispatches of one op, in order, with the scratch that they share.
#[derive(Debug, Clone, Default)]
pub struct KernelCalls {
    /// Lengths in bytes of scratch storages.
    pub scratch_bytes: Vec<u64>,
    /// The dispatches.
    pub calls: Vec<KernelCall>,
}

/// One dispatch of an op.
#[derive(Debug, Clone)]
pub struct KernelCall {
    /// Name for reports and labels.
    pub name: &'static str,
    /// The WGSL text; operand `i` is binding `i + 1`, uniform words are binding 0.
    pub source: Cow<'static, str>,
    /// Values of `override` declarations.
    pub constants: Vec<(&'static str, f64)>,
    /// The bindings, in order. A fused epilogue's operands follow them.
    pub operands: Vec<CallOperand>,
    /// Uniform words, not empty.
    pub uniforms: Vec<u32>,
    /// Workgroups.
    pub grid: [u32; 3],
    /// Estimated work.
    pub cost: Cost,
}

/// One binding of a [`KernelCall`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallOperand {
    /// Reads the op's input of this index.
    Input(usize),
    /// Writes every element of the op's output of this index. Each output and each
    /// scratch is written by exactly one call.
    Output(usize),
    /// Reads the op's output of this index, written by an earlier call.
    OutputRead(usize),
    /// Writes every element of this scratch.
    Scratch(usize),
    /// Reads this scratch, written by an earlier call.
    ScratchRead(usize),
    /// Reads and overwrites the state that is the op's input of this index.
    State(usize),
}
