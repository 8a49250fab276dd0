//! Batch norm in training, of `[N, C, ..]`, per channel over samples and places.
//!
//! ```text
//! mean = sum(x) / M      var = sum((x - mean)^2) / M      M = elements of a channel
//! xh = (x - mean) * rstd      rstd = 1 / sqrt(var + eps)      y = xh * weight + bias
//! dweight = sum(g * xh)      dbias = sum(g)
//! dx = weight * rstd * (g - dbias / M - xh * dweight / M)
//! ```
//!
//! Source: Ioffe and Szegedy 2015. Three ops: the statistics, the result, and the sums
//! of the gradient; dx is composed of simple ops, which become one pass. The result's
//! rule gives the whole derivative with respect to x, that through mean and variance
//! included, and nothing for those; the statistics have a rule of their own, for
//! whoever differentiates them or a gradient.

use super::kernel::{busy_invocations, check_rounds, span, specialised, word};
use super::{CallOperand, GradientCall, KernelCall, KernelCalls, KernelContext, KernelOp, Lowering, Op};
use crate::dtype::{DType, TensorType};
use crate::error::{Error, Result};
use crate::fuse::program::Cost;
use crate::graph::Tensor;
use crate::profile::DeviceProfile;
use crate::shared::Shared;

const IDENTITY: &str = include_str!("../../shaders/shared/epilogue_identity.wgsl");
const SHARED: &str = include_str!("../../shaders/shared/batch_norm.wgsl");
const STATS: &str =
    concat!(include_str!("../../shaders/shared/batch_norm.wgsl"), include_str!("../../shaders/batch_stats.wgsl"));
const STATS_JOIN: &str =
    concat!(include_str!("../../shaders/shared/batch_norm.wgsl"), include_str!("../../shaders/batch_stats_join.wgsl"));
const NORM: &str = include_str!("../../shaders/batch_norm.wgsl");
const PARAMS: &str =
    concat!(include_str!("../../shaders/shared/batch_norm.wgsl"), include_str!("../../shaders/batch_norm_params.wgsl"));
const PARAMS_JOIN: &str = concat!(
    include_str!("../../shaders/shared/batch_norm.wgsl"),
    include_str!("../../shaders/batch_norm_params_join.wgsl")
);

/// Elements that are worth an invocation of their own, and that one may walk along.
const CHUNK: [u64; 2] = [256, 4096];

/// `x [N, C, ..] -> mean [C], var [C]`, the variance biased.
#[derive(Debug, Clone, Copy)]
struct BatchStats;

/// `x, mean, var, weight, bias -> y`.
#[derive(Debug, Clone, Copy)]
struct BatchNorm {
    eps: f32,
}

/// `x, mean, var, g -> dweight, dbias`.
#[derive(Debug, Clone, Copy)]
struct BatchNormParams {
    eps: f32,
}

/// Sizes of `[N, C, ..]` and how a channel is cut into chunks.
struct Chunks {
    samples: u64,
    channels: u64,
    /// Blocks of a sample's channel, of four elements or one.
    width: u64,
    wide: bool,
    chunk_samples: u64,
    chunk_width: u64,
    parts: u64,
    chunks: u64,
}

impl Chunks {
    fn new(profile: &DeviceProfile, ty: &TensorType) -> Self {
        let [samples, channels] = [ty.shape.0[0], ty.shape.0[1]].map(|n| n as u64);
        let places: u64 = ty.shape.0[2..].iter().map(|&n| n as u64).product();
        let wide = places.is_multiple_of(4);
        let lanes = if wide { 4 } else { 1 };
        let width = places / lanes;
        let [shortest, longest] = CHUNK;
        let wished = (channels * samples * places).div_ceil(busy_invocations(profile)).clamp(shortest, longest);
        let chunk_samples = (wished / places).clamp(1, samples);
        let parts = places.div_ceil(wished).min(width);
        let chunk_width = width.div_ceil(parts);
        let parts = width.div_ceil(chunk_width);
        let chunks = samples.div_ceil(chunk_samples) * parts;
        Self { samples, channels, width, wide, chunk_samples, chunk_width, parts, chunks }
    }

