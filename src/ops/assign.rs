//! `assign`: a state takes a recorded value at the end of a run.
//!
//! Every read of the state sees the value before the run, wherever it was
//! recorded. A write happens once per run and is never replayed, also where it
//! was recorded inside a segment whose values are.

use super::kernel::word;
use super::{CallOperand, GradientCall, KernelCall, KernelCalls, KernelContext, KernelOp, Lowering, Op};
use crate::dtype::TensorType;
use crate::error::{Error, Result};
use crate::fuse::program::Cost;
use crate::graph::{Recorder, Tensor};
use crate::params::Param;
use crate::shared::Shared;

#[derive(Debug)]
struct Assign;

impl Op for Assign {
    fn name(&self) -> &'static str {
        "assign"
    }
    fn output_types(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        if inputs[0].dtype != inputs[1].dtype {
            let expected = "the state's data type";
            return Err(Error::DType { op: "assign", operand: 1, found: inputs[1].dtype, expected });
        }
        if inputs[0].shape != inputs[1].shape {
            let shapes = inputs.iter().map(|t| t.shape.clone()).collect();
            return Err(Error::Shape { op: "assign", shapes, detail: "state and value must have one shape".into() });
        }
        Ok(Vec::new())
    }
    fn gradient(&self, _: &GradientCall<'_>) -> Result<Vec<Option<Tensor>>> {
        Err(Error::NoGradient { op: "assign", detail: "it hands nothing back".into() })
    }
    fn lowering(&self) -> Lowering<'_> {
        Lowering::Kernel(self)
    }
    fn state_writes(&self) -> &[usize] {
        &[0]
    }
}

impl KernelOp for Assign {
    fn kernels(&self, context: &KernelContext<'_>) -> Result<KernelCalls> {
        let ty = context.inputs[0].ty;
        let count = ty.shape.element_count();
        if count == 0 {
            return Ok(KernelCalls::default());
        }
        let call = KernelCall {
            name: "assign",
            source: include_str!("../../shaders/assign.wgsl").into(),
            constants: Vec::new(),
            operands: vec![CallOperand::State(0), CallOperand::Input(1)],
            uniforms: vec![word(count), 0, 0, 0],
            grid: context.profile.split_grid(count.div_ceil(64)),
            cost: Cost { flops: 0.0, bytes: 2.0 * ty.size_bytes() as f64 },
        };
        Ok(KernelCalls { scratch_bytes: Vec::new(), calls: vec![call] })
    }
}

/// Records `state <- value`, the state as [`Recorder::param`] gives it. It keeps its
/// value where `skip`, one `u32`, is not 0.
pub(crate) fn assign(state: &Tensor, value: &Tensor, skip: Option<&Tensor>) -> Result<()> {
    let value = match skip {
        Some(skip) => skip.ne_scalar(0_u32)?.where_(state, value)?,
        None => value.clone(),
    };
    state.recorder().record(Shared::new(Assign), &[state, &value]).map(|_| ())
}

impl Recorder {
    /// Sets a state to `value` once per run, after all that reads it.
    ///
    /// # Errors
    /// [`Error::Shape`] or [`Error::DType`] unless the value has the state's type;
    /// [`Error::Argument`] if the recording writes the state already.
    pub fn assign(&self, state: &Param, value: &Tensor) -> Result<()> {
        assign(&self.state(state)?, value, None)
    }
}
