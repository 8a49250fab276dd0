//! Values of ops that PyTorch's reference cases leave out: what is composed of other
//! ops, and what chooses or compares; and the temporaries that are not made.

use super::harness::*;
use remat::error::Result;
use remat::fuse::program::StorageKind;
use remat::graph::{Recorder, Tensor};
use remat::ops::{Conv2dOptions, CrossEntropyOptions, Reduction};
use remat::profile::DeviceProfile;
use remat::step::RecordedStep;

#[test]
fn comparisons_and_logic() {
    let device = device();
    let nan = f32::NAN;
    let a = [1.0_f32, 2.0, -0.0, nan, 3.0, f32::INFINITY, nan, -1.0];
    let b = [1.0_f32, 3.0, 0.0, 1.0, 2.0, f32::INFINITY, nan, f32::NEG_INFINITY];
    let (i, j) = ([3_i32, -3, i32::MIN, 7, 0, -1, 5, 2], [3_i32, 2, i32::MAX, 6, 0, 1, -5, 2]);
    let words = |v: &[i32]| v.iter().map(|v| v.cast_unsigned()).collect::<Vec<u32>>();
    let given = [("a", bits(&a)), ("b", bits(&b)), ("i", words(&i)), ("j", words(&j)), ("u", words(&i))];
    let out = device.words(&given, |g| {
        let (a, b) = (g.input::<f32>("a", [8])?, g.input::<f32>("b", [8])?);
        let (i, j) = (g.input::<i32>("i", [8])?, g.input::<i32>("j", [8])?);
        let u = g.input::<u32>("u", [8])?;
        let mut all = Vec::new();
        for (x, y) in [(&a, &b), (&i, &j)] {
            all.extend([x.eq(y)?, x.ne(y)?, x.lt(y)?, x.le(y)?, x.gt(y)?, x.ge(y)?]);
        }
        all.extend([a.eq_scalar(1.0)?, a.ne_scalar(1.0)?, a.lt_scalar(1.0)?]);
        all.extend([a.le_scalar(1.0)?, a.gt_scalar(1.0)?, a.ge_scalar(1.0)?]);
        all.extend([i.ge_scalar(2)?, i.le_scalar(-1)?, i.ne_scalar(3)?]);
        // 2^31 and more are not negative.
        all.extend([u.gt_scalar(1_u32 << 31)?, u.lt_scalar(1_u32 << 31)?]);
        let (p, q) = (a.gt_scalar(0.0)?, b.gt_scalar(1.5)?);
        all.extend([p.logical_and(&q)?, p.logical_or(&q)?, p.logical_xor(&q)?, p.logical_not()?]);
        all.iter().map(Tensor::to_u32).collect()
    });
    let mut expected: Vec<Vec<bool>> = Vec::new();
    let pairs = || a.iter().zip(&b);
    expected.push(pairs().map(|(x, y)| x == y).collect());
    expected.push(pairs().map(|(x, y)| x != y).collect());
    expected.push(pairs().map(|(x, y)| x < y).collect());
    expected.push(pairs().map(|(x, y)| x <= y).collect());
    expected.push(pairs().map(|(x, y)| x > y).collect());
    expected.push(pairs().map(|(x, y)| x >= y).collect());
    let pairs = || i.iter().zip(&j);
    expected.push(pairs().map(|(x, y)| x == y).collect());
    expected.push(pairs().map(|(x, y)| x != y).collect());
    expected.push(pairs().map(|(x, y)| x < y).collect());
    expected.push(pairs().map(|(x, y)| x <= y).collect());
    expected.push(pairs().map(|(x, y)| x > y).collect());
    expected.push(pairs().map(|(x, y)| x >= y).collect());
    let one: [fn(f32) -> bool; 6] = [|x| x == 1.0, |x| x != 1.0, |x| x < 1.0, |x| x <= 1.0, |x| x > 1.0, |x| x >= 1.0];
    expected.extend(one.map(|f| a.iter().map(|&x| f(x)).collect()));
    let whole: [fn(i32) -> bool; 3] = [|x| x >= 2, |x| x <= -1, |x| x != 3];
    expected.extend(whole.map(|f| i.iter().map(|&x| f(x)).collect()));
    expected.push(i.iter().map(|x| x.cast_unsigned() > 1 << 31).collect());
    expected.push(i.iter().map(|x| x.cast_unsigned() < 1 << 31).collect());
    let truths = || a.iter().zip(&b).map(|(x, y)| (*x > 0.0, *y > 1.5));
    expected.push(truths().map(|(p, q)| p && q).collect());
    expected.push(truths().map(|(p, q)| p || q).collect());
    expected.push(truths().map(|(p, q)| p != q).collect());
    expected.push(truths().map(|(p, _)| !p).collect());
    assert_eq!(out.len(), expected.len());
    for (at, (found, expected)) in out.iter().zip(&expected).enumerate() {
        let expected: Vec<u32> = expected.iter().map(|&t| u32::from(t)).collect();
        assert_eq!(found, &expected, "comparison {at}");
    }
}

