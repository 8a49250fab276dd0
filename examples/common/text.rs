//! Characters of real text: vocabulary, batches, held-out loss, sampling.

use remat::dtype::DType;
use remat::gpu::Gpu;
use remat::graph::{Recorder, Tensor};
use remat::inputs;
use remat::nn::{Gpt, GptConfig, Module};
use remat::optim::{AdamW, AdamWConfig, Gradients, LossScaler, Optimizer};
use remat::step::Step;

use super::Outcome;
use super::workload::hash32;

/// The text that ships with the project.
pub(crate) const PLAYS: &str = include_str!("../../data/plays.txt");

/// Text as indices of its characters, the last tenth held out.
pub(crate) struct Corpus {
    characters: Vec<char>,
    train: Vec<i32>,
    held_out: Vec<i32>,
}

impl Corpus {
    pub(crate) fn new(text: &str) -> Self {
        let mut characters: Vec<char> = text.chars().collect();
        characters.sort_unstable();
        characters.dedup();
        let indices: Vec<i32> = text.chars().map(|c| characters.binary_search(&c).map_or(0, |i| i as i32)).collect();
        let split = indices.len() / 10 * 9;
        Self { characters, train: indices[..split].to_vec(), held_out: indices[split..].to_vec() }
    }

    pub(crate) fn vocabulary(&self) -> usize {
        self.characters.len()
    }

    /// The model for this text. The vocabulary is rounded up to whole vectors of
    /// four; the model learns that nothing stands behind the rest. Wide first
    /// embeddings let so short a training find out about positions.
    pub(crate) fn model(&self, context: usize, width: usize, heads: usize, layers: usize, dropout: f32) -> GptConfig {
        let vocabulary = self.vocabulary().next_multiple_of(4);
        let config = GptConfig::new(vocabulary, context, width, heads, layers);
        GptConfig { dropout, embedding_std: 0.2, ..config }
    }

    /// Inputs and targets of training step `step`: `rows` windows drawn by a hash.
    pub(crate) fn batch(&self, seed: u32, step: u32, rows: usize, context: usize) -> (Vec<i32>, Vec<i32>) {
        let places = self.train.len() - context - 1;
        let starts = (0..rows).map(|row| {
            let draw = hash32(hash32(seed ^ 0x5EED).wrapping_add(step.wrapping_mul(0x9E37_79B9)) ^ row as u32);
            draw as usize % places
        });
        windows(&self.train, starts, context)
    }

    /// Held-out batch `index` of `count`, evenly spread over the held-out text.
    pub(crate) fn held_out(&self, index: usize, count: usize, rows: usize, context: usize) -> (Vec<i32>, Vec<i32>) {
        let places = self.held_out.len() - context - 1;
        let starts = (0..rows).map(|row| (index * rows + row) * places / (count * rows));
        windows(&self.held_out, starts, context)
    }

    /// Held-out loss in nats of a table of character frequencies and of a table
    /// of pairs, both with one added to every count.
    pub(crate) fn baselines(&self) -> (f64, f64) {
        let n = self.vocabulary();
        let mut single = vec![1.0_f64; n];
        let mut pairs = vec![1.0_f64; n * n];
        for pair in self.train.windows(2) {
            single[pair[1] as usize] += 1.0;
            pairs[pair[0] as usize * n + pair[1] as usize] += 1.0;
        }
        let total: f64 = single.iter().sum();
        let (mut one, mut two, mut count) = (0.0, 0.0, 0.0);
        for pair in self.held_out.windows(2) {
            let (before, after) = (pair[0] as usize, pair[1] as usize);
            let row: f64 = pairs[before * n..(before + 1) * n].iter().sum();
            one -= (single[after] / total).ln();
            two -= (pairs[before * n + after] / row).ln();
            count += 1.0;
        }
        (one / count, two / count)
    }

    pub(crate) fn encode(&self, text: &str) -> Vec<i32> {
        text.chars().filter_map(|c| self.characters.binary_search(&c).ok().map(|i| i as i32)).collect()
    }

    pub(crate) fn decode(&self, indices: &[i32]) -> String {
        indices.iter().filter_map(|&i| self.characters.get(i as usize)).collect()
    }
}

/// The highest learning rate that programs train with unless told otherwise.
pub(crate) const LEARNING_RATE: f32 = 6e-3;

/// Second moments that forget within a hundred steps: trainings here are short.
pub(crate) fn optimizer_settings() -> AdamWConfig {
    AdamWConfig { beta2: 0.99, ..AdamWConfig::default() }
}

fn windows(text: &[i32], starts: impl Iterator<Item = usize>, context: usize) -> (Vec<i32>, Vec<i32>) {
    let (mut x, mut y) = (Vec::new(), Vec::new());
    for start in starts {
        x.extend_from_slice(&text[start..start + context]);
        y.extend_from_slice(&text[start + 1..start + context + 1]);
    }
    (x, y)
}

