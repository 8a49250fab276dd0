//! gather, scatter_add, index_select, index_add, one_hot, nll_loss: every axis,
//! numbers that repeat, numbers outside, operands that do not fit.

use super::harness::*;
use remat::dtype::DType;
use remat::error::Error;
use remat::graph::Recorder;
use remat::ops::{NllOptions, Reduction};

const DIMS: [usize; 3] = [3, 5, 4];

/// Numbers of places for `extent`, of which some repeat and some lie outside.
fn numbers(count: usize, extent: i32, seed: u32, outside: bool) -> Vec<i32> {
    let low = if outside { -2 } else { 0 };
    let range = if outside { extent + 4 } else { extent };
    noise(count, seed).iter().map(|v| low + (((v + 1.0) / 2.0 * range as f32) as i32).min(range - 1)).collect()
}

/// For each element of a tensor of `dims`: where `ids` of the same shape sends it in a
/// tensor with `extent` along `axis`, if anywhere.
fn targets(dims: [usize; 3], axis: usize, extent: usize, ids: &[i32]) -> Vec<Option<usize>> {
    let mut whole = dims;
    whole[axis] = extent;
    let at = |i: usize| {
        let mut place = [i / (dims[1] * dims[2]), i / dims[2] % dims[1], i % dims[2]];
        place[axis] = usize::try_from(ids[i]).ok().filter(|&id| id < extent)?;
        Some((place[0] * whole[1] + place[1]) * whole[2] + place[2])
    };
    (0..dims.iter().product()).map(at).collect()
}

#[test]
fn gather_and_scatter_add_on_every_axis_with_repeats_and_places_outside() {
    let device = device();
    for axis in 0..3 {
        for (taken, outside) in [(7, false), (2, false), (6, true)] {
            let mut dims = DIMS;
            dims[axis] = taken;
            let count: usize = dims.iter().product();
            let ids = numbers(count, DIMS[axis] as i32, 3, outside);
            let places = targets(dims, axis, DIMS[axis], &ids);
            if outside {
                assert!(places.iter().any(Option::is_none), "some lie outside");
            } else if taken > DIMS[axis] {
                let mut seen = places.clone();
                seen.sort_unstable();
                assert!(seen.windows(2).any(|w| w[0] == w[1]), "some repeat");
            }
            let (x, s, g) = (noise(60, 1), noise(count, 2), noise(60, 4));
            let words: Vec<u32> = ids.iter().map(|&i| i.cast_unsigned()).collect();
            let out = device.words(&[("x", bits(&x)), ("s", bits(&s)), ("g", bits(&g)), ("ids", words)], |r| {
                let (x, s) = (r.input::<f32>("x", DIMS)?, r.input::<f32>("s", dims)?);
                let ids = r.input::<i32>("ids", dims)?;
                let g = r.input::<f32>("g", DIMS)?;
                // In the middle of a graph.
                let (x2, s2) = (x.mul_scalar(2.0_f32)?, s.mul_scalar(2.0_f32)?);
                let picked = x2.gather(axis as isize, &ids)?;
                let sum = x2.scatter_add(axis as isize - 3, &ids, &s2)?;
                // What is NaN would hide every other gradient.
                let known = picked.isfinite()?.where_(&picked, &r.zeros(dims)?)?;
                let loss = known.mul(&s)?.sum_all()?;
                let mut all = vec![picked, sum.clone(), x.to_i32()?.gather(axis as isize, &ids)?];
                all.extend(r.gradients(&loss, &[&x])?);
                all.extend(r.gradients(&sum.mul(&g)?.sum_all()?, &[&x, &s])?);
                Ok(all)
            });
            let what = format!("axis {axis}, {taken} taken, outside {outside}");
            let picked: Vec<f64> = places.iter().map(|p| p.map_or(f64::NAN, |p| 2.0 * f64::from(x[p]))).collect();
            assert_close(&floats(&out[0]), &picked, 1e-6, &what);
            let mut sum: Vec<f64> = x.iter().map(|&v| 2.0 * f64::from(v)).collect();
            let mut dx = vec![0.0; 60];
            for (p, &s) in places.iter().zip(&s) {
                if let Some(p) = *p {
                    sum[p] += 2.0 * f64::from(s);
                    dx[p] += 2.0 * f64::from(s);
                }
            }
            assert_close(&floats(&out[1]), &sum, 1e-6, &what);
            // Whole numbers are picked too; outside there is 0.
            let whole: Vec<u32> = places.iter().map(|p| p.map_or(0, |p| (x[p] as i32).cast_unsigned())).collect();
            assert_eq!(out[2], whole, "{what}");
            assert_close(&floats(&out[3]), &dx, 1e-6, &what);
            assert_close(&floats(&out[4]), &g.iter().map(|&g| 2.0 * f64::from(g)).collect::<Vec<_>>(), 1e-6, &what);
            if !outside {
                let ds: Vec<f64> = places.iter().map(|p| p.map_or(0.0, |p| 2.0 * f64::from(g[p]))).collect();
                assert_close(&floats(&out[5]), &ds, 1e-6, &what);
            }
        }
    }
}

