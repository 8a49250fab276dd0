//! The guide's example: a chain of MLP blocks trained with and without
//! checkpointing, on one shared state.
//!
//! ```text
//! cargo run --release --example checkpoint_mlp -- --blocks 8 --batch 8
//! ```

mod common;

use clap::Parser;
use common::{Outcome, measure};
use remat::checkpoint::Policy;
use remat::gpu::{Gpu, InputData};
use remat::graph::Recorder;
use remat::nn::Mlp;
use remat::optim::{AdamW, AdamWConfig, Optimizer};
use remat::params::Params;

/// Blocks of Linear, ReLU, Linear; mean squared error to zeros; AdamW.
#[derive(Debug, Parser)]
struct Arguments {
    /// Number of blocks, each a checkpoint segment.
    #[arg(long, default_value_t = 8)]
    blocks: usize,
    /// Rows of the batch.
    #[arg(long, default_value_t = 8)]
    batch: usize,
    /// Width between blocks.
    #[arg(long, default_value_t = 1024)]
    width: usize,
    /// Width inside a block.
    #[arg(long, default_value_t = 4096)]
    hidden: usize,
    /// Probability of dropout after each activation.
    #[arg(long, default_value_t = 0.0)]
    dropout: f32,
    /// Steps under each policy.
    #[arg(long, default_value_t = 4)]
    steps: u32,
    /// Seed of parameters, data and dropout.
    #[arg(long, default_value_t = 0)]
    seed: u32,
    /// Learning rate.
    #[arg(long, default_value_t = 1e-3)]
    lr: f32,
    /// none, segments, every:N, sqrt, budget:BYTES or budget:P%; all of none,
    /// segments, every:2, sqrt and budget:50% in turn if it is left out.
    #[arg(long)]
    policy: Option<Policy>,
    /// Print the plan of every policy.
    #[arg(long)]
    report: bool,
    /// One line of JSON per policy.
    #[arg(long)]
    json: bool,
}

fn main() -> std::process::ExitCode {
    common::end(pollster::block_on(run(&Arguments::parse())))
}

async fn run(arguments: &Arguments) -> Outcome<()> {
    let gpu = Gpu::new().await?;
    let params = Params::new(&gpu, u64::from(arguments.seed));
    let model = Mlp::with_dropout(&params, arguments.width, arguments.hidden, arguments.blocks, arguments.dropout)?;
    let optimizer = AdamW::new(&params, AdamWConfig::default())?;
    let shape = [arguments.batch, arguments.width];
    let x = common::workload::uniform(arguments.seed.wrapping_add(1), arguments.batch * arguments.width, 1.0);
    let record = |g: &Recorder| {
        let x = g.input::<f32>("x", shape)?;
        let loss = model.forward_checkpointed(&x)?.mse_loss(&g.zeros(shape)?)?;
        let gradients = optimizer.minimize(&loss)?;
        Ok((loss, gradients.fingerprint(g)?))
    };
    let dropout = arguments.dropout > 0.0;
    let inputs = |step: u32, lr: f32| {
        let mut inputs: Vec<(&'static str, InputData<'_>)> =
            vec![("x", (&x).into()), ("lr", lr.into()), ("step", step.into())];
        if dropout {
            inputs.push(("seed", arguments.seed.into()));
        }
        inputs
    };
    let policies = match &arguments.policy {
        Some(policy) => vec![policy.clone()],
        None => ["none", "segments", "every:2", "sqrt", "budget:50%"]
            .iter()
            .map(|text| text.parse())
            .collect::<Result<Vec<Policy>, _>>()?,
    };
    if arguments.report {
        for policy in &policies {
            match remat::step::PlannedStep::new(gpu.profile(), policy, record) {
                Ok(planned) => println!("{}", planned.plan.report(&planned.program)),
                Err(error) => println!("{error}"),
            }
        }
    }
    if !arguments.json {
        println!("adapter: {}", gpu.adapter_name());
    }
    let results = measure::compare(&gpu, &policies, arguments.steps, arguments.lr, &inputs, &record).await?;
    measure::print(&results, arguments.json)
}
