//! An operation of one's own, as a user of the crate writes it: WGSL, shape rule,
//! gradient and cost; then the gradient checker looks at it, and it trains.
//!
//! ```text
//! cargo run --example custom_op
//! ```
//!
//! The op is a rational activation, `x / (1 + |x|)`, by rows with a gain each:
//!
//! ```text
//! y[r, c]  = gain[r] x[r, c] / (1 + |x[r, c]|)
//! dx[r, c] = g[r, c] gain[r] / (1 + |x[r, c]|)^2
//! dgain[r] = sum over c of g[r, c] x[r, c] / (1 + |x[r, c]|)
//! ```

use remat::checkpoint::Policy;
use remat::dtype::{DType, TensorType};
use remat::error::{Error, Result};
use remat::fuse::program::Cost;
use remat::gpu::Gpu;
use remat::gradcheck::{GradCheck, Sample};
use remat::graph::{Recorder, Tensor};
use remat::inputs;
use remat::ops::{
    CallOperand, ElementCall, ElementwiseOp, GradientCall, KernelCall, KernelCalls, KernelContext, KernelOp, Lowering,
    Op,
};
use remat::shared::Shared;

/// One invocation per element; x, y `[R, C]`, gain `[R]`, all contiguous.
const SOFTSIGN: &str = "
struct Sizes { count: u32, columns: u32, pad0: u32, pad1: u32 }
@group(0) @binding(0) var<uniform> u: Sizes;
@group(0) @binding(1) var<storage, read_write> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> gain: array<f32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let index = (id.z * groups.y + id.y) * (groups.x * 64u) + id.x;
    if (index >= u.count) {
        return;
    }
    let v = x[index];
    y[index] = gain[index / u.columns] * v / (1.0 + abs(v));
}
";

/// `x [R, C], gain [R] -> y [R, C]`, a kernel of its own.
#[derive(Debug)]
struct Softsign;

impl Op for Softsign {
    fn name(&self) -> &'static str {
        "softsign"
    }

    fn output_types(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        let shapes = || inputs.iter().map(|t| t.shape.clone()).collect();
        let [x, gain] = inputs else {
            return Err(Error::Shape { op: self.name(), shapes: shapes(), detail: "it takes x and gain".into() });
        };
        for (operand, ty) in inputs.iter().enumerate() {
            if ty.dtype != DType::F32 {
                return Err(Error::DType { op: self.name(), operand, found: ty.dtype, expected: "f32" });
            }
        }
        match (x.shape.dims(), gain.shape.dims()) {
            (&[rows, _], &[gains]) if rows == gains => Ok(vec![(*x).clone()]),
            _ => Err(Error::Shape { op: self.name(), shapes: shapes(), detail: "x is [R, C] and gain [R]".into() }),
        }
    }

    fn gradient(&self, call: &GradientCall<'_>) -> Result<Vec<Option<Tensor>>> {
        let (x, gain, g) = (&call.inputs[0], &call.inputs[1], call.grad()?);
        let slope = |of: &Tensor| Ok::<_, Error>(of.recorder().record(Shared::new(Slope), &[of, x])?.swap_remove(0));
        let dx = if call.needed[0] { Some(slope(&g.mul(&gain.unsqueeze(1)?)?)?) } else { None };
        let dgain = if call.needed[1] {
            let plain = x.div(&x.abs()?.add_scalar(1.0_f32)?)?;
            Some(g.mul(&plain)?.sum(&[1], false)?)
        } else {
            None
        };
        Ok(vec![dx, dgain])
    }

    fn lowering(&self) -> Lowering<'_> {
        Lowering::Kernel(self)
    }
}