#[test]
fn numbers_in_another_place() {
    let device = device();
    let x = noise(2 * 3 * 4, 1);
    let input: [(&[usize], Vec<f32>); 1] = [(&[2, 3, 4], x)];
    for (axis, shift) in [(0, 1), (1, 1), (1, -1), (2, 3), (2, -9), (-1, 6), (1, 3)] {
        check(
            &device,
            &input,
            &|_, t| t[0].roll(shift, axis),
            &|x| {
                let (outer, extent, inner) = [(1, 2, 12), (2, 3, 4), (6, 4, 1)][axis.rem_euclid(3) as usize];
                let mut y = vec![0.0; 24];
                for (o, r, i) in places(outer, extent, inner) {
                    let to = (r as isize + shift).rem_euclid(extent as isize) as usize;
                    y[(o * extent + to) * inner + i] = x[0][(o * extent + r) * inner + i];
                }
                y
            },
            &format!("roll of axis {axis} by {shift}"),
        );
    }
    for axis in 0..3 {
        check(
            &device,
            &input,
            &|_, t| t[0].repeat_interleave(3, axis as isize),
            &|x| {
                let (outer, extent, inner) = [(1, 2, 12), (2, 3, 4), (6, 4, 1)][axis];
                let all = places(outer, 3 * extent, inner);
                all.map(|(o, r, i)| x[0][(o * extent + r / 3) * inner + i]).collect()
            },
            &format!("repeat_interleave along {axis}"),
        );
    }
    check(
        &device,
        &input,
        // [2, 1, 3, 1, 4] laid out five times, then the middle of it alone.
        &|_, t| t[0].unsqueeze(1)?.unsqueeze(-2)?.expand([2, 5, 3, 1, 4])?.narrow(1, 2, 1)?.squeeze(1)?.squeeze(-2),
        &|x| x[0].clone(),
        "expand and squeeze",
    );
    check(
        &device,
        &input,
        &|_, t| t[0].sum_to(&remat::dtype::Shape(vec![3, 1])),
        &|x| {
            (0..3)
                .map(|r| (0..2).flat_map(|o| (0..4).map(move |i| (o * 3 + r) * 4 + i)).map(|i| x[0][i]).sum())
                .collect()
        },
        "sum_to",
    );
    // Channel c r r + a r + b of place (i, j) is place (i r + a, j r + b) of channel c.
    let (factor, [n, c, h, w]) = (2, [2, 3, 2, 3]);
    let shuffled = |x: &[f64], back: bool| {
        let mut y = vec![0.0; x.len()];
        for at in 0..x.len() {
            let (j, i, k) = (at % w, at / w % h, at / (w * h) % (c * factor * factor));
            let (image, a, b) = (at / (w * h * c * factor * factor), k / factor % factor, k % factor);
            let wide =
                ((image * c + k / (factor * factor)) * h * factor + i * factor + a) * w * factor + j * factor + b;
            if back { y[at] = x[wide] } else { y[wide] = x[at] }
        }
        y
    };
    let count = n * c * factor * factor * h * w;
    let deep: [(&[usize], Vec<f32>); 1] = [(&[n, c * factor * factor, h, w], noise(count, 2))];
    let wide: [(&[usize], Vec<f32>); 1] = [(&[n, c, h * factor, w * factor], noise(count, 3))];
    check(&device, &deep, &|_, t| t[0].pixel_shuffle(factor), &|x| shuffled(&x[0], false), "pixel_shuffle");
    check(&device, &wide, &|_, t| t[0].pixel_unshuffle(factor), &|x| shuffled(&x[0], true), "pixel_unshuffle");
}

