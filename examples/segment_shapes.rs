//! Trains a U-Net to find shapes in generated images of 128x128.
//!
//! ```text
//! cargo run --release --example segment_shapes -- --policy segments
//! ```
//!
//! The defaults reach an intersection over union of 0.99 on images that no step has
//! seen, in about 35 seconds of CPU time on a software adapter.

mod common;

use clap::Parser;
use common::Outcome;
use common::measure::{Measured, print};
use common::vision::{Target, shapes, train};
use remat::checkpoint::Policy;
use remat::gpu::Gpu;
use remat::inputs;
use remat::nn::{Module, UNet};
use remat::ops::Reduction;
use remat::optim::{Optimizer, Sgd, SgdConfig};
use remat::params::Params;

/// Rows and columns of an image.
const SIDE: usize = 128;

/// A U-Net, momentum, a learning rate along a cosine.
#[derive(Debug, Parser)]
struct Arguments {
    /// Training steps.
    #[arg(long, default_value_t = 120)]
    steps: u32,
    /// Images of the batch.
    #[arg(long, default_value_t = 4)]
    batch: usize,
    /// Channels at the images' own size.
    #[arg(long, default_value_t = 8)]
    width: usize,
    /// How often rows and columns are halved.
    #[arg(long, default_value_t = 3)]
    depth: usize,
    /// Seed of parameters and images.
    #[arg(long, default_value_t = 0)]
    seed: u32,
    /// Highest learning rate.
    #[arg(long, default_value_t = 0.1)]
    lr: f32,
    /// none, segments, every:N, sqrt, budget:BYTES or budget:P%.
    #[arg(long, default_value = "none")]
    policy: Policy,
    /// One line of JSON, the intersection over union on the error output.
    #[arg(long)]
    json: bool,
}

/// `count` images from number `first` on, and their masks.
fn images(first: u32, count: usize) -> (Vec<f32>, Vec<f32>) {
    let (mut x, mut y) = (Vec::new(), Vec::new());
    for index in 0..count as u32 {
        let (image, mask) = shapes(SIDE, first.wrapping_add(index));
        x.extend(image);
        y.extend(mask);
    }
    (x, y)
}

fn main() -> std::process::ExitCode {
    common::end(pollster::block_on(run(&Arguments::parse())))
}

async fn run(arguments: &Arguments) -> Outcome<()> {
    let gpu = Gpu::new().await?;
    let params = Params::new(&gpu, u64::from(arguments.seed));
    let model = UNet::new(&params, [1, 1], arguments.width, arguments.depth)?;
    let sgd = Sgd::new(&params, SgdConfig { momentum: 0.9, nesterov: true, ..SgdConfig::default() })?;
    let shape = [arguments.batch, 1, SIDE, SIDE];
    let first = arguments.seed.wrapping_mul(1 << 20).wrapping_add(1000);
    let batch = |step: u32| {
        let (x, y) = images(first.wrapping_add(step.wrapping_mul(arguments.batch as u32)), arguments.batch);
        (x, Target::Pixels(y))
    };
    let measured = train(&gpu, arguments.policy.clone(), arguments.steps, arguments.lr, &batch, |g| {
        let x = g.input::<f32>("x", shape)?;
        let loss = model.forward(&x)?.bce_with_logits(&g.input::<f32>("y", shape)?, None, Reduction::Mean)?;
        let gradients = sgd.minimize(&loss)?;
        Ok((loss, gradients.fingerprint(g)?))
    })
    .await?;
    let refused = matches!(measured, Measured::Refused(_));
    print(&[measured], arguments.json)?;
    if refused {
        return Ok(());
    }
    // Images that no training step has seen.
    let count = 16;
    let (x, y) = images(first.wrapping_sub(count as u32), count);
    let model = model.eval();
    let step = gpu.step(Policy::None, |g| model.forward(&g.input::<f32>("x", [count, 1, SIDE, SIDE])?)).await?;
    let logits = step.run(inputs! { "x" => &x }).await?.read::<f32>().await?;
    let (mut both, mut either) = (0_u32, 0_u32);
    for (&logit, &mask) in logits.iter().zip(&y) {
        both += u32::from(logit > 0.0 && mask > 0.5);
        either += u32::from(logit > 0.0 || mask > 0.5);
    }
    let text =
        format!("intersection over union {:.4} on {count} unseen images", f64::from(both) / f64::from(either.max(1)));
    if arguments.json {
        eprintln!("{text}");
    } else {
        println!("{text}");
    }
    Ok(())
}