/// Mean cross-entropy of the model on `x` and `y`, `[B, T]` each.
pub(crate) fn loss(g: &Recorder, model: &Gpt, rows: usize, context: usize) -> remat::Result<Tensor> {
    let x = g.input::<i32>("x", [rows, context])?;
    let y = g.input::<i32>("y", [rows, context])?;
    let logits = model.logits(&x)?;
    let vocabulary = logits.dims()[2];
    logits.reshape([rows * context, vocabulary])?.cross_entropy(&y.reshape([rows * context])?)
}

/// A training step: loss and fingerprint of the gradients.
pub(crate) fn train(
    g: &Recorder,
    model: &Gpt,
    optimizer: &AdamW,
    rows: usize,
    context: usize,
) -> remat::Result<(Tensor, Tensor)> {
    let loss = loss(g, model, rows, context)?;
    let gradients = optimizer.minimize(&loss)?;
    Ok((loss, gradients.fingerprint(g)?))
}

/// [`train`] in f16 with parameters in f32; the loss is scaled on the device.
pub(crate) fn train_mixed(
    g: &Recorder,
    model: &Gpt,
    (optimizer, scaler): (&AdamW, &LossScaler),
    rows: usize,
    context: usize,
) -> remat::Result<(Tensor, Tensor)> {
    let loss = g.autocast(DType::F16, || loss(g, model, rows, context))?;
    let gradients = scaler.unscale(g, &Gradients::of(&scaler.scale(&loss)?)?)?;
    optimizer.apply(&gradients)?;
    Ok((loss, gradients.fingerprint(g)?))
}

/// Learning rate with a linear warm-up and a cosine's end at a tenth.
pub(crate) fn learning_rate(peak: f32, step: u32, steps: u32) -> f32 {
    let warm_up = (steps / 20).max(1);
    if step < warm_up {
        return peak * (step + 1) as f32 / warm_up as f32;
    }
    let done = (step - warm_up) as f32 / (steps - warm_up).max(1) as f32;
    peak * (0.1 + 0.45 * (1.0 + (std::f32::consts::PI * done).cos()))
}

/// Mean held-out loss in nats over `batches` batches.
pub(crate) async fn held_out_loss(
    gpu: &Gpu,
    model: &Gpt,
    corpus: &Corpus,
    batches: usize,
    rows: usize,
    context: usize,
) -> Outcome<f64> {
    let model = model.eval();
    let step = gpu.step(remat::checkpoint::Policy::None, |g| loss(g, &model, rows, context)).await?;
    let mut sum = 0.0;
    for index in 0..batches {
        let (x, y) = corpus.held_out(index, batches, rows, context);
        sum += f64::from(step.run(inputs! { "x" => &x, "y" => &y }).await?.item::<f32>().await?);
    }
    Ok(sum / batches as f64)
}

#[expect(clippy::too_many_arguments, reason = "each is one setting of the sample")]
/// Writes `length` characters after `prompt`, drawn at `temperature`.
pub(crate) async fn sample(
    gpu: &Gpu,
    model: &Gpt,
    config: &GptConfig,
    corpus: &Corpus,
    prompt: &str,
    length: usize,
    temperature: f32,
    seed: u32,
) -> Outcome<String> {
    let (model, context) = (model.eval(), config.context);
    let step: Step<Tensor> = gpu
        .step(remat::checkpoint::Policy::None, |g| {
            let x = g.input::<i32>("x", [1, context])?;
            let last = g.input::<i32>("last", [1])?;
            // The logits at one place, as a row.
            model.logits(&x)?.reshape([context, config.vocabulary])?.embedding(&last)
        })
        .await?;
    let mut written = corpus.encode(prompt);
    let start = written.len();
    for index in 0..length {
        let from = written.len().saturating_sub(context);
        let mut window = written[from..].to_vec();
        let last = window.len() as i32 - 1;
        window.resize(context, 0);
        let logits = step.run(inputs! { "x" => &window, "last" => &[last] }).await?.read::<f32>().await?;
        let largest = logits.iter().copied().fold(f32::MIN, f32::max);
        let weights: Vec<f64> =
            logits.iter().map(|l| (f64::from(l - largest) / f64::from(temperature)).exp()).collect();
        let draw = f64::from(hash32(seed.wrapping_mul(0x9E37_79B9) ^ index as u32) >> 8) / 16_777_216.0;
        let mut left = draw * weights.iter().sum::<f64>();
        let mut chosen = weights.len() - 1;
        for (i, weight) in weights.iter().enumerate() {
            left -= weight;
            if left <= 0.0 {
                chosen = i;
                break;
            }
        }
        written.push(chosen as i32);
    }
    Ok(corpus.decode(&written[start..]))
}
