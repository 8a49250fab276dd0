//! Plans one training step of a known model for an imagined adapter: nothing is
//! allocated, no adapter is asked for, the model may be far larger than the machine.
//!
//! ```text
//! cargo run --release --example plan -- --model gpt2-xl --batch 8 --context 1024 --budget 8GiB
//! ```

mod common;

use std::time::Instant;

use clap::{Parser, ValueEnum};
use common::Outcome;
use remat::Error;
use remat::checkpoint::{ByteSize, Policy};
use remat::dtype::DType;
use remat::graph::{Recorder, Tensor};
use remat::nn::{Gpt, GptConfig, Llama, LlamaConfig, LoraConfig, Module, ResNet, ResNetConfig, UNet, add_lora};
use remat::optim::{AdamW, AdamWConfig, Optimizer};
use remat::params::Params;
use remat::profile::{AdapterClass, DeviceProfile};
use remat::step::RecordedStep;
use serde_json::json;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Model {
    /// 12 layers, width 768.
    Gpt2,
    /// 48 layers, width 1600.
    Gpt2Xl,
    /// 96 layers, width 12288.
    Gpt3,
    /// 32 layers, width 4096.
    #[value(name = "llama-7b")]
    Llama7b,
    /// 80 layers, width 8192, 8 heads of keys and values; low-rank adapters are trained.
    #[value(name = "llama-70b")]
    Llama70b,
    /// Images of 224 x 224.
    #[value(name = "resnet18")]
    Resnet18,
    /// Images of 224 x 224.
    #[value(name = "resnet50")]
    Resnet50,
    /// Images of 512 x 512.
    #[value(name = "unet-512")]
    Unet512,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Dtype {
    F32,
    F16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Adapter {
    Software,
    Integrated,
    Discrete,
}

/// Plans a training step with AdamW and prints what it takes.
#[derive(Debug, Parser)]
struct Arguments {
    /// What is trained.
    #[arg(long, value_enum)]
    model: Model,
    /// Rows of the batch.
    #[arg(long, default_value_t = 8)]
    batch: usize,
    /// Tokens of context.
    #[arg(long, default_value_t = 1024)]
    context: usize,
    /// Rank of low-rank adapters on queries and values; 0 trains every parameter.
    /// llama-70b: 16 unless given.
    #[arg(long)]
    lora: Option<usize>,
    /// f32, or f16: activations of two bytes, parameters and moments of four.
    #[arg(long, value_enum, default_value_t = Dtype::F32)]
    dtype: Dtype,
    /// none, segments, selective, least, budget:P% and so on.
    #[arg(long, default_value = "none")]
    policy: Policy,
    /// A budget in bytes, KiB, MiB or GiB: short for `--policy budget:BYTES`.
    #[arg(long)]
    budget: Option<ByteSize>,
    /// Whose rates the times are estimated with.
    #[arg(long, value_enum, default_value_t = Adapter::Discrete)]
    adapter: Adapter,
    /// The imagined adapter's largest buffer and binding.
    #[arg(long, default_value = "4GiB")]
    max_buffer: ByteSize,
    /// WebGPU's default limits instead, the floor that every adapter has.
    #[arg(long)]
    default_limits: bool,
    /// Also print the curve of peak against time.
    #[arg(long)]
    pareto: bool,
    /// The whole plan: every pass, what is saved and replayed, offsets.
    #[arg(long)]
    full: bool,
    /// Lines of JSON.
    #[arg(long)]
    json: bool,
}

fn gpt(
    params: &Params,
    g: &Recorder,
    arguments: &Arguments,
    [layers, width, heads]: [usize; 3],
) -> remat::Result<Tensor> {
    let mut config = GptConfig::new(50_257, arguments.context, width, heads, layers);
    config.fused_qkv = true;
    let mut model = Gpt::new(params, &config)?;
    adapt(&mut model, arguments, &["attn.qkv"], 0)?;
    next_token(g, arguments, |ids| model.logits(ids))
}

fn llama(
    params: &Params,
    g: &Recorder,
    arguments: &Arguments,
    config: &LlamaConfig,
    rank: usize,
) -> remat::Result<Tensor> {
    let mut model = Llama::new(params, config)?;
    adapt(&mut model, arguments, &["q_proj", "v_proj"], rank)?;
    next_token(g, arguments, |ids| model.forward(ids))
}

fn adapt(model: &mut dyn Module, arguments: &Arguments, targets: &[&str], usual: usize) -> remat::Result<()> {
    match arguments.lora.unwrap_or(usual) {
        0 => Ok(()),
        rank => add_lora(model, targets, LoraConfig::new(rank)).map(|_| ()),
    }
}

fn next_token(
    g: &Recorder,
    arguments: &Arguments,
    logits: impl FnOnce(&Tensor) -> remat::Result<Tensor>,
) -> remat::Result<Tensor> {
    let shape = [arguments.batch, arguments.context];
    let (ids, targets) = (g.input::<i32>("ids", shape)?, g.input::<i32>("targets", shape)?);
    let logits = logits(&ids)?;
    let (rows, classes) = (arguments.batch * arguments.context, logits.dims()[2]);
    logits.reshape([rows, classes])?.cross_entropy(&targets.reshape([rows])?)
}

fn loss(params: &Params, g: &Recorder, arguments: &Arguments) -> remat::Result<Tensor> {
    let batch = arguments.batch;
    let seven = LlamaConfig {
        vocabulary: 32_000,
        width: 4096,
        layers: 32,
        heads: 32,
        key_value_heads: 32,
        hidden: 11_008,
        rotary_base: 1e4,
    };
    match arguments.model {
        Model::Gpt2 => gpt(params, g, arguments, [12, 768, 12]),
        Model::Gpt2Xl => gpt(params, g, arguments, [48, 1600, 25]),
        Model::Gpt3 => gpt(params, g, arguments, [96, 12_288, 96]),
        Model::Llama7b => llama(params, g, arguments, &seven, 0),
        Model::Llama70b => {
            let seventy =
                LlamaConfig { width: 8192, layers: 80, heads: 64, key_value_heads: 8, hidden: 28_672, ..seven };
            llama(params, g, arguments, &seventy, 16)
        }
        Model::Resnet18 | Model::Resnet50 => {
            let config = match arguments.model {
                Model::Resnet18 => ResNetConfig::resnet18(3, 1000),
                _ => ResNetConfig::resnet50(3, 1000),
            };
            let model = ResNet::new(params, &config)?;
            let images = in_dtype(g.input::<f32>("images", [batch, 3, 224, 224])?, arguments)?;
            model.forward(&images)?.cross_entropy(&g.input::<i32>("classes", [batch])?)
        }
        Model::Unet512 => {
            let model = UNet::new(params, [3, 1], 64, 4)?;
            let images = in_dtype(g.input::<f32>("images", [batch, 3, 512, 512])?, arguments)?;
            let masks = g.input::<f32>("masks", [batch, 1, 512, 512])?;
            model.forward(&images)?.bce_with_logits(&masks, None, remat::ops::Reduction::Mean)
        }
    }
}

fn in_dtype(x: Tensor, arguments: &Arguments) -> remat::Result<Tensor> {
    if arguments.dtype == Dtype::F16 { x.to_f16() } else { Ok(x) }
}

fn profile(arguments: &Arguments) -> DeviceProfile {
    let class = match arguments.adapter {
        Adapter::Software => AdapterClass::Cpu,
        Adapter::Integrated => AdapterClass::Integrated,
        Adapter::Discrete => AdapterClass::Discrete,
    };
    let mut profile = DeviceProfile::webgpu_defaults(class);
    if !arguments.default_limits {
        let most = arguments.max_buffer.bytes() & !3;
        profile.name = format!("an imagined adapter ({}, buffers of at most {})", class.name(), arguments.max_buffer);
        (profile.max_binding_bytes, profile.max_buffer_bytes) = (most, most);
    }
    profile
}

fn main() -> std::process::ExitCode {
    common::end(run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> Outcome<()> {
    let policy = arguments.budget.map_or_else(|| arguments.policy.clone(), Policy::Budget);
    let profile = profile(arguments);
    let params = Params::offline(0);

    let start = Instant::now();
    let recorded = RecordedStep::new(&profile, |g| {
        let loss = match arguments.dtype {
            Dtype::F32 => loss(&params, g, arguments)?,
            Dtype::F16 => g.autocast(DType::F16, || loss(&params, g, arguments))?,
        };
        AdamW::new(&params, AdamWConfig::default())?.minimize(&loss)?;
        Ok(loss)
    })?;
    let recorded_ms = start.elapsed().as_secs_f64() * 1e3;
    let start = Instant::now();
    let plan = recorded.plan(&policy);
    let planned_ms = start.elapsed().as_secs_f64() * 1e3;

    let passes = recorded.program().passes.len();
    match plan {
        Err(Error::BudgetTooSmall { budget_bytes, least_budget_bytes }) if arguments.json => {
            println!(
                "{}",
                json!({ "policy": policy.to_string(), "refused": true, "budget_bytes": budget_bytes,
                        "least_budget_bytes": least_budget_bytes, "recorded_ms": recorded_ms, "planned_ms": planned_ms })
            );
        }
        Err(error) => return Err(error.into()),
        Ok(plan) if arguments.json => println!(
            "{}",
            json!({ "policy": policy.to_string(), "planned_peak_bytes": plan.peak.total(), "state_bytes": plan.peak.state,
                    "activation_peak_bytes": plan.activation_peak_bytes, "passes": passes,
                    "replayed_passes": plan.replayed_passes, "estimated_ms": plan.cost_ns / 1e6,
                    "estimated_replay_ms": plan.replay_cost_ns / 1e6, "recorded_ms": recorded_ms,
                    "planned_ms": planned_ms })
        ),
        Ok(plan) => {
            println!("for {}: recorded in {recorded_ms:.0} ms, planned in {planned_ms:.0} ms", profile.name);
            if arguments.full {
                println!("{}", plan.report(recorded.program()));
            } else {
                println!("policy           {policy}");
                println!("passes           {passes}, of which {} are replayed", plan.replayed_passes);
                println!("planned peak     {}", ByteSize::new(plan.peak.total()));
                println!("  state          {}", ByteSize::new(plan.peak.state));
                println!("  arena          {}", ByteSize::new(plan.peak.arena));
                println!("  activations    {}", ByteSize::new(plan.activation_peak_bytes));
                println!(
                    "estimated time   {:.1} ms, of which replays {:.1} ms ({} GFLOP/s, {} GB/s, {} us a dispatch)",
                    plan.cost_ns / 1e6,
                    plan.replay_cost_ns / 1e6,
                    profile.rates.flops_per_ns,
                    profile.rates.bytes_per_ns,
                    profile.rates.dispatch_ns / 1e3
                );
                for note in &plan.notes {
                    println!("note             {note}");
                }
            }
        }
    }
    if arguments.pareto {
        for point in recorded.pareto(10)? {
            println!(
                "{}",
                json!({ "peak_bytes": point.peak_bytes, "estimated_ms": point.cost_ns / 1e6,
                        "estimated_replay_ms": point.replay_cost_ns / 1e6 })
            );
        }
    }
    Ok(())
}
