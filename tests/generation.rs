//! Generation with a cache of keys and values.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "common/engine.rs"]
mod engine;

use remat::checkpoint::Policy;
use remat::error::{Error, Result};
use remat::gpu::Gpu;
use remat::graph::{Recorder, Tensor};
use remat::nn::{AttentionConfig, Gpt, GptConfig, KeyValueCache, Llama, LlamaConfig, Module, MultiHeadAttention};
use remat::params::{Init, Params};
use remat::step::Step;

const LLAMA: LlamaConfig =
    LlamaConfig { vocabulary: 23, width: 24, layers: 2, heads: 6, key_value_heads: 2, hidden: 40, rotary_base: 1e4 };
const TOKENS: usize = 11;
const BATCH: usize = 2;

fn ids() -> Vec<i32> {
    (0..BATCH as i32 * TOKENS as i32).map(|i| (i * 7 + 3) % 23).collect()
}

/// Columns `from..to` of `[B, T, width]`.
fn columns<T: Copy>(all: &[T], width: usize, from: usize, to: usize) -> Vec<T> {
    all.chunks(TOKENS * width).flat_map(|row| row[from * width..to * width].iter().copied()).collect()
}

/// A step that decodes `tokens` tokens.
fn decoder(gpu: &Gpu, tokens: usize, decode: impl Fn(&Tensor) -> Result<Tensor>) -> Step<Tensor> {
    gpu.step_blocking(Policy::None, |r| decode(&r.input::<i32>("ids", [BATCH, tokens])?)).unwrap()
}

/// A prompt of four tokens, then token after token, against all at once.
fn check(
    gpu: &Gpu,
    params: &Params,
    cache: &KeyValueCache,
    full: &dyn Fn(&Tensor) -> Result<Tensor>,
    decode: &dyn Fn(&Tensor) -> Result<Tensor>,
) {
    let all = ids();
    let step = gpu.step_blocking(Policy::None, |r| full(&r.input::<i32>("ids", [BATCH, TOKENS])?)).unwrap();
    let expected = step.run_blocking(&[("ids", (&all).into())]).unwrap().read_blocking::<f32>().unwrap();
    let (prompt, one) = (decoder(gpu, 4, decode), decoder(gpu, 1, decode));
    let clear = gpu.step_blocking(Policy::None, |r| cache.clear(r)).unwrap();
    // Twice: what an earlier text has left is not seen.
    for round in 0..2 {
        clear.run_blocking(&[]).unwrap();
        for (from, to) in std::iter::once((0, 4)).chain((4..TOKENS).map(|t| (t, t + 1))) {
            let step = if to - from == 4 { &prompt } else { &one };
            let ids = columns(&all, 1, from, to);
            let logits = step.run_blocking(&[("ids", (&ids).into())]).unwrap().read_blocking::<f32>().unwrap();
            let expected = engine::wide(&columns(&expected, 23, from, to));
            engine::assert_close(&logits, &expected, 1e-5, &format!("round {round}, tokens {from}..{to}"));
        }
        assert_eq!(params.read_blocking::<u32>("cache.length").unwrap(), [TOKENS as u32]);
    }
    // Beyond the capacity there is no number that looks right.
    let ids = columns(&all, 1, 0, 1);
    let run = || one.run_blocking(&[("ids", (&ids).into())]).unwrap().read_blocking::<f32>().unwrap();
    assert!(run().iter().all(|v| v.is_finite()), "the last place");
    assert!(run().iter().all(|v| v.is_nan()), "beyond the last place");
    // And a new text starts afresh.
    clear.run_blocking(&[]).unwrap();
    engine::assert_close(&run(), &engine::wide(&columns(&expected, 23, 0, 1)), 1e-5, "after the overflow");
}

#[test]
fn a_llama_decodes_token_by_token_what_it_computes_at_once() {
    let (_turn, gpu) = engine::gpu();
    let params = Params::new(&gpu, 3);
    let model = Llama::new(&params, &LLAMA).unwrap();
    let cache = model.cache(&params, "cache", BATCH, TOKENS + 1).unwrap();
    assert_eq!(cache.states()[0].ty().shape.dims(), [BATCH, 2, TOKENS + 1, 4]);
    check(&gpu, &params, &cache, &|ids| model.forward(ids), &|ids| model.decode(ids, &cache));
}

