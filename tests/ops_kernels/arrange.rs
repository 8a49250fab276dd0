//! Shapes composed of views and copies; cross-entropy with class weights.

use super::harness::*;
use remat::error::Error;
use remat::graph::{Recorder, Tensor};
use remat::ops::{CrossEntropyOptions, PadMode, Reduction};

/// Where element `i` of a padded axis comes from.
fn source(i: isize, extent: isize, mode: PadMode) -> usize {
    let place = match mode {
        PadMode::Reflect if i < 0 => -i,
        PadMode::Reflect if i >= extent => 2 * (extent - 1) - i,
        PadMode::Reflect => i,
        PadMode::Replicate => i.clamp(0, extent - 1),
        PadMode::Circular => i.rem_euclid(extent),
    };
    place as usize
}

#[test]
fn padding_by_own_elements_and_its_gradient() {
    let device = device();
    let (rows, columns) = (3, 5);
    let x = noise(rows * columns, 1);
    for mode in [PadMode::Reflect, PadMode::Replicate, PadMode::Circular] {
        let (top, bottom, left, right) = (2, 1, 0, 4);
        let shape = [rows + top + bottom, columns + left + right];
        let gout = noise(shape[0] * shape[1], 2);
        let out = device.floats(&[(&[rows, columns], &x), (&shape, &gout)], |g, t| {
            let y = t[0].mul_scalar(2.0)?.pad_with(&[(top, bottom), (left, right)], mode)?;
            assert_eq!(y.dims(), shape);
            let gradient = g.gradients(&y.mul(&t[1])?.sum_all()?, &[&t[0]])?.swap_remove(0);
            Ok(vec![y.add_scalar(1.0)?, gradient])
        });
        let (mut value, mut gradient) = (Vec::new(), vec![0.0; x.len()]);
        for r in 0..shape[0] {
            for c in 0..shape[1] {
                let from = source(r as isize - top as isize, rows as isize, mode) * columns
                    + source(c as isize - left as isize, columns as isize, mode);
                value.push(2.0 * f64::from(x[from]) + 1.0);
                gradient[from] += 2.0 * f64::from(gout[r * shape[1] + c]);
            }
        }
        assert_close(&out[0], &value, 1e-6, "value");
        assert_close(&out[1], &gradient, 1e-6, "gradient");
    }
    let g = Recorder::new();
    let x = g.zeros([3]).unwrap();
    for (pad, mode) in [(3, PadMode::Reflect), (4, PadMode::Circular)] {
        assert!(matches!(x.pad_with(&[(pad, 0)], mode), Err(Error::Argument { op: "pad_with", .. })));
        assert!(x.pad_with(&[(pad - 1, 0)], mode).is_ok());
    }
    assert!(g.zeros([0]).unwrap().pad_with(&[(1, 0)], PadMode::Replicate).is_err());
    assert!(x.pad_with(&[], PadMode::Replicate).is_err());
}

#[test]
fn diagonals_of_every_offset() {
    let device = device();
    for (rows, columns) in [(3, 5), (4, 2), (1, 1)] {
        let x = noise(2 * rows * columns, 3);
        for offset in -5_i32..=6 {
            let out = device.floats(&[(&[2, rows, columns], &x)], |g, t| {
                let y = t[0].diagonal(offset)?;
                let gradient = g.gradients(&y.sqr()?.sum_all()?, &[&t[0]])?.swap_remove(0);
                Ok(vec![y, gradient])
            });
            let (mut value, mut gradient) = (Vec::new(), Vec::new());
            for (at, &v) in x.iter().enumerate() {
                let (r, c) = (at / columns % rows, at % columns);
                let on = c as i32 - r as i32 == offset;
                gradient.push(if on { 2.0 * f64::from(v) } else { 0.0 });
                if on {
                    value.push(v);
                }
            }
            assert_eq!(out[0], value, "{rows}x{columns}, {offset}");
            assert_close(&out[1], &gradient, 1e-6, "gradient");
        }
    }
    for (count, offset) in [(3, 0_i32), (3, 2), (3, -2), (1, 0), (1, -1), (0, 1)] {
        let x = noise(3, 4);
        let side = count + offset.unsigned_abs() as usize;
        let out = device.floats(&[(&[3], &x)], |_, t| {
            let y = t[0].narrow(0, 0, count)?.diag(offset)?;
            assert_eq!(y.dims(), [side, side]);
            Ok(vec![y.diagonal(offset)?, y])
        });
        assert_eq!(out[0], x[..count]);
        assert_eq!(out[1].iter().filter(|v| **v != 0.0).count(), count);
    }
}

