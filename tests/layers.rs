//! Every layer begins with PyTorch's names and first values, is the op that it stands
//! for, and takes adapters; dropout on attention.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "common/engine.rs"]
mod engine;

use remat::checkpoint::Policy;
use remat::error::{Error, Result};
use remat::graph::{Recorder, Tensor};
use remat::nn::{
    AttentionConfig, BatchNorm2d, BertConfig, BertEncoder, Conv1d, Conv2d, ConvTranspose2d, Embedding, Gpt, GptConfig,
    GroupNorm, LayerNorm, Linear, Llama, LlamaConfig, LoraConfig, Mlp, Module, MultiHeadAttention, ProjectionLayout,
    ResNet, ResNetConfig, RmsNorm, TransformerBlock, add_lora,
};
use remat::ops::random::random_uniform;
use remat::ops::{AttentionOptions, Conv2dOptions};
use remat::params::Params;

/// Stride, padding and groups; dilation 1.
fn options(stride: usize, padding: usize, groups: usize) -> Conv2dOptions {
    Conv2dOptions { groups, ..Conv2dOptions::new(stride, padding) }
}

/// One of each layer whose parameters are its own.
struct Layers {
    linear: Linear,
    embedding: Embedding,
    conv1d: Conv1d,
    conv2d: Conv2d,
    transposed: ConvTranspose2d,
    layer_norm: LayerNorm,
    rms_norm: RmsNorm,
    group_norm: GroupNorm,
    batch_norm: BatchNorm2d,
}

impl Layers {
    fn new(params: &Params) -> Self {
        Self {
            linear: Linear::new(params, "linear", 50, 40, true).unwrap(),
            embedding: Embedding::new(params, "embedding", 60, 30, 1.0).unwrap(),
            conv1d: Conv1d::new(params, "conv1d", [8, 24], 5, 2, 1, true).unwrap(),
            conv2d: Conv2d::new(params, "conv2d", [8, 24], 3, options(2, 1, 2), true).unwrap(),
            transposed: ConvTranspose2d::new(params, "transposed", [8, 24], 3, options(2, 1, 4), true).unwrap(),
            layer_norm: LayerNorm::new(params, "layer_norm", 8).unwrap(),
            rms_norm: RmsNorm::new(params, "rms_norm", 8).unwrap(),
            group_norm: GroupNorm::new(params, "group_norm", 2, 8).unwrap(),
            batch_norm: BatchNorm2d::new(params, "batch_norm", 8).unwrap(),
        }
    }
}

/// Mean, mean square and largest size.
fn moments(values: &[f32]) -> [f64; 3] {
    let count = values.len() as f64;
    let of = |power| values.iter().map(|&v| f64::from(v).powi(power)).sum::<f64>() / count;
    [of(1), of(2), values.iter().fold(0.0, |m, &v| f64::from(v.abs()).max(m))]
}

