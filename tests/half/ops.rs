//! Ops on halves against the same ops in `f32` on the same values.

use remat::Result;
use remat::dtype::f16;
use remat::graph::{Recorder, Tensor};
use remat::params::{Init, Params};
use remat::profile::{AdapterClass, DeviceProfile};
use remat::step::RecordedStep;

use crate::engine::{gpu, noise, run_all};

type Body = fn(&Recorder, &[Tensor]) -> Result<Tensor>;

/// The classes of adapters, whose kernels differ; a device runs those of either.
const CLASSES: [AdapterClass; 2] = [AdapterClass::Cpu, AdapterClass::Discrete];

/// Records `body` on parameters in f16 and in f32, each inside a segment and in the
/// middle of a graph; values and gradients of both must agree to `tolerance` of the largest.
fn agree(name: &str, shapes: &[&[usize]], tolerance: f32, body: Body) {
    let (_turn, gpu) = gpu();
    let params = Params::new(&gpu, 5);
    let states: Vec<_> = shapes
        .iter()
        .enumerate()
        .map(|(i, shape)| {
            let count = shape.iter().product();
            let exact: Vec<f32> = noise(count, i as u32 + 1).iter().map(|v| f16::from_f32(*v).to_f32()).collect();
            params.create(&format!("p{i}"), *shape, Init::from(exact)).unwrap()
        })
        .collect();
    let step_of = |class| {
        let profile = DeviceProfile { class, ..gpu.profile().clone() };
        RecordedStep::new(&profile, |g| {
            let mut all = Vec::new();
            for half in [true, false] {
                let leaves: Vec<Tensor> = states.iter().map(|p| g.state(p)).collect::<Result<_>>()?;
                let inputs = leaves.clone();
                let y = g.checkpoint(inputs, |inputs| {
                    let inputs: Vec<Tensor> = inputs
                        .iter()
                        .map(|x| {
                            let x = if half { x.to_f16()? } else { x.clone() };
                            x.mul_scalar(0.5_f32)
                        })
                        .collect::<Result<_>>()?;
                    body(g, &inputs)?.mul_scalar(2.0_f32)
                })?;
                let weights: Vec<f32> = noise(y.element_count() as usize, 77);
                let loss = y.to_f32()?.mul(&g.constant(&weights, y.shape())?)?.sum_all()?;
                let grads = g.gradients(&loss, &leaves.iter().collect::<Vec<_>>())?;
                all.push(y.to_f32()?);
                all.extend(grads);
            }
            Ok(all)
        })
        .unwrap()
    };
    for class in CLASSES {
        let ran = run_all(&gpu, &params, &step_of(class), &[]);
        let each = ran.outputs.len() / 2;
        for i in 0..each {
            let (found, expected) = (ran.floats(i), ran.floats(each + i));
            let largest = expected.iter().fold(1e-2_f32, |m, v| m.max(v.abs()));
            let mut worst = 0.0_f32;
            for (at, (f, e)) in found.iter().zip(&expected).enumerate() {
                let off = (f - e).abs() / largest;
                assert!(
                    off <= tolerance,
                    "{name}, output {i}, element {at}: {f} in f16, {e} in f32 (largest {largest})"
                );
                worst = worst.max(off);
            }
            // What was computed in halves was rounded.
            let rounded = found.iter().zip(&expected).any(|(f, e)| f.to_bits() != e.to_bits());
            println!("{name} on {class:?}, {i}: {worst:.1e}, rounded: {rounded}");
        }
    }
}

#[test]
fn elementwise_ops() {
    for shape in [&[4, 8][..], &[3, 5], &[1], &[2, 6]] {
        agree("polynomial", &[shape, shape], 3e-3, |_, x| x[0].mul(&x[1])?.add(&x[0].sqr()?)?.sub_scalar(0.25_f32));
        agree("gelu", &[shape], 3e-3, |_, x| x[0].gelu());
        agree("maximum", &[shape, shape], 3e-3, |_, x| x[0].maximum(&x[1]));
    }
    agree("bias", &[&[6, 8], &[8]], 3e-3, |_, x| x[0].add(&x[1])?.tanh());
    agree("bias", &[&[6, 7], &[7]], 3e-3, |_, x| x[0].add(&x[1])?.tanh());
    agree("column", &[&[6, 8], &[6, 1]], 3e-3, |_, x| x[0].mul(&x[1]));
    agree("where", &[&[5, 5], &[5, 5]], 3e-3, |_, x| x[0].gt_scalar(0.1_f32)?.where_(&x[0], &x[1]));
}

