//! Training a model of images: the digits that ship with the project, drawn shapes,
//! and the loop that both programs run.

use std::time::Instant;

use remat::checkpoint::Policy;
use remat::gpu::Gpu;
use remat::graph::{Recorder, Tensor};

use super::measure::{Line, Measured, Refusal, fingerprint_text};
use super::workload::hash32;
use super::{Outcome, median};

const DIGITS: &str = include_str!("../../data/digits.csv");

/// Side of a digit's image.
pub(crate) const DIGIT: usize = 8;

/// Grey levels in `-1..1` and the digit, per image.
pub(crate) type Labelled = (Vec<f32>, i32);

/// The digits: every fifth is held out.
pub(crate) fn digits() -> Outcome<(Vec<Labelled>, Vec<Labelled>)> {
    let (mut train, mut held_out) = (Vec::new(), Vec::new());
    for (index, line) in DIGITS.lines().filter(|line| !line.is_empty()).enumerate() {
        let numbers = line.split(',').map(|n| n.trim().parse::<f32>()).collect::<Result<Vec<_>, _>>()?;
        let (label, grey) = numbers.split_last().ok_or("an empty line")?;
        let image = (grey.iter().map(|g| g / 8.0 - 1.0).collect(), *label as i32);
        if index % 5 == 4 { held_out.push(image) } else { train.push(image) }
    }
    Ok((train, held_out))
}

/// An image of `side x side` with a few discs and boxes on a noisy ground, and
/// which pixels they cover.
pub(crate) fn shapes(side: usize, seed: u32) -> (Vec<f32>, Vec<f32>) {
    let mut state = hash32(seed ^ 0x5AFE);
    let mut draw = || {
        state = hash32(state.wrapping_add(0x9E37_79B9));
        state as f32 / 4_294_967_296.0
    };
    let (mut image, mut mask) = (vec![0.0; side * side], vec![0.0; side * side]);
    for pixel in &mut image {
        *pixel = (draw() - 0.5) * 0.6;
    }
    let width = side as f32;
    for _ in 0..2 + (draw() * 3.0) as usize {
        let (x, y) = (width * (0.15 + 0.7 * draw()), width * (0.15 + 0.7 * draw()));
        let (a, b, round) = (width * (0.06 + 0.12 * draw()), width * (0.06 + 0.12 * draw()), draw() < 0.5);
        let shade = if draw() < 0.5 { 0.7 } else { -0.7 } + (draw() - 0.5) * 0.4;
        for place in 0..side * side {
            let (dx, dy) = ((place % side) as f32 - x, (place / side) as f32 - y);
            let inside =
                if round { (dx / a).powi(2) + (dy / b).powi(2) <= 1.0 } else { dx.abs() <= a && dy.abs() <= b };
            if inside {
                let noise = (draw() - 0.5) * 0.6;
                (image[place], mask[place]) = (shade + noise, 1.0);
            }
        }
    }
    (image, mask)
}

/// What a batch is trained towards.
pub(crate) enum Target {
    Classes(Vec<i32>),
    Pixels(Vec<f32>),
}

/// Trains for `steps` steps, on the images and targets `x`, `y` that `batch` gives, `lr` falling along a
/// cosine. A budget that cannot be kept is a line of its own.
pub(crate) async fn train(
    gpu: &Gpu,
    policy: Policy,
    steps: u32,
    lr: f32,
    batch: &dyn Fn(u32) -> (Vec<f32>, Target),
    record: impl FnOnce(&Recorder) -> remat::Result<(Tensor, Tensor)>,
) -> Outcome<Measured> {
    let start = Instant::now();
    let step = match gpu.step(policy.clone(), record).await {
        Err(remat::Error::BudgetTooSmall { budget_bytes, least_budget_bytes }) => {
            let policy = policy.to_string();
            return Ok(Measured::Refused(Refusal { policy, refused: true, least_budget_bytes, budget_bytes }));
        }
        other => other?,
    };
    let mut line = Line::of_plan(&policy, &step);
    let (mut times, mut last) = (Vec::new(), Instant::now());
    for index in 0..steps {
        let rate = lr * 0.5 * (1.0 + (std::f32::consts::PI * index as f32 / steps as f32).cos());
        let (x, target) = batch(index);
        let (loss, fingerprint) = match &target {
            Target::Classes(y) => step.run(remat::inputs! { "x" => &x, "y" => y, "lr" => rate }).await?,
            Target::Pixels(y) => step.run(remat::inputs! { "x" => &x, "y" => y, "lr" => rate }).await?,
        };
        line.losses.push(loss.item::<f32>().await?);
        if index == 0 {
            line.first_step_ms = start.elapsed().as_secs_f64() * 1e3;
            line.measured_peak_bytes = step.measured_peak_bytes();
        } else {
            times.push(last.elapsed().as_secs_f64() * 1e3);
        }
        last = Instant::now();
        if index + 1 == steps {
            line.gradient_fingerprint = fingerprint_text(&fingerprint).await?;
        }
    }
    line.step_ms_median = median(&times);
    Ok(Measured::Kept(line))
}