impl KernelOp for Softsign {
    // Not called if there are no elements.
    fn kernels(&self, context: &KernelContext<'_>) -> Result<KernelCalls> {
        let ty = context.outputs[0];
        let count = ty.shape.element_count();
        let columns = ty.shape.dims()[1];
        let word = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        Ok(KernelCalls {
            scratch_bytes: Vec::new(),
            calls: vec![KernelCall {
                name: self.name(),
                source: SOFTSIGN.into(),
                constants: Vec::new(),
                operands: vec![CallOperand::Input(0), CallOperand::Input(1), CallOperand::Output(0)],
                uniforms: vec![word(count), word(columns as u64), 0, 0],
                grid: context.profile.split_grid(count.div_ceil(64)),
                cost: Cost { flops: 4.0 * count as f64, bytes: 8.0 * count as f64 },
            }],
        })
    }
}

/// `h / (1 + |x|)^2` of operands h and x: an expression, fused with its neighbours.
#[derive(Debug)]
struct Slope;

impl Op for Slope {
    fn name(&self) -> &'static str {
        "softsign_grad"
    }
    fn output_types(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        Ok(vec![inputs[0].clone()])
    }
    fn gradient(&self, _: &GradientCall<'_>) -> Result<Vec<Option<Tensor>>> {
        Err(Error::NoGradient { op: self.name(), detail: "this example stops at the first derivative".into() })
    }
    fn lowering(&self) -> Lowering<'_> {
        Lowering::Elementwise(self)
    }
}

impl ElementwiseOp for Slope {
    fn expression(&self, call: &ElementCall<'_>) -> String {
        let (h, x) = (&call.operands[0], &call.operands[1]);
        format!("{h} / ((1.0 + abs({x})) * (1.0 + abs({x})))")
    }
    fn flops(&self) -> f64 {
        5.0
    }
}

/// The function that users of the op call.
fn softsign(x: &Tensor, gain: &Tensor) -> Result<Tensor> {
    Ok(x.recorder().record(Shared::new(Softsign), &[x, gain])?.swap_remove(0))
}

async fn run() -> Result<()> {
    let gpu = Gpu::new().await?;

    // In the middle of a graph: its input is made, and its output is read.
    let samples = [Sample::noise([3, 5], 1), Sample::noise([3], 2)];
    let report = GradCheck::new("softsign")
        .check(&gpu, &samples, |_, t| softsign(&t[0].mul_scalar(1.5_f32)?, &t[1])?.sqr())
        .await?;
    println!("softsign: {} gradients agree with differences to {:.1e}", report.elements, report.worst);

    let misuse = softsign(&Recorder::new().zeros([2, 3])?, &Recorder::new().zeros([2])?);
    println!("two recordings: {}", misuse.map_or_else(|error| error.to_string(), |_| "accepted".into()));
    let recorder = Recorder::new();
    let misuse = softsign(&recorder.zeros([2, 3])?, &recorder.zeros([4])?);
    println!("wrong shapes: {}", misuse.map_or_else(|error| error.to_string(), |_| "accepted".into()));

    // Inside a checkpointed segment: kept or made again, the same bits.
    let x: Vec<f32> = (0..32).map(|i| i as f32 / 8.0 - 2.0).collect();
    let mut gradients = Vec::new();
    for policy in [Policy::None, Policy::Segments] {
        let step = gpu
            .step(policy, |g| {
                let (x, gain) = (g.input::<f32>("x", [4, 8])?, g.input::<f32>("gain", [4])?);
                let y = g.checkpoint((x.clone(), gain.clone()), |(x, gain)| softsign(&x.exp()?, &gain)?.sqr())?;
                g.gradients(&y.sum_all()?, &[&x, &gain])
            })
            .await?;
        let outputs = step.run(inputs! { "x" => &x, "gain" => &[1.0_f32, 0.5, -1.0, 2.0] }).await?;
        gradients.push((outputs[0].read::<f32>().await?, outputs[1].read::<f32>().await?));
    }
    println!("gradient towards gain: {:?}", gradients[0].1);
    println!("the same bits when replayed: {}", gradients[0] == gradients[1]);
    Ok(())
}

fn main() -> Result<()> {
    pollster::block_on(run())
}
