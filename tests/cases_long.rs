//! Axes longer than 2^16 in every op that walks along one: no loop, count or
//! index may stop early, on any adapter. (A driver may cut a loop of one
//! invocation short after 65,535 rounds, without a word.)
#![allow(clippy::allow_attributes, clippy::unwrap_used, reason = "a test may panic")]

#[path = "common/engine.rs"]
mod engine;

use engine::*;
use remat::checkpoint::Policy;
use remat::error::{Error, Result};
use remat::graph::{Recorder, Tensor};
use remat::inputs;
use remat::params::Params;
use remat::step::RecordedStep;

/// Odd, so that no vectors of four are formed, and a multiple of four; both
/// longer than 4 * 2^16, so that vectors of four are not short enough either.
const LENGTHS: [usize; 2] = [300_001, 300_004];

fn ramp(n: usize) -> Vec<f32> {
    (0..n).map(|i| i as f32 / n as f32).collect()
}

fn once(inputs: &Inputs<'_>, body: impl FnOnce(&Recorder) -> Result<Vec<Tensor>>) -> Vec<Vec<f32>> {
    let (_turn, gpu) = gpu();
    let step = record(&gpu, body);
    let plan = planned(&gpu, &step, &Policy::None).unwrap();
    let out = run(&gpu, &step, plan, &Params::new(&gpu, 1), inputs).unwrap();
    out.iter().map(|w| floats(w)).collect()
}

fn near(found: f32, expected: f64, what: &str) {
    let close = (f64::from(found) - expected).abs() <= 1e-4 * expected.abs().max(1e-6);
    assert!(close, "{what}: {found}, expected {expected}");
}

/// The sums of i / n and (i / n)^2 over i < n.
fn sums(n: usize) -> [f64; 2] {
    let n = n as f64;
    [(n - 1.0) / 2.0, (n - 1.0) * (2.0 * n - 1.0) / (6.0 * n)]
}

#[test]
fn products_over_a_long_axis() {
    for n in LENGTHS {
        let x = ramp(n);
        let ones = [1.0_f32; 4];
        let out = once(inputs! { "x" => &x, "w" => &ones }, |r| {
            let x = r.input::<f32>("x", [n])?;
            let (row, column) = (x.reshape([1, n])?, x.reshape([n, 1])?);
            let wide = column.matmul(&r.input::<f32>("w", [1, 4])?)?;
            Ok(vec![
                row.matmul(&column)?,
                row.matmul_t(&row)?,
                column.t()?.matmul(&wide)?,
                wide.t()?.matmul(&wide)?,
                row.matmul(&wide)?,
            ])
        });
        let squares = sums(n)[1];
        for (i, name) in ["row column", "row row^T", "column^T wide", "wide^T wide", "row wide"].iter().enumerate() {
            out[i].iter().for_each(|&v| near(v, squares, &format!("{name} of {n}")));
        }
    }
}

#[test]
fn products_longer_than_their_parts_may_be_many() {
    // 2^27 is the longest sum that is recorded in parts; longer ones are one dispatch.
    for (n, parts) in [(1 << 20, 32), ((1 << 27) + 8, 1)] {
        let (_turn, gpu) = gpu();
        let step = RecordedStep::new(gpu.profile(), |r| {
            let (a, b) = (r.input::<f32>("a", [1, n])?, r.input::<f32>("b", [n, 1])?);
            Ok(vec![a.matmul(&b)?])
        });
        match step {
            Ok(step) => assert_eq!(step.program().passes.len(), parts, "{n}"),
            Err(error) => {
                assert!(
                    gpu.is_software() && parts == 1 && matches!(error, Error::Argument { op: "matmul", .. }),
                    "{n}: {error}"
                );
            }
        }
    }
}

#[test]
fn gradients_of_a_layer_over_many_rows() {
    for n in LENGTHS {
        let x = ramp(n);
        let out = once(inputs! { "x" => &x, "w" => &[0.5_f32; 3], "b" => &[0.0_f32; 3] }, |r| {
            let x = r.input::<f32>("x", [n, 1])?;
            let (w, b) = (r.input::<f32>("w", [3, 1])?, r.input::<f32>("b", [3])?);
            let loss = x.linear(&w, Some(&b))?.sqr()?.sum_all()?;
            r.gradients(&loss, &[&w, &b])
        });
        let [one, two] = sums(n);
        out[0].iter().for_each(|&v| near(v, two, &format!("weight, {n} rows")));
        out[1].iter().for_each(|&v| near(v, one, &format!("bias, {n} rows")));
    }
}

#[test]
fn reductions_over_a_long_axis() {
    for n in LENGTHS {
        let x = ramp(n);
        let out = once(inputs! { "x" => &x }, |r| {
            let x = r.input::<f32>("x", [n])?;
            let columns = x.reshape([n, 1])?.broadcast_to([n, 3])?.mul_scalar(1.0)?;
            Ok(vec![
                x.sum_all()?,
                x.mean_all()?,
                x.max(&[], false)?,
                x.neg()?.min(&[], false)?,
                x.argmax(0, false)?.to_f32()?,
                x.var(&[], false, false)?,
                columns.sum(&[0], false)?,
                columns.max(&[0], false)?,
                columns.argmax(0, false)?.to_f32()?,
                columns.sum(&[1], false)?.sum_all()?,
            ])
        });
        let ([one, two], count) = (sums(n), n as f64);
        let top = (count - 1.0) / count;
        let variance = two / count - (one / count).powi(2);
        let last = count - 1.0;
        let expected = [one, one / count, top, -top, last, variance, one, top, last, 3.0 * one];
        for (i, expected) in expected.into_iter().enumerate() {
            out[i].iter().for_each(|&v| near(v, expected, &format!("reduction {i} of {n}")));
        }
    }
}

