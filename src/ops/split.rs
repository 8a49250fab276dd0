//! `split`: an axis cut into consecutive parts, each a view; and `join`, its
//! gradient, which writes the parts side by side in one pass.
//!
//! ```text
//! split  y_k = x[start_k .. start_k + size_k]     the gradients of all parts, joined
//! join   x = y_0, y_1, ..                         g split
//! ```
//!
//! The same as a `narrow` per part forward; backward it takes one pass and one
//! value instead of a padded value per part and their sum.

use std::fmt::Write;

use super::{CallOperand, GradientCall, KernelCall, KernelCalls, KernelContext, KernelOp, Lowering, Op, ViewOp};
use crate::dtype::{Layout, TensorType};
use crate::error::{Error, Result};
use crate::fuse::program::Cost;
use crate::graph::Tensor;
use crate::shared::Shared;

/// Most parts that one pass joins: with the output they fill the bindings that
/// every device has.
const MAX_PARTS: usize = 6;

#[derive(Debug)]
struct Split {
    axis: usize,
    sizes: Vec<usize>,
}

impl Op for Split {
    fn name(&self) -> &'static str {
        "split"
    }
    fn output_types(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        let part = |&size: &usize| {
            let mut ty = inputs[0].clone();
            ty.shape.0[self.axis] = size;
            ty
        };
        Ok(self.sizes.iter().map(part).collect())
    }
    fn gradient(&self, call: &GradientCall<'_>) -> Result<Vec<Option<Tensor>>> {
        let parts = call
            .grads
            .iter()
            .zip(call.outputs)
            .map(|(grad, output)| match grad {
                Some(grad) => Ok(grad.clone()),
                None => output.recorder().zeros(output.shape()),
            })
            .collect::<Result<Vec<_>>>()?;
        Ok(vec![Some(join(&parts, self.axis)?)])
    }
    fn lowering(&self) -> Lowering<'_> {
        Lowering::View(self)
    }
}

impl ViewOp for Split {
    fn view(&self, input: &Layout) -> Option<Layout> {
        self.view_output(0, input)
    }
    fn view_output(&self, output: usize, input: &Layout) -> Option<Layout> {
        let mut layout = input.clone();
        layout.shape.0[self.axis] = self.sizes[output];
        if layout.shape.element_count() > 0 {
            let start: usize = self.sizes[..output].iter().sum();
            layout.offset += start as u64 * input.strides[self.axis];
        }
        Some(layout)
    }
}

/// The parts one after another along `axis`; there is at least one.
fn join(parts: &[Tensor], axis: usize) -> Result<Tensor> {
    let mut level = parts.to_vec();
    while level.len() > 1 {
        let mut next = Vec::with_capacity(level.len().div_ceil(MAX_PARTS));
        for group in level.chunks(MAX_PARTS) {
            if let [only] = group {
                next.push(only.clone());
                continue;
            }
            let sizes = group.iter().map(|t| t.dims()[axis]).collect();
            let operands: Vec<&Tensor> = group.iter().collect();
            next.push(group[0].recorder().record(Shared::new(Join { axis, sizes }), &operands)?.swap_remove(0));
        }
        level = next;
    }
    Ok(level.swap_remove(0))
}

#[derive(Debug)]
struct Join {
    axis: usize,
    sizes: Vec<usize>,
}

impl Op for Join {
    fn name(&self) -> &'static str {
        "join"
    }
    fn output_types(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        let mut ty = inputs[0].clone();
        ty.shape.0[self.axis] = self.sizes.iter().sum();
        Ok(vec![ty])
    }
    fn gradient(&self, call: &GradientCall<'_>) -> Result<Vec<Option<Tensor>>> {
        let parts = call.grad()?.split_into(self.axis, self.sizes.clone())?;
        Ok(parts.into_iter().map(Some).collect())
    }
    fn lowering(&self) -> Lowering<'_> {
        Lowering::Kernel(self)
    }
}

/// Invocations per workgroup.
const WORKGROUP: u64 = 256;