#[test]
fn layers_begin_with_pytorchs_names_shapes_and_values() {
    let (_turn, gpu) = engine::gpu();
    let params = Params::new(&gpu, 11);
    let layers = Layers::new(&params);
    // Uniform in +-1/sqrt(inputs of an output), weights and biases: `kaiming_uniform_(a=sqrt(5))`.
    // A transposed convolution counts its weight's second axis, as PyTorch does.
    for (name, shape, fan_in) in [
        ("linear", &[40, 50][..], 50),
        ("conv1d", &[24, 8, 5], 8 * 5),
        ("conv2d", &[24, 4, 3, 3], 4 * 9),
        ("transposed", &[8, 6, 3, 3], 6 * 9),
    ] {
        for part in ["weight", "bias"] {
            let param = params.get(&format!("{name}.{part}")).unwrap();
            let expected = if part == "weight" {
                shape
            } else if name == "linear" {
                &[40]
            } else {
                &[24]
            };
            assert_eq!(param.ty().shape.dims(), expected, "{name}.{part}");
            let values = params.read_blocking::<f32>(param.name()).unwrap();
            let bound = 1.0 / f64::from(fan_in).sqrt();
            let [mean, square, largest] = moments(&values);
            // Five standard errors of a uniform sample's.
            let error = 5.0 / (values.len() as f64).sqrt();
            assert!(largest <= bound && largest > 0.85 * bound, "{name}.{part}: {largest} of {bound}");
            assert!(mean.abs() < error * bound / 3.0_f64.sqrt(), "{name}.{part}: mean {mean}");
            assert!((square * 3.0 / bound.powi(2) - 1.0).abs() < error * 0.9, "{name}.{part}: {square}");
        }
    }
    let values = params.read_blocking::<f32>("embedding.weight").unwrap();
    let [mean, square, largest] = moments(&values);
    assert_eq!(params.get("embedding.weight").unwrap().ty().shape.dims(), [60, 30]);
    assert!(mean.abs() < 0.12 && (square - 1.0).abs() < 0.17 && largest > 2.5, "{mean}, {square}, {largest}");
    for name in ["layer_norm", "rms_norm", "group_norm", "batch_norm"] {
        let read = |part: &str| params.read_blocking::<f32>(&format!("{name}.{part}"));
        assert_eq!(read("weight").unwrap(), [1.0; 8], "{name}");
        if name == "rms_norm" {
            assert!(read("bias").is_err());
        } else {
            assert_eq!(read("bias").unwrap(), [0.0; 8], "{name}");
        }
    }
    assert_eq!(params.read_blocking::<f32>("batch_norm.running_mean").unwrap(), [0.0; 8]);
    assert_eq!(params.read_blocking::<f32>("batch_norm.running_var").unwrap(), [1.0; 8]);
    assert_eq!(params.read_blocking::<i32>("batch_norm.num_batches_tracked").unwrap(), [0]);
    assert_eq!([layers.layer_norm.eps, layers.group_norm.eps, layers.batch_norm.eps], [1e-5; 3]);
    assert_eq!(layers.batch_norm.momentum, 0.1);
    // Other names and other seeds have other numbers, the same name and seed the same.
    let again = Params::new(&gpu, 11);
    Layers::new(&again);
    let other = Params::new(&gpu, 12);
    Layers::new(&other);
    let weight = |params: &Params| params.read_blocking::<f32>("linear.weight").unwrap();
    assert!(weight(&params) == weight(&again) && weight(&params) != weight(&other));
    let fresh = Params::new(&gpu, 11);
    Linear::new(&fresh, "other", 50, 40, true).unwrap();
    assert!(fresh.read_blocking::<f32>("other.weight").unwrap() != weight(&params));
}

/// The layer and the op on its parameters, one below the other.
type Pair<'a> = (&'a str, &'a [usize], &'a dyn Fn(&Recorder, &Tensor) -> Result<[Tensor; 2]>);

