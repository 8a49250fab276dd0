//! Memory against time on the device: three models under policies and under budgets
//! of a half, a third and a fifth of what policy none keeps and makes besides states.
//!
//! `cargo xtask bench curves` measures all; `-- text`, `unet`, `mlp` one of them;
//! `--steps N` steps of each; `--svg DIR` also draws `curve-MODEL.svg` there.
//!
//! Steps under all policies are run in turn, on one state, so that what else the
//! machine does falls on all of them alike; `time` is the ratio of a policy's median
//! step to that of none in the same run.

#[path = "../examples/common/mod.rs"]
mod common;

use std::path::{Path, PathBuf};

use clap::Parser;
use common::measure::{Line, Measured, compare};
use common::text::{Corpus, PLAYS, optimizer_settings};
use common::vision::shapes;
use common::workload::uniform;
use common::{Outcome, megabytes};
use plotters::prelude::*;
use remat::checkpoint::{ByteSize, Policy};
use remat::error::Error;
use remat::gpu::{Gpu, InputData};
use remat::graph::{Recorder, Tensor};
use remat::nn::{Gpt, Mlp, Module, UNet};
use remat::ops::Reduction;
use remat::optim::{AdamW, AdamWConfig, Optimizer};
use remat::params::Params;
use remat::plan::Plan;
use remat::step::RecordedStep;

/// Measures what memory costs in time.
#[derive(Debug, Parser)]
struct Arguments {
    /// text, unet, mlp; all if none is named.
    models: Vec<String>,
    /// Steps under each policy, the first of them to warm up.
    #[arg(long, default_value_t = 12)]
    steps: u32,
    /// Draw the curves into this folder.
    #[arg(long)]
    svg: Option<PathBuf>,
    /// What cargo adds to the arguments of benches.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> std::process::ExitCode {
    common::end(pollster::block_on(run(&Arguments::parse())))
}

async fn run(arguments: &Arguments) -> Outcome<()> {
    let gpu = Gpu::new().await?;
    println!("adapter: {}", gpu.adapter_name());
    let known = ["text", "unet", "mlp"];
    if let Some(other) = arguments.models.iter().find(|name| !known.contains(&name.as_str())) {
        return Err(format!("there is no model {other:?}; there are text, unet and mlp").into());
    }
    for name in known {
        if !arguments.models.is_empty() && !arguments.models.iter().any(|asked| asked == name) {
            continue;
        }
        match name {
            "text" => text(&gpu, arguments).await?,
            "unet" => unet(&gpu, arguments).await?,
            _ => mlp(&gpu, arguments).await?,
        }
    }
    Ok(())
}

async fn text(gpu: &Gpu, arguments: &Arguments) -> Outcome<()> {
    const ROWS: usize = 8;
    const CONTEXT: usize = 128;
    let corpus = Corpus::new(PLAYS);
    let params = Params::new(gpu, 0);
    let model = Gpt::new(&params, &corpus.model(CONTEXT, 128, 4, 12, 0.0))?;
    let optimizer = AdamW::new(&params, optimizer_settings())?;
    let record = |g: &Recorder| common::text::train(g, &model, &optimizer, ROWS, CONTEXT);
    let inputs = |step: u32, lr: f32| -> Vec<(&'static str, InputData<'_>)> {
        let (x, y) = corpus.batch(0, step, ROWS, CONTEXT);
        vec![("x", x.into()), ("y", y.into()), ("lr", lr.into()), ("step", step.into())]
    };
    measure(gpu, arguments, "text", "transformer, 12 layers, width 128, context 128, batch 8", &inputs, &record).await
}