    fn lanes(&self) -> u64 {
        if self.wide { 4 } else { 1 }
    }

    fn per_channel(&self) -> u64 {
        self.samples * self.width * self.lanes()
    }

    fn words(&self, count: u64, eps: f32) -> Vec<u32> {
        let sizes = [
            count,
            self.samples,
            self.channels,
            self.width,
            self.lanes(),
            self.chunk_samples,
            self.chunk_width,
            self.parts,
            self.chunks,
        ];
        let per_element = 1.0 / self.per_channel() as f32;
        sizes.iter().map(|&n| word(n)).chain([per_element.to_bits(), eps.to_bits(), 0]).collect()
    }

    /// A pass over the chunks and one that joins each channel's, through a scratch of pairs.
    fn two_passes(
        &self,
        context: &KernelContext<'_>,
        names: [&'static str; 2],
        texts: [&'static str; 2],
        eps: f32,
        flops: f64,
    ) -> Result<KernelCalls> {
        let profile = context.profile;
        let count = self.channels * self.chunks;
        check_rounds(profile, names[0], self.chunks, 2 * self.chunks)?;
        let large = (self.per_channel() * self.channels) as f64;
        let reads = context.inputs.iter().filter(|i| i.ty.shape.rank() > 1).count() as f64;
        let mut operands: Vec<CallOperand> = (0..context.inputs.len()).map(CallOperand::Input).collect();
        operands.push(CallOperand::Scratch(0));
        let over_chunks = KernelCall {
            name: names[0],
            source: specialised(texts[0], DType::F32, self.wide),
            constants: Vec::new(),
            operands,
            uniforms: self.words(count, eps),
            grid: profile.split_grid(count.div_ceil(64)),
            cost: Cost { flops: flops * large, bytes: 4.0 * reads * large },
        };
        let join = KernelCall {
            name: names[1],
            source: specialised(texts[1], DType::F32, self.wide),
            constants: Vec::new(),
            operands: vec![CallOperand::ScratchRead(0), CallOperand::Output(0), CallOperand::Output(1)],
            uniforms: self.words(self.channels, eps),
            grid: profile.split_grid(self.channels.div_ceil(64)),
            cost: Cost { flops: 4.0 * count as f64, bytes: 16.0 * count as f64 },
        };
        Ok(KernelCalls { scratch_bytes: vec![8 * count], calls: vec![over_chunks, join] })
    }
}

/// `[C]` as `[1, C, 1, ..]`, to go with `x [N, C, ..]`.
fn beside(x: &Tensor, per_channel: &Tensor) -> Result<Tensor> {
    let mut dims = vec![1; x.rank()];
    dims[1] = x.dims()[1];
    per_channel.reshape(dims)
}

/// 1 / M as a factor.
fn share(x: &Tensor) -> f32 {
    (x.dims()[1] as f64 / x.element_count() as f64) as f32
}

fn pair(channels: usize) -> Vec<TensorType> {
    vec![TensorType::new(DType::F32, [channels]); 2]
}

impl Op for BatchStats {
    fn name(&self) -> &'static str {
        "batch_stats"
    }
    fn output_types(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        Ok(pair(inputs[0].shape.0[1]))
    }
    fn gradient(&self, call: &GradientCall<'_>) -> Result<Vec<Option<Tensor>>> {
        let (x, mean) = (&call.inputs[0], &call.outputs[0]);
        let for_mean = match &call.grads[0] {
            Some(g) => Some(beside(x, &g.mul_scalar(share(x))?)?),
            None => None,
        };
        let for_var = match &call.grads[1] {
            Some(g) => Some(x.sub_as(&beside(x, mean)?, DType::F32)?.mul(&beside(x, &g.mul_scalar(2.0 * share(x))?)?)?),
            None => None,
        };
        let dx = match (for_mean, for_var) {
            (Some(a), Some(b)) => Some(b.add(&a)?),
            (Some(a), None) => Some(a.broadcast_to(x.shape().clone())?),
            (None, b) => b,
        };
        Ok(vec![dx.map(|t| t.to_dtype(x.dtype())).transpose()?])
    }
    fn lowering(&self) -> Lowering<'_> {
        Lowering::Kernel(self)
    }
}