#[test]
fn layers_are_their_ops_in_segments_too() {
    let (_turn, gpu) = engine::gpu();
    let params = Params::new(&gpu, 5);
    let l = Layers::new(&params);
    // Numbers that tell weights, biases and statistics apart.
    for (seed, name) in (1..).zip(params.names()) {
        let ty = params.get(&name).unwrap().ty().clone();
        if ty.dtype == remat::dtype::DType::F32 {
            let values: Vec<f32> =
                engine::noise(ty.shape.element_count() as usize, seed).iter().map(|v| 1.5 + v).collect();
            params.write_blocking(&name, &values).unwrap();
        }
    }
    let evaluated = l.batch_norm.eval();
    let get = |g: &Recorder, name: &str| g.param(&params.get(name).unwrap());
    let pairs: [Pair<'_>; 8] = [
        ("linear", &[3, 50], &|g, x| {
            Ok([l.linear.forward(x)?, x.linear(&get(g, "linear.weight")?, Some(&get(g, "linear.bias")?))?])
        }),
        ("conv1d", &[2, 8, 11], &|g, x| {
            let op = x.conv1d(&get(g, "conv1d.weight")?, Some(&get(g, "conv1d.bias")?), 2, 1, 1, 1)?;
            Ok([l.conv1d.forward(x)?, op])
        }),
        ("conv2d", &[2, 8, 5, 6], &|g, x| {
            let op = x.conv2d(&get(g, "conv2d.weight")?, Some(&get(g, "conv2d.bias")?), options(2, 1, 2))?;
            Ok([l.conv2d.forward(x)?, op])
        }),
        ("transposed", &[2, 8, 4, 3], &|g, x| {
            let (w, b) = (get(g, "transposed.weight")?, get(g, "transposed.bias")?);
            let op = x.conv_transpose2d(&w, Some(&b), options(2, 1, 4), [1, 1])?;
            let layer = ConvTranspose2d { output_padding: [1, 1], ..l.transposed.clone() };
            Ok([layer.forward(x)?, op])
        }),
        ("layer_norm", &[4, 8], &|g, x| {
            let op = x.layer_norm(Some(&get(g, "layer_norm.weight")?), Some(&get(g, "layer_norm.bias")?), 1e-5)?;
            Ok([l.layer_norm.forward(x)?, op])
        }),
        ("rms_norm", &[4, 8], &|g, x| {
            Ok([l.rms_norm.forward(x)?, x.rms_norm(Some(&get(g, "rms_norm.weight")?), 1e-6)?])
        }),
        ("group_norm", &[2, 8, 3], &|g, x| {
            let op = x.group_norm(2, Some(&get(g, "group_norm.weight")?), Some(&get(g, "group_norm.bias")?), 1e-5)?;
            Ok([l.group_norm.forward(x)?, op])
        }),
        ("batch_norm", &[2, 8, 3, 2], &|g, x| {
            let [mean, var, w, b] =
                ["running_mean", "running_var", "weight", "bias"].map(|part| get(g, &format!("batch_norm.{part}")));
            let op = x.batch_norm_eval(&mean?, &var?, Some(&w?), Some(&b?), 1e-5)?;
            Ok([evaluated.forward(x)?, op])
        }),
    ];
    for (name, shape, both) in pairs {
        let x = engine::noise(shape.iter().product(), 7);
        let step = engine::record(&gpu, |g| {
            let x = g.input::<f32>("x", shape)?;
            let mut all = Vec::new();
            for which in 0..2 {
                // The op alone, the layer in a segment.
                let inside = |x: Tensor| Ok(both(g, &x.mul_scalar(2.0_f32)?)?[which].clone());
                let y = if which == 0 { g.checkpoint(x.clone(), inside)? } else { inside(x.clone())? };
                let wrt: Vec<Tensor> = ["weight", "bias"]
                    .iter()
                    .filter_map(|p| params.get(&format!("{name}.{p}")))
                    .map(|p| g.param(&p))
                    .collect::<Result<_>>()?;
                let wrt: Vec<&Tensor> = std::iter::once(&x).chain(&wrt).collect();
                all.push([vec![y.clone()], g.gradients(&y.sqr()?.sum_all()?, &wrt)?].concat());
            }
            assert_eq!(all[0].len(), if name == "rms_norm" { 3 } else { 4 });
            Ok(all.concat())
        });
        let ran = engine::run_all(&gpu, &params, &step, &[("x", (&x).into())]);
        let (layer, op) = ran.outputs.split_at(ran.outputs.len() / 2);
        assert!(layer == op, "{name}: the layer is not its op");
        assert!(ran.floats(0).iter().any(|v| *v != 0.0));
    }
    let ids = [3_i32, 0, 59, 3];
    let step = engine::record(&gpu, |g| {
        let ids = g.input::<i32>("ids", [4])?;
        let y = g.checkpoint(ids.clone(), |ids| l.embedding.forward(&ids))?;
        Ok(vec![y, get(g, "embedding.weight")?.embedding(&ids)?])
    });
    let ran = engine::run_all(&gpu, &params, &step, &[("ids", (&ids).into())]);
    assert_eq!(ran.outputs[0], ran.outputs[1]);
}

