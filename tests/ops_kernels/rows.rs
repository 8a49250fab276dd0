//! softmax, log_softmax, layer_norm, cross_entropy, mse: values, gradients and
//! second derivatives.

use super::harness::*;
use remat::error::Error;
use remat::graph::Recorder;
use remat::ops::{CrossEntropyOptions, Reduction};

/// Softmax along R of `[O, R, I]`.
fn softmax(x: &[f64], [o, r, i]: [usize; 3], log: bool) -> Vec<f64> {
    let mut y = vec![0.0; x.len()];
    for a in 0..o {
        for c in 0..i {
            let at = |b: usize| (a * r + b) * i + c;
            let m = (0..r).map(|b| x[at(b)]).fold(f64::NEG_INFINITY, f64::max);
            let s: f64 = (0..r).map(|b| (x[at(b)] - m).exp()).sum();
            for b in 0..r {
                y[at(b)] = if log { x[at(b)] - m - s.ln() } else { (x[at(b)] - m).exp() / s };
            }
        }
    }
    y
}

#[test]
fn softmax_values_gradients_and_second_derivatives() {
    let device = device();
    for dims in [[3, 5, 1], [2, 8, 1], [1, 7, 4], [2, 3, 5], [5, 1, 1], [3, 20, 1]] {
        let x: Vec<f32> = noise(dims.iter().product(), 4).iter().map(|v| v * 3.0).collect();
        for log in [false, true] {
            check(
                &device,
                &[(&dims, x.clone())],
                &|_, t| if log { t[0].log_softmax(1) } else { t[0].softmax(-2) },
                &|x| softmax(&x[0], dims, log),
                &format!("softmax {dims:?}, log {log}"),
            );
        }
    }
}

#[test]
fn softmax_at_larger_sizes() {
    let device = device();
    for dims in [[17, 63, 1], [65, 128, 1], [3, 65, 17], [2, 17, 64], [1, 5000, 1]] {
        let x: Vec<f32> = noise(dims.iter().product(), 4).iter().map(|v| v * 9.0).collect();
        let out = device.floats(&[(&dims, &x)], |_, t| Ok(vec![t[0].softmax(1)?, t[0].log_softmax(1)?]));
        assert_close(&out[0], &softmax(&wide(&x), dims, false), 2e-5, "softmax");
        assert_close(&out[1], &softmax(&wide(&x), dims, true), 2e-5, "log_softmax");
    }
}

#[test]
fn softmax_of_masks_and_extremes() {
    let device = device();
    let (inf, mask) = (f32::NEG_INFINITY, -3.4e38);
    let rows = [
        [inf, inf, inf, inf],
        [mask, mask, mask, mask],
        [inf, 1.0, inf, 1.0],
        [mask, 2.0, mask, mask],
        [3e38, -3e38, 1.0, 0.0],
        [f32::NAN, 0.0, 0.0, 0.0],
    ];
    // The last axis, and the same rows as columns, in fours and not.
    for (shape, axis, width) in [([6, 4], 1, 4), ([4, 6], 0, 6), ([4, 12], 0, 12)] {
        let data: Vec<f32> =
            if axis == 1 { rows.concat() } else { (0..4 * width).map(|i| rows[i % width % 6][i / width]).collect() };
        let out = device.floats(&[(&shape, &data)], |g, t| {
            let y = t[0].softmax(axis)?;
            let loss = y.mul(&y)?.sum_all()?;
            let gradient = g.gradients(&loss, &[&t[0]])?.swap_remove(0);
            Ok(vec![y, t[0].log_softmax(axis)?, gradient])
        });
        let at = |row: usize, column: usize| if axis == 1 { row * 4 + column } else { column * width + row };
        let row = |values: &[f32], r: usize| (0..4).map(|c| values[at(r, c)]).collect::<Vec<_>>();
        assert_eq!(row(&out[0], 0), [0.0; 4]);
        assert_eq!(row(&out[1], 0), [inf; 4]);
        assert_eq!(row(&out[0], 1), [0.25; 4]);
        assert_eq!(row(&out[0], 2), [0.0, 0.5, 0.0, 0.5]);
        assert_eq!(row(&out[0], 3), [0.0, 1.0, 0.0, 0.0]);
        assert_eq!(row(&out[0], 4), [1.0, 0.0, 0.0, 0.0]);
        assert!(row(&out[0], 5).iter().all(|v| v.is_nan()));
        assert!((0..5).all(|r| row(&out[2], r).iter().all(|v| v.is_finite())));
    }
}

fn layer_norm(x: &[Vec<f64>], columns: usize, eps: f64) -> Vec<f64> {
    let mut y = Vec::new();
    for row in x[0].chunks(columns) {
        let mean = row.iter().sum::<f64>() / columns as f64;
        let var = row.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / columns as f64;
        y.extend(row.iter().enumerate().map(|(c, v)| (v - mean) / (var + eps).sqrt() * x[1][c] + x[2][c]));
    }
    y
}

