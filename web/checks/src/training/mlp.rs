//! The guide's model: Linear, ReLU, Linear; mean squared error to zeros; AdamW.

use remat::Result;
use remat::gpu::{Gpu, InputData};
use remat::graph::{Recorder, Tensor};
use remat::nn::Mlp;
use remat::optim::{AdamW, AdamWConfig, Optimizer};
use remat::params::Params;

use super::Training;

const BLOCKS: usize = 2;
const BATCH: usize = 8;
const SEED: u32 = 7;

/// One size of the model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MlpRun {
    /// Its name in reports.
    pub name: &'static str,
    width: usize,
    hidden: usize,
    dropout: f32,
    steps: usize,
}

/// Every size that is trained.
pub const MLPS: [MlpRun; 3] = [
    MlpRun { name: "mlp", width: 64, hidden: 256, dropout: 0.0, steps: 8 },
    MlpRun { name: "mlp with dropout", width: 64, hidden: 256, dropout: 0.1, steps: 8 },
    MlpRun { name: "mlp of width 1024", width: 1024, hidden: 4096, dropout: 0.0, steps: 2 },
];

impl MlpRun {
    fn model(&self, params: &Params) -> Result<Mlp> {
        Mlp::with_dropout(params, self.width, self.hidden, BLOCKS, self.dropout)
    }
}

impl Training for MlpRun {
    async fn start(&self, gpu: &Gpu) -> Result<Params> {
        let params = Params::new(gpu, u64::from(SEED));
        self.model(&params)?;
        Ok(params)
    }

    fn record(&self, params: &Params, recorder: &Recorder) -> Result<(Tensor, Tensor)> {
        let shape = [BATCH, self.width];
        let x = recorder.input::<f32>("x", shape)?;
        let loss = self.model(params)?.forward_checkpointed(&x)?.mse_loss(&recorder.zeros(shape)?)?;
        let gradients = AdamW::new(params, AdamWConfig::default())?.minimize(&loss)?;
        Ok((loss, gradients.fingerprint(recorder)?))
    }

    fn steps(&self) -> usize {
        self.steps
    }

    fn inputs(&self, step: usize) -> Vec<(&'static str, InputData<'_>)> {
        // A batch of its own for every step, uniform in +-1, from integers alone.
        let batch = (0..BATCH * self.width).map(|i| {
            let mixed = hash32((i as u32).wrapping_add(hash32(SEED ^ ((step as u32) << 8))));
            (mixed >> 8) as f32 * (2.0 / 16_777_216.0) - 1.0
        });
        let mut inputs: Vec<(&'static str, InputData<'_>)> =
            vec![("x", batch.collect::<Vec<f32>>().into()), ("lr", 1e-3_f32.into()), ("step", (step as u32).into())];
        if self.dropout > 0.0 {
            inputs.push(("seed", SEED.into()));
        }
        inputs
    }
}

/// A 32-bit mix (Wellons' `lowbias32`).
fn hash32(x: u32) -> u32 {
    let x = (x ^ (x >> 16)).wrapping_mul(0x7feb_352d);
    let x = (x ^ (x >> 15)).wrapping_mul(0x846c_a68b);
    x ^ (x >> 16)
}