#[test]
fn every_linear_layer_of_every_model_takes_an_adapter() {
    fn check<M: Module>(model: &mut M, linears: usize, input: impl Fn(&Recorder) -> Result<Tensor>) {
        let names: Vec<String> = model.linears_mut().iter().map(|linear| linear.name().to_owned()).collect();
        assert_eq!(names.len(), linears, "{names:?}");
        let before = model.parameters().len();
        let targets: Vec<&str> = names.iter().map(String::as_str).collect();
        let adapters = add_lora(model, &targets, LoraConfig::new(2)).unwrap();
        assert_eq!((adapters.len(), model.parameters().len()), (2 * linears, before + 2 * linears));
        // Each one is in the recording and has a gradient.
        let g = Recorder::new();
        let loss = model.forward(&input(&g).unwrap()).unwrap().sqr().unwrap().sum_all().unwrap();
        let trained = remat::optim::Gradients::of(&loss).unwrap();
        let trained: std::collections::BTreeSet<&str> = trained.entries.iter().map(|(p, _)| p.name()).collect();
        assert_eq!(trained, adapters.iter().map(|p| p.name()).collect(), "trained");
    }
    let params = || Params::offline(0);
    let ids = |g: &Recorder| g.input::<i32>("ids", [2, 4]);
    let tokens = |g: &Recorder| g.input::<f32>("x", [2, 3, 8]);
    check(&mut Linear::new(&params(), "lin", 8, 5, true).unwrap(), 1, tokens);
    for (layout, linears) in [(ProjectionLayout::Packed, 2), (ProjectionLayout::Separate, 4)] {
        let config = AttentionConfig { layout, ..AttentionConfig::new(8, 2) };
        check(&mut MultiHeadAttention::new(&params(), "attn", config).unwrap(), linears, tokens);
    }
    for (fused_qkv, linears) in [(false, 6), (true, 4)] {
        let config = GptConfig { fused_qkv, ..GptConfig::new(9, 4, 8, 2, 3) };
        check(&mut TransformerBlock::new(&params(), "block", &config).unwrap(), linears, tokens);
        check(&mut Gpt::new(&params(), &config).unwrap(), 3 * linears + 1, ids);
    }
    check(&mut Mlp::new(&params(), 8, 16, 2).unwrap(), 4, tokens);
    check(&mut BertEncoder::new(&params(), &BertConfig::new(9, 4, 8, 2, 2)).unwrap(), 2 * 6, ids);
    let llama = LlamaConfig {
        vocabulary: 19,
        width: 16,
        layers: 2,
        heads: 2,
        key_value_heads: 1,
        hidden: 24,
        rotary_base: 1e4,
    };
    check(&mut Llama::new(&params(), &llama).unwrap(), 2 * 7 + 1, ids);
    let resnet = ResNetConfig { widths: vec![4], blocks: vec![1], small_stem: true, ..ResNetConfig::resnet18(3, 5) };
    check(&mut ResNet::new(&params(), &resnet).unwrap(), 1, |g| g.input::<f32>("x", [2, 3, 8, 8]));
}