#[test]
fn layer_norm_values_gradients_and_second_derivatives() {
    let device = device();
    for (rows, columns) in [(3, 5), (5, 8), (2, 63), (1, 4), (17, 3)] {
        let weight: Vec<f32> = noise(columns, 6).iter().map(|v| v + 1.0).collect();
        check(
            &device,
            &[(&[rows, columns], noise(rows * columns, 5)), (&[columns], weight), (&[columns], noise(columns, 7))],
            &|_, t| t[0].layer_norm(Some(&t[1]), Some(&t[2]), 1e-2),
            &|x| layer_norm(x, columns, 0.01),
            &format!("layer norm [{rows}, {columns}]"),
        );
    }
    // Without weight and bias, in a higher rank.
    check(
        &device,
        &[(&[2, 3, 4], noise(24, 15))],
        &|_, t| t[0].layer_norm(None, None, 1e-2),
        &|x| layer_norm(&[x[0].clone(), vec![1.0; 4], vec![0.0; 4]], 4, 0.01),
        "layer norm without parameters",
    );
}

#[test]
fn layer_norm_sums_over_many_rows() {
    let device = device();
    for (rows, columns) in [(9_000, 12), (1024, 128), (3000, 5)] {
        let x: Vec<f32> = noise(rows * columns, 1).iter().map(|v| v + 4.0).collect();
        let g = noise(rows * columns, 2);
        let (ones, zeros) = (vec![1.0; columns], vec![0.0; columns]);
        let shape = [rows, columns];
        let out = device.floats(&[(&shape, &x), (&[columns], &ones), (&[columns], &zeros), (&shape, &g)], |r, t| {
            let y = t[0].layer_norm(Some(&t[1]), Some(&t[2]), 1e-5)?;
            let loss = y.mul(&t[3])?.sum_all()?;
            let mut all = vec![y.clone()];
            all.extend(r.gradients(&loss, &[&t[1], &t[2]])?);
            Ok(all)
        });
        let y = layer_norm(&[wide(&x), vec![1.0; columns], vec![0.0; columns]], columns, 1e-5);
        assert_close(&out[0], &y, 1e-5, "y");
        let column_sum = |f: &dyn Fn(usize) -> f64| -> Vec<f64> {
            (0..columns).map(|c| (0..rows).map(|r| f(r * columns + c)).sum()).collect()
        };
        assert_close(&out[1], &column_sum(&|i| y[i] * f64::from(g[i])), 2e-5, "dweight");
        assert_close(&out[2], &column_sum(&|i| f64::from(g[i])), 2e-5, "dbias");
    }
}

fn cross_entropy(x: &[f64], targets: &[i64], smoothing: f64, ignore: Option<i64>) -> Vec<f64> {
    let classes = x.len() / targets.len();
    x.chunks(classes)
        .zip(targets)
        .map(|(row, &t)| {
            if Some(t) == ignore {
                return 0.0;
            }
            let m = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let lse = m + row.iter().map(|v| (v - m).exp()).sum::<f64>().ln();
            let mean = row.iter().sum::<f64>() / classes as f64;
            lse - (1.0 - smoothing) * row[t as usize] - smoothing * mean
        })
        .collect()
}

#[test]
fn cross_entropy_values_gradients_and_second_derivatives() {
    let device = device();
    for (rows, classes) in [(3, 5), (5, 8), (7, 63), (1, 1), (4, 20)] {
        let targets: Vec<i32> = (0..rows).map(|r| ((r * 37 + 3) % classes) as i32).collect();
        let wide_targets: Vec<i64> = targets.iter().map(|&t| i64::from(t)).collect();
        let x: Vec<f32> = noise(rows * classes, 9).iter().map(|v| v * 4.0).collect();
        for (smoothing, ignore) in [(0.0, None), (0.3, None), (0.0, Some(targets[rows / 2])), (0.2, Some(targets[0]))] {
            let options =
                CrossEntropyOptions { reduction: Reduction::None, ignore_index: ignore, label_smoothing: smoothing };
            check(
                &device,
                &[(&[rows, classes], x.clone())],
                &|g, t| t[0].cross_entropy_with(&g.constant(&targets, [rows])?, options),
                &|x| cross_entropy(&x[0], &wide_targets, f64::from(smoothing), ignore.map(i64::from)),
                &format!("cross-entropy [{rows}, {classes}], smoothing {smoothing}, ignoring {ignore:?}"),
            );
        }
    }
}

