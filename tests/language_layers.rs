//! Attention layers, rotary positions and BERT's encoder against plain numbers, with
//! PyTorch's and Hugging Face's names and first values.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "common/engine.rs"]
mod engine;

use engine::wide;
use remat::checkpoint::Policy;
use remat::error::{Error, Result};
use remat::graph::{Recorder, Tensor};
use remat::inputs;
use remat::nn::{AttentionConfig, BertConfig, BertEncoder, Llama, LlamaConfig, Module, MultiHeadAttention};
use remat::ops::RopeOptions;
use remat::params::Params;
use remat::profile::DeviceProfile;
use remat::step::RecordedStep;

/// Queries of `heads` heads over keys and values of `shared` heads, all `[T, heads * D]`
/// of one sequence; `seen` says which keys a query sees.
fn attend(
    qkv: [&[f64]; 3],
    heads: usize,
    shared: usize,
    width: usize,
    seen: impl Fn(usize, usize) -> bool,
) -> Vec<f64> {
    let [q, k, v] = qkv;
    let (rows, keys) = (q.len() / (heads * width), k.len() / (shared * width));
    let mut y = vec![0.0; q.len()];
    for row in 0..rows {
        for head in 0..heads {
            let of = head / (heads / shared);
            let part = |x: &[f64], row: usize, heads: usize, head: usize| -> Vec<f64> {
                x[(row * heads + head) * width..][..width].to_vec()
            };
            let query = part(q, row, heads, head);
            let score = |key: usize| {
                let dot: f64 = query.iter().zip(part(k, key, shared, of)).map(|(a, b)| a * b).sum();
                if seen(row, key) { (dot / (width as f64).sqrt()).exp() } else { 0.0 }
            };
            let weights: Vec<f64> = (0..keys).map(score).collect();
            let total: f64 = weights.iter().sum();
            for (key, weight) in weights.iter().enumerate() {
                for (i, value) in part(v, key, shared, of).iter().enumerate() {
                    y[(row * heads + head) * width + i] += weight / total * value;
                }
            }
        }
    }
    y
}

fn read(params: &Params, name: &str) -> Vec<f64> {
    wide(&params.read_blocking::<f32>(name).unwrap())
}