/// Softmax weights are dropped as [`Tensor::dropout`] drops: by the words of a stream.
#[test]
fn attention_drops_weights_of_the_softmax() {
    let (_turn, gpu) = engine::gpu();
    let params = Params::new(&gpu, 1);
    // More keys than are composed by themselves, and grouped heads.
    let (b, h, hk, t, s, d, p) = (2, 4, 2, 3, 130, 4, 0.4_f32);
    let (q, k, v) =
        (engine::noise(b * h * t * d, 1), engine::noise(b * hk * s * d, 2), engine::noise(b * hk * s * d, 3));
    let given = remat::inputs! { "q" => &q, "k" => &k, "v" => &v, "seed" => 9_u32, "step" => 4_u32 };
    let step = engine::record(&gpu, |g| {
        let q = g.input::<f32>("q", [b, h, t, d])?;
        let (k, v) = (g.input::<f32>("k", [b, hk, s, d])?, g.input::<f32>("v", [b, hk, s, d])?);
        let y = g.checkpoint((q.clone(), k.clone(), v.clone()), |(q, k, v)| {
            q.attention_with(&k, &v, AttentionOptions { dropout: p, ..AttentionOptions::default() })
        })?;
        Ok([vec![y.clone()], g.gradients(&y.sqr()?.sum_all()?, &[&q, &k, &v])?].concat())
    });
    let ran = engine::run_all(&gpu, &params, &step, given);
    assert!(ran.plan(Policy::Segments).replayed_passes > 0);
    let plain = |x: &[Vec<f64>]| -> Vec<f64> {
        let mut y = vec![0.0; b * h * t * d];
        for row in 0..b * h * t {
            let keys = row / t / h * hk + row / t % h / (h / hk);
            let query = &x[0][row * d..][..d];
            let score = |key: usize| {
                let of = &x[1][(keys * s + key) * d..][..d];
                (query.iter().zip(of).map(|(a, b)| a * b).sum::<f64>() / (d as f64).sqrt()).exp()
            };
            let weights: Vec<f64> = (0..s).map(score).collect();
            let total: f64 = weights.iter().sum();
            for key in 0..s {
                if random_uniform((row * s + key) as u32, 0, 4, 9) >= p {
                    for i in 0..d {
                        y[row * d + i] += weights[key] / total / (1.0 - f64::from(p)) * x[2][(keys * s + key) * d + i];
                    }
                }
            }
        }
        y
    };
    let at = [engine::wide(&q), engine::wide(&k), engine::wide(&v)];
    engine::assert_close(&ran.floats(0), &plain(&at), 1e-5, "y");
    let slopes = engine::differences(&at, |x| plain(x).iter().map(|v| v * v).sum());
    for (output, slope) in (1..).zip(&slopes) {
        engine::assert_close(&ran.floats(output), slope, 1e-4, "gradient");
    }

    // The layer drops in training alone, and without dropout it is as before.
    let config = AttentionConfig { dropout: 0.5, ..AttentionConfig::new(8, 2) };
    let layer = MultiHeadAttention::new(&params, "attn", config).unwrap();
    let x = engine::noise(2 * 5 * 8, 6);
    let out = |layer: &MultiHeadAttention, seed: Option<u32>| {
        let step = gpu.step_blocking(Policy::None, |g| layer.forward(&g.input::<f32>("x", [2, 5, 8])?)).unwrap();
        let mut inputs = vec![("x", (&x).into())];
        inputs.extend(seed.into_iter().flat_map(|seed| [("seed", seed.into()), ("step", 0_u32.into())]));
        step.run_blocking(&inputs).unwrap().read_blocking::<f32>().unwrap()
    };
    let without = MultiHeadAttention::new(&params, "attn", AttentionConfig::new(8, 2)).unwrap();
    assert_eq!(out(&layer.eval(), None), out(&without, None));
    assert!(out(&layer, Some(1)) != out(&layer, Some(2)));
    assert_eq!(out(&layer, Some(1)), out(&layer.eval().train(), Some(1)));
    for wrong in [1.0, -0.5, f32::NAN] {
        let config = AttentionConfig { dropout: wrong, ..AttentionConfig::new(8, 2) };
        let error = MultiHeadAttention::new(&params, "wrong", config).unwrap_err();
        assert!(matches!(error, Error::Argument { op: "dropout", .. }), "{error}");
    }
    assert!(params.get("wrong.in_proj_weight").is_none());
}
