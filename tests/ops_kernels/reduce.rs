//! sum, mean, max, min, var, argmax, argmin.

use super::harness::*;
use remat::error::{Error, Result};
use remat::graph::{Recorder, Tensor};

/// What the reduced elements become.
type Plain<'a> = &'a dyn Fn(&[f64]) -> f64;
/// The same, recorded.
type Reducer = fn(&Tensor) -> Result<Tensor>;

/// A reduction of `[O, R, I]` by a plain function of the reduced elements.
fn reduced(x: &[f64], dims: [usize; 3], f: impl Fn(&[f64]) -> f64) -> Vec<f64> {
    let [o, r, i] = dims;
    let mut out = Vec::new();
    for a in 0..o {
        for c in 0..i {
            let column: Vec<f64> = (0..r).map(|b| x[(a * r + b) * i + c]).collect();
            out.push(f(&column));
        }
    }
    out
}

fn sum(v: &[f64]) -> f64 {
    v.iter().sum()
}
fn mean(v: &[f64]) -> f64 {
    sum(v) / v.len() as f64
}
fn max(v: &[f64]) -> f64 {
    v.iter().copied().fold(f64::NEG_INFINITY, f64::max)
}
fn min(v: &[f64]) -> f64 {
    v.iter().copied().fold(f64::INFINITY, f64::min)
}

#[test]
fn values_at_odd_and_even_sizes() {
    let device = device();
    for dims in [
        [1, 1, 1],
        [3, 5, 1],
        [17, 63, 1],
        [5, 64, 1],
        [1, 65, 17],
        [3, 17, 8],
        [2, 700, 5],
        [1, 3000, 12],
        [1, 5000, 1],
        [2, 70_000, 1],
        [65, 4, 4],
        [2, 39, 2064],
    ] {
        let x = noise(dims.iter().product(), 7);
        let out = device.floats(&[(&dims, &x)], |g, t| {
            // In the middle of a graph: the input is made, and the outputs are read.
            let x = t[0].add(&g.full(dims, 0.25)?)?;
            let half = g.full([dims[0], dims[2]], 0.5)?;
            Ok(vec![
                x.sum(&[1], false)?.add(&half)?,
                x.mean(&[1], false)?.add(&half)?,
                x.max(&[1], false)?.add(&half)?,
                x.min(&[-2], false)?.add(&half)?,
            ])
        });
        let shifted: Vec<f64> = x.iter().map(|&v| f64::from(v + 0.25)).collect();
        for (found, f) in out.iter().zip([sum, mean, max, min]) {
            let expected: Vec<f64> = reduced(&shifted, dims, f).iter().map(|v| v + 0.5).collect();
            assert_close(found, &expected, 2e-6, &format!("{dims:?}"));
        }
    }
}

#[test]
fn any_axes_kept_or_dropped() {
    let device = device();
    let dims = [3, 5, 1, 4, 7];
    let x = noise(420, 3);
    let cases: [(&[isize], bool, &[usize]); 7] = [
        (&[], false, &[]),
        (&[], true, &[1, 1, 1, 1, 1]),
        (&[0, 3], false, &[5, 1, 7]),
        (&[-1, 1], true, &[3, 1, 1, 4, 1]),
        (&[2], false, &[3, 5, 4, 7]),
        (&[4, 0, 2], false, &[5, 4]),
        (&[1, 2, 3], false, &[3, 7]),
    ];
    for (axes, keep, shape) in cases {
        let out = device.floats(&[(&dims, &x)], |_, t| {
            let (sum, largest) = (t[0].sum(axes, keep)?, t[0].max(axes, keep)?);
            assert_eq!(sum.dims(), shape);
            assert_eq!(largest.dims(), shape);
            Ok(vec![sum, largest, t[0].mean(axes, keep)?])
        });
        let mask: Vec<bool> =
            (0..5_isize).map(|a| axes.is_empty() || axes.contains(&a) || axes.contains(&(a - 5))).collect();
        let mut groups = std::collections::BTreeMap::<Vec<usize>, Vec<f64>>::new();
        for (flat, &v) in x.iter().enumerate() {
            let mut rest = flat;
            let mut at = vec![0; 5];
            for axis in (0..5).rev() {
                at[axis] = if mask[axis] { 0 } else { rest % dims[axis] };
                rest /= dims[axis];
            }
            groups.entry(at).or_default().push(f64::from(v));
        }
        for (found, f) in out.iter().zip([sum, max, mean]) {
            let expected: Vec<f64> = groups.values().map(|v| f(v)).collect();
            assert_close(found, &expected, 2e-6, &format!("{axes:?}"));
        }
    }
}