#[test]
fn multi_head_attention_has_pytorchs_names_first_values_and_formula() {
    let (_turn, gpu) = engine::gpu();
    let (width, rows, keys) = (12, 5, 7);
    for (heads, shared, causal, cross) in
        [(3, 3, false, false), (3, 3, false, true), (4, 2, true, false), (6, 1, false, true)]
    {
        let params = Params::new(&gpu, 2);
        let config = AttentionConfig { key_value_heads: shared, causal, ..AttentionConfig::new(width, heads) };
        let layer = MultiHeadAttention::new(&params, "attn", config).unwrap();
        assert_eq!(
            params.names(),
            ["attn.in_proj_weight", "attn.in_proj_bias", "attn.out_proj.weight", "attn.out_proj.bias"]
        );
        let head = width / heads;
        let total = width + 2 * shared * head;
        let weight = read(&params, "attn.in_proj_weight");
        assert_eq!(weight.len(), total * width);
        // Xavier over the whole matrix.
        let bound = (6.0 / (total + width) as f64).sqrt();
        let largest = weight.iter().fold(0.0_f64, |m, v| m.max(v.abs()));
        assert!(largest <= bound && largest > 0.97 * bound, "{largest} of {bound}");
        assert!(
            read(&params, "attn.in_proj_bias").iter().chain(&read(&params, "attn.out_proj.bias")).all(|&b| b == 0.0)
        );
        let bias = engine::noise(total, 4);
        params.write_blocking("attn.in_proj_bias", &bias).unwrap();

        let (x, y) = (engine::noise(2 * rows * width, 5), engine::noise(2 * keys * width, 6));
        let step = engine::record(&gpu, |r| {
            let x = r.input::<f32>("x", [2, rows, width])?;
            let out = if cross {
                let context = r.input::<f32>("y", [2, keys, width])?;
                r.checkpoint((x, context), |(x, context)| layer.attend(&x, &context, None))?
            } else {
                r.checkpoint(x, |x| layer.forward(&x))?
            };
            let params: Vec<Tensor> = layer.parameters().iter().map(|p| r.param(p)).collect::<Result<_>>()?;
            let loss = out.sqr()?.sum_all()?;
            Ok([vec![out], r.gradients(&loss, &params.iter().collect::<Vec<_>>())?].concat())
        });
        let plain = |weight: &[f64], bias: &[f64]| -> Vec<f64> {
            let out = read(&params, "attn.out_proj.weight");
            let project = |from: &[f64], first: usize, count: usize| {
                engine::linear(
                    from,
                    &weight[first * width..(first + count) * width],
                    &bias[first..first + count],
                    width,
                )
            };
            let (x, y) = (wide(&x), wide(if cross { &y } else { &x }));
            let (s, context) = (shared * head, y.len() / 2);
            let sequence = |b: usize| {
                let (x, y) = (&x[b * rows * width..][..rows * width], &y[b * context..][..context]);
                let (q, k, v) = (project(x, 0, width), project(y, width, s), project(y, width + s, s));
                let heads = attend([&q, &k, &v], heads, shared, head, |t, s| !causal || s <= t);
                engine::linear(&heads, &out, &[], width)
            };
            [sequence(0), sequence(1)].concat()
        };
        let all = [("x", (&x).into()), ("y", (&y).into())];
        let ran = engine::run_all(&gpu, &params, &step, &all[..if cross { 2 } else { 1 }]);
        let what = format!("{heads} and {shared} heads, causal {causal}, cross {cross}");
        engine::assert_close(&ran.floats(0), &plain(&weight, &wide(&bias)), 1e-5, &what);
        let square = |at: &[Vec<f64>]| plain(&at[0], &at[1]).iter().map(|v| v * v).sum();
        let slopes = engine::differences(&[weight.clone(), wide(&bias)], square);
        engine::assert_close(&ran.floats(1), &slopes[0], 1e-4, &format!("{what}: in_proj_weight"));
        engine::assert_close(&ran.floats(2), &slopes[1], 1e-4, &format!("{what}: in_proj_bias"));
    }
    let params = Params::offline(0);
    MultiHeadAttention::new(&params, "", AttentionConfig { bias: false, ..AttentionConfig::new(8, 2) }).unwrap();
    assert_eq!(params.names(), ["in_proj_weight", "out_proj.weight"]);
}

#[test]
fn rotary_positions_in_both_orders_and_one_table_for_all() {
    let (_turn, gpu) = engine::gpu();
    let (rows, width, first, base) = (5, 6, 3, 100.0_f32);
    let (x, g) = (engine::noise(2 * rows * width, 1), engine::noise(2 * rows * width, 2));
    for interleaved in [false, true] {
        let options = RopeOptions { base, first, interleaved };
        let step = engine::record(&gpu, |r| {
            let x = r.input::<f32>("x", [2, rows, width])?;
            let y = r.checkpoint(x.clone(), |x| x.mul_scalar(2.0_f32)?.rope_with(options))?;
            let loss = y.mul(&r.input::<f32>("g", [2, rows, width])?)?.sum_all()?;
            Ok(vec![y, r.gradients(&loss, &[&x])?.swap_remove(0)])
        });
        // `sign` -1 turns back: the gradient.
        let turn = |x: &[f64], sign: f64| {
            let mut y = vec![0.0; x.len()];
            for at in 0..x.len() / width {
                for i in 0..width / 2 {
                    let (a, b) = if interleaved { (2 * i, 2 * i + 1) } else { (i, width / 2 + i) };
                    let angle = (first + at % rows) as f64 * f64::from(base).powf(-2.0 * i as f64 / width as f64);
                    let (cos, sin) = (angle.cos(), sign * angle.sin());
                    let (p, q) = (x[at * width + a], x[at * width + b]);
                    (y[at * width + a], y[at * width + b]) = (2.0 * (p * cos - q * sin), 2.0 * (q * cos + p * sin));
                }
            }
            y
        };
        let ran = engine::run_all(&gpu, &Params::new(&gpu, 0), &step, inputs! { "x" => &x, "g" => &g });
        engine::assert_close(&ran.floats(0), &turn(&wide(&x), 1.0), 1e-6, "y");
        engine::assert_close(&ran.floats(1), &turn(&wide(&g), -1.0), 1e-6, "dx");
    }
    // Three layers, queries and keys: one table of cosines and one of sines.
    let params = Params::offline(0);
    let config =
        LlamaConfig { vocabulary: 9, width: 8, layers: 3, heads: 2, key_value_heads: 1, hidden: 8, rotary_base: 1e4 };
    let model = Llama::new(&params, &config).unwrap();
    let step =
        RecordedStep::new(&DeviceProfile::default(), |r| model.forward(&r.input::<i32>("ids", [1, 6])?)).unwrap();
    assert_eq!(step.program().constants.len(), 2);

    let r = Recorder::new();
    let x = r.zeros([2, 3, 4]).unwrap();
    let [cos, sin] = r.rope_tables(1e4, 4, 0, 3).unwrap();
    let again = r.rope_tables(1e4, 4, 0, 3).unwrap();
    assert_eq!([cos.id(), sin.id()], again.map(|t| t.id()));
    assert_ne!(r.rope_tables(1e4, 4, 1, 3).unwrap()[0].id(), cos.id());
    assert!(x.rotate(&cos, &sin, true).is_ok());
    let narrow = r.zeros([3, 1]).unwrap();
    for wrong in [x.rotate(&cos, &narrow, false), r.zeros([3, 3]).unwrap().rotate(&cos, &sin, false)] {
        assert!(matches!(wrong, Err(Error::Shape { op: "rope", .. })));
    }
    let options = RopeOptions { base, first: 0, interleaved: true };
    assert!(matches!(r.zeros([3]).unwrap().rope_with(options), Err(Error::Shape { op: "rope", .. })));
    assert!(matches!(r.full_i32([3, 4], 0).unwrap().rope_with(options), Err(Error::DType { op: "rope", .. })));
    assert!(matches!(r.rope_tables(1e4, 3, 0, 3), Err(Error::Argument { op: "rope", .. })));
}