/// Outer, middle and inner numbers in order.
fn places(outer: usize, extent: usize, inner: usize) -> impl Iterator<Item = (usize, usize, usize)> {
    (0..outer * extent * inner).map(move |at| (at / (extent * inner), at / inner % extent, at % inner))
}

#[test]
fn sums_of_products_and_scalars() {
    let device = device();
    let (a, b, w) = (noise(12, 1), noise(12, 2), noise(4, 3));
    let pair: [(&[usize], Vec<f32>); 3] = [(&[3, 4], a.clone()), (&[3, 4], b.clone()), (&[4], w)];
    let lerp = |x: &[Vec<f64>]| (0..12).map(|i| x[0][i] + x[2][i % 4] * (x[1][i] - x[0][i])).collect();
    check(&device, &pair, &|_, t| t[0].lerp(&t[1], &t[2]), &lerp, "lerp");
    let flat: [(&[usize], Vec<f32>); 2] = [(&[12], a.clone()), (&[12], b.clone())];
    check(&device, &flat, &|_, t| t[0].dot(&t[1]), &|x| vec![dot(&x[0], &x[1])], "dot");
    for batch in [1, 2] {
        let [shape_a, shape_b] = [vec![batch, 3, 4], vec![batch, 4, 2]];
        let inputs: [(&[usize], Vec<f32>); 3] =
            [(&[2], noise(2, 4)), (&shape_a, noise(12 * batch, 5)), (&shape_b, noise(8 * batch, 6))];
        check(
            &device,
            &inputs,
            &|_, t| t[0].addmm(&t[1], &t[2], 0.5, -2.0),
            &|x| {
                let product = |n: usize, r: usize, c: usize| -> f64 {
                    (0..4).map(|k| x[1][(n * 3 + r) * 4 + k] * x[2][(n * 4 + k) * 2 + c]).sum()
                };
                places(batch, 3, 2).map(|(n, r, c)| 0.5 * x[0][c] - 2.0 * product(n, r, c)).collect()
            },
            "addmm",
        );
    }
    check(
        &device,
        &[(&[12], a)],
        &|_, t| t[0].sub_scalar(0.75)?.div_scalar(-4.0)?.rsub_scalar(2.0)?.rdiv_scalar(3.0),
        &|x| x[0].iter().map(|x| 3.0 / (2.0 + (x - 0.75) / 4.0)).collect(),
        "scalars",
    );
    let whole = [7_i32, -7, 100, i32::MIN];
    let out = device.words(&[("i", whole.iter().map(|v| v.cast_unsigned()).collect())], |g| {
        let i = g.input::<i32>("i", [4])?;
        Ok(vec![i.sub_scalar(3)?, i.div_scalar(2)?, i.rsub_scalar(1)?])
    });
    let signed = |i: usize| out[i].iter().map(|w| w.cast_signed()).collect::<Vec<_>>();
    assert_eq!(signed(0), whole.map(|v| v.wrapping_sub(3)));
    assert_eq!(signed(1), whole.map(|v| v / 2), "division of integers truncates");
    assert_eq!(signed(2), whole.map(|v| 1_i32.wrapping_sub(v)));
    // What is detached is a constant of differentiation.
    let out = device.floats(&[(&[3], &[2.0, -3.0, 0.5])], |g, t| {
        let loss = t[0].mul(&t[0].detach()?)?.sum_all()?;
        Ok(vec![g.gradients(&loss, &[&t[0]])?.swap_remove(0), t[0].detach()?.neg()?])
    });
    assert_eq!((out[0].as_slice(), out[1].as_slice()), (&[2.0, -3.0, 0.5][..], &[-2.0, 3.0, -0.5][..]));
}