#[test]
fn long_sums_are_accurate() {
    let device = device();
    let count = (1 << 24) + 1;
    let out = device.floats(&[], |g, _| Ok(vec![g.full([count], 0.1)?.sum_all()?, g.full([count], 1.0)?.mean_all()?]));
    assert_close(&out[0], &[f64::from(0.1_f32) * count as f64], 1e-6, "2^24 + 1 elements");
    assert_close(&out[1], &[1.0], 1e-6, "mean of 2^24 + 1 elements");
    let x: Vec<f32> = noise(70_000, 1).iter().map(|v| v + 1.0).collect();
    let out = device.floats(&[(&[70_000], &x)], |_, t| Ok(vec![t[0].sum_all()?]));
    assert_close(&out[0], &[sum(&wide(&x))], 1e-6, "70,000 elements");
    let out = device.floats(&[(&[70_000, 1], &x)], |_, t| Ok(vec![t[0].broadcast_to([70_000, 3])?.sum(&[0], false)?]));
    assert_close(&out[0], &[sum(&wide(&x)); 3], 1e-6, "70,000 rows");
}

#[test]
fn integers_and_nan() {
    let device = device();
    let x: Vec<i32> = (0..21).map(|i| (i * 37 % 19) - 9).collect();
    let words: Vec<u32> = x.iter().map(|&v| v as u32).collect();
    let out = device.words(&[("x", words.clone())], |g| {
        let x = g.input::<i32>("x", [3, 7])?;
        Ok(vec![x.sum(&[1], false)?, x.max(&[1], false)?, x.min(&[0], false)?, x.argmax(1, false)?])
    });
    let rows: Vec<&[i32]> = x.chunks(7).collect();
    let ints = |w: &[u32]| w.iter().map(|&v| v as i32).collect::<Vec<_>>();
    assert_eq!(ints(&out[0]), rows.iter().map(|r| r.iter().sum::<i32>()).collect::<Vec<_>>());
    assert_eq!(ints(&out[1]), rows.iter().map(|r| *r.iter().max().unwrap()).collect::<Vec<_>>());
    assert_eq!(ints(&out[2]), (0..7).map(|c| rows.iter().map(|r| r[c]).min().unwrap()).collect::<Vec<_>>());
    let first_largest = |r: &&[i32]| r.iter().position(|v| v == r.iter().max().unwrap()).unwrap() as i32;
    assert_eq!(ints(&out[3]), rows.iter().map(first_largest).collect::<Vec<_>>());

    let out = device.words(&[("x", vec![u32::MAX, 5, u32::MAX - 1, 7])], |g| {
        let x = g.input::<u32>("x", [1, 4])?;
        Ok(vec![x.max(&[1], false)?, x.min(&[1], false)?, x.sum(&[], false)?])
    });
    assert_eq!(out, [[u32::MAX], [5], [9]]);

    let mut x = noise(3 * 8, 2);
    x[8 + 5] = f32::NAN;
    x[6] = f32::INFINITY;
    x[16] = f32::NEG_INFINITY;
    for transposed in [false, true] {
        let data: Vec<f32> = if transposed { (0..24).map(|i| x[(i % 3) * 8 + i / 3]).collect() } else { x.clone() };
        let (shape, axis): ([usize; 2], isize) = if transposed { ([8, 3], 0) } else { ([3, 8], 1) };
        let out = device.words(&[("x", bits(&data))], |g| {
            let x = g.input::<f32>("x", shape)?;
            Ok(vec![x.max(&[axis], false)?, x.min(&[axis], false)?, x.argmax(axis, false)?, x.argmin(axis, true)?])
        });
        let (largest, smallest) = (floats(&out[0]), floats(&out[1]));
        assert!(largest[0] == f32::INFINITY && largest[1].is_nan() && largest[2].is_finite());
        assert!(smallest[0].is_finite() && smallest[1].is_nan() && smallest[2] == f32::NEG_INFINITY);
        assert_eq!((out[2][0], out[2][1], out[3][1], out[3][2]), (6, 5, 5, 0));
    }
}

#[test]
fn arg_of_long_and_equal_elements() {
    let device = device();
    let count = 9_001;
    let mut x: Vec<f32> = noise(2 * count, 5);
    for at in [4_000, 8_999] {
        x[at] = 3.0;
        x[count + at] = -3.0;
    }
    let out = device.words(&[("x", bits(&x))], |g| {
        let x = g.input::<f32>("x", [2, count])?;
        Ok(vec![x.argmax(-1, false)?, x.argmin(-1, false)?])
    });
    assert_eq!((out[0][0], out[1][1]), (4_000, 4_000));
}

