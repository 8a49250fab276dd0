//! The workloads that speed and memory are reported on.
//!
//! ```text
//! cargo run --release --example bench -- --only W1,W3
//! ```
//!
//! * W1: square matrix products.
//! * W2: eight blocks 1024 -> 4096 -> 1024, batch 64, AdamW.
//! * W2a: eight blocks 256 -> 1024 -> 256, batch 2048, AdamW.
//! * W3: a GPT of 4 layers, width 128, 4 heads, context 128, batch 8, vocabulary 256.
//!
//! Data and initial weights are made from an integer hash (`common/workload.rs`).

mod common;

use std::time::Instant;

use clap::Parser;
use common::measure::{Measured, compare, print};
use common::workload::{hash32, uniform};
use common::{Outcome, median};
use remat::checkpoint::Policy;
use remat::gpu::{Gpu, InputData};
use remat::graph::Recorder;
use remat::inputs;
use remat::nn::{Gpt, GptConfig, Mlp, Module};
use remat::optim::{AdamW, AdamWConfig, Optimizer};
use remat::params::{Init, Params};

/// Runs the workloads and prints what they take.
#[derive(Debug, Parser)]
struct Arguments {
    /// Workloads to run, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "W1,W2,W2a,W3")]
    only: Vec<String>,
    /// Policies, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "none,segments,sqrt")]
    policy: Vec<Policy>,
    /// Steps under each policy, the first of them to warm up.
    #[arg(long, default_value_t = 8)]
    steps: u32,
    /// Lines of JSON.
    #[arg(long)]
    json: bool,
}

fn main() -> std::process::ExitCode {
    common::end(pollster::block_on(run(&Arguments::parse())))
}

async fn run(arguments: &Arguments) -> Outcome<()> {
    let gpu = Gpu::new().await?;
    if !arguments.json {
        println!("adapter: {}", gpu.adapter_name());
    }
    for workload in &arguments.only {
        if !arguments.json {
            println!("\n{workload}");
        }
        let mut results = match workload.as_str() {
            "W1" => {
                matmul(&gpu, arguments.json).await?;
                continue;
            }
            "W2" => mlp(&gpu, arguments, 1024, 4096, 64).await?,
            "W2a" => mlp(&gpu, arguments, 256, 1024, 2048).await?,
            "W3" => gpt(&gpu, arguments).await?,
            other => return Err(format!("there is no workload {other:?}; there are W1, W2, W2a and W3").into()),
        };
        for result in &mut results {
            if let Measured::Kept(line) = result {
                line.workload.clone_from(workload);
            }
        }
        print(&results, arguments.json)?;
    }
    Ok(())
}

async fn matmul(gpu: &Gpu, json: bool) -> Outcome<()> {
    for n in [256_usize, 512, 1024, 2048] {
        let params = Params::new(gpu, 0);
        let a = params.create("a", [n, n], Init::Data(uniform(1, n * n, 1.0).into()))?;
        let b = params.create("b", [n, n], Init::Data(uniform(2, n * n, 1.0).into()))?;
        let step =
            gpu.step(Policy::None, |g| g.param(&a)?.matmul(&g.param(&b)?)?.narrow(0, 0, 1)?.narrow(1, 0, 1)).await?;
        step.run(inputs! {}).await?.item::<f32>().await?;
        let repeats = (1024 / n).max(1).pow(2);
        let mut times = Vec::new();
        for _ in 0..7 {
            let start = Instant::now();
            let mut last = None;
            for _ in 0..repeats {
                last = Some(step.run(inputs! {}).await?);
            }
            if let Some(last) = last {
                last.item::<f32>().await?;
            }
            times.push(start.elapsed().as_secs_f64() / repeats as f64);
        }
        let gflops = 2.0 * (n as f64).powi(3) / median(&times) / 1e9;
        if json {
            println!("{}", serde_json::json!({ "workload": "W1", "n": n, "gflops": gflops }));
        } else {
            println!("matmul {n:>4} x {n:>4}: {gflops:6.1} GFLOP/s");
        }
    }
    Ok(())
}