#[test]
fn losses_that_no_reference_case_has() {
    let device = device();
    let reduced = |each: Vec<f64>, reduction: Reduction| match reduction {
        Reduction::Mean => vec![each.iter().sum::<f64>() / each.len() as f64],
        Reduction::Sum => vec![each.iter().sum()],
        _ => each,
    };
    for reduction in [Reduction::None, Reduction::Sum, Reduction::Mean] {
        // On both sides of beta, none near it.
        let d = [0.2_f32, -0.3, 1.1, -1.4, 0.45, -0.1, 2.0, -0.9, 0.35, 1.2, -1.1, 0.15];
        let inputs: [(&[usize], Vec<f32>); 2] = [(&[3, 4], d.to_vec()), (&[3, 4], vec![0.05; 12])];
        check(
            &device,
            &inputs,
            &|_, t| t[0].smooth_l1_loss(&t[1], 0.7, reduction),
            &|x| {
                let each = x[0].iter().zip(&x[1]).map(|(x, y)| {
                    let d = (x - y).abs();
                    // 0.7 as f32 has it.
                    let beta = f64::from(0.7_f32);
                    if d < beta { d * d / 2.0 / beta } else { d - beta / 2.0 }
                });
                reduced(each.collect(), reduction)
            },
            "smooth_l1_loss",
        );
        let probabilities = |seed| noise(12, seed).iter().map(|v| 0.5 + 0.4 * v).collect::<Vec<f32>>();
        let inputs: [(&[usize], Vec<f32>); 2] = [(&[3, 4], probabilities(3)), (&[3, 4], probabilities(4))];
        check(
            &device,
            &inputs,
            &|_, t| t[0].bce_loss(&t[1], reduction),
            &|x| {
                let each = x[0].iter().zip(&x[1]).map(|(p, y)| -(y * p.ln() + (1.0 - y) * (1.0 - p).ln()));
                reduced(each.collect(), reduction)
            },
            "bce_loss",
        );
        let weight = vec![0.5_f32, 2.0, 1.0, 3.5];
        let inputs: [(&[usize], Vec<f32>); 3] = [(&[3, 4], noise(12, 5)), (&[3, 4], probabilities(6)), (&[4], weight)];
        check(
            &device,
            &inputs,
            &|_, t| t[0].bce_with_logits(&t[1], Some(&t[2]), reduction),
            &|x| {
                let each = (0..12).map(|i| {
                    let (p, y) = (1.0 / (1.0 + (-x[0][i]).exp()), x[1][i]);
                    -(x[2][i % 4] * y * p.ln() + (1.0 - y) * (1.0 - p).ln())
                });
                reduced(each.collect(), reduction)
            },
            "bce_with_logits with weights of the positive class",
        );
        let cosine = |x: &[Vec<f64>], row: usize| {
            let (a, b) = (&x[0][4 * row..][..4], &x[1][4 * row..][..4]);
            dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
        };
        let inputs: [(&[usize], Vec<f32>); 2] = [(&[3, 4], noise(12, 7)), (&[3, 4], noise(12, 8))];
        check(
            &device,
            &inputs,
            &|g, t| {
                let targets = g.constant(&[1.0_f32, -1.0, -1.0], [3])?;
                t[0].cosine_embedding_loss(&t[1], &targets, -0.9, reduction)
            },
            &|x| {
                let each = (0..3).map(|row| {
                    let cos = cosine(x, row);
                    if row == 0 { 1.0 - cos } else { (cos + f64::from(0.9_f32)).max(0.0) }
                });
                reduced(each.collect(), reduction)
            },
            "cosine_embedding_loss",
        );
        let along = |x: &[Vec<f64>]| (0..3).map(|row| cosine(x, row)).collect::<Vec<_>>();
        check(&device, &inputs, &|_, t| t[0].cosine_similarity(&t[1], -1, 1e-8), &along, "cosine_similarity");
    }
    // Lengths of 0 and probabilities of 0 and 1 have finite losses; what is beyond the margin has none.
    let out = device.floats(&[(&[2], &[0.0, 1.0])], |g, t| {
        let zero = g.zeros([1, 3])?;
        let apart = g.constant(&[1.0_f32, 0.0, 0.0], [1, 3])?;
        let loss = t[0].bce_loss(&g.constant(&[1.0_f32, 1.0], [2])?, Reduction::None)?;
        let far = apart.cosine_embedding_loss(&apart.neg()?, &g.full([1], -1.0)?, 0.5, Reduction::None)?;
        Ok(vec![loss, zero.cosine_similarity(&zero, -1, 1e-8)?, far])
    });
    assert_eq!(out, [vec![100.0, 0.0], vec![0.0], vec![0.0]]);
}