#[test]
fn views_at_odd_places() {
    agree("narrow", &[&[5, 7]], 2e-3, |_, x| x[0].narrow(1, 1, 5)?.sqr());
    agree("narrow by four", &[&[5, 9]], 2e-3, |_, x| x[0].narrow(1, 1, 8)?.sqr());
    agree("transpose", &[&[6, 7]], 2e-3, |_, x| x[0].transpose(0, 1)?.sqr());
    agree("transpose by four", &[&[8, 12]], 2e-3, |_, x| x[0].transpose(0, 1)?.sqr());
    agree("flip", &[&[7]], 2e-3, |_, x| x[0].flip(&[0])?.sqr());
    agree("cat", &[&[3, 4], &[3, 8]], 2e-3, |_, x| Tensor::cat(&[x[0].clone(), x[1].clone()], 1));
    agree("cat odd", &[&[3, 3], &[3, 2]], 2e-3, |_, x| Tensor::cat(&[x[0].clone(), x[1].clone()], 1));
}

#[test]
fn products() {
    for [m, k, n] in [[8, 16, 12], [5, 7, 3], [4, 6, 8], [1, 9, 1], [16, 32, 1], [9, 4, 64], [66, 6, 68]] {
        agree("matmul", &[&[m, k], &[k, n]], 4e-3, |_, x| x[0].matmul(&x[1]));
        agree("matmul_t", &[&[m, k], &[n, k]], 4e-3, |_, x| x[0].matmul_t(&x[1])?.relu());
    }
    agree("batched", &[&[2, 3, 4, 8], &[2, 3, 8, 4]], 4e-3, |_, x| x[0].matmul(&x[1]));
    agree("batched odd", &[&[2, 3, 5], &[2, 5, 7]], 4e-3, |_, x| x[0].matmul(&x[1]));
    agree("linear", &[&[2, 3, 8], &[12, 8], &[12]], 4e-3, |_, x| x[0].linear(&x[1], Some(&x[2]))?.gelu());
    agree("itself", &[&[8, 8]], 4e-3, |_, x| x[0].matmul_t(&x[0]));
}

#[test]
fn rows() {
    for columns in [8, 7, 20] {
        agree("softmax", &[&[5, columns]], 3e-3, |_, x| x[0].softmax(-1));
        agree("log_softmax", &[&[5, columns]], 3e-3, |_, x| x[0].log_softmax(-1));
        agree("softmax of columns", &[&[5, columns]], 3e-3, |_, x| x[0].softmax(0));
        agree("sum", &[&[5, columns]], 3e-3, |_, x| x[0].sum(&[1], false)?.sqr());
        agree("sum of columns", &[&[5, columns]], 3e-3, |_, x| x[0].sum(&[0], false)?.sqr());
        agree("max", &[&[5, columns]], 3e-3, |_, x| x[0].max(&[1], false)?.sqr());
        agree("layer_norm", &[&[5, columns], &[columns], &[columns]], 8e-3, |_, x| {
            x[0].layer_norm(Some(&x[1]), Some(&x[2]), 1e-2)
        });
        agree("rms_norm", &[&[5, columns], &[columns]], 6e-3, |_, x| x[0].rms_norm(Some(&x[1]), 1e-5));
        agree("logsumexp", &[&[5, columns]], 3e-3, |_, x| x[0].logsumexp(&[1], false));
        agree("cross_entropy", &[&[5, columns]], 3e-3, |g, x| x[0].cross_entropy(&g.constant(&[1, 0, 4, 2, 6], [5])?));
        agree("embedding", &[&[6, columns]], 3e-3, |g, x| x[0].embedding(&g.constant(&[3, 1, 3, 5], [4])?));
    }
}