#[test]
fn index_select_index_add_and_one_hot() {
    let device = device();
    for axis in 0..3 {
        let extent = DIMS[axis];
        let ids = [1_i32, 0, 2, 1, 1, -1, extent as i32];
        for named in [&ids[..5], &ids] {
            let mut dims = DIMS;
            dims[axis] = named.len();
            let count: usize = dims.iter().product();
            let inner: usize = DIMS[axis + 1..].iter().product();
            let spread: Vec<i32> = (0..count).map(|i| named[i / inner % named.len()]).collect();
            let places = targets(dims, axis, extent, &spread);
            let (x, s) = (noise(60, 1), noise(count, 2));
            let words: Vec<u32> = named.iter().map(|&i| i.cast_unsigned()).collect();
            let out = device.words(&[("x", bits(&x)), ("s", bits(&s)), ("ids", words)], |r| {
                let (x, s) = (r.input::<f32>("x", DIMS)?, r.input::<f32>("s", dims)?);
                let ids = r.input::<i32>("ids", [named.len()])?;
                let x2 = x.mul_scalar(2.0_f32)?;
                let picked = x2.index_select(axis as isize, &ids)?;
                let known = picked.isfinite()?.where_(&picked, &r.zeros(dims)?)?;
                let loss = known.mul(&s)?.sum_all()?;
                let gradient = r.gradients(&loss, &[&x])?.swap_remove(0);
                let hot = ids.one_hot(extent)?;
                Ok(vec![picked, x2.index_add(axis as isize, &ids, &s)?, gradient, hot])
            });
            let what = format!("axis {axis}, {} numbers", named.len());
            let picked: Vec<f64> = places.iter().map(|p| p.map_or(f64::NAN, |p| 2.0 * f64::from(x[p]))).collect();
            assert_close(&floats(&out[0]), &picked, 1e-6, &what);
            let mut sum: Vec<f64> = x.iter().map(|&v| 2.0 * f64::from(v)).collect();
            let mut dx = vec![0.0; 60];
            for (p, &s) in places.iter().zip(&s) {
                if let Some(p) = *p {
                    sum[p] += f64::from(s);
                    dx[p] += 2.0 * f64::from(s);
                }
            }
            assert_close(&floats(&out[1]), &sum, 1e-6, &what);
            assert_close(&floats(&out[2]), &dx, 1e-6, &what);
            let hot: Vec<u32> =
                named.iter().flat_map(|&id| (0..extent as i32).map(move |c| u32::from(c == id))).collect();
            assert_eq!(out[3], hot, "{what}");
        }
    }
}