async fn mlp(gpu: &Gpu, arguments: &Arguments, width: usize, hidden: usize, batch: usize) -> Outcome<Vec<Measured>> {
    let params = Params::new(gpu, 0);
    let model = Mlp::new(&params, width, hidden, 8)?;
    for (l, block) in model.blocks.iter().enumerate() {
        for (i, linear) in [&block.up, &block.down].into_iter().enumerate() {
            let seed = 100 + 4 * l as u32 + 2 * i as u32;
            let bound = 1.0 / ([width, hidden][i] as f32).sqrt();
            let count = |shape: &remat::dtype::Shape| shape.element_count() as usize;
            let weight = uniform(seed, count(&linear.weight.ty().shape), bound);
            params.write(linear.weight.name(), &weight).await?;
            if let Some(bias) = &linear.bias {
                params.write(bias.name(), &uniform(seed + 1, count(&bias.ty().shape), bound)).await?;
            }
        }
    }
    let optimizer = AdamW::new(&params, AdamWConfig::default())?;
    let (x, y) = (uniform(1, batch * width, 1.0), uniform(2, batch * width, 1.0));
    let record = |g: &Recorder| {
        let (x, y) = (g.input::<f32>("x", [batch, width])?, g.input::<f32>("y", [batch, width])?);
        let loss = model.forward_checkpointed(&x)?.mse_loss(&y)?;
        let gradients = optimizer.minimize(&loss)?;
        Ok((loss, gradients.fingerprint(g)?))
    };
    let inputs = |step: u32, lr: f32| -> Vec<(&'static str, InputData<'_>)> {
        vec![("x", (&x).into()), ("y", (&y).into()), ("lr", lr.into()), ("step", step.into())]
    };
    compare(gpu, &arguments.policy, arguments.steps, 1e-3, &inputs, &record).await
}

/// Row `b` of step `s`: a congruential walk over the vocabulary with jumps.
fn walk(s: u32) -> (Vec<i32>, Vec<i32>) {
    let (mut x, mut y) = (Vec::new(), Vec::new());
    for b in 0..8_u32 {
        let row = s.wrapping_mul(8).wrapping_add(b);
        let mut at = hash32(row.wrapping_add(7_u32.wrapping_mul(0x9E37_79B9))) & 255;
        for t in 0..128_u32 {
            x.push(at as i32);
            at = (5 * at + 17) & 255;
            let place = row.wrapping_mul(129).wrapping_add(t);
            let r = hash32(place.wrapping_add(8_u32.wrapping_mul(0x9E37_79B9)));
            if r & 7 == 0 {
                at = (r >> 8) & 255;
            }
            y.push(at as i32);
        }
    }
    (x, y)
}

/// Initial weights of W3 by name.
fn gpt_weight(name: &str, shape: &[usize]) -> Vec<f32> {
    let count: usize = shape.iter().product();
    let fan_in = shape.last().copied().unwrap_or(1);
    let bound = 1.0 / (fan_in as f32).sqrt();
    match name {
        "wte.weight" => return uniform(10, count, 0.05),
        "wpe.weight" => return uniform(11, count, 0.05),
        "head.weight" => return uniform(12, count, 1.0 / 128.0_f32.sqrt()),
        _ => {}
    }
    if name.contains("ln_") {
        return vec![if name.ends_with("weight") { 1.0 } else { 0.0 }; count];
    }
    if name.ends_with("bias") {
        return vec![0.0; count];
    }
    let layer: u32 = name.split('.').nth(1).and_then(|l| l.parse().ok()).unwrap_or(0);
    let order = ["attn.q", "attn.k", "attn.v", "attn.proj", "mlp.fc", "mlp.proj"];
    let offset = order.iter().position(|part| name.contains(part)).unwrap_or(0) as u32;
    uniform(200 + 10 * layer + offset, count, bound)
}

async fn gpt(gpu: &Gpu, arguments: &Arguments) -> Outcome<Vec<Measured>> {
    let params = Params::new(gpu, 0);
    let model = Gpt::new(&params, &GptConfig::new(256, 128, 128, 4, 4))?;
    for param in model.parameters() {
        params.write(param.name(), &gpt_weight(param.name(), param.ty().shape.dims())).await?;
    }
    let optimizer = AdamW::new(&params, AdamWConfig::default())?;
    let record = |g: &Recorder| common::text::train(g, &model, &optimizer, 8, 128);
    let inputs = |step: u32, lr: f32| -> Vec<(&'static str, InputData<'_>)> {
        let (x, y) = walk(step);
        vec![("x", x.into()), ("y", y.into()), ("lr", lr.into()), ("step", step.into())]
    };
    compare(gpu, &arguments.policy, arguments.steps, 3e-3, &inputs, &record).await
}
