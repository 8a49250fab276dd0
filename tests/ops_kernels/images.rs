//! Batch norm, transposed convolution, pooling, windows and scattering: values,
//! gradients and second derivatives.

use super::harness::*;
use remat::error::Error;
use remat::graph::{Recorder, Tensor};
use remat::ops::Conv2dOptions;

/// Numbers a tenth and more apart, in a mixed order: what chooses does not waver.
fn apart(count: usize) -> Vec<f32> {
    (0..count).map(|i| (i * 11 + 3) % count).map(|place| place as f32 * 0.2 - 1.0).collect()
}

/// Batch norm of `[samples, channels, places]` with weight and bias, then mean and variance.
fn batch_norm(x: &[Vec<f64>], [samples, channels, places]: [usize; 3], eps: f64) -> [Vec<f64>; 3] {
    let (mut y, mut means, mut variances) = (vec![0.0; x[0].len()], Vec::new(), Vec::new());
    for c in 0..channels {
        let at: Vec<usize> =
            (0..samples).flat_map(|n| (0..places).map(move |s| (n * channels + c) * places + s)).collect();
        let mean = at.iter().map(|&i| x[0][i]).sum::<f64>() / at.len() as f64;
        let variance = at.iter().map(|&i| (x[0][i] - mean).powi(2)).sum::<f64>() / at.len() as f64;
        for i in at {
            y[i] = (x[0][i] - mean) / (variance + eps).sqrt() * x[1][c] + x[2][c];
        }
        means.push(mean);
        variances.push(variance);
    }
    [y, means, variances]
}

#[test]
fn batch_norm_values_gradients_and_second_derivatives() {
    let device = device();
    for sizes in [[3, 5, 4], [2, 3, 5], [4, 2, 1], [2, 1, 12], [7, 3, 2]] {
        let [samples, channels, places] = sizes;
        let shape = [samples, channels, places];
        let weight: Vec<f32> = noise(channels, 6).iter().map(|v| v + 1.5).collect();
        let inputs: [(&[usize], Vec<f32>); 3] =
            [(&shape, noise(samples * channels * places, 5)), (&[channels], weight), (&[channels], noise(channels, 7))];
        for output in 0..3 {
            check(
                &device,
                &inputs,
                &|_, t| {
                    let (y, mean, variance) = t[0].batch_norm_train(Some(&t[1]), Some(&t[2]), 1e-2)?;
                    // The statistics beside a little of the weights, so that all inputs are read.
                    let little = t[1].add(&t[2])?.mul_scalar(0.1_f32)?;
                    match output {
                        0 => Ok(y),
                        1 => mean.add(&little),
                        _ => variance.add(&little),
                    }
                },
                &|x| {
                    let [y, means, variances] = batch_norm(x, sizes, 0.01);
                    let little =
                        |v: Vec<f64>| v.iter().zip(&x[1]).zip(&x[2]).map(|((v, a), b)| v + 0.1 * (a + b)).collect();
                    match output {
                        0 => y,
                        1 => little(means),
                        _ => little(variances),
                    }
                },
                &format!("output {output} of batch norm {sizes:?}"),
            );
        }
    }
}

#[test]
fn batch_norm_of_many_chunks_far_from_zero() {
    let device = device();
    // Cut within samples, over samples, and not in fours.
    for sizes in [[2, 3, 40_000], [700, 3, 64], [900, 2, 7], [3, 2, 9_001]] {
        let [samples, channels, places] = sizes;
        let x: Vec<f32> = noise(samples * channels * places, 1).iter().map(|v| v + 4.0).collect();
        let g = noise(x.len(), 2);
        let (weight, bias) = (vec![1.5; channels], vec![0.5; channels]);
        let shape = [samples, channels, places];
        let out = device.floats(&[(&shape, &x), (&[channels], &weight), (&[channels], &bias), (&shape, &g)], |r, t| {
            let (y, mean, variance) = t[0].batch_norm_train(Some(&t[1]), Some(&t[2]), 1e-5)?;
            let mut all = vec![y.relu()?, mean, variance];
            all.extend(r.gradients(&y.mul(&t[3])?.sum_all()?, &[&t[0], &t[1], &t[2]])?);
            Ok(all)
        });
        let [y, means, variances] = batch_norm(&[wide(&x), wide(&weight), wide(&bias)], sizes, 1e-5);
        let positive: Vec<f64> = y.iter().map(|v| v.max(0.0)).collect();
        let (mut dx, mut dweight, mut dbias) = (vec![0.0; x.len()], vec![0.0; channels], vec![0.0; channels]);
        let count = (samples * places) as f64;
        let channel = |i: usize| i / places % channels;
        for i in 0..x.len() {
            dweight[channel(i)] += f64::from(g[i]) * (y[i] - 0.5) / 1.5;
            dbias[channel(i)] += f64::from(g[i]);
        }
        for i in 0..x.len() {
            let c = channel(i);
            let slope = f64::from(g[i]) - dbias[c] / count - (y[i] - 0.5) / 1.5 * dweight[c] / count;
            dx[i] = 1.5 / (variances[c] + 1e-5).sqrt() * slope;
        }
        let names = ["relu of y", "mean", "variance", "dx", "dweight", "dbias"];
        for ((name, found), expected) in names.iter().zip(&out).zip([positive, means, variances, dx, dweight, dbias]) {
            assert_close(found, &expected, 2e-5, &format!("{name} of {sizes:?}"));
        }
    }
}