/// What each op gives, or `None` where a software adapter's limit on the rounds
/// of an invocation's loops refuses it by name: never a silent number.
fn right_or_refused(x: &[f32], name: &str, body: impl FnOnce(&Recorder, &Tensor) -> Result<Tensor>) -> Option<f32> {
    let (_turn, gpu) = gpu();
    let n = x.len();
    let step = RecordedStep::new(gpu.profile(), |r| Ok(vec![body(r, &r.input::<f32>("x", [1, n])?)?]));
    match step {
        Ok(step) => {
            let plan = planned(&gpu, &step, &Policy::None).unwrap();
            let out = run(&gpu, &step, plan, &Params::new(&gpu, 1), inputs! { "x" => x }).unwrap();
            Some(*floats(&out[0]).last().unwrap())
        }
        Err(error) => {
            let text = error.to_string();
            assert!(gpu.is_software() && matches!(error, Error::Argument { .. }), "{name} of {n}: {text}");
            assert!(text.contains("software adapter") && text.contains(&n.to_string()), "{name}: {text}");
            None
        }
    }
}

#[test]
fn rows_and_columns_normalised_over_a_long_axis() {
    type Body = fn(&Recorder, &Tensor) -> Result<Tensor>;
    fn last(t: &Tensor) -> Result<Tensor> {
        let flat = t.flatten(0, -1)?;
        flat.narrow(0, flat.dims()[0] - 1, 1)
    }
    fn loss(r: &Recorder, x: &Tensor) -> Result<Tensor> {
        x.cross_entropy(&r.full_i32([1], x.dims()[1] as i32 - 1)?)
    }
    let bodies: [(&str, Body); 9] = [
        ("softmax", |_, x| last(&x.softmax(-1)?)),
        ("log_softmax", |_, x| last(&x.log_softmax(-1)?)),
        ("softmax down", |_, x| last(&x.t()?.broadcast_to([x.dims()[1], 2])?.mul_scalar(1.0)?.softmax(0)?)),
        ("softmax sum", |_, x| x.softmax(-1)?.sum_all()),
        ("layer_norm", |_, x| last(&x.layer_norm(None, None, 1e-5)?)),
        ("cross_entropy", loss),
        ("cross_entropy'", |r, x| r.gradients(&loss(r, x)?, &[x])?[0].abs()?.sum_all()),
        ("softmax'", |r, x| r.gradients(&x.softmax(-1)?.mul(x)?.sum_all()?, &[x])?[0].abs()?.sum_all()),
        ("layer_norm'", |r, x| last(&r.gradients(&x.layer_norm(None, None, 1e-5)?.mul(x)?.sum_all()?, &[x])?[0])),
    ];
    for n in [21_001, 80_004, 300_001, 300_004] {
        let x = ramp(n);
        let xs = wide(&x);
        let total: f64 = xs.iter().map(|v| v.exp()).sum();
        let ([one, two], count, top) = (sums(n), n as f64, xs[n - 1]);
        let (mean, variance) = (one / count, two / count - (one / count).powi(2));
        let rstd = 1.0 / (variance + 1e-5).sqrt();
        let p = top.exp() / total;
        let mean_soft: f64 = xs.iter().map(|v| v * v.exp() / total).sum();
        let slope: f64 = xs.iter().map(|v| (v.exp() / total * (1.0 + v - mean_soft)).abs()).sum();
        let last = (top - mean) * rstd;
        // d/dx of sum(xh x): xh + rstd (x - mean(x) - xh mean(xh x)).
        let last_slope = last + rstd * (top - mean - last * variance * rstd);
        let expected = [p, top - total.ln(), p, 1.0, last, total.ln() - top, 2.0 * (1.0 - p), slope, last_slope];
        for ((name, body), expected) in bodies.into_iter().zip(expected) {
            match right_or_refused(&x, name, body) {
                Some(found) => near(found, expected, &format!("{name} of {n}")),
                None => assert!(n > 21_001, "{name} of {n} is refused"),
            }
        }
    }
}

#[test]
fn embeddings_of_many_places_and_of_many_rows() {
    for n in [200_001, 200_004] {
        let (x, ids) = (ramp(n), vec![1_i32; n]);
        let falling: Vec<i32> = (0..n as i32).rev().collect();
        let given = inputs! { "x" => &x, "ids" => &ids, "falling" => &falling, "table" => &[0.0_f32; 3] };
        let out = once(given, |r| {
            let (x, table) = (r.input::<f32>("x", [n, 1])?, r.input::<f32>("table", [3, 1])?);
            let falling = r.input::<i32>("falling", [n])?;
            let few = table.embedding(&r.input::<i32>("ids", [n])?)?.mul(&x)?.sum_all()?;
            let many = x.embedding(&falling)?;
            let turned = many.mul(&x)?.sum_all()?;
            let both = r.gradients(&few, &[&table])?;
            let back = r.gradients(&turned, &[&many, &x])?;
            Ok([both, back].concat())
        });
        assert_eq!((out[0][0], out[0][2]), (0.0, 0.0));
        near(out[0][1], sums(n)[0], &format!("one row of {n} places"));
        // d/dx[i] of sum x[n - 1 - i] x[i].
        for i in [0, 1, 70_000, n / 2, n - 2] {
            near(out[2][i], 2.0 * f64::from(x[n - 1 - i]), &format!("row {i} of {n}"));
        }
    }
}