async fn unet(gpu: &Gpu, arguments: &Arguments) -> Outcome<()> {
    const SIDE: usize = 128;
    const SHAPE: [usize; 4] = [4, 1, SIDE, SIDE];
    let params = Params::new(gpu, 0);
    let model = UNet::new(&params, [1, 1], 8, 3)?;
    let optimizer = AdamW::new(&params, AdamWConfig::default())?;
    let record = |g: &Recorder| -> remat::Result<(Tensor, Tensor)> {
        let logits = model.forward(&g.input::<f32>("x", SHAPE)?)?;
        let loss = logits.bce_with_logits(&g.input::<f32>("y", SHAPE)?, None, Reduction::Mean)?;
        let gradients = optimizer.minimize(&loss)?;
        Ok((loss, gradients.fingerprint(g)?))
    };
    let inputs = |step: u32, lr: f32| -> Vec<(&'static str, InputData<'_>)> {
        let pairs = (0..SHAPE[0] as u32).map(|i| shapes(SIDE, 4 * step + i));
        let (x, y): (Vec<_>, Vec<_>) = pairs.unzip();
        vec![("x", x.concat().into()), ("y", y.concat().into()), ("lr", lr.into()), ("step", step.into())]
    };
    measure(gpu, arguments, "unet", "U-Net, 8 channels, depth 3, four images of 128 x 128", &inputs, &record).await
}

async fn mlp(gpu: &Gpu, arguments: &Arguments) -> Outcome<()> {
    const SHAPE: [usize; 2] = [2048, 256];
    let params = Params::new(gpu, 0);
    let model = Mlp::new(&params, SHAPE[1], 1024, 8)?;
    let optimizer = AdamW::new(&params, AdamWConfig::default())?;
    let (x, y) = (uniform(1, SHAPE[0] * SHAPE[1], 1.0), uniform(2, SHAPE[0] * SHAPE[1], 1.0));
    let record = |g: &Recorder| -> remat::Result<(Tensor, Tensor)> {
        let loss = model.forward_checkpointed(&g.input::<f32>("x", SHAPE)?)?.mse_loss(&g.input::<f32>("y", SHAPE)?)?;
        let gradients = optimizer.minimize(&loss)?;
        Ok((loss, gradients.fingerprint(g)?))
    };
    let inputs = |step: u32, lr: f32| -> Vec<(&'static str, InputData<'_>)> {
        vec![("x", (&x).into()), ("y", (&y).into()), ("lr", lr.into()), ("step", step.into())]
    };
    measure(gpu, arguments, "mlp", "eight blocks 256 -> 1024 -> 256, batch 2048", &inputs, &record).await
}

/// The largest budget found under which activations take at most `share` of none's.
///
/// A budget is of all bytes; states, inputs and gradients take what they take, so it
/// is lowered until the plan's activations are as few as asked.
fn budget_of(
    recorded: &RecordedStep<(Tensor, Tensor)>,
    none: &Plan,
    share: f64,
) -> Result<Result<Policy, String>, Error> {
    let wanted = (none.activation_peak_bytes as f64 * share) as u64;
    let mut budget = none.planned_peak_bytes() - (none.activation_peak_bytes - wanted);
    loop {
        let policy = Policy::Budget(ByteSize::new(budget));
        match recorded.plan(&policy) {
            Ok(plan) if plan.activation_peak_bytes <= wanted => return Ok(Ok(policy)),
            Ok(plan) => budget = budget.min(plan.planned_peak_bytes()) - (plan.activation_peak_bytes - wanted),
            Err(Error::BudgetTooSmall { least_budget_bytes, .. }) => {
                return Ok(Err(format!("not reached: the least budget is {}", megabytes(least_budget_bytes))));
            }
            Err(error) => return Err(error),
        }
    }
}