#[test]
fn gradients_of_sum_mean_max_min_var() {
    let device = device();
    let (dims, axes): ([usize; 3], &[isize]) = ([4, 9, 5], &[1]);
    let x = noise(180, 11);
    let gout = noise(20, 12);
    let out = device.floats(&[(&dims, &x), (&[4, 5], &gout)], |g, t| {
        let x = t[0].add(&g.full(dims, 0.125)?)?;
        let mut all = Vec::new();
        for y in [
            x.sum(axes, false)?,
            x.mean(axes, false)?,
            x.max(axes, false)?,
            x.min(axes, false)?,
            x.var(axes, false, true)?,
            x.var(axes, false, false)?,
        ] {
            let loss = y.mul(&t[1])?.sum_all()?;
            all.push(g.gradients(&loss, &[&t[0]])?.swap_remove(0));
        }
        Ok(all)
    });
    let var = |v: &[f64], n: f64| v.iter().map(|a| (a - mean(v)).powi(2)).sum::<f64>() / n;
    let (x, gout) = (wide(&x), wide(&gout));
    let functions: [Plain<'_>; 6] = [&sum, &mean, &max, &min, &|v| var(v, 8.0), &|v| var(v, 9.0)];
    for (found, f) in out.iter().zip(functions) {
        let expected = differences(&x, |x| dot(&reduced(x, dims, f), &gout));
        assert_close(found, &expected, 2e-5, "gradient");
    }
}

#[test]
fn ties_give_the_gradient_to_the_first() {
    let device = device();
    let out = device.floats(&[(&[2, 3], &[1.0, 1.0, 0.0, 2.0, 5.0, 5.0])], |g, t| {
        let loss = t[0].max(&[1], false)?.sum_all()?;
        g.gradients(&loss, &[&t[0]])
    });
    assert_eq!(out[0], [1.0, 0.0, 0.0, 0.0, 1.0, 0.0]);
}

#[test]
fn sum_mean_and_max_twice() {
    let device = device();
    let dims = [3, 6];
    let x = noise(18, 21);
    let v = noise(18, 22);
    // loss = sum over rows of s^3 with s = sum, mean or max of x * x; its gradient's
    // product with v is differentiated again.
    let reducers: [(Reducer, Plain<'_>); 3] =
        [(|x| x.sum(&[1], false), &sum), (|x| x.mean(&[1], false), &mean), (|x| x.max(&[1], false), &max)];
    for (reduce, plain) in reducers {
        let out = device.floats(&[(&dims, &x), (&dims, &v)], |g, t| {
            let s = reduce(&t[0].mul(&t[0])?)?;
            let loss = s.mul(&s)?.mul(&s)?.sum_all()?;
            let first = g.gradients(&loss, &[&t[0]])?.swap_remove(0);
            let along = first.mul(&t[1])?.sum_all()?;
            Ok(vec![first.clone(), g.gradients(&along, &[&t[0]])?.swap_remove(0)])
        });
        let (x, v) = (wide(&x), wide(&v));
        let loss = |x: &[f64]| {
            let squares: Vec<f64> = x.iter().map(|a| a * a).collect();
            reduced(&squares, [3, 6, 1], plain).iter().map(|s| s.powi(3)).sum::<f64>()
        };
        assert_close(&out[0], &differences(&x, loss), 2e-5, "first");
        // Differences of an exact directional derivative, in turn by differences.
        let along = |x: &[f64]| {
            let step = 1e-4;
            let at = |k: f64| loss(&x.iter().zip(&v).map(|(x, v)| x + k * step * v).collect::<Vec<_>>());
            (at(1.0) - at(-1.0)) / (2.0 * step)
        };
        assert_close(&out[1], &differences(&x, along), 2e-4, "second");
    }
}

#[test]
fn nothing_to_reduce() {
    let device = device();
    let out = device.floats(&[], |g, _| {
        let empty = g.full([0, 3], 1.0)?;
        let none = g.full([2, 0], 1.0)?;
        assert_eq!(empty.sum(&[1], false)?.dims(), [0]);
        assert_eq!(none.max(&[0], true)?.dims(), [1, 0]);
        Ok(vec![empty.sum(&[0], false)?, empty.mean(&[0], true)?, none.sum_all()?, empty.max(&[1], false)?])
    });
    assert_eq!(out[0], [0.0; 3]);
    assert!(out[1].iter().all(|v| v.is_nan()) && out[1].len() == 3);
    assert_eq!(out[2], [0.0]);
    assert!(out[3].is_empty());
    let g = Recorder::new();
    let none = g.full([2, 0], 1.0).unwrap();
    assert!(matches!(none.max(&[1], false), Err(Error::Argument { op: "max", .. })));
    assert!(matches!(none.argmin(1, false), Err(Error::Argument { op: "argmin", .. })));
    assert!(matches!(none.sum(&[0, -2], false), Err(Error::Argument { op: "sum", .. })));
    assert!(matches!(none.sum(&[2], false), Err(Error::Argument { op: "sum", .. })));
    let truth = g.full_bool([2, 3], true).unwrap();
    assert!(matches!(truth.sum(&[0], false), Err(Error::DType { op: "sum", .. })));
    assert!(matches!(g.full_i32([2], 1).unwrap().mean(&[0], false), Err(Error::DType { op: "mean", .. })));
}