/// The place of the first of the largest, by plain loops.
fn largest_places(
    x: &[f32],
    [height, width]: [usize; 2],
    kernel: [usize; 2],
    stride: [usize; 2],
    padding: [usize; 2],
) -> Vec<u32> {
    let count = |axis: usize, extent: usize| (extent + 2 * padding[axis] - kernel[axis]) / stride[axis] + 1;
    let mut found = Vec::new();
    for image in x.chunks(height * width) {
        for (_, i, j) in places(1, count(0, height), count(1, width)) {
            let mut best: Option<usize> = None;
            for (_, a, b) in places(1, kernel[0], kernel[1]) {
                let row = (i * stride[0] + a).checked_sub(padding[0]).filter(|r| *r < height);
                let column = (j * stride[1] + b).checked_sub(padding[1]).filter(|c| *c < width);
                let Some((row, column)) = row.zip(column) else { continue };
                let at = row * width + column;
                if best.is_none_or(|best| image[at] > image[best]) {
                    best = Some(at);
                }
            }
            found.push(best.unwrap() as u32);
        }
    }
    found
}

#[test]
fn places_of_the_largest_in_windows() {
    let device = device();
    let x: Vec<f32> = (0..2 * 5 * 7).map(|i| ((i * 11 + 3) % 23) as f32).collect();
    for (kernel, stride, padding) in
        [([2, 2], [2, 2], [0, 0]), ([3, 2], [1, 2], [1, 1]), ([3, 3], [2, 1], [1, 0]), ([5, 7], [1, 1], [0, 0])]
    {
        let out = device.words(&[("x", bits(&x))], |g| {
            let (y, places) = g.input::<f32>("x", [1, 2, 5, 7])?.max_pool2d_with_indices(kernel, stride, padding)?;
            Ok(vec![y, places])
        });
        let expected = largest_places(&x, [5, 7], kernel, stride, padding);
        assert_eq!(out[1], expected, "{kernel:?} {stride:?} {padding:?}");
        let each = expected.len() / 2;
        let values: Vec<f32> = expected.iter().enumerate().map(|(n, &at)| x[n / each * 35 + at as usize]).collect();
        assert_eq!(floats(&out[0]), values);
    }
    let out = device.words(&[("x", bits(&x))], |g| {
        let (y, places) = g.input::<f32>("x", [1, 7, 10])?.max_pool1d_with_indices(3, 2, 1)?;
        Ok(vec![y, places])
    });
    assert_eq!(out[1], largest_places(&x, [1, 10], [1, 3], [1, 2], [0, 1]));
    assert_eq!(floats(&out[0]).len(), 7 * 5);
}

#[test]
fn convolutions_of_sequences_and_transposed_ones_dilated_and_in_groups() {
    let device = device();
    let (length, kernel, stride, padding, dilation, groups) = (9, 3, 2, 2, 2, 2);
    let out = (length + 2 * padding - dilation * (kernel - 1) - 1) / stride + 1;
    check(
        &device,
        &[(&[2, 4, 9], noise(72, 1)), (&[6, 2, 3], noise(36, 2)), (&[6], noise(6, 3))],
        &|_, t| t[0].conv1d(&t[1], Some(&t[2]), stride, padding, dilation, groups),
        &|x| {
            let mut y = Vec::new();
            for (n, o, i) in places(2, 6, out) {
                let mut sum = x[2][o];
                for (_, c, k) in places(1, 2, kernel) {
                    let at = (i * stride + k * dilation).checked_sub(padding).filter(|at| *at < length);
                    if let Some(at) = at {
                        sum += x[0][(n * 4 + o / 3 * 2 + c) * length + at] * x[1][(o * 2 + c) * kernel + k];
                    }
                }
                y.push(sum);
            }
            y
        },
        "a dilated convolution of sequences in groups",
    );
    // Transposed: each input adds its weights to the outputs that it reaches.
    let options = Conv2dOptions { stride: [2, 1], padding: [1, 0], dilation: [1, 2], groups: 2 };
    let (input, kernel, extra) = ([3, 4], [3, 2], [1, 0]);
    let extent = |a: usize| {
        (input[a] - 1) * options.stride[a] + options.dilation[a] * (kernel[a] - 1) + 1 + extra[a]
            - 2 * options.padding[a]
    };
    let [height, width] = [extent(0), extent(1)];
    check(
        &device,
        &[(&[2, 4, 3, 4], noise(96, 4)), (&[4, 3, 3, 2], noise(72, 5)), (&[6], noise(6, 6))],
        &|_, t| t[0].conv_transpose2d(&t[1], Some(&t[2]), options, extra),
        &|x| {
            let mut y: Vec<f64> = (0..2 * 6 * height * width).map(|at| x[2][at / (height * width) % 6]).collect();
            for (image, i, j) in places(8, input[0], input[1]) {
                let (n, c) = (image / 4, image % 4);
                for (o, a, b) in places(3, kernel[0], kernel[1]) {
                    let row = (i * options.stride[0] + a * options.dilation[0]).checked_sub(options.padding[0]);
                    let column = (j * options.stride[1] + b * options.dilation[1]).checked_sub(options.padding[1]);
                    let Some((row, column)) = row.zip(column).filter(|(r, s)| *r < height && *s < width) else {
                        continue;
                    };
                    let to = (n * 6 + c / 2 * 3 + o) * height * width + row * width + column;
                    y[to] += x[0][(image * input[0] + i) * input[1] + j]
                        * x[1][((c * 3 + o) * kernel[0] + a) * kernel[1] + b];
                }
            }
            y
        },
        "a transposed convolution, dilated, in groups",
    );
}