/// The error function by its series, exact to rounding for arguments of a few units.
fn erf(x: f64) -> f64 {
    let (mut term, mut sum) = (x, x);
    for n in 1..200 {
        let n = f64::from(n);
        term *= -x * x / n;
        sum += term / (2.0 * n + 1.0);
    }
    sum * 2.0 / std::f64::consts::PI.sqrt()
}

fn layer_norm(x: &[f64], weight: &[f64], bias: &[f64], eps: f64) -> Vec<f64> {
    let width = weight.len();
    x.chunks(width)
        .flat_map(|row| {
            let mean = row.iter().sum::<f64>() / width as f64;
            let var = row.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / width as f64;
            let scale = 1.0 / (var + eps).sqrt();
            row.iter()
                .zip(weight.iter().zip(bias))
                .map(move |(v, (w, b))| (v - mean) * scale * w + b)
                .collect::<Vec<_>>()
        })
        .collect()
}

#[test]
fn bert_has_hugging_faces_names_and_formula_and_trains_with_equal_bits() {
    let (_turn, gpu) = engine::gpu();
    let (batch, time, width, heads) = (2, 6, 8, 2);
    let params = Params::new(&gpu, 8);
    let config = BertConfig { dropout: 0.0, hidden: 20, ..BertConfig::new(17, 9, width, heads, 2) };
    let model = BertEncoder::new(&params, &config).unwrap();
    let names = params.names();
    assert_eq!(names.len(), 5 + 2 * 16);
    for name in [
        "embeddings.word_embeddings.weight",
        "embeddings.position_embeddings.weight",
        "embeddings.token_type_embeddings.weight",
        "embeddings.LayerNorm.bias",
        "encoder.layer.1.attention.self.query.weight",
        "encoder.layer.0.attention.self.value.bias",
        "encoder.layer.1.attention.output.dense.weight",
        "encoder.layer.0.attention.output.LayerNorm.weight",
        "encoder.layer.1.intermediate.dense.bias",
        "encoder.layer.0.output.dense.weight",
        "encoder.layer.1.output.LayerNorm.bias",
    ] {
        assert!(names.iter().any(|n| n == name), "{name} of {names:?}");
    }
    // Larger weights and biases, so that every part is seen.
    for (seed, param) in (1..).zip(model.parameters()) {
        let values = engine::noise(param.ty().shape.element_count() as usize, seed);
        let one = if param.name().ends_with("LayerNorm.weight") { 1.0 } else { 0.0 };
        let values: Vec<f32> = values.iter().map(|v| one + 0.5 * v).collect();
        params.write_blocking(param.name(), &values).unwrap();
    }
    let ids: Vec<i32> = (0..12).map(|i| (i * 7 + 3) % 17).collect();
    let types: Vec<i32> = (0..12).map(|i| i32::from(i % 6 > 3)).collect();
    // The second sequence is two tokens shorter.
    let present: Vec<i32> = (0..12).map(|i| i32::from(i < 10)).collect();

    let p = |name: &str| read(&params, name);
    let mut x = Vec::new();
    let [words, positions, kinds] =
        ["word", "position", "token_type"].map(|t| p(&format!("embeddings.{t}_embeddings.weight")));
    for at in 0..batch * time {
        for i in 0..width {
            let (word, kind) = (ids[at] as usize, types[at] as usize);
            x.push(words[word * width + i] + kinds[kind * width + i] + positions[at % time * width + i]);
        }
    }
    let norm = |x: &[f64], name: &str| {
        layer_norm(x, &p(&format!("{name}.LayerNorm.weight")), &p(&format!("{name}.LayerNorm.bias")), 1e-12)
    };
    let dense = |x: &[f64], name: &str, inputs: usize| {
        engine::linear(x, &p(&format!("{name}.weight")), &p(&format!("{name}.bias")), inputs)
    };
    x = norm(&x, "embeddings");
    for layer in 0..2 {
        let name = |part: &str| format!("encoder.layer.{layer}.{part}");
        let [q, k, v] =
            ["query", "key", "value"].map(|part| dense(&x, &name(&format!("attention.self.{part}")), width));
        let mut heads_out = Vec::new();
        for b in 0..batch {
            let range = b * time * width..(b + 1) * time * width;
            let seen = |_: usize, key: usize| present[b * time + key] == 1;
            heads_out.extend(attend([&q, &k, &v].map(|t| &t[range.clone()]), heads, heads, width / heads, seen));
        }
        let attended = dense(&heads_out, &name("attention.output.dense"), width);
        x = norm(&engine::add(&x, &attended), &name("attention.output"));
        let hidden: Vec<f64> = dense(&x, &name("intermediate.dense"), width)
            .iter()
            .map(|v| 0.5 * v * (1.0 + erf(v / std::f64::consts::SQRT_2)))
            .collect();
        x = norm(&engine::add(&x, &dense(&hidden, &name("output.dense"), 20)), &name("output"));
    }
    let step = engine::record(&gpu, |r| {
        let ids = r.input::<i32>("ids", [batch, time])?;
        let seen = r.input::<i32>("present", [batch, time])?.to_bool()?;
        let y = model.encode(&ids, Some(&r.input::<i32>("types", [batch, time])?), Some(&seen))?;
        let gradients = remat::optim::Gradients::of(&y.mul(&y.detach()?)?.sum_all()?)?;
        assert_eq!(gradients.entries.len(), names.len());
        Ok(vec![y, gradients.fingerprint(r)?])
    });
    let ran =
        engine::run_all(&gpu, &params, &step, inputs! { "ids" => &ids, "types" => &types, "present" => &present });
    engine::assert_close(&ran.floats(0), &x, 2e-5, "encoded");
    assert!(ran.plan(Policy::Segments).replayed_passes > 0);

    // Without types they are 0, without a mask all is seen; a longer text does not fit.
    let both = gpu
        .step_blocking(Policy::None, |r| {
            let ids = r.input::<i32>("ids", [batch, time])?;
            let (types, seen) = (r.full_i32([batch, time], 0)?, r.full_bool([batch, time], true)?);
            Ok((model.forward(&ids)?, model.encode(&ids, Some(&types), Some(&seen))?))
        })
        .unwrap();
    let (plain, said) = both.run_blocking(inputs! { "ids" => &ids }).unwrap();
    engine::assert_close(&plain.read_blocking().unwrap(), &wide(&said.read_blocking().unwrap()), 1e-6, "defaults");
    let r = Recorder::new();
    for wrong in [
        model.forward(&r.full_i32([1, 10], 0).unwrap()),
        model.forward(&r.full_i32([4], 0).unwrap()),
        model.encode(&r.full_i32([1, 4], 0).unwrap(), None, Some(&r.full_bool([1, 3], true).unwrap())),
    ] {
        assert!(matches!(wrong, Err(Error::Shape { op: "bert", .. })));
    }
    assert!(BertEncoder::new(&Params::offline(0), &BertConfig { heads: 3, ..config }).is_err());
}