impl KernelOp for Join {
    fn kernels(&self, context: &KernelContext<'_>) -> Result<KernelCalls> {
        let ty = context.outputs[0];
        let inner: u64 = ty.shape.0[self.axis + 1..].iter().map(|&d| d as u64).product();
        // Empty parts have no storage, so no binding.
        let parts: Vec<(usize, u64)> =
            self.sizes.iter().enumerate().map(|(i, &s)| (i, s as u64 * inner)).filter(|(_, w)| *w > 0).collect();
        let lanes = if parts.iter().all(|(_, width)| width.is_multiple_of(4)) { 4 } else { 1 };
        let count = ty.shape.element_count() / lanes;
        // Sizes were checked to fit 32 bits.
        let narrow = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        let row: u64 = parts.iter().map(|(_, width)| width / lanes).sum();
        let mut uniforms = vec![narrow(count), narrow(row)];
        uniforms.extend(parts.iter().map(|(_, width)| narrow(width / lanes)));
        uniforms.resize(8, 0);
        let mut operands: Vec<CallOperand> = parts.iter().map(|(i, _)| CallOperand::Input(*i)).collect();
        operands.push(CallOperand::Output(0));
        Ok(KernelCalls {
            scratch_bytes: Vec::new(),
            calls: vec![KernelCall {
                name: "join",
                source: source(parts.len(), lanes == 4).into(),
                constants: Vec::new(),
                operands,
                uniforms,
                grid: context.profile.split_grid(count.div_ceil(WORKGROUP)),
                cost: Cost { flops: 0.0, bytes: 2.0 * ty.size_bytes() as f64 },
            }],
        })
    }
}

/// The kernel for a number of parts: each output word, or vector of four, finds
/// its part by comparing its column with the parts' ends.
fn source(parts: usize, wide: bool) -> String {
    let ty = if wide { "vec4<u32>" } else { "u32" };
    let mut text = String::from(
        "struct Uniforms { words: array<vec4<u32>, 2> }\n@group(0) @binding(0) var<uniform> u: Uniforms;\n",
    );
    for b in 0..=parts {
        // Writing into a String cannot fail.
        let _ = writeln!(text, "@group(0) @binding({}) var<storage, read_write> b{b}: array<{ty}>;", b + 1);
    }
    let _ = write!(
        text,
        "@compute @workgroup_size({WORKGROUP})
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {{
    let index = (id.z * groups.y + id.y) * (groups.x * {WORKGROUP}u) + id.x;
    if (index >= u.words[0].x) {{
        return;
    }}
    let row = index / u.words[0].y;
    var column = index - row * u.words[0].y;
"
    );
    for part in 0..parts {
        let width = format!("u.words[{}].{}", (part + 2) / 4, ["x", "y", "z", "w"][(part + 2) % 4]);
        let _ = write!(
            text,
            "    if (column < {width}) {{
        b{parts}[index] = b{part}[row * {width} + column];
        return;
    }}
    column -= {width};
"
        );
    }
    text.push_str("}\n");
    text
}

impl Tensor {
    fn split_into(&self, axis: usize, sizes: Vec<usize>) -> Result<Vec<Self>> {
        self.recorder().record(Shared::new(Split { axis, sizes }), &[self])
    }

    /// `axis` cut into consecutive parts of `sizes`; views. Cheaper backward
    /// than one [`Tensor::narrow`] per part.
    ///
    /// # Errors
    /// [`Error::Argument`] for an axis that is not there, no parts, or sizes
    /// whose sum is not the axis' extent.
    pub fn split(&self, axis: isize, sizes: &[usize]) -> Result<Vec<Self>> {
        let at = self.axis("split", axis)?;
        let extent = self.dims()[at];
        let sum = sizes.iter().try_fold(0_usize, |sum, size| sum.checked_add(*size));
        if sum != Some(extent) || sizes.is_empty() {
            return Err(Error::Argument {
                op: "split",
                argument: "sizes",
                value: format!("{sizes:?}"),
                detail: format!("axis {axis} of shape {} has {extent} parts, which they must add up to", self.shape()),
            });
        }
        if sizes.len() == 1 {
            return Ok(vec![self.clone()]);
        }
        self.split_into(at, sizes.to_vec())
    }
}
