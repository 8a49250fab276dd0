//! What the tests of this binary share: one device, plain random numbers,
//! comparison, and derivatives of plain functions by differences.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use crate::common::naive::Naive;
use remat::error::Result;
use remat::graph::{Recorder, Tensor};

static DEVICE: Mutex<Option<Naive>> = Mutex::new(None);

/// One device per process, used by one test at a time.
pub(crate) struct Device(MutexGuard<'static, Option<Naive>>);

pub(crate) fn device() -> Device {
    let mut guard = DEVICE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    guard.get_or_insert_with(Naive::new);
    Device(guard)
}

impl Device {
    /// Runs a recording with inputs by name; the outputs as raw words.
    pub(crate) fn words(
        &self,
        inputs: &[(&str, Vec<u32>)],
        record: impl FnOnce(&Recorder) -> Result<Vec<Tensor>>,
    ) -> Vec<Vec<u32>> {
        let inputs: BTreeMap<String, Vec<u32>> = inputs.iter().map(|(n, v)| ((*n).to_owned(), v.clone())).collect();
        self.0.as_ref().unwrap().run_recording(&inputs, record).unwrap()
    }

    /// Runs a recording with float inputs `x0, x1, ..`; the outputs as floats.
    pub(crate) fn floats(
        &self,
        inputs: &[(&[usize], &[f32])],
        record: impl FnOnce(&Recorder, &[Tensor]) -> Result<Vec<Tensor>>,
    ) -> Vec<Vec<f32>> {
        let named: Vec<(String, Vec<u32>)> =
            inputs.iter().enumerate().map(|(i, (_, v))| (format!("x{i}"), bits(v))).collect();
        let borrowed: Vec<(&str, Vec<u32>)> = named.iter().map(|(n, v)| (n.as_str(), v.clone())).collect();
        let out = self.words(&borrowed, |g| {
            let tensors: Result<Vec<Tensor>> =
                inputs.iter().enumerate().map(|(i, (shape, _))| g.input::<f32>(&format!("x{i}"), *shape)).collect();
            record(g, &tensors?)
        });
        out.iter().map(|w| floats(w)).collect()
    }
}

pub(crate) fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

pub(crate) fn floats(words: &[u32]) -> Vec<f32> {
    words.iter().map(|w| f32::from_bits(*w)).collect()
}

/// Numbers in -1..1 that look random, the same in every run.
pub(crate) fn noise(count: usize, seed: u32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(12_345);
    (0..count)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            (state >> 8) as f32 / (1 << 23) as f32 - 1.0
        })
        .collect()
}

pub(crate) fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().map(|&v| f64::from(v)).collect()
}

/// |found - expected| <= tolerance * (|expected| + the largest |expected|).
pub(crate) fn assert_close(found: &[f32], expected: &[f64], tolerance: f64, what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}: length");
    let largest = expected.iter().fold(1e-2_f64, |m, v| m.max(v.abs()));
    for (i, (&f, &e)) in found.iter().zip(expected).enumerate() {
        let fits = (f64::from(f) - e).abs() <= tolerance * (e.abs() + largest) || (e.is_nan() && f.is_nan());
        assert!(fits, "{what}: element {i} is {f}, expected {e} (largest {largest})");
    }
}

/// The gradient of a plain function by central differences.
pub(crate) fn differences(x: &[f64], mut f: impl FnMut(&[f64]) -> f64) -> Vec<f64> {
    let step = 1e-5;
    let mut at = x.to_vec();
    (0..x.len())
        .map(|i| {
            at[i] = x[i] + step;
            let up = f(&at);
            at[i] = x[i] - step;
            let down = f(&at);
            at[i] = x[i];
            (up - down) / (2.0 * step)
        })
        .collect()
}

pub(crate) fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// A plain function of several inputs to a list of numbers.
pub(crate) type Plain<'a> = &'a dyn Fn(&[Vec<f64>]) -> Vec<f64>;
/// The same, recorded.
pub(crate) type Recorded<'a> = &'a dyn Fn(&Recorder, &[Tensor]) -> Result<Tensor>;

/// Value, gradient and the gradient of a directional derivative of
/// `sum(weights * f(inputs)^2)`, against differences of the plain function. The
/// square makes the incoming gradient depend on the inputs.
pub(crate) fn check(
    device: &Device,
    inputs: &[(&[usize], Vec<f32>)],
    recorded: Recorded<'_>,
    plain: Plain<'_>,
    what: &str,
) {
    let wide_inputs: Vec<Vec<f64>> = inputs.iter().map(|(_, v)| wide(v)).collect();
    let value = plain(&wide_inputs);
    let weights = noise(value.len(), 99);
    let directions: Vec<Vec<f32>> =
        inputs.iter().enumerate().map(|(i, (_, v))| noise(v.len(), 50 + i as u32)).collect();
    let count = inputs.len();
    let mut all: Vec<(&[usize], &[f32])> = inputs.iter().map(|(s, v)| (*s, v.as_slice())).collect();
    all.extend(inputs.iter().zip(&directions).map(|((s, _), d)| (*s, d.as_slice())));
    let shape = [weights.len()];
    all.push((&shape, &weights));
    let out = device.floats(&all, |g, t| {
        // Inputs come from an op and the output feeds one.
        let x: Result<Vec<Tensor>> = t[..count].iter().map(|x| x.add(&g.zeros(x.shape().clone())?)).collect();
        let y = recorded(g, &x?)?;
        let flat = y.reshape([weights.len()])?;
        let loss = flat.mul(&flat)?.mul(&t[2 * count])?.sum_all()?;
        let wrt: Vec<&Tensor> = t[..count].iter().collect();
        let first = g.gradients(&loss, &wrt)?;
        let mut along = g.zeros([])?;
        for (d, v) in first.iter().zip(&t[count..]) {
            along = along.add(&d.mul(v)?.sum_all()?)?;
        }
        let second = g.gradients(&along, &wrt)?;
        let mut all = vec![flat];
        all.extend(first);
        all.extend(second);
        Ok(all)
    });
    assert_close(&out[0], &value, 2e-5, &format!("{what}: value"));
    let loss = |x: &[Vec<f64>]| plain(x).iter().zip(&weights).map(|(y, w)| y * y * f64::from(*w)).sum::<f64>();
    let directions: Vec<Vec<f64>> = directions.iter().map(|d| wide(d)).collect();
    let along = |x: &[Vec<f64>]| {
        let step = 1e-4;
        let at = |k: f64| {
            let moved: Vec<Vec<f64>> = x
                .iter()
                .zip(&directions)
                .map(|(x, d)| x.iter().zip(d).map(|(x, d)| x + k * step * d).collect())
                .collect();
            loss(&moved)
        };
        (at(1.0) - at(-1.0)) / (2.0 * step)
    };
    for i in 0..count {
        let replaced = |v: &[f64]| {
            let mut x = wide_inputs.clone();
            x[i] = v.to_vec();
            x
        };
        let first = differences(&wide_inputs[i], |v| loss(&replaced(v)));
        assert_close(&out[1 + i], &first, 1e-4, &format!("{what}: gradient of input {i}"));
        let second = differences(&wide_inputs[i], |v| along(&replaced(v)));
        assert_close(&out[1 + count + i], &second, 1e-3, &format!("{what}: second derivative, input {i}"));
    }
}
