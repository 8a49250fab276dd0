//! A character-level transformer learns the plays, within memory.
//!
//! `cargo xtask demo` runs this program: it trains, compares policies, prints the
//! held-out loss and a sample, and draws memory over one step under each policy.

mod common;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Parser;
use common::measure::{Measured, compare};
use common::picture::{Curve, draw, page};
use common::text::{Corpus, LEARNING_RATE, PLAYS, held_out_loss, learning_rate, optimizer_settings, sample, train};
use common::{Outcome, median, megabytes};
use indicatif::{ProgressBar, ProgressStyle};
use remat::checkpoint::Policy;
use remat::gpu::{Gpu, InputData};
use remat::graph::Recorder;
use remat::inputs;
use remat::nn::Gpt;
use remat::optim::AdamW;
use remat::params::Params;
use remat::step::PlannedStep;

const ROWS: usize = 8;
const CONTEXT: usize = 128;
const SEED: u32 = 0;

/// Trains a small transformer and shows where its memory goes.
#[derive(Debug, Parser)]
struct Arguments {
    /// Training steps at most.
    #[arg(long, default_value_t = 240)]
    steps: u32,
    /// Seconds of training at most, so that the whole takes under three minutes
    /// on two cores.
    #[arg(long, default_value_t = 110)]
    seconds: u64,
    /// Policy while training.
    #[arg(long, default_value = "segments")]
    policy: Policy,
    /// Where the picture and the page are written.
    #[arg(long, default_value = "target/demo")]
    out: PathBuf,
}

fn main() -> std::process::ExitCode {
    common::end(pollster::block_on(run(&Arguments::parse())))
}

async fn run(arguments: &Arguments) -> Outcome<()> {
    let corpus = Corpus::new(PLAYS);
    let gpu = Gpu::new().await?;
    println!("adapter: {}{}", gpu.adapter_name(), if gpu.is_software() { " (software)" } else { "" });
    let params = Params::new(&gpu, u64::from(SEED));
    let config = corpus.model(CONTEXT, 128, 4, 4, 0.0);
    let model = Gpt::new(&params, &config)?;
    let optimizer = AdamW::new(&params, optimizer_settings())?;
    let record = |g: &Recorder| train(g, &model, &optimizer, ROWS, CONTEXT);

    learn(arguments, &gpu, &corpus, &record).await?;

    println!("\nthe same step under four policies:");
    let policies = ["none", "segments", "sqrt", "budget:50%"]
        .iter()
        .map(|text| text.parse())
        .collect::<Result<Vec<Policy>, _>>()?;
    let batch = corpus.batch(SEED, 0, ROWS, CONTEXT);
    let inputs = |step: u32, lr: f32| -> Vec<(&'static str, InputData<'_>)> {
        vec![("x", (&batch.0).into()), ("y", (&batch.1).into()), ("lr", lr.into()), ("step", step.into())]
    };
    // Learning rate 0: measuring does not train on.
    let results = compare(&gpu, &policies, 4, 0.0, &inputs, &record).await?;
    common::measure::print(&results, false)?;

    let held_out = held_out_loss(&gpu, &model, &corpus, 16, ROWS, CONTEXT).await?;
    let (single, pairs) = corpus.baselines();
    let verdict =
        format!("held-out loss {held_out:.3} nats; a table of letters has {single:.2}, of letter pairs {pairs:.2}");
    println!("\n{verdict}\n");
    let text = sample(&gpu, &model, &config, &corpus, "HAMLET.\n", 240, 0.8, SEED).await?;
    println!("{text}\n");
    write_page(arguments, &gpu, &policies, &results, &record, vec![verdict, text])
}

/// Trains with a progress bar.
async fn learn(
    arguments: &Arguments,
    gpu: &Gpu,
    corpus: &Corpus,
    record: &dyn Fn(&Recorder) -> remat::Result<(remat::graph::Tensor, remat::graph::Tensor)>,
) -> Outcome<()> {
    let step = gpu.step(arguments.policy.clone(), record).await?;
    let memory = megabytes(step.measured_peak_bytes());
    let bar = ProgressBar::new(u64::from(arguments.steps));
    bar.set_style(ProgressStyle::with_template("{bar:30} {pos}/{len} {msg} {eta} left")?);
    let (start, mut last, mut times) = (Instant::now(), Instant::now(), Vec::new());
    let mut shown = String::new();
    for index in 0..arguments.steps {
        let (x, y) = corpus.batch(SEED, index, ROWS, CONTEXT);
        let lr = learning_rate(LEARNING_RATE, index, arguments.steps);
        let (loss, _) = step.run(inputs! { "x" => &x, "y" => &y, "lr" => lr, "step" => index }).await?;
        let loss = loss.item::<f32>().await?;
        times.push(last.elapsed().as_secs_f64() * 1e3);
        last = Instant::now();
        bar.inc(1);
        shown = format!("loss {loss:.3}, {:.0} ms a step, {memory} of memory,", median(&times));
        bar.set_message(shown.clone());
        if start.elapsed() > Duration::from_secs(arguments.seconds) {
            bar.abandon_with_message(format!("{shown} stopped after {} seconds", arguments.seconds));
            break;
        }
    }
    if !bar.is_finished() {
        bar.finish();
    }
    // A bar is only drawn on a terminal.
    println!(
        "trained {} steps under policy {}: {shown} {:.0} s",
        times.len(),
        arguments.policy,
        start.elapsed().as_secs_f64()
    );
    Ok(())
}

fn write_page(
    arguments: &Arguments,
    gpu: &Gpu,
    policies: &[Policy],
    results: &[Measured],
    record: &dyn Fn(&Recorder) -> remat::Result<(remat::graph::Tensor, remat::graph::Tensor)>,
    notes: Vec<String>,
) -> Outcome<()> {
    let mut curves = Vec::new();
    let head =
        ["policy", "planned peak", "measured peak", "activations", "step", "replayed passes", "gradient fingerprint"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for (policy, result) in policies.iter().zip(results) {
        let Measured::Kept(line) = result else { continue };
        let planned = PlannedStep::new(gpu.profile(), policy, record)?;
        curves.push(Curve {
            title: format!("{policy}: peak {}", megabytes(line.planned_peak_bytes)),
            timeline: planned.plan.timeline(&planned.program),
        });
        rows.push(vec![
            line.policy.clone(),
            megabytes(line.planned_peak_bytes),
            megabytes(line.measured_peak_bytes),
            megabytes(line.activation_peak_bytes),
            format!("{:.0} ms", line.step_ms_median),
            line.replayed_passes.to_string(),
            line.gradient_fingerprint.clone(),
        ]);
    }
    std::fs::create_dir_all(&arguments.out)?;
    draw(&arguments.out.join("memory.svg"), &curves)?;
    let html = arguments.out.join("index.html");
    page(&html, "memory.svg", gpu.adapter_name(), &rows, &notes)?;
    println!("memory over one step: {}", html.display());
    Ok(())
}
