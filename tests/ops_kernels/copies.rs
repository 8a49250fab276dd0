//! embedding, cat, stack, digest: copies, their gradients, and hashes.

use super::harness::*;
use remat::error::Error;
use remat::graph::{Recorder, Tensor};
use remat::ops::fingerprint;

#[test]
fn embedding_and_its_gradient() {
    let device = device();
    for (rows, columns, shape) in [(11, 8, [5, 7]), (7, 3, [17, 1]), (256, 128, [8, 128]), (1000, 5, [3, 63])] {
        let count = shape[0] * shape[1];
        let ids: Vec<i32> = (0..count).map(|i| ((i * i * 31 + 7) % rows) as i32).collect();
        let weight = noise(rows * columns, 1);
        let gout = noise(count * columns, 2);
        let (table, out_shape) = ([rows, columns], [shape[0], shape[1], columns]);
        let out = device.floats(&[(&table, &weight), (&out_shape, &gout)], |g, t| {
            let weight = t[0].mul_scalar(2.0)?;
            let y = weight.embedding(&g.constant(&ids, shape)?)?;
            assert_eq!(y.dims(), out_shape);
            let loss = y.mul(&y)?.mul(&t[1])?.sum_all()?;
            let first = g.gradients(&loss, &[&t[0]])?.swap_remove(0);
            let second = g.gradients(&first.mul(&t[0])?.sum_all()?, &[&t[0]])?.swap_remove(0);
            Ok(vec![y.add_scalar(0.5)?, first, second])
        });
        let mut value = Vec::new();
        let mut first = vec![0.0_f64; rows * columns];
        for (n, &id) in ids.iter().enumerate() {
            for d in 0..columns {
                let w = f64::from(weight[id as usize * columns + d]);
                value.push(2.0 * w + 0.5);
                first[id as usize * columns + d] += 8.0 * w * f64::from(gout[n * columns + d]);
            }
        }
        assert_close(&out[0], &value, 1e-6, "embedding");
        assert_close(&out[1], &first, 1e-5, "gradient");
        // The loss is quadratic, so the derivative of <gradient, w> is twice the gradient.
        let second: Vec<f64> = first.iter().map(|v| 2.0 * v).collect();
        assert_close(&out[2], &second, 1e-5, "second derivative");
    }
}