impl KernelOp for BatchStats {
    fn kernels(&self, context: &KernelContext<'_>) -> Result<KernelCalls> {
        let chunks = Chunks::new(context.profile, context.inputs[0].ty);
        chunks.two_passes(context, ["batch_stats", "batch_stats_join"], [STATS, STATS_JOIN], 0.0, 4.0)
    }
}

impl Op for BatchNorm {
    fn name(&self) -> &'static str {
        "batch_norm"
    }
    fn output_types(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        Ok(vec![inputs[0].clone()])
    }
    fn gradient(&self, call: &GradientCall<'_>) -> Result<Vec<Option<Tensor>>> {
        let [x, mean, var, weight] = [0, 1, 2, 3].map(|i| &call.inputs[i]);
        let g = call.grad()?;
        let sums = x.recorder().record(Shared::new(BatchNormParams { eps: self.eps }), &[x, mean, var, g])?;
        let (dweight, dbias) = (&sums[0], &sums[1]);
        let dx = if call.needed[0] {
            let rstd = var.add_scalar(self.eps)?.rsqrt()?;
            let slope = dweight.mul(&rstd)?.mul_scalar(share(x))?;
            let away = x.sub_as(&beside(x, mean)?, DType::F32)?.mul(&beside(x, &slope)?)?;
            let straight = g.sub_as(&beside(x, &dbias.mul_scalar(share(x))?)?, DType::F32)?;
            let scale = weight.mul_as(&rstd, DType::F32)?;
            Some(straight.sub(&away)?.mul(&beside(x, &scale)?)?.to_dtype(x.dtype())?)
        } else {
            None
        };
        let wanted = |index: usize, t: &Tensor| -> Result<Option<Tensor>> {
            call.needed[index].then(|| t.to_dtype(call.inputs[index].dtype())).transpose()
        };
        Ok(vec![dx, None, None, wanted(3, dweight)?, wanted(4, dbias)?])
    }
    fn lowering(&self) -> Lowering<'_> {
        Lowering::Kernel(self)
    }
}

impl KernelOp for BatchNorm {
    fn epilogue_shape(&self, inputs: &[&TensorType]) -> Option<[usize; 3]> {
        let dims = &inputs[0].shape.0;
        Some([1, dims[0] * dims[1], dims[2..].iter().product()])
    }

    fn kernels(&self, context: &KernelContext<'_>) -> Result<KernelCalls> {
        let mut sizes = Chunks::new(context.profile, context.inputs[0].ty);
        let rows = sizes.samples * sizes.channels;
        sizes.chunk_width = span(context.profile, rows, sizes.width);
        sizes.parts = sizes.width.div_ceil(sizes.chunk_width);
        let count = rows * sizes.parts;
        let (epilogue, words) =
            context.epilogue.map_or((IDENTITY, &[0; 4][..]), |e| (e.source.as_str(), e.words.as_slice()));
        let (flops, bytes) = context.epilogue.map_or((0.0, 0.0), |e| (e.flops, e.bytes));
        let elements = (sizes.per_channel() * sizes.channels) as f64;
        let shared = specialised(SHARED, DType::F32, sizes.wide);
        let norm = if sizes.wide {
            NORM.to_owned()
        } else {
            NORM.replace("epilogue_vec4(value, 0u, row, column * 4u)", "epilogue_scalar(value, 0u, row, column)")
        };
        // The uniform words lie deeper here, and the chunks' functions are not wanted.
        let declarations = shared.split("struct Chunk {").next().unwrap_or_default();
        let mut uniforms = sizes.words(count, self.eps);
        uniforms.extend(words);
        let call = KernelCall {
            name: self.name(),
            source: format!("{epilogue}\n{declarations}{norm}").into(),
            constants: Vec::new(),
            operands: (0..5).map(CallOperand::Input).chain([CallOperand::Output(0)]).collect(),
            uniforms,
            grid: context.profile.split_grid(count.div_ceil(64)),
            cost: Cost { flops: elements * (4.0 + flops), bytes: elements * (8.0 + bytes) },
        };
        Ok(KernelCalls { scratch_bytes: Vec::new(), calls: vec![call] })
    }
}

