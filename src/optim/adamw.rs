//! AdamW (Loshchilov and Hutter 2019) and Adam (Kingma and Ba 2015), PyTorch's
//! conventions. The formula stands in `shaders/shared/adamw_update.wgsl`.

use std::borrow::Cow;

use super::{Optimizer, expect_float, no_gradient};
use crate::dtype::TensorType;
use crate::error::{Error, Result};
use crate::fuse::program::{Category, Cost};
use crate::graph::Tensor;
use crate::ops::kernel::word;
use crate::ops::{CallOperand, GradientCall, KernelCall, KernelCalls, KernelContext, KernelOp, Lowering, Op};
use crate::params::{Init, Param, Params};
use crate::shared::Shared;

const UPDATE: &str = include_str!("../../shaders/shared/adamw_update.wgsl");
const VECTOR: &str = include_str!("../../shaders/adamw.wgsl");
const SCALAR: &str = include_str!("../../shaders/adamw_scalar.wgsl");

/// Settings of [`AdamW`]. The learning rate is the run's input `"lr"`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdamWConfig {
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Added to the denominator.
    pub eps: f64,
    /// Weight decay.
    pub weight_decay: f64,
    /// True for AdamW; false adds the decay to the gradient (Adam).
    pub decoupled: bool,
}

impl Default for AdamWConfig {
    /// PyTorch's `AdamW`: betas 0.9 and 0.999, eps 1e-8, weight decay 0.01.
    fn default() -> Self {
        Self { beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 0.01, decoupled: true }
    }
}

/// The optimiser; its moments live in the [`Params`] as `adamw.NAME.exp_avg`
/// and `adamw.NAME.exp_avg_sq`.
#[derive(Debug, Clone)]
pub struct AdamW {
    params: Params,
    config: AdamWConfig,
}

impl AdamW {
    /// An optimiser whose moments live in `params`.
    ///
    /// # Errors
    /// [`Error::Argument`] for a beta outside `[0, 1)` or a negative eps or decay.
    pub fn new(params: &Params, config: AdamWConfig) -> Result<Self> {
        let unit = |argument, value: f64| {
            if (0.0..1.0).contains(&value) {
                Ok(())
            } else {
                Err(Error::Argument {
                    op: "adamw",
                    argument,
                    value: value.to_string(),
                    detail: "expected 0 <= beta < 1".into(),
                })
            }
        };
        unit("beta1", config.beta1)?;
        unit("beta2", config.beta2)?;
        for (argument, value) in [("eps", config.eps), ("weight_decay", config.weight_decay)] {
            if value.is_nan() || value < 0.0 {
                return Err(Error::Argument {
                    op: "adamw",
                    argument,
                    value: value.to_string(),
                    detail: "expected a number of at least 0".into(),
                });
            }
        }
        Ok(Self { params: params.clone(), config })
    }
}

impl Optimizer for AdamW {
    fn update(&self, param: &Param, gradient: &Tensor) -> Result<()> {
        let recorder = gradient.recorder();
        let moment = |suffix: &str| {
            let name = format!("adamw.{}.{suffix}", param.name());
            self.params.create_typed(&name, param.ty().clone(), Category::Optimizer, Init::Zeros)
        };
        let (m, v) = (moment("exp_avg")?, moment("exp_avg_sq")?);
        let op = AdamWUpdate { config: self.config };
        let operands = [recorder.param(param)?, recorder.param(&m)?, recorder.param(&v)?];
        let (lr, step) = (recorder.scalar_input("lr")?, recorder.step_count()?);
        recorder.record(Shared::new(op), &[&operands[0], &operands[1], &operands[2], gradient, &lr, &step])?;
        Ok(())
    }
}

#[derive(Debug)]
struct AdamWUpdate {
    config: AdamWConfig,
}

impl Op for AdamWUpdate {
    fn name(&self) -> &'static str {
        "adamw"
    }
    fn output_types(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        expect_float("adamw", inputs[0])?;
        if inputs[..4].iter().all(|t| *t == inputs[0]) {
            Ok(Vec::new())
        } else {
            Err(Error::Shape {
                op: "adamw",
                shapes: inputs[..4].iter().map(|t| t.shape.clone()).collect(),
                detail: "parameter, moments and gradient must have one type".into(),
            })
        }
    }
    fn gradient(&self, call: &GradientCall<'_>) -> Result<Vec<Option<Tensor>>> {
        no_gradient("adamw", call)
    }
    fn lowering(&self) -> Lowering<'_> {
        Lowering::Kernel(self)
    }
    fn state_writes(&self) -> &[usize] {
        &[0, 1, 2]
    }
}

impl KernelOp for AdamWUpdate {
    fn kernels(&self, context: &KernelContext<'_>) -> Result<KernelCalls> {
        let elements = context.inputs[0].ty.shape.element_count();
        if elements == 0 {
            return Ok(KernelCalls::default());
        }
        let (text, count) = if elements.is_multiple_of(4) { (VECTOR, elements / 4) } else { (SCALAR, elements) };
        let c = self.config;
        let bits = |value: f64| (value as f32).to_bits();
        let uniforms = vec![
            word(count),
            u32::from(c.decoupled),
            bits(c.beta1),
            bits(c.beta2),
            bits(1.0 - c.beta1),
            bits(1.0 - c.beta2),
            bits(c.beta1.ln()),
            bits(c.beta2.ln()),
            bits(c.eps),
            bits(c.weight_decay),
            0,
            0,
        ];
        let operands = vec![
            CallOperand::State(0),
            CallOperand::State(1),
            CallOperand::State(2),
            CallOperand::Input(3),
            CallOperand::Input(4),
            CallOperand::Input(5),
        ];
        let call = KernelCall {
            name: "adamw",
            source: Cow::Owned(format!("{UPDATE}\n{text}")),
            constants: Vec::new(),
            operands,
            uniforms,
            grid: context.profile.split_grid(count.div_ceil(64)),
            cost: Cost { flops: 16.0 * elements as f64, bytes: 28.0 * elements as f64 },
        };
        Ok(KernelCalls { scratch_bytes: Vec::new(), calls: vec![call] })
    }
}
