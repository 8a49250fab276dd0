//! sort, argsort, topk, median, permutation, normal and whole random numbers.

use super::harness::*;
use remat::error::Error;
use remat::graph::Recorder;
use remat::ops::random::{random_bits, random_normal};

/// The stable order of values, NaN largest.
fn order(v: &[f32], descending: bool) -> Vec<i32> {
    let mut places: Vec<i32> = (0..v.len() as i32).collect();
    let rank = |a: f32, b: f32| match (a.is_nan(), b.is_nan()) {
        (false, false) => a.partial_cmp(&b).unwrap(),
        (a, b) => a.cmp(&b),
    };
    places.sort_by(|&a, &b| {
        let o = rank(v[a as usize], v[b as usize]);
        if descending { o.reverse() } else { o }
    });
    places
}

#[test]
fn orders_are_stable_at_every_size() {
    let device = device();
    for n in [1, 2, 15, 16, 17, 33, 100, 1000, 4097] {
        // Many equals, both zeros, infinities and NaN.
        let mut x: Vec<f32> = noise(2 * n, 8).iter().map(|v| (v * 20.0).round() / 4.0).collect();
        if n >= 33 {
            x[3] = f32::NAN;
            x[n - 1] = f32::INFINITY;
            x[n / 2] = f32::NAN;
            x[n / 2 + 1] = -0.0;
            x[n / 2 + 2] = f32::NEG_INFINITY;
        }
        let out = device.words(&[("x", bits(&x))], |g| {
            let x = g.input::<f32>("x", [2, n])?;
            let columns = x.t()?;
            let (values, places) = x.sort(-1, false)?;
            Ok(vec![
                places,
                values,
                x.argsort(1, true)?,
                columns.argsort(0, false)?.t()?.mul_scalar(1)?,
                x.topk(n.div_ceil(3), 1, true)?.1,
                x.median(1, false)?,
            ])
        });
        for row in 0..2 {
            let line = &x[row * n..(row + 1) * n];
            let (up, down) = (order(line, false), order(line, true));
            let found =
                |i: usize, k: usize| out[i][row * k..(row + 1) * k].iter().map(|w| *w as i32).collect::<Vec<_>>();
            assert_eq!(found(0, n), up, "{n}");
            let values: Vec<u32> = up.iter().map(|&p| line[p as usize].to_bits()).collect();
            assert_eq!(out[1][row * n..(row + 1) * n], values);
            assert_eq!(found(2, n), down, "{n}");
            assert_eq!(found(3, n), up, "{n}");
            assert_eq!(found(4, n.div_ceil(3)), down[..n.div_ceil(3)], "{n}");
            assert_eq!(out[5][row], line[up[(n - 1) / 2] as usize].to_bits());
        }
    }
}

#[test]
fn gradients_go_back_to_the_places_chosen() {
    let device = device();
    let x = [3.0, 1.0, 3.0, 2.0, 5.0, 5.0, 0.0, 4.0];
    let out = device.floats(&[(&[2, 4], &x), (&[2, 2], &[1.0, 2.0, 3.0, 4.0])], |g, t| {
        let y = t[0].mul_scalar(1.0_f32)?.topk(2, 1, true)?.0;
        let first = g.gradients(&y.mul(&t[1])?.sum_all()?, &[&t[0]])?.swap_remove(0);
        let square = y.sqr()?.sum_all()?;
        let slope = g.gradients(&square, &[&t[0]])?.swap_remove(0);
        let twice = g.gradients(&slope.sqr()?.sum_all()?, &[&t[0]])?.swap_remove(0);
        let middle = g.gradients(&t[0].median(1, true)?.sum_all()?, &[&t[0]])?.swap_remove(0);
        let none = t[0].topk(0, 1, false)?.0;
        Ok(vec![y, first, twice, middle, g.gradients(&none.sum_all()?, &[&t[0]])?.swap_remove(0)])
    });
    assert_eq!(out[0], [3.0, 3.0, 5.0, 5.0]);
    assert_eq!(out[1], [1.0, 0.0, 2.0, 0.0, 3.0, 4.0, 0.0, 0.0]);
    assert_eq!(out[2], [24.0, 0.0, 24.0, 0.0, 40.0, 40.0, 0.0, 0.0]);
    assert_eq!(out[3], [0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0]);
    assert_eq!(out[4], [0.0; 8]);
    let g = Recorder::new();
    let x = g.full([2, 3], 1.0).unwrap();
    assert!(matches!(x.topk(4, 1, true), Err(Error::Argument { op: "topk", .. })));
    assert!(matches!(x.sort(2, true), Err(Error::Argument { op: "sort", .. })));
    assert!(matches!(g.full([0], 1.0).unwrap().median(0, false), Err(Error::Argument { op: "median", .. })));
    assert!(matches!(g.full_bool([2], true).unwrap().argsort(0, false), Err(Error::DType { op: "argsort", .. })));
    assert!(matches!(g.rand_int([2], 3, 3), Err(Error::Argument { op: "rand_int", .. })));
}

#[test]
fn random_numbers_are_the_hosts() {
    let device = device();
    let n = 20_001;
    let out = device.words(&[("seed", vec![9]), ("step", vec![4])], |g| {
        Ok(vec![g.rand_normal([n])?, g.permutation(n)?, g.rand_int([n], -5, 12)?, g.rand_int([n], i32::MIN, i32::MAX)?])
    });
    let mut moments = [0.0; 2];
    for (i, &word) in out[0].iter().enumerate() {
        let found = f64::from(f32::from_bits(word));
        let expected = random_normal(i as u32, 0, 4, 9);
        assert!((found - expected).abs() < 1e-5, "{i}: {found}, expected {expected}");
        moments[0] += found / n as f64;
        moments[1] += found * found / n as f64;
        let bits = |stream| u64::from(random_bits(i as u32, stream, 4, 9));
        assert_eq!(out[2][i] as i32, -5 + ((bits(2) * 17) >> 32) as i32);
        assert_eq!(out[3][i] as i32, i32::MIN.wrapping_add(((bits(3) * u64::from(u32::MAX)) >> 32) as i32));
    }
    assert!(moments[0].abs() < 0.03 && (moments[1] - 1.0).abs() < 0.05, "{moments:?}");
    let mut places: Vec<u32> = (0..n as u32).collect();
    places.sort_by_key(|&i| random_bits(i, 1, 4, 9));
    assert_eq!(out[1], places);
}
