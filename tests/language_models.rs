//! The language layers: names, errors, what causal and grouped mean, and training
//! with equal bits under every policy.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;
#[path = "common/engine.rs"]
mod engine;

use common::models::noise;
use remat::graph::Recorder;
use remat::nn::{AttentionConfig, Llama, LlamaConfig, Module, MultiHeadAttention};
use remat::ops::AttentionOptions;
use remat::optim::{AdamW, AdamWConfig, Optimizer};
use remat::params::Params;

const SMALL: LlamaConfig =
    LlamaConfig { vocabulary: 33, width: 32, layers: 3, heads: 4, key_value_heads: 2, hidden: 48, rotary_base: 1e4 };

#[test]
fn a_llama_trains_with_equal_bits_under_every_policy() {
    let (_turn, gpu) = engine::gpu();
    let params = Params::new(&gpu, 3);
    let (model, adamw) = (Llama::new(&params, &SMALL).unwrap(), AdamW::new(&params, AdamWConfig::default()).unwrap());
    let names = params.names();
    for name in
        ["embed_tokens.weight", "layers.2.self_attn.k_proj.weight", "layers.0.mlp.gate_proj.weight", "norm.weight"]
    {
        assert!(names.iter().any(|n| n == name), "{name} of {names:?}");
    }
    assert!(!names.iter().any(|n| n.ends_with("bias")));
    let step = engine::record(&gpu, |g| {
        let ids = g.input::<i32>("ids", [2, 9])?;
        let logits = model.forward(&ids)?;
        let loss = logits.reshape([18, 33])?.cross_entropy(&g.input::<i32>("targets", [18])?)?;
        let gradients = adamw.minimize(&loss)?;
        Ok(vec![loss, gradients.fingerprint(g)?])
    });
    let ids: Vec<i32> = (0..18).map(|i| (i * 7 + 3) % 33).collect();
    let targets: Vec<i32> = (0..18).map(|i| (i * 5 + 1) % 33).collect();
    let inputs: [(&str, remat::gpu::InputData<'_>); 4] =
        [("ids", (&ids).into()), ("targets", (&targets).into()), ("lr", 1e-2_f32.into()), ("step", 0_u32.into())];
    let ran = engine::run_all(&gpu, &params, &step, &inputs);
    let first = ran.floats(0)[0];
    assert!((first - (33.0_f32).ln()).abs() < 0.5, "an untrained model knows nothing: {first}");
    // And it learns the batch by heart.
    let trained = gpu
        .step_blocking(remat::checkpoint::Policy::Segments, |g| {
            let logits = model.forward(&g.input::<i32>("ids", [2, 9])?)?;
            let loss = logits.reshape([18, 33])?.cross_entropy(&g.input::<i32>("targets", [18])?)?;
            adamw.minimize(&loss)?;
            Ok(loss)
        })
        .unwrap();
    let mut last = first;
    for index in 0..40_u32 {
        let inputs =
            [("ids", (&ids).into()), ("targets", (&targets).into()), ("lr", 1e-2_f32.into()), ("step", index.into())];
        last = trained.run_blocking(&inputs).unwrap().item_blocking::<f32>().unwrap();
    }
    assert!(last < 0.3 * first, "{first} became {last}");
}

#[test]
fn grouped_masked_and_causal_attention_are_what_repeated_heads_and_masks_give() {
    let (_turn, gpu) = engine::gpu();
    let shapes = [[2, 6, 5, 4], [2, 2, 7, 4], [2, 2, 7, 3]];
    let data: Vec<Vec<f32>> = shapes.iter().zip(1..).map(|(s, seed)| noise(s.iter().product(), seed)).collect();
    let step = engine::record(&gpu, |g| {
        let x: Vec<_> =
            shapes.iter().zip(["q", "k", "v"]).map(|(s, n)| g.input::<f32>(n, *s)).collect::<Result<_, _>>()?;
        let (q, k, v) = (&x[0], &x[1], &x[2]);
        // Row t sees keys up to t + 2; as a mask of truth values, and as one that is added.
        let (row, column) = (g.iota([5, 7], 0)?, g.iota([5, 7], 1)?);
        let seen = column.le(&row.add_scalar(2_u32)?)?;
        let added = seen.where_(&g.zeros([5, 7])?, &g.full([5, 7], f32::NEG_INFINITY)?)?;
        let with = |mask| AttentionOptions { mask: Some(mask), ..AttentionOptions::default() };
        let causal = |causal_offset| AttentionOptions { causal: true, causal_offset, ..AttentionOptions::default() };
        let mut all = vec![
            q.attention_with(k, v, causal(2))?,
            q.attention_with(k, v, with(&seen))?,
            q.attention_with(k, v, with(&added))?,
            q.attention_with(&k.repeat_interleave(3, 1)?, &v.repeat_interleave(3, 1)?, with(&seen))?,
        ];
        // Who sees nothing gets zeros.
        let nothing = g.full_bool([5, 7], false)?;
        let blind = q.attention_with(k, v, with(&nothing))?;
        all.extend(g.gradients(&blind.sum_all()?, &[q, v])?);
        all.push(blind);
        Ok(all)
    });
    let inputs: Vec<(&str, remat::gpu::InputData<'_>)> =
        ["q", "k", "v"].into_iter().zip(&data).map(|(n, d)| (n, d.into())).collect();
    let ran = engine::run_all(&gpu, &Params::new(&gpu, 0), &step, &inputs);
    let causal: Vec<f64> = engine::wide(&ran.floats(0));
    for other in 1..4 {
        engine::assert_close(&ran.floats(other), &causal, 1e-6, "attention");
    }
    for zero in 4..7 {
        assert!(ran.floats(zero).iter().all(|&v| v == 0.0), "output {zero}: {:?}", ran.floats(zero));
    }
}

#[test]
fn wrong_sizes_are_typed_errors() {
    let params = Params::offline(0);
    let with = |heads, key_value_heads, rotary_base| AttentionConfig {
        key_value_heads,
        rotary_base,
        ..AttentionConfig::new(12, heads)
    };
    for config in [with(5, 5, None), with(0, 1, None), with(4, 3, None), with(4, 0, None), with(4, 4, Some(1e4))] {
        let error = MultiHeadAttention::new(&params, "attn", config).unwrap_err().to_string();
        assert!(error.contains("multi_head_attention"), "{error}");
    }
    let recorder = Recorder::new();
    let layer = MultiHeadAttention::new(&params, "attn", with(3, 1, Some(1e4))).unwrap();
    assert!(layer.forward(&recorder.zeros([2, 12]).unwrap()).is_err());
    assert!(Llama::new(&params, &SMALL).unwrap().forward(&recorder.full_i32([4], 0).unwrap()).is_err());
}