#[test]
fn a_gpt_decodes_token_by_token_what_it_computes_at_once() {
    let (_turn, gpu) = engine::gpu();
    for fused_qkv in [false, true] {
        let params = Params::new(&gpu, 3);
        let config =
            GptConfig { fused_qkv, dropout: 0.1, embedding_std: 0.5, ..GptConfig::new(23, TOKENS + 1, 16, 2, 2) };
        let model = Gpt::new(&params, &config).unwrap().eval();
        let cache = model.cache(&params, "cache", BATCH).unwrap();
        check(&gpu, &params, &cache, &|ids| model.forward(ids), &|ids| model.decode(ids, &cache));
    }
}

#[test]
fn a_cache_in_a_segment_that_would_be_replayed_is_refused() {
    let params = Params::offline(0);
    let model = Llama::new(&params, &LLAMA).unwrap();
    let cache = model.cache(&params, "cache", BATCH, 8).unwrap();
    let recorder = Recorder::new();
    let ids = recorder.input::<i32>("ids", [BATCH, 1]).unwrap();
    let refused = |result: Result<Tensor>| {
        let error = result.unwrap_err();
        let Error::Argument { op: "key_value_cache", argument: "segment", value, detail } = &error else {
            panic!("{error}")
        };
        assert_eq!(value, "generate");
        assert!(detail.contains("inside a checkpoint segment") && detail.contains("replayed"), "{error}");
    };
    refused(recorder.checkpoint_named("generate", ids.clone(), |ids| model.decode(&ids, &cache)));
    // Also where the tokens were announced outside and only the layer is inside.
    let layer = MultiHeadAttention::new(&params, "attn", AttentionConfig::new(24, 2)).unwrap();
    let cache = KeyValueCache::new(&params, "own", 1, [BATCH, 2, 8, 12]).unwrap();
    let x = recorder.input::<f32>("x", [BATCH, 1, 24]).unwrap();
    let step = cache.append(&recorder, 1).unwrap();
    refused(recorder.checkpoint_named("generate", x.clone(), |x| layer.decode(&x, &step, 0)));
    assert!(layer.decode(&x, &step, 0).is_ok(), "outside it is recorded");
}

#[test]
fn tokens_and_layers_that_do_not_fit_are_refused() {
    let params = Params::offline(0);
    let cache = KeyValueCache::new(&params, "cache", 1, [2, 2, 3, 4]).unwrap();
    let recorder = Recorder::new();
    assert!(matches!(cache.append(&recorder, 4), Err(Error::Argument { argument: "tokens", .. })));
    let step = cache.append(&recorder, 2).unwrap();
    let x = |dims: [usize; 4]| recorder.zeros(dims).unwrap();
    let fits = x([2, 2, 2, 4]);
    assert!(matches!(step.attend(1, &fits, &fits, &fits), Err(Error::Argument { argument: "layer", .. })));
    for wrong in [[1, 2, 2, 4], [2, 1, 2, 4], [2, 2, 1, 4], [2, 2, 2, 5]] {
        let error = step.attend(0, &fits, &x(wrong), &fits).unwrap_err();
        assert!(matches!(error, Error::Shape { op: "key_value_cache", .. }), "{error}");
    }
    assert!(step.attend(0, &fits, &fits, &fits).is_ok());
    // A state is written once per run: neither a layer nor the whole appends twice.
    for (state, again) in [
        ("cache.0.keys", step.attend(0, &fits, &fits, &fits).unwrap_err()),
        ("cache.length", cache.append(&recorder, 1).unwrap_err()),
        ("cache.length", cache.clear(&recorder).unwrap_err()),
    ] {
        assert!(matches!(&again, Error::Argument { argument: "state", value, .. } if value == state), "{again}");
    }
    // A name taken by something else.
    params.create("other.length", [2], Init::Zeros).unwrap();
    assert!(KeyValueCache::new(&params, "other", 1, [2, 2, 3, 4]).is_err());
}