#[test]
fn wrong_operands_name_the_op_and_what_would_fit() {
    let g = Recorder::new();
    let x = g.zeros([3, 5]).unwrap();
    let ids = |dims: &[usize]| g.full_i32(dims.to_vec(), 0).unwrap();
    let shape = |error: Error, op: &str| {
        assert!(matches!(&error, Error::Shape { op: found, .. } if *found == op), "{error}");
    };
    let dtype = |error: Error, op: &str, operand: usize| {
        assert!(
            matches!(&error, Error::DType { op: o, operand: n, .. } if *o == op && *n == operand),
            "{op} {operand}: {error}"
        );
    };
    shape(x.gather(1, &ids(&[2, 5])).unwrap_err(), "gather");
    shape(x.gather(1, &ids(&[3])).unwrap_err(), "gather");
    dtype(x.gather(1, &g.zeros([3, 1]).unwrap()).unwrap_err(), "gather", 1);
    assert!(matches!(x.gather(2, &ids(&[3, 5])), Err(Error::Argument { op: "gather", argument: "axis", .. })));
    shape(g.zeros([3, 0]).unwrap().gather(1, &ids(&[3, 2])).unwrap_err(), "gather");
    assert_eq!(g.zeros([3, 0]).unwrap().gather(1, &ids(&[3, 0])).unwrap().dims(), [3, 0]);
    shape(x.scatter_add(0, &ids(&[2, 5]), &g.zeros([3, 5]).unwrap()).unwrap_err(), "scatter_add");
    shape(x.scatter_add(0, &ids(&[2, 4]), &g.zeros([2, 4]).unwrap()).unwrap_err(), "scatter_add");
    dtype(x.scatter_add(0, &ids(&[3, 5]), &g.full_i32([3, 5], 1).unwrap()).unwrap_err(), "scatter_add", 2);
    dtype(ids(&[3, 5]).scatter_add(0, &ids(&[3, 5]), &x).unwrap_err(), "scatter_add", 0);
    shape(x.index_select(0, &ids(&[2, 1])).unwrap_err(), "index_select");
    dtype(x.index_select(0, &g.zeros([2]).unwrap()).unwrap_err(), "index_select", 1);
    shape(g.zeros([0, 5]).unwrap().index_select(0, &ids(&[2])).unwrap_err(), "index_select");
    shape(x.index_add(0, &ids(&[2]), &g.zeros([3, 5]).unwrap()).unwrap_err(), "index_add");
    shape(x.index_add(0, &ids(&[2, 1]), &g.zeros([2, 5]).unwrap()).unwrap_err(), "index_add");
    dtype(x.index_add(0, &ids(&[2]), &g.full_i32([2, 5], 1).unwrap()).unwrap_err(), "index_add", 2);
    dtype(x.one_hot(4).unwrap_err(), "one_hot", 0);
    shape(x.nll_loss(&ids(&[2]), Reduction::Sum).unwrap_err(), "nll_loss");
    dtype(x.nll_loss(&g.zeros([3]).unwrap(), Reduction::Sum).unwrap_err(), "nll_loss", 1);
    let weights = NllOptions { weights: Some(&g.ones([4]).unwrap()), ..NllOptions::default() };
    shape(x.nll_loss_with(&ids(&[3]), weights).unwrap_err(), "nll_loss");
    assert_eq!(ids(&[3, 5]).gather(1, &ids(&[3, 2])).unwrap().dtype(), DType::I32);
}

