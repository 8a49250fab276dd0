//! Checks recorded gradients against finite differences of the recorded function.
//!
//! For an op of your own, or any composition: give a closure that records it and
//! the inputs at which it is looked at. The closure's output is multiplied with
//! fixed random numbers and summed; the gradient of that sum as recorded is
//! compared, element by element, with the fourth-order central difference
//!
//! ```text
//! df/dx = (8 (f(x + h) - f(x - h)) - (f(x + 2h) - f(x - 2h))) / 12 h
//! ```
//!
//! of the same function run on the device, summed in `f64` on the host. The
//! function must be smooth within 2h of the inputs: keep them away from kinks.
//!
//! ```no_run
//! # async fn example(gpu: &remat::gpu::Gpu) -> remat::Result<()> {
//! use remat::gradcheck::{GradCheck, Sample};
//! let x = Sample::noise([3, 5], 1);
//! let report = GradCheck::new("softmax").check(gpu, &[x], |_, t| t[0].softmax(-1)).await?;
//! assert_eq!(report.elements, 15);
//! # Ok(())
//! # }
//! ```

use crate::checkpoint::Policy;
use crate::dtype::Shape;
use crate::error::{Error, Result};
use crate::gpu::{Gpu, InputData};
use crate::graph::{Recorder, Tensor};
use crate::random::Stream;

/// An input at which a function is looked at.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    shape: Shape,
    values: Vec<f32>,
}

impl Sample {
    /// These values, row-major.
    pub fn new(shape: impl Into<Shape>, values: impl Into<Vec<f32>>) -> Self {
        Self { shape: shape.into(), values: values.into() }
    }

    /// Random values of size 0.25 to 1, of either sign, the same for one seed.
    pub fn noise(shape: impl Into<Shape>, seed: u64) -> Self {
        let shape = shape.into();
        let mut stream = Stream::new(seed, "gradcheck");
        let mut value = || {
            let u = 2.0 * stream.uniform() - 1.0;
            0.75 * u + 0.25 * u.signum()
        };
        let values = (0..shape.element_count()).map(|_| value()).collect();
        Self { shape, values }
    }

    /// Random values in `low..high`, the same for one seed.
    pub fn uniform(shape: impl Into<Shape>, low: f32, high: f32, seed: u64) -> Self {
        let shape = shape.into();
        let mut stream = Stream::new(seed, "gradcheck");
        let values = (0..shape.element_count()).map(|_| low + (high - low) * stream.uniform()).collect();
        Self { shape, values }
    }
}

/// How a check is made.
#[derive(Debug, Clone, PartialEq)]
pub struct GradCheck {
    name: String,
    step: f32,
    tolerance: f64,
}

/// What a check that passed has seen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GradReport {
    /// Elements of all inputs, each of which was compared.
    pub elements: usize,
    /// The largest difference, divided by the largest gradient of its input.
    pub worst: f64,
}