#[test]
fn transposed_convolution_whose_patches_tile() {
    let device = device();
    let (batch, ins, outs, size, kernel) = (2, 3, 2, [2, 4], [2, 3]);
    let plain = |x: &[Vec<f64>]| {
        let [height, width] = [size[0] * kernel[0], size[1] * kernel[1]];
        let mut y = vec![0.0; batch * outs * height * width];
        for (at, value) in y.iter_mut().enumerate() {
            let (b, a) = (at % width, at / width % height);
            let (o, n) = (at / (width * height) % outs, at / (width * height * outs));
            *value = x[2][o];
            for c in 0..ins {
                let from = ((n * ins + c) * size[0] + a / kernel[0]) * size[1] + b / kernel[1];
                let by = ((c * outs + o) * kernel[0] + a % kernel[0]) * kernel[1] + b % kernel[1];
                *value += x[0][from] * x[1][by];
            }
        }
        y
    };
    check(
        &device,
        &[
            (&[batch, ins, size[0], size[1]], noise(batch * ins * size[0] * size[1], 1)),
            (&[ins, outs, kernel[0], kernel[1]], noise(ins * outs * kernel[0] * kernel[1], 2)),
            (&[outs], noise(outs, 3)),
        ],
        &|_, t| {
            let options = Conv2dOptions { stride: kernel, ..Conv2dOptions::default() };
            t[0].conv_transpose2d(&t[1], Some(&t[2]), options, [0, 0])
        },
        &plain,
        "a transposed convolution that tiles",
    );
    // Of a sequence, with windows that overlap: y[2 i + k - 1] += x[i] w[k].
    check(
        &device,
        &[(&[1, 1, 5], noise(5, 4)), (&[1, 1, 3], noise(3, 5))],
        &|_, t| t[0].conv_transpose1d(&t[1], None, Conv2dOptions::new(2, 1), 1),
        &|x| {
            let mut y = [0.0; 12];
            for (i, k) in (0..5).flat_map(|i| (0..3).map(move |k| (i, k))) {
                y[2 * i + k] += x[0][i] * x[1][k];
            }
            y[1..11].to_vec()
        },
        "a transposed convolution of a sequence",
    );
}

/// Windows of one axis: each output's first and end.
type Window = fn(usize) -> (usize, usize);

fn largest(
    x: &[f64],
    [height, width]: [usize; 2],
    [down, across]: [usize; 2],
    rows: Window,
    columns: Window,
) -> Vec<f64> {
    let images = x.len() / (height * width);
    let mut y = Vec::new();
    for (n, i, j) in (0..images).flat_map(|n| (0..down).flat_map(move |i| (0..across).map(move |j| (n, i, j)))) {
        let ((a, b), (c, d)) = (rows(i), columns(j));
        let values = (a..b).flat_map(|r| (c..d).map(move |s| x[(n * height + r) * width + s]));
        y.push(values.fold(f64::MIN, f64::max));
    }
    y
}