/// Bytes of what a recording makes, the largest first.
fn made(record: impl FnOnce(&Recorder) -> Result<Vec<Tensor>>) -> Vec<u64> {
    let step = RecordedStep::new(&DeviceProfile::default(), record).unwrap();
    let transient = step.program().storages.iter().filter(|s| s.kind == StorageKind::Transient);
    let mut bytes: Vec<u64> = transient.map(|s| s.bytes).collect();
    bytes.sort_unstable_by(|a, b| b.cmp(a));
    bytes
}

#[test]
fn gradients_of_convolutions_make_no_columns() {
    let (n, c, size) = (4, 16, 128);
    let image = 4 * (n * c * size * size) as u64;
    let options = |stride, padding, dilation, groups| Conv2dOptions {
        stride: [stride; 2],
        padding: [padding; 2],
        dilation: [dilation; 2],
        groups,
    };
    for options in
        [options(1, 1, 1, 1), options(2, 1, 1, 1), options(1, 2, 2, 1), options(1, 1, 1, 4), options(1, 1, 1, 16)]
    {
        for transposed in [false, true] {
            let all = made(|g| {
                let x = g.input::<f32>("x", [n, c, size, size])?;
                let (w, b) = (g.input::<f32>("w", [c, c / options.groups, 3, 3])?, g.input::<f32>("b", [c])?);
                let y = if transposed {
                    x.conv_transpose2d(&w, Some(&b), options, [0, 0])?
                } else {
                    x.conv2d(&w, Some(&b), options)?
                };
                g.gradients(&y.sqr()?.sum_all()?, &[&x, &w, &b])
            });
            // Columns would be nine images; a transposed convolution of stride 2 has an output of four.
            let most = if transposed && options.stride[0] == 2 { 4 } else { 1 };
            assert!(
                all[0] <= most * image,
                "{options:?}, transposed {transposed}: {} bytes, images of {image}",
                all[0]
            );
        }
    }
}

#[test]
fn cross_entropy_makes_nothing_of_the_logits_size_but_their_gradient() {
    let (rows, classes) = (64, 1000);
    let logits = 4 * (rows * classes) as u64;
    for smoothing in [0.0, 0.1] {
        for weighted in [false, true] {
            let record = |gradient: bool| {
                made(|g| {
                    let (x, ids) = (g.input::<f32>("x", [rows, classes])?, g.input::<i32>("ids", [rows])?);
                    let options = CrossEntropyOptions {
                        label_smoothing: smoothing,
                        ignore_index: Some(-100),
                        ..CrossEntropyOptions::default()
                    };
                    let loss = if weighted {
                        x.cross_entropy_weighted(&ids, &g.input::<f32>("w", [classes])?, options)?
                    } else {
                        x.cross_entropy_with(&ids, options)?
                    };
                    if gradient { g.gradients(&loss, &[&x]) } else { Ok(vec![loss]) }
                })
            };
            let large = |bytes: &[u64]| bytes.iter().filter(|&&bytes| bytes >= logits).count();
            let what = format!("smoothing {smoothing}, weighted {weighted}");
            assert_eq!(large(&record(false)), 0, "{what}: the loss alone");
            // With both, the smoothed part's gradient is a product of its own, which is added.
            let most = if smoothing > 0.0 && weighted { 3 } else { 1 };
            assert_eq!(large(&record(true)), most, "{what}: with its gradient");
        }
    }
}