#[test]
fn cross_entropy_reductions_and_wrong_targets() {
    let device = device();
    let x = noise(6 * 4, 3);
    let targets = [0_i32, -100, 2, 3, 1, -100];
    let wide_targets = targets.map(i64::from);
    let each = cross_entropy(&wide(&x), &wide_targets, 0.0, Some(-100));
    let out = device.floats(&[(&[6, 4], &x)], |g, t| {
        let targets = g.constant(&targets, [6])?;
        let with = |reduction| {
            t[0].cross_entropy_with(
                &targets,
                CrossEntropyOptions { reduction, ignore_index: Some(-100), ..Default::default() },
            )
        };
        let all_ignored = t[0].cross_entropy_with(
            &g.full_i32([6], 7)?,
            CrossEntropyOptions { ignore_index: Some(7), ..Default::default() },
        )?;
        Ok(vec![with(Reduction::Mean)?, with(Reduction::Sum)?, with(Reduction::None)?, all_ignored])
    });
    let sum: f64 = each.iter().sum();
    assert_close(&out[0], &[sum / 4.0], 1e-5, "mean");
    assert_close(&out[1], &[sum], 1e-5, "sum");
    assert_close(&out[2], &each, 1e-5, "none");
    assert!(out[3][0].is_nan());
    // No class: NaN in that row alone, loss and gradient, for both integer types.
    let out = device.floats(&[(&[6, 4], &x)], |g, t| {
        let loss = t[0].cross_entropy_with(
            &g.constant(&[0_u32, 4, 2, u32::MAX, 1, 3], [6])?,
            CrossEntropyOptions { reduction: Reduction::None, ..Default::default() },
        )?;
        let gradient = g.gradients(&loss.sum_all()?, &[&t[0]])?.swap_remove(0);
        Ok(vec![loss, gradient])
    });
    for row in 0..6 {
        let wrong = row == 1 || row == 3;
        assert_eq!(out[0][row].is_nan(), wrong);
        assert!(out[1][row * 4..row * 4 + 4].iter().all(|v| v.is_nan() == wrong));
    }
}

#[test]
fn mse_with_broadcasting() {
    let device = device();
    for reduction in [Reduction::Mean, Reduction::Sum, Reduction::BatchMean, Reduction::None] {
        check(
            &device,
            &[(&[3, 5], noise(15, 1)), (&[5], noise(5, 2))],
            &|_, t| t[0].mse(&t[1], reduction),
            &|x| {
                let each: Vec<f64> = x[0].iter().enumerate().map(|(i, v)| (v - x[1][i % 5]).powi(2)).collect();
                match reduction {
                    Reduction::Mean => vec![each.iter().sum::<f64>() / 15.0],
                    Reduction::Sum => vec![each.iter().sum()],
                    Reduction::BatchMean => vec![each.iter().sum::<f64>() / 3.0],
                    Reduction::None => each,
                }
            },
            "mse",
        );
    }
}

#[test]
fn empty_and_wrong_operands() {
    let device = device();
    let out = device.floats(&[], |g, _| {
        let none = g.zeros([0, 4])?;
        let targets = g.full_i32([0], 0)?;
        Ok(vec![
            none.softmax(1)?,
            none.softmax(0)?,
            none.layer_norm(None, None, 1e-5)?,
            none.cross_entropy(&targets)?,
            g.zeros([3, 0])?.log_softmax(-1)?,
        ])
    });
    assert!(out[0].is_empty() && out[1].is_empty() && out[2].is_empty() && out[4].is_empty());
    assert!(out[3][0].is_nan());
    let g = Recorder::new();
    let x = g.zeros([3, 4]).unwrap();
    assert!(matches!(x.softmax(2), Err(Error::Argument { op: "softmax", .. })));
    assert!(matches!(g.full_i32([2], 1).unwrap().softmax(0), Err(Error::DType { op: "softmax", .. })));
    let short = g.zeros([3]).unwrap();
    assert!(matches!(x.layer_norm(None, Some(&short), 1e-5), Err(Error::Shape { op: "layer_norm", .. })));
    assert!(matches!(g.zeros([]).unwrap().layer_norm(None, None, 1.0), Err(Error::Shape { op: "layer_norm", .. })));
    let targets = g.full_i32([4], 1).unwrap();
    assert!(matches!(x.cross_entropy(&targets), Err(Error::Shape { op: "cross_entropy", .. })));
    assert!(matches!(x.cross_entropy(&short), Err(Error::DType { op: "cross_entropy", operand: 1, .. })));
    let options = CrossEntropyOptions { label_smoothing: 1.5, ..Default::default() };
    let targets = g.full_i32([3], 1).unwrap();
    assert!(matches!(x.cross_entropy_with(&targets, options), Err(Error::Argument { op: "cross_entropy", .. })));
    assert!(matches!(x.mse_loss(&g.zeros([5]).unwrap()), Err(Error::Shape { op: "mse_loss", .. })));
}