impl Op for BatchNormParams {
    fn name(&self) -> &'static str {
        "batch_norm_params"
    }
    fn output_types(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        Ok(pair(inputs[0].shape.0[1]))
    }
    fn gradient(&self, call: &GradientCall<'_>) -> Result<Vec<Option<Tensor>>> {
        let inputs: Vec<Tensor> = call.inputs.iter().map(Tensor::to_f32).collect::<Result<_>>()?;
        let [x, mean, var, g] = [0, 1, 2, 3].map(|i| &inputs[i]);
        let (for_weight, for_bias) = (&call.grads[0], &call.grads[1]);
        let (mut dx, mut dmean, mut dvar, mut dg) = (None, None, None, None);
        if let Some(h) = for_weight {
            let rstd = var.add_scalar(self.eps)?.rsqrt()?;
            let slope = h.mul(&rstd)?;
            dx = Some(g.mul(&beside(x, &slope)?)?);
            dmean = Some(slope.mul(&call.outputs[1])?.neg()?);
            dvar = Some(h.mul(&call.outputs[0])?.mul(&rstd)?.mul(&rstd)?.mul_scalar(-0.5_f32)?);
            dg = Some(x.sub(&beside(x, mean)?)?.mul(&beside(x, &slope)?)?);
        }
        if let Some(h) = for_bias {
            let h = beside(x, h)?;
            dg = Some(match dg {
                Some(sum) => sum.add(&h)?,
                None => h.broadcast_to(g.shape().clone())?,
            });
        }
        let as_input = |i: usize, t: Option<Tensor>| t.map(|t| t.to_dtype(call.inputs[i].dtype())).transpose();
        Ok(vec![as_input(0, dx)?, dmean, dvar, as_input(3, dg)?])
    }
    fn lowering(&self) -> Lowering<'_> {
        Lowering::Kernel(self)
    }
}

impl KernelOp for BatchNormParams {
    fn kernels(&self, context: &KernelContext<'_>) -> Result<KernelCalls> {
        let chunks = Chunks::new(context.profile, context.inputs[0].ty);
        let names = ["batch_norm_params", "batch_norm_params_join"];
        chunks.two_passes(context, names, [PARAMS, PARAMS_JOIN], self.eps, 4.0)
    }
}

impl Tensor {
    /// Batch norm in training over `[N, C, ..]`: each channel brought to mean 0 and
    /// variance 1 over all else, then times `weight [C]` plus `bias [C]`. Also the
    /// batch's mean and (biased) variance per channel, `[C]`.
    ///
    /// # Errors
    /// [`Error::Shape`] and [`Error::DType`] if the operands do not fit, or there are
    /// no values to take a mean of.
    pub fn batch_norm_train(&self, weight: Option<&Self>, bias: Option<&Self>, eps: f32) -> Result<(Self, Self, Self)> {
        const OP: &str = "batch_norm";
        let channels = self.channels(OP)?;
        if self.element_count() == 0 {
            let detail = "there are no values to take a mean and a variance of".into();
            return Err(Error::Shape { op: OP, shapes: vec![self.shape().clone()], detail });
        }
        let operand = |given: Option<&Self>, index: usize, value: f32| {
            let Some(given) = given else { return self.recorder().full([channels], value) };
            given.expect_float(OP, index)?;
            given.per_channel(OP, self)?;
            Ok(given.clone())
        };
        let (weight, bias) = (operand(weight, 1, 1.0)?, operand(bias, 2, 0.0)?);
        let stats = self.recorder().record(Shared::new(BatchStats), &[self])?;
        let (mean, var) = (stats[0].clone(), stats[1].clone());
        let y = self.apply_with(BatchNorm { eps }, &[&mean, &var, &weight, &bias])?;
        Ok((y, mean, var))
    }
}