#[test]
fn other_kernels() {
    agree("attention", &[&[2, 2, 6, 8], &[2, 2, 6, 8], &[2, 2, 6, 8]], 5e-3, |_, x| {
        let options = remat::ops::AttentionOptions { causal: true, ..Default::default() };
        x[0].attention_fused(&x[1], &x[2], options)
    });
    agree("grouped attention", &[&[2, 4, 6, 8], &[2, 2, 6, 8], &[2, 2, 6, 8]], 5e-3, |g, x| {
        let mask = g.constant(&noise(36, 9), [6, 6])?;
        let options = remat::ops::AttentionOptions { mask: Some(&mask), ..Default::default() };
        x[0].attention_fused(&x[1], &x[2], options)
    });
    agree("attention of odd heads", &[&[2, 2, 5, 6], &[2, 2, 7, 6], &[2, 2, 7, 6]], 5e-3, |g, x| {
        let mask = g.constant(&noise(35, 9), [5, 7])?;
        let options = remat::ops::AttentionOptions { mask: Some(&mask), ..Default::default() };
        x[0].attention_fused(&x[1], &x[2], options)
    });
    agree("rope", &[&[2, 6, 8]], 3e-3, |_, x| x[0].rope(100.0, 0));
    agree("sort", &[&[3, 9]], 2e-3, |_, x| Ok(x[0].sort(1, false)?.0));
    agree("cumsum", &[&[3, 9]], 3e-3, |_, x| x[0].cumsum(1));
    agree("roll", &[&[3, 9]], 2e-3, |_, x| x[0].roll(2, 1));
    agree("conv2d", &[&[2, 4, 6, 6], &[8, 4, 3, 3]], 5e-3, |_, x| {
        x[0].conv2d(&x[1], None, remat::ops::Conv2dOptions::default())
    });
    agree("max_pool1d", &[&[2, 4, 8]], 3e-3, |_, x| x[0].max_pool1d(2, 2, 0));
    agree("adaptive_max_pool2d", &[&[2, 4, 6, 6]], 3e-3, |_, x| x[0].adaptive_max_pool2d([4, 3]));
    agree("unfold", &[&[2, 3, 4, 4]], 3e-3, |_, x| x[0].unfold([2, 2], remat::ops::Conv2dOptions::default()));
    agree("fold", &[&[2, 12, 9]], 3e-3, |_, x| x[0].fold([4, 4], [2, 2], remat::ops::Conv2dOptions::default()));
    agree("scatter", &[&[3, 8], &[3, 2]], 2e-3, |g, x| {
        x[0].scatter(1, &g.constant(&[1_i32, 4, 7, 7, 0, 3], [3, 2])?, &x[1])
    });
    agree("scatter_add", &[&[3, 8], &[3, 2]], 3e-3, |g, x| {
        x[0].scatter_add(1, &g.constant(&[1_i32, 4, 7, 7, 0, 3], [3, 2])?, &x[1])
    });
    agree("max_pool2d", &[&[2, 4, 6, 6]], 3e-3, |_, x| x[0].max_pool2d([2, 2], [2, 2], [0, 0]));
    agree("group_norm", &[&[2, 4, 3, 3], &[4], &[4]], 6e-3, |_, x| x[0].group_norm(2, Some(&x[1]), Some(&x[2]), 1e-2));
    agree("batch_norm", &[&[3, 4, 3, 3], &[4], &[4]], 6e-3, |_, x| {
        Ok(x[0].batch_norm_train(Some(&x[1]), Some(&x[2]), 1e-2)?.0)
    });
}

/// The squares of what is above 255 are infinite in f16.
#[test]
fn norms_of_large_halves_do_not_overflow() {
    agree("rms_norm", &[&[5, 8]], 6e-3, |_, x| x[0].mul_scalar(1000.0_f32)?.rms_norm(None, 1e-5));
    agree("layer_norm", &[&[5, 8]], 8e-3, |_, x| x[0].mul_scalar(1000.0_f32)?.layer_norm(None, None, 1e-2));
    agree("batch_norm", &[&[5, 8]], 8e-3, |_, x| {
        let x = x[0].mul_scalar(1000.0_f32)?;
        let (zero, one) = (x.recorder().zeros([8])?, x.recorder().ones([8])?);
        let of_running = x.batch_norm_eval(&zero, &one.mul_scalar(1e6_f32)?, None, None, 1e-2)?;
        x.batch_norm_train(None, None, 1e-2)?.0.add(&of_running)
    });
    agree("mse", &[&[5, 8], &[5, 8]], 4e-3, |_, x| x[0].mul_scalar(1000.0_f32)?.mse_loss(&x[1]));
}

/// Where the innermost extent is a multiple of 4, nothing goes through an `f32` copy,
/// and what is converted to `f32` at once is never rounded.
#[test]
fn common_kernels_read_and_store_halves_directly() {
    for class in CLASSES {
        let profile = DeviceProfile { class, ..DeviceProfile::default() };
        let step = RecordedStep::new(&profile, |g| {
            let x = g.input::<f16>("x", [24, 16])?;
            let ids = g.input::<i32>("ids", [24])?;
            let y = x.matmul_t(&x)?.relu()?;
            let q = g.input::<f16>("q", [1, 2, 8, 8])?;
            Ok(vec![
                q.attention(&q, &q, true)?,
                q.attention_fused(&q, &q, remat::ops::AttentionOptions::default())?,
                y.softmax(-1)?,
                x.layer_norm(None, None, 1e-5)?,
                x.cross_entropy(&ids)?,
                x.embedding(&ids)?,
                x.sum(&[0], false)?,
                x.sum(&[1], false)?.to_f32()?,
                x.transpose(0, 1)?.matmul(&y)?,
            ])
        })
        .unwrap();
        let wide: Vec<_> = step.program().storages.iter().filter(|s| s.name.contains(".wide")).collect();
        assert!(wide.is_empty(), "{class:?}: {wide:?}");
        assert!(step.program().passes.iter().all(|p| p.name != "to_f32"), "the sum of rows is stored as f32");
    }
    let odd = RecordedStep::new(&DeviceProfile::default(), |g| g.input::<f16>("x", [3, 7])?.softmax(-1)).unwrap();
    assert!(odd.program().storages.iter().any(|s| s.name.contains(".wide")), "odd rows do");
}