#[test]
fn pooling_values_gradients_and_second_derivatives() {
    let device = device();
    check(
        &device,
        &[(&[1, 2, 4, 6], apart(48))],
        &|_, t| t[0].max_pool2d([2, 3], [2, 3], [0, 0]),
        &|x| largest(&x[0], [4, 6], [2, 2], |i| (2 * i, 2 * i + 2), |j| (3 * j, 3 * j + 3)),
        "max pooling that tiles",
    );
    check(
        &device,
        &[(&[1, 2, 5, 7], apart(70))],
        &|_, t| t[0].adaptive_max_pool2d([3, 4]),
        &|x| {
            let columns: Window = |j| (j * 7 / 4, ((j + 1) * 7).div_ceil(4));
            largest(&x[0], [5, 7], [3, 4], |i| (i * 5 / 3, ((i + 1) * 5).div_ceil(3)), columns)
        },
        "adaptive max pooling with windows that overlap",
    );
    check(
        &device,
        &[(&[2, 1, 3], apart(6))],
        &|_, t| t[0].adaptive_max_pool1d(5),
        &|x| largest(&x[0], [1, 3], [1, 5], |_| (0, 1), |j| (j * 3 / 5, ((j + 1) * 3).div_ceil(5))),
        "adaptive max pooling to more places",
    );
    check(
        &device,
        &[(&[1, 2, 7], apart(14))],
        &|_, t| t[0].max_pool1d(3, 2, 1),
        &|x| largest(&x[0], [1, 7], [1, 4], |_| (0, 1), |j| ((2 * j).saturating_sub(1), (2 * j + 2).min(7))),
        "max pooling of sequences",
    );
    let means = |x: &[f64], pad: bool| -> Vec<f64> {
        let window = |j: usize| ((2 * j).saturating_sub(1), (2 * j + 2).min(7));
        let mean = |row: &[f64], (a, b): (usize, usize)| {
            row[a..b].iter().sum::<f64>() / if pad { 3.0 } else { (b - a) as f64 }
        };
        x.chunks(7).flat_map(|row| (0..4).map(move |j| mean(row, window(j)))).collect()
    };
    for pad in [true, false] {
        let recorded = move |_: &Recorder, t: &[Tensor]| t[0].avg_pool1d(3, 2, 1, pad);
        check(&device, &[(&[1, 2, 7], noise(14, 1))], &recorded, &|x| means(&x[0], pad), "mean pooling of sequences");
    }
    check(
        &device,
        &[(&[1, 1, 6], noise(6, 1))],
        &|_, t| t[0].adaptive_avg_pool1d(4),
        &|x| [(0, 2), (1, 3), (3, 5), (4, 6)].iter().map(|&(a, b)| (x[0][a] + x[0][b - 1]) / 2.0).collect(),
        "adaptive mean pooling of sequences",
    );
    // The first of equals is taken, and NaN is handed on.
    let x = [1.0, 3.0, 3.0, f32::NAN, 0.0, 2.0];
    let out = device.words(&[("x", bits(&x))], |g| {
        let (y, places) = g.input::<f32>("x", [1, 1, 1, 6])?.adaptive_max_pool2d_with_indices([1, 2])?;
        let (z, others) =
            g.input::<f32>("x", [1, 1, 1, 6])?.narrow(3, 0, 3)?.adaptive_max_pool2d_with_indices([1, 1])?;
        Ok(vec![y, places, z, others])
    });
    assert!(floats(&out[0])[0] == 3.0 && floats(&out[0])[1].is_nan() && out[1] == [1, 3]);
    assert!(floats(&out[2]) == [3.0] && out[3] == [1]);
}

#[test]
fn unfold_and_fold() {
    let device = device();
    let options = Conv2dOptions { stride: [2, 1], padding: [1, 0], dilation: [1, 2], groups: 1 };
    // [2, 2, 4, 5]: 3 x 3 windows of 2 x 2.
    let places = || {
        (0..2)
            .flat_map(|n| {
                (0..2).flat_map(move |c| (0..2_usize).flat_map(move |k| (0..2_usize).map(move |l| (n, c, k, l))))
            })
            .flat_map(|(n, c, k, l)| {
                (0..3_usize)
                    .flat_map(move |i| (0..3_usize).map(move |j| (n, c, (2 * i + k).wrapping_sub(1), j + 2 * l)))
            })
    };
    let at = |(n, c, a, b): (usize, usize, usize, usize)| (a < 4 && b < 5).then(|| ((n * 2 + c) * 4 + a) * 5 + b);
    check(
        &device,
        &[(&[2, 2, 4, 5], noise(80, 1))],
        &|_, t| t[0].unfold([2, 2], options),
        &|x| places().map(|p| at(p).map_or(0.0, |i| x[0][i])).collect(),
        "unfold",
    );
    check(
        &device,
        &[(&[2, 8, 9], noise(144, 2))],
        &|_, t| t[0].fold([4, 5], [2, 2], options),
        &|x| {
            let mut image = vec![0.0; 80];
            for (p, value) in places().zip(&x[0]) {
                if let Some(i) = at(p) {
                    image[i] += value;
                }
            }
            image
        },
        "fold",
    );
}

