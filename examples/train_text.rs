//! Trains a character-level transformer on the plays.
//!
//! ```text
//! cargo run --release --example train_text -- --steps 400 --policy segments
//! ```

mod common;

use std::path::PathBuf;
use std::time::Instant;

use clap::Parser;
use common::measure::{Line, Measured, Refusal, fingerprint_text};
use common::text::{
    Corpus, LEARNING_RATE, PLAYS, held_out_loss, learning_rate, optimizer_settings, sample, train, train_mixed,
};
use common::{Outcome, median, megabytes};
use indicatif::{ProgressBar, ProgressStyle};
use remat::checkpoint::Policy;
use remat::gpu::Gpu;
use remat::graph::Recorder;
use remat::inputs;
use remat::nn::Gpt;
use remat::optim::{AdamW, LossScaler, LossScalerConfig};
use remat::params::Params;

/// A pre-norm transformer over characters, AdamW, warm-up and cosine.
#[derive(Debug, Parser)]
struct Arguments {
    /// Transformer blocks, each a checkpoint segment.
    #[arg(long, default_value_t = 4)]
    layers: usize,
    /// Width.
    #[arg(long, default_value_t = 128)]
    width: usize,
    /// Attention heads.
    #[arg(long, default_value_t = 4)]
    heads: usize,
    /// Characters of context.
    #[arg(long, default_value_t = 128)]
    context: usize,
    /// Rows of the batch.
    #[arg(long, default_value_t = 8)]
    batch: usize,
    /// Training steps.
    #[arg(long, default_value_t = 400)]
    steps: u32,
    /// Seed of parameters, batches and dropout.
    #[arg(long, default_value_t = 0)]
    seed: u32,
    /// Probability of dropout.
    #[arg(long, default_value_t = 0.0)]
    dropout: f32,
    /// Highest learning rate.
    #[arg(long, default_value_t = LEARNING_RATE)]
    lr: f32,
    /// none, segments, every:N, sqrt, budget:BYTES or budget:P%.
    #[arg(long, default_value = "none")]
    policy: Policy,
    /// What the model computes in, f32 or f16; parameters are f32.
    #[arg(long, default_value = "f32", value_parser = ["f32", "f16"])]
    dtype: String,
    /// Write parameters and moments to this safetensors file at the end.
    #[arg(long)]
    save: Option<PathBuf>,
    /// Begin with the state in this safetensors file.
    #[arg(long)]
    load: Option<PathBuf>,
    /// Print the plan.
    #[arg(long)]
    report: bool,
    /// One line of JSON.
    #[arg(long)]
    json: bool,
}

fn main() -> std::process::ExitCode {
    common::end(pollster::block_on(run(&Arguments::parse())))
}

async fn run(arguments: &Arguments) -> Outcome<()> {
    let corpus = Corpus::new(PLAYS);
    let gpu = Gpu::new().await?;
    let params = Params::new(&gpu, u64::from(arguments.seed));
    let config = corpus.model(arguments.context, arguments.width, arguments.heads, arguments.layers, arguments.dropout);
    let model = Gpt::new(&params, &config)?;
    let optimizer = AdamW::new(&params, optimizer_settings())?;
    let (rows, context) = (arguments.batch, arguments.context);
    let start = Instant::now();
    let scaler = LossScaler::new(&params, LossScalerConfig::default())?;
    let record = |g: &Recorder| match arguments.dtype.as_str() {
        "f16" => train_mixed(g, &model, (&optimizer, &scaler), rows, context),
        _ => train(g, &model, &optimizer, rows, context),
    };
    let step = match gpu.step(arguments.policy.clone(), record).await {
        Err(remat::Error::BudgetTooSmall { budget_bytes, least_budget_bytes }) if arguments.json => {
            let policy = arguments.policy.to_string();
            let refusal = Refusal { policy, refused: true, least_budget_bytes, budget_bytes };
            return common::measure::print(&[Measured::Refused(refusal)], true);
        }
        other => other?,
    };
    if let Some(path) = &arguments.load {
        params.load_file(path).await?;
    }
    if arguments.report {
        println!("{}", step.report());
    }
    if !arguments.json {
        println!("adapter: {}; planned peak {}", gpu.adapter_name(), megabytes(step.plan().peak.total()));
    }
    let bar = if arguments.json { ProgressBar::hidden() } else { ProgressBar::new(u64::from(arguments.steps)) };
    bar.set_style(ProgressStyle::with_template("{bar:30} {pos}/{len} {msg} {eta}")?);
    let mut line = Line::of_plan(&arguments.policy, &step);
    let (mut times, mut last) = (Vec::new(), Instant::now());
    for index in 0..arguments.steps {
        let (x, y) = corpus.batch(arguments.seed, index, rows, context);
        let lr = learning_rate(arguments.lr, index, arguments.steps);
        let mut inputs = inputs! { "x" => &x, "y" => &y, "lr" => lr }.to_vec();
        if arguments.dtype == "f32" {
            // In f16 the scaler counts the updates that were not skipped.
            inputs.push(("step", index.into()));
        }
        if arguments.dropout > 0.0 {
            inputs.push(("seed", arguments.seed.into()));
        }
        let (loss, fingerprint) = step.run(&inputs).await?;
        let loss = loss.item::<f32>().await?;
        if index == 0 {
            line.first_step_ms = start.elapsed().as_secs_f64() * 1e3;
            line.measured_peak_bytes = step.measured_peak_bytes();
        } else {
            times.push(last.elapsed().as_secs_f64() * 1e3);
        }
        last = Instant::now();
        line.losses.push(loss);
        if index + 1 == arguments.steps {
            line.gradient_fingerprint = fingerprint_text(&fingerprint).await?;
        }
        bar.inc(1);
        bar.set_message(format!("loss {loss:.3}, {:.0} ms a step,", median(&times)));
    }
    bar.finish();
    line.step_ms_median = median(&times);
    if let Some(path) = &arguments.save {
        params.save_file(path).await?;
    }
    if arguments.json {
        return common::measure::print(&[Measured::Kept(line)], true);
    }
    common::measure::print(&[Measured::Kept(line)], false)?;
    drop(step);
    let held_out = held_out_loss(&gpu, &model, &corpus, 16, rows, context).await?;
    let (single, pairs) = corpus.baselines();
    println!("held-out loss {held_out:.3} nats (a table of letters {single:.2}, of pairs {pairs:.2})");
    println!("{}", sample(&gpu, &model, &config, &corpus, "HAMLET.\n", 300, 0.8, arguments.seed).await?);
    Ok(())
}
