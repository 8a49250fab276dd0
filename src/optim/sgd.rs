//! Stochastic gradient descent with momentum and Nesterov's variant (Sutskever
//! et al. 2013, PyTorch's form). The formula stands in `shaders/shared/sgd_update.wgsl`.

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

const UPDATE: &str = include_str!("../../shaders/shared/sgd_update.wgsl");
const PLAIN: &str = include_str!("../../shaders/sgd.wgsl");
const MOMENTUM: &str = include_str!("../../shaders/sgd_momentum.wgsl");

/// Settings of [`Sgd`]. The learning rate is the run's input `"lr"`.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct SgdConfig {
    /// Momentum; 0 keeps no buffer.
    pub momentum: f64,
    /// Weight decay, added to the gradient.
    pub weight_decay: f64,
    /// Nesterov's look-ahead.
    pub nesterov: bool,
}

/// The optimiser; its buffers live in the [`Params`] as `sgd.NAME.momentum`.
#[derive(Debug, Clone)]
pub struct Sgd {
    params: Params,
    config: SgdConfig,
}

impl Sgd {
    /// An optimiser whose buffers live in `params`.
    ///
    /// # Errors
    /// [`Error::Argument`] for a negative momentum or decay, or Nesterov without momentum.
    pub fn new(params: &Params, config: SgdConfig) -> Result<Self> {
        for (argument, value) in [("momentum", config.momentum), ("weight_decay", config.weight_decay)] {
            if value.is_nan() || value < 0.0 {
                return Err(Error::Argument {
                    op: "sgd",
                    argument,
                    value: value.to_string(),
                    detail: "expected a number of at least 0".into(),
                });
            }
        }
        if config.nesterov && config.momentum == 0.0 {
            return Err(Error::Argument {
                op: "sgd",
                argument: "nesterov",
                value: "true".into(),
                detail: "it looks ahead along the momentum, which is 0".into(),
            });
        }
        Ok(Self { params: params.clone(), config })
    }
}

impl Optimizer for Sgd {
    fn update(&self, param: &Param, gradient: &Tensor) -> Result<()> {
        let recorder = gradient.recorder();
        let (p, lr) = (recorder.param(param)?, recorder.scalar_input("lr")?);
        if self.config.momentum == 0.0 {
            let op = SgdUpdate { config: self.config, writes: &[0] };
            recorder.record(Shared::new(op), &[&p, gradient, &lr])?;
        } else {
            let name = format!("sgd.{}.momentum", param.name());
            let buffer = self.params.create_typed(&name, param.ty().clone(), Category::Optimizer, Init::Zeros)?;
            let op = SgdUpdate { config: self.config, writes: &[0, 1] };
            recorder.record(Shared::new(op), &[&p, &recorder.param(&buffer)?, gradient, &lr])?;
        }
        Ok(())
    }
}

#[derive(Debug)]
struct SgdUpdate {
    config: SgdConfig,
    writes: &'static [usize],
}

impl Op for SgdUpdate {
    fn name(&self) -> &'static str {
        "sgd"
    }
    fn output_types(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        expect_float("sgd", inputs[0])?;
        if inputs[..inputs.len() - 1].iter().all(|t| *t == inputs[0]) {
            Ok(Vec::new())
        } else {
            Err(Error::Shape {
                op: "sgd",
                shapes: inputs.iter().map(|t| t.shape.clone()).collect(),
                detail: "parameter, momentum and gradient must have one type".into(),
            })
        }
    }
    fn gradient(&self, call: &GradientCall<'_>) -> Result<Vec<Option<Tensor>>> {
        no_gradient("sgd", call)
    }
    fn lowering(&self) -> Lowering<'_> {
        Lowering::Kernel(self)
    }
    fn state_writes(&self) -> &[usize] {
        self.writes
    }
}

impl KernelOp for SgdUpdate {
    fn kernels(&self, context: &KernelContext<'_>) -> Result<KernelCalls> {
        let count = context.inputs[0].ty.shape.element_count();
        if count == 0 {
            return Ok(KernelCalls::default());
        }
        let states = self.writes.len();
        let mut operands: Vec<CallOperand> = (0..states).map(CallOperand::State).collect();
        operands.extend((states..context.inputs.len()).map(CallOperand::Input));
        let bits = |value: f64| (value as f32).to_bits();
        let call = KernelCall {
            name: "sgd",
            source: Cow::Owned(format!("{UPDATE}\n{}", if states == 1 { PLAIN } else { MOMENTUM })),
            constants: Vec::new(),
            operands,
            uniforms: vec![
                word(count),
                u32::from(self.config.nesterov),
                bits(self.config.momentum),
                bits(self.config.weight_decay),
            ],
            grid: context.profile.split_grid(count.div_ceil(64)),
            cost: Cost { flops: 6.0 * count as f64, bytes: (4 + 8 * states) as f64 * count as f64 },
        };
        Ok(KernelCalls { scratch_bytes: Vec::new(), calls: vec![call] })
    }
}
