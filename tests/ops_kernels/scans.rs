//! cumsum, cumprod, prod, logsumexp, std, norm, any, all, einsum, addmm.

use super::harness::*;
use remat::error::{Error, Result};
use remat::graph::{Recorder, Tensor};

type Function = fn(&Tensor) -> Result<Tensor>;
type Plain = fn(&[f64]) -> Vec<f64>;

fn running(v: &[f64], f: impl Fn(f64, f64) -> f64) -> Vec<f64> {
    let mut before: Option<f64> = None;
    let mut next = |x: f64| {
        let y = before.map_or(x, |b| f(b, x));
        before = Some(y);
        y
    };
    v.iter().map(|&x| next(x)).collect()
}

/// `f` of each column of `[O, R, I]`, laid out again as `[O, K, I]`.
fn columns(x: &[f64], [o, r, i]: [usize; 3], f: Plain) -> Vec<f64> {
    let mut lines = Vec::new();
    for a in 0..o {
        for c in 0..i {
            lines.push(f(&(0..r).map(|b| x[(a * r + b) * i + c]).collect::<Vec<_>>()));
        }
    }
    let k = lines.first().map_or(0, Vec::len);
    let mut out = vec![0.0; o * k * i];
    for (line, values) in lines.iter().enumerate() {
        for (b, v) in values.iter().enumerate() {
            out[(line / i * k + b) * i + line % i] = *v;
        }
    }
    out
}

fn norm(v: &[f64], p: f64) -> f64 {
    v.iter().map(|x| x.abs().powf(p)).sum::<f64>().powf(1.0 / p)
}

const CASES: [(&str, Function, Plain); 11] = [
    ("cumsum", |x| x.cumsum(1), |v| running(v, |a, b| a + b)),
    ("cumprod", |x| x.cumprod(-2), |v| running(v, |a, b| a * b)),
    ("prod", |x| x.prod(&[1], true), |v| vec![v.iter().product()]),
    ("logsumexp", |x| x.logsumexp(&[1], true), |v| vec![v.iter().map(|x| x.exp()).sum::<f64>().ln()]),
    (
        "std",
        |x| x.std(&[1], true, true),
        |v| {
            let mean = v.iter().sum::<f64>() / v.len() as f64;
            vec![(v.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (v.len() as f64 - 1.0)).sqrt()]
        },
    ),
    ("norm 1", |x| x.norm(1.0, &[1], true), |v| vec![norm(v, 1.0)]),
    ("norm 2", |x| x.norm(2.0, &[1], true), |v| vec![norm(v, 2.0)]),
    ("norm 3", |x| x.norm(3.0, &[1], true), |v| vec![norm(v, 3.0)]),
    ("norm 0.5", |x| x.norm(0.5, &[1], true), |v| vec![norm(v, 0.5)]),
    ("norm inf", |x| x.norm(f32::INFINITY, &[1], true), |v| vec![v.iter().fold(0.0, |m, x| x.abs().max(m))]),
    (
        "sort",
        |x| Ok(x.sort(1, true)?.0),
        |v| {
            let mut sorted = v.to_vec();
            sorted.sort_by(|a, b| b.total_cmp(a));
            sorted
        },
    ),
];

#[test]
fn values_and_gradients_at_odd_sizes() {
    let device = device();
    for dims in [[1, 2, 1], [3, 5, 1], [2, 17, 3], [1, 33, 8]] {
        let n = dims.iter().product();
        // Away from 0, so that differences see no kink.
        let x: Vec<f32> = noise(n, 3).iter().map(|v| 0.8 * v + 0.4 * v.signum()).collect();
        for (name, f, plain) in CASES {
            let expected = columns(&wide(&x), dims, plain);
            let gout = noise(expected.len(), 9);
            let shape = [dims[0], expected.len() / (dims[0] * dims[2]), dims[2]];
            let out = device.floats(&[(&dims, &x), (&shape, &gout)], |g, t| {
                let y = f(&t[0].mul_scalar(1.0_f32)?)?;
                let loss = y.mul(&t[1])?.sum_all()?;
                Ok(vec![y.mul_scalar(2.0_f32)?, g.gradients(&loss, &[&t[0]])?.swap_remove(0)])
            });
            let twice: Vec<f64> = expected.iter().map(|v| 2.0 * v).collect();
            assert_close(&out[0], &twice, 5e-6, &format!("{name} {dims:?}"));
            let slopes = differences(&wide(&x), |x| dot(&columns(x, dims, plain), &wide(&gout)));
            assert_close(&out[1], &slopes, 3e-5, &format!("gradient of {name} {dims:?}"));
        }
    }
}

