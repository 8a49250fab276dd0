//! `digest`: a 128-bit hash of a tensor's raw bits, for comparing runs bit by
//! bit without reading everything back.
//!
//! ```text
//! digest = stir(N, N, N, N) + sum over blocks j of stir(block_j xor key(j))
//! ```
//!
//! over blocks of four words, with wrapping sums, so the result does not depend
//! on how the work is split; `stir` permutes 128 bits and `key` makes the place
//! count. It is no defence against an adversary. It has no gradient.

use super::kernel::{busy_invocations, word};
use super::reduce::column_sums;
use super::{CallOperand, GradientCall, KernelCall, KernelCalls, KernelContext, KernelOp, Lowering, Op};
use crate::dtype::{DType, TensorType};
use crate::error::{Error, Result};
use crate::fuse::program::Cost;
use crate::graph::{Recorder, Tensor};

const TEXT: &str = include_str!("../../shaders/digest.wgsl");

/// Fewest blocks worth an invocation of their own.
const SHORTEST: u64 = 32;

/// `x [N] of any type -> u32 [4]`.
#[derive(Debug, Clone, Copy)]
struct Digest;

impl Op for Digest {
    fn name(&self) -> &'static str {
        "digest"
    }
    fn output_types(&self, _: &[&TensorType]) -> Result<Vec<TensorType>> {
        Ok(vec![TensorType::new(DType::U32, [4])])
    }
    fn gradient(&self, _: &GradientCall<'_>) -> Result<Vec<Option<Tensor>>> {
        Err(Error::NoGradient { op: "digest", detail: "a hash is no function to differentiate".into() })
    }
    fn lowering(&self) -> Lowering<'_> {
        Lowering::Kernel(self)
    }
}

impl KernelOp for Digest {
    fn kernels(&self, context: &KernelContext<'_>) -> Result<KernelCalls> {
        let words = context.inputs[0].ty.shape.element_count();
        let blocks = words.div_ceil(4);
        let parts = blocks.div_ceil(SHORTEST).min(busy_invocations(context.profile));
        let (parts, turns) = if parts < 8 { (1, 1) } else { (parts / 8 * 8, 8) };
        let stretch = blocks.div_ceil(parts / turns);
        let mut result = KernelCalls::default();
        let staged = parts > 1;
        if staged {
            result.scratch_bytes.push(parts * 16);
        }
        result.calls.push(KernelCall {
            name: self.name(),
            source: if words.is_multiple_of(4) { TEXT.into() } else { narrow().into() },
            constants: Vec::new(),
            operands: vec![
                CallOperand::Input(0),
                if staged { CallOperand::Scratch(0) } else { CallOperand::Output(0) },
            ],
            uniforms: [words, blocks, parts, stretch, turns, 0, 0, 0].map(word).to_vec(),
            grid: context.profile.split_grid(parts.div_ceil(64)),
            cost: Cost { flops: 8.0 * words as f64, bytes: 4.0 * words as f64 },
        });
        if staged {
            let ends = (CallOperand::ScratchRead(0), CallOperand::Output(0));
            column_sums(context.profile, self.name(), DType::U32, ends, [parts, 4], &mut result);
        }
        Ok(result)
    }
}

/// The text for a length that is no multiple of 4.
fn narrow() -> String {
    let each = |k: u32| format!("word(4u * j + {k}u)");
    let block = format!("{{ return vec4<u32>({}, {}, {}, {}); }}", each(0), each(1), each(2), each(3));
    TEXT.replace("var<storage, read_write> x: array<vec4<u32>>;", "var<storage, read_write> x: array<u32>;")
        .replace("{ return x[j]; }", &block)
        .replace(
            "fn block(",
            "fn word(i: u32) -> u32 { return select(0u, x[min(i, u.words - 1u)], i < u.words); }\n\nfn block(",
        )
}

impl Tensor {
    /// A 128-bit hash of this tensor's raw bits, as `u32 [4]`: any data type,
    /// equal for equal bits in equal order, whatever the shape.
    ///
    /// # Errors
    /// Only if the recording was planned already.
    pub fn digest(&self) -> Result<Self> {
        if self.element_count() == 0 {
            return self.recorder().full_u32([4], 0);
        }
        self.apply(Digest)
    }
}

/// A 128-bit hash, `u32 [4]`, over the digests of `tensors` in order. Each is
/// hashed on its own, so none needs to outlive its last other reader.
///
/// # Errors
/// [`Error::OtherRecording`] if a tensor belongs to another recording.
pub fn fingerprint(recorder: &Recorder, tensors: &[Tensor]) -> Result<Tensor> {
    if let Some(operand) = tensors.iter().position(|t| !recorder.is_same(t.recorder())) {
        return Err(Error::OtherRecording { op: "fingerprint", operand });
    }
    let digests: Vec<Tensor> = tensors.iter().map(Tensor::digest).collect::<Result<_>>()?;
    if digests.is_empty() {
        return recorder.full_u32([4], 0);
    }
    Tensor::cat(&digests, 0)?.digest()
}