#[test]
fn scatter_writes_the_last_of_repeated_numbers() {
    let device = device();
    let ids = [[1_i32, 0, 3, 1], [9, 2, 2, -1]];
    let plain = |x: &[Vec<f64>]| {
        let mut y = x[0].clone();
        for (row, column) in (0..2).flat_map(|r| (0..4).map(move |c| (r, c))) {
            if let Some(to) = usize::try_from(ids[row][column]).ok().filter(|&v| v < 5) {
                y[row * 5 + to] = x[1][row * 4 + column];
            }
        }
        y
    };
    check(
        &device,
        &[(&[2, 5], noise(10, 1)), (&[2, 4], noise(8, 2))],
        &|g, t| t[0].scatter(1, &g.constant(&ids.concat(), [2, 4])?, &t[1]),
        &plain,
        "scatter along the last axis",
    );
    check(
        &device,
        &[(&[5, 2], noise(10, 3)), (&[4, 2], noise(8, 4))],
        &|g, t| {
            let ids = g.constant(&ids.concat(), [2, 4])?.t()?;
            t[0].scatter(0, &ids, &t[1])?.t()
        },
        &|x| {
            let turned = |v: &[f64], rows: usize| -> Vec<f64> {
                (0..2).flat_map(|c| (0..rows).map(move |r| v[r * 2 + c])).collect()
            };
            plain(&[turned(&x[0], 5), turned(&x[1], 4)])
        },
        "scatter along the first axis",
    );
}

#[test]
fn wrong_images_windows_and_numbers_are_typed_errors() {
    let g = Recorder::new();
    let x = g.input::<f32>("x", [1, 2, 4, 5]).unwrap();
    let plain = Conv2dOptions::default();
    assert!(matches!(x.unfold([5, 1], plain), Err(Error::Shape { op: "unfold", .. })));
    assert!(matches!(x.unfold([0, 1], plain), Err(Error::Shape { op: "unfold", .. })));
    assert!(matches!(
        x.unfold([1, 1], Conv2dOptions { groups: 2, ..plain }),
        Err(Error::Argument { op: "unfold", .. })
    ));
    let columns = g.input::<f32>("columns", [1, 8, 9]).unwrap();
    for (size, kernel) in [([4, 4], [3, 3]), ([4, 5], [2, 2]), ([3, 3], [0, 2])] {
        assert!(matches!(columns.fold(size, kernel, plain), Err(Error::Shape { op: "fold", .. })), "{size:?}");
    }
    assert!(matches!(x.adaptive_max_pool2d([0, 1]), Err(Error::Argument { op: "adaptive_max_pool2d", .. })));
    assert!(matches!(x.adaptive_max_pool2d([usize::MAX, 1]), Err(Error::Argument { op: "adaptive_max_pool2d", .. })));
    assert!(matches!(columns.adaptive_max_pool2d([1, 1]), Err(Error::Shape { op: "adaptive_max_pool2d", .. })));
    assert!(matches!(x.max_pool1d(2, 2, 0), Err(Error::Shape { op: "max_pool1d", .. })));
    assert!(columns.max_pool1d(10, 2, 0).is_err());
    let (ids, short) = (g.input::<i32>("ids", [1, 2, 4, 5]).unwrap(), g.input::<f32>("s", [1, 2, 4, 4]).unwrap());
    assert!(matches!(x.scatter(3, &ids, &short), Err(Error::Shape { op: "scatter", .. })));
    assert!(matches!(x.scatter(3, &x, &x), Err(Error::DType { op: "scatter", operand: 1, .. })));
    let none = g.zeros([0, 3, 2, 2]).unwrap();
    assert!(matches!(none.batch_norm_train(None, None, 1e-5), Err(Error::Shape { op: "batch_norm", .. })));
    // Nothing to compute is legal.
    assert_eq!(none.unfold([2, 2], plain).unwrap().dims(), [0, 12, 1]);
    assert_eq!(none.adaptive_max_pool2d([1, 2]).unwrap().dims(), [0, 3, 1, 2]);
    let nowhere = g.constant::<i32>(&[], [1, 2, 4, 0]).unwrap();
    assert_eq!(x.scatter(3, &nowhere, &g.zeros([1, 2, 4, 0]).unwrap()).unwrap().dims(), x.dims());
}