#[test]
fn parts_and_moved_axes() {
    let device = device();
    let x = noise(2 * 7 * 3, 5);
    let out = device.floats(&[(&[2, 7, 3], &x)], |g, t| {
        let x = &t[0];
        let parts = x.chunk(3, 1)?;
        let extents: Vec<usize> = parts.iter().map(|p| p.dims()[1]).collect();
        assert_eq!(extents, [3, 3, 1]);
        assert_eq!(x.chunk(4, 1)?.len(), 4);
        assert_eq!(x.chunk(9, 0)?.len(), 2);
        assert_eq!(g.zeros([0, 2])?.chunk(3, 0)?.len(), 1);
        let rows = x.unbind(-2)?;
        assert_eq!((rows.len(), rows[6].dims()), (7, [2, 3].as_slice()));
        assert!(g.zeros([0, 2])?.unbind(0)?.is_empty());
        let moved = x.movedim(0, 2)?;
        assert_eq!(moved.dims(), [7, 3, 2]);
        assert_eq!(moved.movedim(-1, 0)?.dims(), [2, 7, 3]);
        assert_eq!(x.swapaxes(0, 1)?.dims(), [7, 2, 3]);
        let back = x.flatten(0, 1)?.unflatten(0, &[2, 7])?;
        let gradient = g.gradients(&rows[2].mul(&rows[5])?.sum_all()?, &[x])?.swap_remove(0);
        Ok(vec![Tensor::cat(&parts, 1)?, Tensor::stack(&rows, 1)?, back, moved.movedim(2, 0)?, gradient])
    });
    for same in &out[..4] {
        assert_eq!(*same, x);
    }
    let at = |b: usize, r: usize, c: usize| x[(b * 7 + r) * 3 + c];
    for (i, &found) in out[4].iter().enumerate() {
        let (b, r, c) = (i / 21, i / 3 % 7, i % 3);
        let expected = [(2, 5), (5, 2)].iter().find(|(to, _)| *to == r).map_or(0.0, |(_, from)| at(b, *from, c));
        assert_eq!(found, expected);
    }
    assert!(matches!(Recorder::new().zeros([2]).unwrap().chunk(0, 0), Err(Error::Argument { op: "chunk", .. })));
}

#[test]
fn numbers_at_even_distances() {
    let device = device();
    let out = device.words(&[], |g| {
        let (a, b) = (g.arange(2)?.to_f32()?, g.arange(3)?.to_f32()?);
        let grids = Tensor::meshgrid(&[&a, &b])?;
        Ok(vec![
            g.arange_i32(-3, 8, 4)?,
            g.arange_i32(5, -1, -2)?,
            g.arange_i32(2, 2, 1)?,
            g.arange_f32(0.5, 2.0, 0.5)?,
            g.linspace(-1.0, 1.0, 5)?,
            g.linspace(0.1, 0.7, 8)?,
            g.linspace(3.0, 9.0, 1)?,
            g.eye(2, 3)?,
            grids[0].clone(),
            grids[1].clone(),
        ])
    });
    assert_eq!(out[0], [-3_i32, 1, 5].map(i32::cast_unsigned));
    assert_eq!(out[1], [5, 3, 1]);
    assert!(out[2].is_empty());
    assert_eq!(floats(&out[3]), [0.5, 1.0, 1.5]);
    assert_eq!(floats(&out[4]), [-1.0, -0.5, 0.0, 0.5, 1.0]);
    assert_eq!((floats(&out[5])[0], floats(&out[5])[7]), (0.1, 0.7));
    assert_eq!(floats(&out[6]), [3.0]);
    assert_eq!(floats(&out[7]), [1.0, 0.0, 0.0, 0.0, 1.0, 0.0]);
    assert_eq!(floats(&out[8]), [0.0, 0.0, 0.0, 1.0, 1.0, 1.0]);
    assert_eq!(floats(&out[9]), [0.0, 1.0, 2.0, 0.0, 1.0, 2.0]);
    let g = Recorder::new();
    for step in [0, -1] {
        assert!(matches!(g.arange_i32(0, 3, step), Err(Error::Argument { op: "arange_i32", .. })));
        assert!(matches!(g.arange_f32(0.0, 3.0, step as f32), Err(Error::Argument { op: "arange_f32", .. })));
    }
}

#[test]
fn cross_entropy_with_class_weights() {
    let device = device();
    let (rows, classes) = (6, 5);
    let (x, weights) = (noise(rows * classes, 6), [0.5_f32, 2.0, 0.0, 1.25, 3.0]);
    let targets = [4_i32, 1, -100, 0, 3, 2];
    for smoothing in [0.0_f32, 0.1] {
        for reduction in [Reduction::Mean, Reduction::Sum] {
            let plain = |x: &[f64]| {
                let (mut sum, mut weight) = (0.0, 0.0);
                for (row, &t) in x.chunks(classes).zip(&targets).filter(|(_, t)| **t >= 0) {
                    let lse = row.iter().map(|v| (2.0 * v).exp()).sum::<f64>().ln();
                    let part = |c: usize| f64::from(weights[c]) * (lse - 2.0 * row[c]);
                    let s = f64::from(smoothing);
                    sum += (1.0 - s) * part(t as usize) + s / classes as f64 * (0..classes).map(part).sum::<f64>();
                    weight += f64::from(weights[t as usize]);
                }
                if reduction == Reduction::Mean { sum / weight } else { sum }
            };
            let out = device.floats(&[(&[rows, classes], &x)], |g, t| {
                let options = CrossEntropyOptions { reduction, ignore_index: Some(-100), label_smoothing: smoothing };
                let (ids, weights) = (g.constant(&targets, [rows])?, g.constant(&weights, [classes])?);
                let loss = t[0].mul_scalar(2.0)?.cross_entropy_weighted(&ids, &weights, options)?;
                let gradient = g.gradients(&loss, &[&t[0]])?.swap_remove(0);
                Ok(vec![loss, gradient])
            });
            assert_close(&out[0], &[plain(&wide(&x))], 1e-5, "loss");
            assert_close(&out[1], &differences(&wide(&x), plain), 1e-5, "gradient");
        }
    }
    let g = Recorder::new();
    let (x, ids, w) = (g.zeros([2, 3]).unwrap(), g.full_i32([2], 0).unwrap(), g.zeros([2]).unwrap());
    assert!(matches!(x.cross_entropy_weighted(&ids, &w, CrossEntropyOptions::default()), Err(Error::Shape { .. })));
}