async fn measure(
    gpu: &Gpu,
    arguments: &Arguments,
    name: &str,
    what: &str,
    inputs: &common::measure::Inputs<'_>,
    record: &dyn Fn(&Recorder) -> remat::Result<(Tensor, Tensor)>,
) -> Outcome<()> {
    println!("\n{name}: {what}");
    let recorded = RecordedStep::new(gpu.profile(), record)?;
    let none = recorded.plan(&Policy::None)?;
    let mut policies = vec![Policy::None];
    let mut labels = vec!["none".to_owned()];
    for (label, share) in [("a half", 0.5), ("a third", 1.0 / 3.0), ("a fifth", 0.2)] {
        match budget_of(&recorded, &none, share)? {
            Ok(policy) => {
                policies.push(policy);
                labels.push(format!("budget, {label}"));
            }
            Err(why) => println!("  {label} of none's activations: {why}"),
        }
    }
    for policy in [Policy::Selective, Policy::Segments, Policy::Every(2), Policy::Sqrt, Policy::LeastMemory] {
        labels.push(policy.to_string());
        policies.push(policy);
    }
    let results = compare(gpu, &policies, arguments.steps, 1e-3, inputs, record).await?;
    let lines = labels.iter().zip(&results).filter_map(|(label, result)| match result {
        Measured::Kept(line) => Some((label.as_str(), line)),
        Measured::Refused(_) => None,
    });
    let lines: Vec<(&str, &Line)> = lines.collect();
    let Some((_, first)) = lines.first() else { return Err("policy none was refused".into()) };
    println!(
        "| policy | peak | measured | activations | of none's | time | replays | same gradients |\n|---|---|---|---|---|---|---|---|"
    );
    for (label, line) in &lines {
        println!(
            "| {label} | {} | {} | {} | {:.3} | {:.3} | {} | {} |",
            megabytes(line.planned_peak_bytes),
            megabytes(line.measured_peak_bytes),
            megabytes(line.activation_peak_bytes),
            share(line, first),
            time(line, first),
            line.replayed_passes,
            if line.gradient_fingerprint == first.gradient_fingerprint { "yes" } else { "NO" },
        );
    }
    println!("none: {:.1} ms a step, median of {}", first.step_ms_median, arguments.steps - 1);
    if let Some(folder) = &arguments.svg {
        let file = folder.join(format!("curve-{name}.svg"));
        draw(&file, what, &lines)?;
        println!("drawn: {}", file.display());
    }
    Ok(())
}

fn share(line: &Line, none: &Line) -> f64 {
    line.activation_peak_bytes as f64 / none.activation_peak_bytes.max(1) as f64
}

fn time(line: &Line, none: &Line) -> f64 {
    line.step_ms_median / none.step_ms_median
}

/// Time against activations, both over those of none; budgets joined by a line.
fn draw(file: &Path, title: &str, lines: &[(&str, &Line)]) -> Outcome<()> {
    const BUDGETS: RGBColor = RGBColor(226, 125, 65);
    const OTHERS: RGBColor = RGBColor(54, 84, 134);
    let none = lines[0].1;
    let top = lines.iter().map(|(_, line)| time(line, none)).fold(1.4_f64, f64::max) + 0.05;
    let root = SVGBackend::new(file, (760, 460)).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .caption(title, ("sans-serif", 17))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(56)
        .build_cartesian_2d(0.0..1.08, 0.95..top)?;
    chart
        .configure_mesh()
        .x_desc("peak of activations, over none's")
        .y_desc("time of a step, over none's")
        .x_label_formatter(&|x| format!("{x:.1}"))
        .y_label_formatter(&|y| format!("{y:.2}"))
        .light_line_style(WHITE)
        .draw()?;
    let mut budgets: Vec<(f64, f64)> = Vec::new();
    for (label, line) in lines {
        let at = (share(line, none), time(line, none));
        let budget = label.starts_with("budget") || *label == "none";
        if budget {
            budgets.push(at);
        }
        let color = if budget { BUDGETS } else { OTHERS };
        chart.draw_series(std::iter::once(Circle::new(at, 4, color.filled())))?;
        let text = Text::new((*label).to_owned(), (at.0 + 0.012, at.1 + 0.012), ("sans-serif", 13));
        chart.draw_series(std::iter::once(text))?;
    }
    chart.draw_series(LineSeries::new(budgets, BUDGETS.stroke_width(2)))?;
    root.present()?;
    Ok(())
}
