//! A small kernel that takes epilogues, as matrix products do.

use remat::dtype::TensorType;
use remat::error::{Error, Result};
use remat::fuse::program::Cost;
use remat::graph::Tensor;
use remat::ops::{CallOperand, GradientCall, KernelCall, KernelCalls, KernelContext, KernelOp, Lowering, Op};
use remat::shared::Shared;

/// `2 x` of a tensor seen as `[batch, rows, columns]`.
#[derive(Debug)]
struct Double;

pub(crate) fn double(x: &Tensor) -> Result<Tensor> {
    Ok(x.recorder().record(Shared::new(Double), &[x])?.swap_remove(0))
}

fn seen(ty: &TensorType) -> [usize; 3] {
    match *ty.shape.dims() {
        [] => [1, 1, 1],
        [n] => [1, 1, n],
        [ref outer @ .., rows, columns] => [outer.iter().product(), rows, columns],
    }
}

impl Op for Double {
    fn name(&self) -> &'static str {
        "double"
    }
    fn output_types(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        Ok(vec![inputs[0].clone()])
    }
    fn gradient(&self, _: &GradientCall<'_>) -> Result<Vec<Option<Tensor>>> {
        Err(Error::NoGradient { op: "double", detail: "a test's op".into() })
    }
    fn lowering(&self) -> Lowering<'_> {
        Lowering::Kernel(self)
    }
}

impl KernelOp for Double {
    fn epilogue_shape(&self, inputs: &[&TensorType]) -> Option<[usize; 3]> {
        Some(seen(inputs[0]))
    }
    fn kernels(&self, context: &KernelContext<'_>) -> Result<KernelCalls> {
        let shape = seen(context.outputs[0]);
        let count = context.outputs[0].shape.element_count();
        let (fields, text, call) = match context.epilogue {
            Some(code) => {
                (", epilogue: Epilogue", code.source.as_str(), "epilogue_scalar(2.0 * x[i], batch, row, column)")
            }
            None => ("", "", "2.0 * x[i]"),
        };
        let source = format!(
            "struct Uniforms {{ count: u32, rows: u32, columns: u32, unused: u32{fields} }}
{text}
@group(0) @binding(0) var<uniform> u: Uniforms;
@group(0) @binding(1) var<storage, read_write> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {{
    let i = id.x;
    if (i >= u.count) {{
        return;
    }}
    let column = i % u.columns;
    let row = i / u.columns % u.rows;
    let batch = i / u.columns / u.rows;
    y[i] = {call};
}}
"
        );
        let mut uniforms = vec![count as u32, shape[1] as u32, shape[2] as u32, 0];
        uniforms.extend(context.epilogue.iter().flat_map(|e| &e.words));
        Ok(KernelCalls {
            scratch_bytes: Vec::new(),
            calls: vec![KernelCall {
                name: "double",
                source: source.into(),
                constants: Vec::new(),
                operands: vec![CallOperand::Input(0), CallOperand::Output(0)],
                uniforms,
                grid: context.profile.split_grid(count.div_ceil(64)),
                cost: Cost::default(),
            }],
        })
    }
}