#[test]
fn nll_loss_weighs_classes_and_ignores_rows_and_kl_div_divides_by_the_batch() {
    let device = device();
    let (rows, classes) = (6, 4);
    let targets = [2_i32, -100, 0, 3, -100, 2];
    let (x, w) = (noise(rows * classes, 1), [0.5_f32, 2.0, 1.5, 0.25]);
    for weighted in [false, true] {
        for ignore in [false, true] {
            for reduction in [Reduction::Mean, Reduction::Sum, Reduction::BatchMean, Reduction::None] {
                let plain = |x: &[f64]| -> Vec<f64> {
                    let (mut all, mut total) = (Vec::new(), 0.0);
                    for (row, &t) in x.chunks(classes).zip(&targets) {
                        let class = if ignore { t } else { t.max(1) };
                        let lse = row.iter().map(|v| v.exp()).sum::<f64>().ln();
                        let Ok(class) = usize::try_from(class) else {
                            all.push(0.0);
                            continue;
                        };
                        let weight = if weighted { f64::from(w[class]) } else { 1.0 };
                        total += weight;
                        all.push(weight * (lse - row[class]));
                    }
                    let sum: f64 = all.iter().sum();
                    match reduction {
                        Reduction::Mean => vec![sum / total],
                        Reduction::Sum => vec![sum],
                        Reduction::BatchMean => vec![sum / rows as f64],
                        Reduction::None => all,
                    }
                };
                let seeds = noise(rows, 7);
                let ids: Vec<i32> = targets.iter().map(|&t| if ignore { t } else { t.max(1) }).collect();
                let out = device.floats(&[(&[rows, classes], &x), (&[classes], &w)], |r, t| {
                    let options = NllOptions {
                        weights: weighted.then_some(&t[1]),
                        ignore_index: ignore.then_some(-100),
                        reduction,
                    };
                    let loss = t[0].log_softmax(1)?.nll_loss_with(&r.constant(&ids, [rows])?, options)?;
                    let count = loss.element_count() as usize;
                    let sum = loss.reshape([count])?.mul(&r.constant(&seeds[..count], [count])?)?.sum_all()?;
                    let gradient = r.gradients(&sum, &[&t[0]])?.swap_remove(0);
                    Ok(vec![loss, gradient])
                });
                let what = format!("weighted {weighted}, ignoring {ignore}, {reduction:?}");
                assert_close(&out[0], &plain(&wide(&x)), 1e-5, &what);
                let slopes = differences(&wide(&x), |x| dot(&plain(x), &wide(&seeds)[..out[0].len()]));
                assert_close(&out[1], &slopes, 1e-4, &what);
            }
        }
    }
    // An ignored row whose logarithms are infinite has no loss; a class that is none is seen.
    let out = device.floats(&[], |r, _| {
        let logs = r.full([2, 3], f32::NEG_INFINITY)?;
        let ignored = NllOptions { ignore_index: Some(-1), reduction: Reduction::None, ..NllOptions::default() };
        let half = r.full([2, 3], 0.5)?;
        Ok(vec![
            logs.nll_loss_with(&r.full_i32([2], -1)?, ignored)?,
            half.nll_loss(&r.constant(&[3_i32, -1], [2])?, Reduction::None)?,
        ])
    });
    assert_eq!(out[0], [0.0, 0.0]);
    assert!(out[1].iter().all(|v| v.is_nan()), "{:?}", out[1]);

    let p: Vec<f32> = noise(12, 5).iter().map(|v| v.abs() + 0.1).collect();
    let out = device.floats(&[(&[3, 4], &noise(12, 6)), (&[3, 4], &p)], |_, t| {
        Ok(vec![t[0].kl_div(&t[1], false, Reduction::BatchMean)?, t[0].kl_div(&t[1], true, Reduction::BatchMean)?])
    });
    let pairs: Vec<(f64, f64)> = wide(&noise(12, 6)).into_iter().zip(wide(&p)).collect();
    let plain: f64 = pairs.iter().map(|(x, y)| y * (y.ln() - x)).sum();
    let logs: f64 = pairs.iter().map(|(x, y)| y.exp() * (y - x)).sum();
    assert_close(&out[0], &[plain / 3.0], 1e-5, "kl_div");
    assert_close(&out[1], &[logs / 3.0], 1e-5, "kl_div of logarithms");
}