#[test]
fn repeated_and_wrong_numbers() {
    let device = device();
    let out = device.floats(&[(&[5, 2], &noise(10, 3))], |g, t| {
        let y = t[0].embedding(&g.constant(&[3_u32, 3, 3], [3])?)?;
        let gradient = g.gradients(&y.mul(&g.constant(&[0.5_f32, 2.0], [2])?)?.sum_all()?, &[&t[0]])?.swap_remove(0);
        let wrong = t[0].embedding(&g.constant(&[1_i32, -1, 5, i32::MAX, 0], [5])?)?;
        let of_wrong = g.gradients(&wrong.sum_all()?, &[&t[0]])?.swap_remove(0);
        Ok(vec![gradient, wrong, of_wrong])
    });
    assert_eq!(out[0], [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.5, 6.0, 0.0, 0.0]);
    let nan: Vec<bool> = out[1].iter().map(|v| v.is_nan()).collect();
    assert_eq!(nan, [false, false, true, true, true, true, true, true, false, false]);
    assert_eq!(out[2], [1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
    let g = Recorder::new();
    let table = g.zeros([4, 3]).unwrap();
    assert!(matches!(table.embedding(&table), Err(Error::DType { op: "embedding", operand: 1, .. })));
    let ids = g.full_i32([2], 0).unwrap();
    assert!(matches!(g.zeros([4]).unwrap().embedding(&ids), Err(Error::Shape { op: "embedding", .. })));
    assert!(matches!(g.zeros([0, 3]).unwrap().embedding(&ids), Err(Error::Shape { op: "embedding", .. })));
}

#[test]
fn embedding_of_nothing() {
    let device = device();
    let out = device.floats(&[(&[2, 3], &[1.0; 6])], |g, t| {
        let y = t[0].embedding(&g.full_i32([0, 4], 0)?)?;
        assert_eq!(y.dims(), [0, 4, 3]);
        g.gradients(&y.sum_all()?, &[&t[0]])
    });
    assert_eq!(out[0], [0.0; 6]);
}

/// Plain concatenation of `[O, len_k, I]` along the middle.
fn joined(parts: &[(usize, &[f32])], outer: usize, inner: usize) -> Vec<f32> {
    let mut out = Vec::new();
    for o in 0..outer {
        for (len, values) in parts {
            out.extend_from_slice(&values[o * len * inner..(o + 1) * len * inner]);
        }
    }
    out
}

#[test]
fn cat_of_one_to_many() {
    let device = device();
    for (outer, inner, lens) in [
        (3, 4, vec![2, 5, 1]),
        (1, 1, vec![7]),
        (5, 3, vec![1, 0, 2, 3]),
        (2, 8, vec![1; 6]),
        (2, 1, vec![3; 7]),
        (3, 2, (1..=40).collect()),
    ] {
        let parts: Vec<Vec<f32>> = lens.iter().enumerate().map(|(k, l)| noise(outer * l * inner, k as u32)).collect();
        let shapes: Vec<[usize; 3]> = lens.iter().map(|&l| [outer, l, inner]).collect();
        let total: usize = lens.iter().sum();
        let gout = noise(outer * total * inner, 77);
        let out_shape = [outer, total, inner];
        let kept: Vec<usize> = (0..lens.len()).filter(|&k| lens[k] > 0).collect();
        let mut inputs: Vec<(&[usize], &[f32])> =
            kept.iter().map(|&k| (shapes[k].as_slice(), parts[k].as_slice())).collect();
        inputs.push((&out_shape, &gout));
        let out = device.floats(&inputs, |g, t| {
            let (gout, given) = (&t[t.len() - 1], &t[..t.len() - 1]);
            let mut all = Vec::new();
            let mut next = given.iter();
            for &len in &lens {
                all.push(if len == 0 { g.zeros([outer, 0, inner])? } else { next.next().unwrap().mul_scalar(2.0)? });
            }
            let y = Tensor::cat(&all, -2)?;
            assert_eq!(y.dims(), out_shape);
            let loss = y.mul(gout)?.sum_all()?;
            let mut results = vec![y.mul_scalar(0.5)?];
            results.extend(g.gradients(&loss, &given.iter().collect::<Vec<_>>())?);
            Ok(results)
        });
        let pairs: Vec<(usize, &[f32])> = lens.iter().zip(&parts).map(|(&l, p)| (l, p.as_slice())).collect();
        assert_eq!(out[0], joined(&pairs, outer, inner));
        // Joining the gradients of the parts gives twice the incoming one.
        let grads: Vec<(usize, &[f32])> =
            kept.iter().enumerate().map(|(i, &k)| (lens[k], out[1 + i].as_slice())).collect();
        let doubled: Vec<f32> = gout.iter().map(|v| v * 2.0).collect();
        assert_eq!(joined(&grads, outer, inner), doubled);
    }
}

#[test]
fn cat_of_one_tensor_with_itself_and_stack() {
    let device = device();
    let x = noise(6, 1);
    let out = device.floats(&[(&[2, 3], &x), (&[2, 3], &noise(6, 2))], |g, t| {
        let twice = Tensor::cat(&[&t[0], &t[0]], 1)?;
        let gradient = g.gradients(&twice.mul(&twice)?.sum_all()?, &[&t[0]])?.swap_remove(0);
        let stacked = Tensor::stack(&[&t[0], &t[1]], 1)?;
        assert_eq!(stacked.dims(), [2, 2, 3]);
        assert_eq!(Tensor::stack(&[&t[0], &t[1], &t[0]], -1)?.dims(), [2, 3, 3]);
        assert_eq!(Tensor::stack(&[&t[0]], 0)?.dims(), [1, 2, 3]);
        Ok(vec![twice, gradient, stacked])
    });
    assert_eq!(out[0], joined(&[(3, &x), (3, &x)], 2, 1));
    assert_close(&out[1], &x.iter().map(|v| 4.0 * f64::from(*v)).collect::<Vec<_>>(), 1e-6, "gradient");
    assert_eq!(out[2], joined(&[(1, &x), (1, &noise(6, 2))], 2, 3));
}

#[test]
fn cat_keeps_bits_and_refuses_misfits() {
    let device = device();
    let odd = vec![0x7f80_0001_u32, 0x0000_0001, 0x8000_0000];
    let out = device.words(&[("x", odd.clone())], |g| {
        let x = g.input::<f32>("x", [3])?;
        Ok(vec![Tensor::cat(&[&x, &g.zeros([0])?, &x], 0)?, Tensor::cat(&[&g.zeros([0])?], 0)?])
    });
    assert_eq!(out[0], [odd.clone(), odd].concat());
    assert!(out[1].is_empty());
    let g = Recorder::new();
    let (a, b) = (g.zeros([2, 3]).unwrap(), g.zeros([3, 3]).unwrap());
    assert!(matches!(Tensor::cat::<Tensor>(&[], 0), Err(Error::Argument { op: "cat", .. })));
    assert!(matches!(Tensor::cat(&[&a, &b], 1), Err(Error::Shape { op: "cat", .. })));
    assert!(matches!(Tensor::cat(&[&a, &b], 2), Err(Error::Argument { op: "cat", .. })));
    assert!(matches!(Tensor::stack(&[&a, &b], 0), Err(Error::Shape { .. })));
    assert!(matches!(Tensor::stack(&[&a, &a], 3), Err(Error::Argument { op: "stack", .. })));
    let whole = g.full_i32([2, 3], 1).unwrap();
    assert!(matches!(Tensor::cat(&[&a, &whole], 0), Err(Error::DType { op: "cat", operand: 1, .. })));
    let other = Recorder::new().zeros([2, 3]).unwrap();
    assert!(matches!(Tensor::cat(&[&a, &other], 0), Err(Error::OtherRecording { op: "cat", operand: 1 })));
}

/// The digest in plain arithmetic.
fn plain_digest(words: &[u32]) -> [u32; 4] {
    fn stir(v: [u32; 4]) -> [u32; 4] {
        let mut v = v.map(|w| w.wrapping_mul(1_664_525).wrapping_add(1_013_904_223));
        let round = |v: &mut [u32; 4]| {
            v[0] = v[0].wrapping_add(v[1].wrapping_mul(v[3]));
            v[1] = v[1].wrapping_add(v[2].wrapping_mul(v[0]));
            v[2] = v[2].wrapping_add(v[0].wrapping_mul(v[1]));
            v[3] = v[3].wrapping_add(v[1].wrapping_mul(v[2]));
        };
        round(&mut v);
        v = v.map(|w| w ^ (w >> 16));
        round(&mut v);
        v
    }
    let mut sum = stir([words.len() as u32; 4]);
    for (j, block) in words.chunks(4).enumerate() {
        let j = j as u32;
        let key = [j, j.wrapping_add(0x9e37_79b9), j ^ 0x85eb_ca6b, j.wrapping_mul(0xc2b2_ae35)];
        let mut v = [0; 4];
        v[..block.len()].copy_from_slice(block);
        let stirred = stir(std::array::from_fn(|k| v[k] ^ key[k]));
        sum = std::array::from_fn(|k| sum[k].wrapping_add(stirred[k]));
    }
    sum
}

#[test]
fn digests_equal_the_plain_one() {
    let device = device();
    for count in [1, 2, 3, 4, 5, 63, 64, 127, 129, 4096, 70_001, 400_000] {
        let words = bits(&noise(count, 8));
        let out = device.words(&[("x", words.clone())], |g| {
            let x = g.input::<u32>("x", [count])?;
            Ok(vec![x.digest()?])
        });
        assert_eq!(out[0], plain_digest(&words), "{count} words");
    }
}

#[test]
fn digests_see_places_bits_and_lengths() {
    let device = device();
    let words: Vec<u32> = (0..64).collect();
    let digest = |words: &[u32]| {
        device
            .words(&[("x", words.to_vec())], |g| Ok(vec![g.input::<u32>("x", [words.len()])?.digest()?]))
            .swap_remove(0)
    };
    let mut seen = vec![digest(&words)];
    let mut swapped = words.clone();
    swapped.swap(3, 40);
    let mut moved = words.clone();
    moved.rotate_left(4);
    let mut flipped = words.clone();
    flipped[63] ^= 1 << 31;
    for other in [&swapped, &moved, &flipped, &words[..63].to_vec(), &[words.clone(), vec![0]].concat()] {
        let digest = digest(other);
        assert!(!seen.contains(&digest));
        seen.push(digest);
    }
}

#[test]
fn fingerprints_hash_digests_in_order() {
    let device = device();
    let (a, b) = (bits(&noise(37, 1)), bits(&noise(128, 2)));
    let out = device.words(&[("a", a.clone()), ("b", b.clone())], |g| {
        let (a, b) = (g.input::<f32>("a", [37])?, g.input::<f32>("b", [8, 16])?);
        // In the middle of a graph: a gradient is hashed, and the hash feeds an op.
        let hash = fingerprint(g, &[a.clone(), b.clone()])?;
        Ok(vec![
            hash.max(&[0], true)?,
            hash,
            fingerprint(g, &[b, a])?,
            fingerprint(g, &[])?,
            g.zeros([0, 2])?.digest()?,
        ])
    });
    let expected = plain_digest(&[plain_digest(&a), plain_digest(&b)].concat());
    assert_eq!(out[1], expected);
    assert_eq!(out[0], [*expected.iter().max().unwrap()]);
    assert_ne!(out[2], expected);
    assert_eq!((out[3].as_slice(), out[4].as_slice()), ([0; 4].as_slice(), [0; 4].as_slice()));
}