#[test]
fn zeros_in_products_and_long_scans() {
    let device = device();
    let x = [2.0_f32, 0.0, 3.0, 0.0, 5.0, 4.0, 0.0, 6.0];
    let out = device.floats(&[(&[2, 4], &x)], |g, t| {
        let all = t[0].prod(&[1], false)?;
        let first = g.gradients(&all.sum_all()?, &[&t[0]])?.swap_remove(0);
        let running = t[0].cumprod(1)?.sum_all()?;
        Ok(vec![all, first, g.gradients(&running, &[&t[0]])?.swap_remove(0)])
    });
    assert_eq!(out[0], [0.0, 0.0]);
    assert_eq!(out[1], [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 120.0, 0.0]);
    let plain = |x: &[f64]| columns(x, [2, 4, 1], |v| running(v, |a, b| a * b)).iter().sum();
    assert_close(&out[2], &differences(&wide(&x), plain), 1e-6, "cumprod");
    // Cut into parts, and parts of parts; whole numbers are exact.
    for n in [1025, 5000, 70_001] {
        let ones: Vec<u32> = (0..n as u32).collect();
        let out = device.words(&[("x", ones)], |g| {
            let x = g.input::<u32>("x", [n])?;
            let slope = g.full([n], 1.0)?;
            let sum = slope.cumsum(0)?;
            Ok(vec![x.cumsum(0)?, sum, g.full_i32([n], -1)?.cumprod(0)?])
        });
        for (i, &found) in out[0].iter().enumerate() {
            let sum = (i as u64 * (i as u64 + 1) / 2) as u32;
            assert_eq!(found, sum, "{n} {i}");
            assert_eq!(f32::from_bits(out[1][i]), (i + 1) as f32, "{n} {i}");
            assert_eq!(out[2][i] as i32, if i % 2 == 0 { -1 } else { 1 });
        }
    }
    let x: Vec<f32> = noise(2 * 3000, 4);
    let out = device.floats(&[(&[3000, 2], &x), (&[3000, 2], &x)], |g, t| {
        let y = t[0].cumsum(0)?;
        Ok(vec![y.clone(), g.gradients(&y.mul(&t[1])?.sum_all()?, &[&t[0]])?.swap_remove(0)])
    });
    let forward = columns(&wide(&x), [1, 3000, 2], |v| running(v, |a, b| a + b));
    assert_close(&out[0], &forward, 2e-6, "long cumsum");
    let backward = columns(&wide(&x), [1, 3000, 2], |v| {
        let reversed: Vec<f64> = v.iter().rev().copied().collect();
        running(&reversed, |a, b| a + b).into_iter().rev().collect()
    });
    assert_close(&out[1], &backward, 2e-6, "its gradient");
}

#[test]
fn edges_of_logsumexp_norm_any_and_all() {
    let device = device();
    let inf = f32::INFINITY;
    let out = device.floats(&[(&[3, 2], &[-inf, -inf, 1000.0, 1000.0, inf, 0.0]), (&[4], &[0.0; 4])], |g, t| {
        let y = t[0].logsumexp(&[-1], false)?;
        let zero = t[1].norm(2.0, &[], false)?.add(&t[1].std(&[], false, true)?)?;
        let nothing = g.zeros([2, 0])?;
        Ok(vec![
            y.clone(),
            g.gradients(&y.narrow(0, 0, 2)?.sum_all()?, &[&t[0]])?.swap_remove(0).narrow(0, 0, 2)?,
            g.gradients(&zero, &[&t[1]])?.swap_remove(0),
            nothing.logsumexp(&[1], false)?,
            nothing.prod(&[1], false)?,
            t[0].any(&[1], false)?.to_f32()?,
            t[0].all(&[1], false)?.to_f32()?,
            nothing.any(&[1], false)?.to_f32()?,
            nothing.all(&[1], false)?.to_f32()?,
            t[0].norm(0.0, &[], false)?,
            nothing.cumsum(1)?,
        ])
    });
    assert_eq!(out[0], [-inf, 1000.0 + 2.0_f32.ln(), inf]);
    assert_eq!(out[1][..2], [0.0, 0.0]);
    assert!((out[1][2] - 0.5).abs() < 1e-4 && (out[1][3] - 0.5).abs() < 1e-4);
    assert_eq!(out[2], [0.0; 4]);
    assert_eq!(out[3], [-inf, -inf]);
    assert_eq!(out[4], [1.0, 1.0]);
    assert_eq!((out[5].as_slice(), out[6].as_slice()), ([1.0; 3].as_slice(), [1.0, 1.0, 0.0].as_slice()));
    assert_eq!((out[7].as_slice(), out[8].as_slice()), ([0.0; 2].as_slice(), [1.0; 2].as_slice()));
    assert_eq!(out[9], [5.0]);
    assert!(out[10].is_empty());
    let g = Recorder::new();
    let x = g.full([2, 3], 1.0).unwrap();
    assert!(matches!(x.norm(f32::NAN, &[], false), Err(Error::Argument { op: "norm", .. })));
    assert!(matches!(x.cumsum(2), Err(Error::Argument { op: "cumsum", .. })));
    assert!(matches!(g.full_i32([2], 1).unwrap().logsumexp(&[], false), Err(Error::DType { op: "logsumexp", .. })));
}