impl GradCheck {
    /// A check of the op or function of this name, which errors print.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), step: 1.0 / 32.0, tolerance: 1e-3 }
    }

    /// h, 1/32 unless said. Smaller steps see more of the rounding of f32.
    #[must_use]
    pub const fn step(mut self, step: f32) -> Self {
        self.step = step;
        self
    }

    /// The largest difference allowed, relative to the gradient of the element
    /// plus the largest gradient of its input; 1e-3 unless said.
    #[must_use]
    pub const fn tolerance(mut self, tolerance: f64) -> Self {
        self.tolerance = tolerance;
        self
    }

    /// Compares every element of every input, in turn.
    ///
    /// # Errors
    /// [`Error::Gradient`] for the first element whose gradient is wrong;
    /// [`Error::Data`] for a sample whose values do not fill its shape; what
    /// recording and running return.
    pub async fn check(
        &self,
        gpu: &Gpu,
        samples: &[Sample],
        record: impl Fn(&Recorder, &[Tensor]) -> Result<Tensor>,
    ) -> Result<GradReport> {
        let names: Vec<String> = (0..samples.len()).map(|i| format!("x{i}")).collect();
        for (name, sample) in names.iter().zip(samples) {
            if sample.values.len() as u64 != sample.shape.element_count() {
                return Err(Error::Data {
                    op: "gradcheck",
                    name: name.clone(),
                    dtype: crate::dtype::DType::F32,
                    shape: sample.shape.clone(),
                    found: format!("{} elements", sample.values.len()),
                });
            }
        }
        let inputs = |g: &Recorder| -> Result<Vec<Tensor>> {
            names.iter().zip(samples).map(|(name, sample)| g.input::<f32>(name, sample.shape.clone())).collect()
        };
        let values: Vec<Vec<f32>> = samples.iter().map(|s| s.values.clone()).collect();
        let data = |values: &[Vec<f32>]| -> Vec<(String, InputData<'static>)> {
            names.iter().zip(values).map(|(n, v)| (n.clone(), InputData::from(v.clone()))).collect()
        };

        let mut seeds: Vec<f32> = Vec::new();
        let backward = gpu
            .step(Policy::None, |g| {
                let x = inputs(g)?;
                let y = record(g, &x)?;
                seeds = Sample::noise(y.shape(), 77).values;
                let loss = y.mul(&g.constant(&seeds, y.shape())?)?.sum_all()?;
                g.gradients(&loss, &x.iter().collect::<Vec<_>>())
            })
            .await?;
        let owned = data(&values);
        let borrowed: Vec<(&str, InputData<'_>)> = owned.iter().map(|(n, d)| (n.as_str(), d.clone())).collect();
        let mut recorded = Vec::new();
        for output in backward.run(&borrowed).await? {
            recorded.push(output.read::<f32>().await?);
        }
        drop(backward);

        let forward = gpu.step(Policy::None, |g| record(g, &inputs(g)?)).await?;
        let mut at = values;
        let mut report = GradReport { elements: 0, worst: 0.0 };
        for (input, gradient) in recorded.iter().enumerate() {
            let largest = gradient.iter().fold(0.0_f64, |m, g| m.max(f64::from(g.abs()))).max(1e-2);
            for (element, &found) in gradient.iter().enumerate() {
                let here = at[input][element];
                let mut difference = 0.0;
                let mut width = 0.0;
                for (steps, weight) in [(1.0, 8.0), (-1.0, -8.0), (2.0, -1.0), (-2.0, 1.0)] {
                    at[input][element] = here + steps * self.step;
                    // As far as it was moved in f32.
                    width += weight * f64::from(at[input][element] - here);
                    let owned = data(&at);
                    let borrowed: Vec<(&str, InputData<'_>)> =
                        owned.iter().map(|(n, d)| (n.as_str(), d.clone())).collect();
                    let y = forward.run(&borrowed).await?.read::<f32>().await?;
                    let sum: f64 = y.iter().zip(&seeds).map(|(y, s)| f64::from(*y) * f64::from(*s)).sum();
                    difference += weight * sum;
                }
                at[input][element] = here;
                // 8 * 2h - 4h = 12 h.
                let expected = difference / width;
                let away = (f64::from(found) - expected).abs();
                // A difference that is NaN is not small.
                if away.is_nan() || away > self.tolerance * (expected.abs() + largest) {
                    return Err(Error::Gradient {
                        op: self.name.clone(),
                        input,
                        element,
                        recorded: f64::from(found),
                        difference: expected,
                    });
                }
                report.elements += 1;
                report.worst = report.worst.max(away / largest);
            }
        }
        Ok(report)
    }

    /// [`GradCheck::check`], blocking. Natively only.
    ///
    /// # Errors
    /// As [`GradCheck::check`].
    #[cfg(not(target_arch = "wasm32"))]
    pub fn check_blocking(
        &self,
        gpu: &Gpu,
        samples: &[Sample],
        record: impl Fn(&Recorder, &[Tensor]) -> Result<Tensor>,
    ) -> Result<GradReport> {
        pollster::block_on(self.check(gpu, samples, record))
    }
}