#[test]
fn einsum_against_plain_loops() {
    let device = device();
    let size = |c: char| match c {
        'b' => 2,
        'i' => 3,
        'j' => 5,
        'k' => 4,
        _ => 2,
    };
    for equation in [
        "ij,jk->ik",
        "bij,bjk->bik",
        "bij,bkj->bik",
        "i,j->ij",
        "i,i->",
        "ij,ij->i",
        "ij,ij->ij",
        "ij->ji",
        "ij->",
        "ijk->k",
        "bhid,bhjd->bhij",
        "ij,k->jk",
        "ij,jk",
        "bi,bij,",
        "ij,bj -> bi",
    ] {
        let equation = equation.trim_end_matches(',');
        let (left, right) = equation.split_once("->").map_or((equation, None), |(l, r)| (l, Some(r.trim())));
        let names: Vec<Vec<char>> = left.split(',').map(|p| p.trim().chars().collect()).collect();
        let mut all: Vec<char> = names.concat();
        all.sort_unstable();
        let result: Vec<char> = right.map_or_else(
            || all.iter().copied().filter(|c| all.iter().filter(|d| *d == c).count() == 1).collect(),
            |r| r.chars().collect(),
        );
        all.dedup();
        let shapes: Vec<Vec<usize>> = names.iter().map(|n| n.iter().map(|&c| size(c)).collect()).collect();
        let data: Vec<Vec<f32>> =
            shapes.iter().enumerate().map(|(i, s)| noise(s.iter().product(), 5 + i as u32)).collect();
        let inputs: Vec<(&[usize], &[f32])> = shapes.iter().zip(&data).map(|(s, d)| (&s[..], &d[..])).collect();
        let out = device.floats(&inputs, |_, t| {
            let made: Vec<Tensor> = t.iter().map(|x| x.mul_scalar(2.0_f32)).collect::<Result<_>>()?;
            Ok(vec![Tensor::einsum(equation, &made.iter().collect::<Vec<_>>())?.mul_scalar(0.5_f32)?])
        });
        let place = |letters: &[char], at: &[usize]| {
            letters.iter().fold(0, |n, c| n * size(*c) + at[all.iter().position(|d| d == c).unwrap()])
        };
        let mut expected = vec![0.0_f64; result.iter().map(|&c| size(c)).product()];
        let total: usize = all.iter().map(|&c| size(c)).product();
        for n in 0..total {
            let mut rest = n;
            let at: Vec<usize> = all
                .iter()
                .map(|&c| {
                    let digit = rest % size(c);
                    rest /= size(c);
                    digit
                })
                .collect();
            let product: f64 = names.iter().zip(&data).map(|(l, d)| 2.0 * f64::from(d[place(l, &at)])).product();
            expected[place(&result, &at)] += 0.5 * product;
        }
        assert_close(&out[0], &expected, 5e-6, equation);
    }
    let g = Recorder::new();
    let x = g.full([2, 3], 1.0).unwrap();
    for equation in ["ii->i", "ij->ik", "...j->j", "ij,jk->ik", "ij->ii", "ij,ij,ij->i"] {
        assert!(matches!(Tensor::einsum(equation, &[&x]), Err(Error::Argument { op: "einsum", .. })), "{equation}");
    }
    assert!(matches!(Tensor::einsum("ij,jk->ik", &[&x, &x]), Err(Error::Shape { op: "einsum", .. })));
    assert!(matches!(x.outer(&x), Err(Error::Shape { op: "outer", .. })));
}
