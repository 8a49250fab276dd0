//! Freezing, low-rank adapters, and the modes of training and evaluation.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "common/engine.rs"]
mod engine;

use remat::checkpoint::Policy;
use remat::error::{Error, Result};
use remat::fuse::program::Phase;
use remat::graph::{Recorder, Tensor};
use remat::nn::{
    AttentionConfig, BertConfig, BertEncoder, Dropout, Gpt, GptConfig, Linear, Llama, LlamaConfig, LoraConfig, Mlp,
    Module, MultiHeadAttention, ResNet, ResNetConfig, UNet, add_lora, merge_lora,
};
use remat::optim::{AdamW, AdamWConfig, Gradients, Optimizer};
use remat::params::{Param, Params};
use remat::profile::DeviceProfile;
use remat::step::RecordedStep;

const SMALL: LlamaConfig =
    LlamaConfig { vocabulary: 19, width: 16, layers: 2, heads: 2, key_value_heads: 1, hidden: 24, rotary_base: 1e4 };

fn offline(body: impl FnOnce(&Recorder) -> Result<Vec<Tensor>>) -> RecordedStep<Vec<Tensor>> {
    RecordedStep::new(&DeviceProfile::default(), body).unwrap()
}

fn names(gradients: &Gradients) -> Vec<String> {
    gradients.entries.iter().map(|(param, _)| param.name().to_owned()).collect()
}

#[test]
fn frozen_parameters_have_no_gradient_no_moments_and_no_passes() {
    let build = |patterns: &[&str]| {
        let params = Params::offline(0);
        let model = Mlp::new(&params, 8, 16, 3).unwrap();
        for pattern in patterns {
            params.freeze(pattern).unwrap();
        }
        let adamw = AdamW::new(&params, AdamWConfig::default()).unwrap();
        let mut trained = Vec::new();
        let step = offline(|r| {
            let loss = model.forward_checkpointed(&r.input::<f32>("x", [4, 8])?)?.sqr()?.mean_all()?;
            trained = names(&adamw.minimize(&loss)?);
            Ok(vec![loss])
        });
        let count = |phase| step.program().passes.iter().filter(|pass| pass.phase == phase).count();
        (trained, params.names().len(), count(Phase::Backward), count(Phase::Update))
    };
    let (all, states, backward, updates) = build(&[]);
    assert_eq!((all.len(), states, updates), (12, 36, 12));
    let (some, states, fewer, updates) = build(&["blocks.0.*", "blocks.1.*"]);
    assert_eq!(some, ["blocks.2.0.weight", "blocks.2.0.bias", "blocks.2.2.weight", "blocks.2.2.bias"]);
    assert_eq!((states, updates), (12 + 8, 4));
    // The frozen blocks lie before the trained one: nothing of their backward is left.
    assert!(3 * fewer < backward + 6, "{fewer} of {backward} backward passes");
    let (biases, states, no_weights, _) = build(&["*.weight"]);
    assert_eq!((biases.len(), states), (6, 12 + 12));
    assert!(no_weights + 6 <= backward, "{no_weights} of {backward} backward passes without six weights");

    let params = Params::offline(0);
    let weight = Mlp::new(&params, 8, 16, 1).unwrap().blocks[0].up.weight.clone();
    let error = params.freeze("blocks.0.weight").unwrap_err();
    assert!(matches!(&error, Error::UnknownState { op: "freeze", similar, .. } if !similar.is_empty()), "{error}");
    assert_eq!(params.freeze("*").unwrap().len(), 4);
    assert!(weight.is_frozen() && params.get(weight.name()).unwrap().is_frozen());
    assert_eq!(params.unfreeze("*.weight").unwrap().len(), 2);
    assert!(!weight.is_frozen());
    // Everything frozen: nothing is trained, and that is no error.
    params.freeze("*").unwrap();
    offline(|r| {
        let loss = Linear::of(weight.clone(), None).forward(&r.input::<f32>("x", [4, 8])?)?.mean_all()?;
        assert!(Gradients::of(&loss)?.entries.is_empty());
        Ok(vec![loss])
    });
}

#[test]
fn what_is_frozen_stays_and_the_rest_trains_as_before() {
    let (_turn, gpu) = engine::gpu();
    let x = engine::noise(4 * 8, 1);
    let inputs: [(&str, remat::gpu::InputData<'_>); 1] = [("x", (&x).into())];
    let gradients = |frozen: &str| {
        let params = Params::new(&gpu, 5);
        let model = Mlp::new(&params, 8, 16, 3).unwrap();
        params.freeze(frozen).unwrap();
        let step = engine::record(&gpu, |r| {
            let loss = model.forward_checkpointed(&r.input::<f32>("x", [4, 8])?)?.sqr()?.mean_all()?;
            let last = |(param, g): (Param, Tensor)| param.name().starts_with("blocks.1").then_some(g);
            Ok(Gradients::of(&loss)?.entries.into_iter().filter_map(last).collect())
        });
        engine::run_all(&gpu, &params, &step, &inputs).outputs
    };
    let [first, third] = ["blocks.0.*", "blocks.2.*"].map(gradients);
    assert_eq!(first.len(), 4);
    assert!(first == third, "what is frozen elsewhere does not change a gradient");
}

#[test]
fn an_adapter_is_its_formula_trains_alone_and_merges() {
    let (_turn, gpu) = engine::gpu();
    let params = Params::new(&gpu, 4);
    let mut linear = Linear::new(&params, "lin", 6, 5, true).unwrap();
    let config = LoraConfig { alpha: 6.0, ..LoraConfig::new(3) };
    let adapters = add_lora(&mut linear, &["lin"], config).unwrap();
    let list = |all: &[Param]| all.iter().map(|p| p.name().to_owned()).collect::<Vec<_>>();
    assert_eq!(list(&adapters), ["lin.lora_A.weight", "lin.lora_B.weight"]);
    assert_eq!(list(&linear.parameters()), ["lin.weight", "lin.bias", "lin.lora_A.weight", "lin.lora_B.weight"]);
    let read = |name: &str| params.read_blocking::<f32>(name).unwrap();
    // First values: A within +-1/sqrt(6) and not all alike, B zero.
    let a = read("lin.lora_A.weight");
    let bound = 1.0 / 6.0_f32.sqrt();
    assert!(a.iter().all(|v| v.abs() <= bound) && a.iter().any(|v| v.abs() > bound / 2.0), "{a:?}");
    assert!(read("lin.lora_B.weight").iter().all(|&b| b == 0.0));

    let b = engine::noise(15, 9);
    params.write_blocking("lin.lora_B.weight", &b).unwrap();
    let x = engine::noise(4 * 6, 2);
    let expected = |a: &[f64], b: &[f64], weight: &[f64]| {
        let x = engine::wide(&x);
        let base = engine::linear(&x, weight, &engine::wide(&read("lin.bias")), 6);
        let low = engine::linear(&engine::linear(&x, a, &[], 6), b, &[], 3);
        base.iter().zip(low).map(|(y, d)| y + 2.0 * d).collect::<Vec<f64>>()
    };
    let weight = engine::wide(&read("lin.weight"));
    let y = expected(&engine::wide(&a), &engine::wide(&b), &weight);
    let loss = |y: &[f64]| y.iter().map(|v| v * v).sum::<f64>();
    let at = [engine::wide(&a), engine::wide(&b)];
    let slopes = engine::differences(&at, |ab| loss(&expected(&ab[0], &ab[1], &weight)));
    let step = engine::record(&gpu, |r| {
        let y = r.checkpoint(r.input::<f32>("x", [4, 6])?, |x| linear.forward(&x))?;
        let gradients = Gradients::of(&y.sqr()?.sum_all()?)?;
        assert_eq!(names(&gradients), list(&adapters));
        let mut all = vec![y];
        all.extend(gradients.entries.into_iter().map(|(_, g)| g));
        Ok(all)
    });
    let inputs: [(&str, remat::gpu::InputData<'_>); 1] = [("x", (&x).into())];
    let ran = engine::run_all(&gpu, &params, &step, &inputs);
    engine::assert_close(&ran.floats(0), &y, 1e-5, "y");
    engine::assert_close(&ran.floats(1), &slopes[0], 1e-4, "the gradient of A");
    engine::assert_close(&ran.floats(2), &slopes[1], 1e-4, "the gradient of B");

    let mut plain = linear.clone();
    let merge = gpu.step_blocking(Policy::None, |r| merge_lora(&mut plain, r)).unwrap();
    assert!(plain.lora.is_none());
    let both = gpu
        .step_blocking(Policy::None, |r| {
            let x = r.input::<f32>("x", [4, 6])?;
            Ok((plain.forward(&x)?, linear.forward(&x)?))
        })
        .unwrap();
    for _ in 0..2 {
        // A second merge finds B zero.
        merge.run_blocking(&[]).unwrap();
        let (merged, adapted) = both.run_blocking(&inputs).unwrap();
        engine::assert_close(&merged.read_blocking().unwrap(), &y, 1e-5, "merged");
        engine::assert_close(&adapted.read_blocking().unwrap(), &y, 1e-5, "merged, with the adapter of zeros");
        assert!(read("lin.lora_B.weight").iter().all(|&b| b == 0.0));
    }
}

#[test]
fn adapters_in_a_model_change_nothing_at_first_and_learn() {
    let (_turn, gpu) = engine::gpu();
    let params = Params::new(&gpu, 6);
    let plain = Llama::new(&params, &SMALL).unwrap();
    let mut model = plain.clone();
    let config = LoraConfig { dropout: 0.25, ..LoraConfig::new(2) };
    let adapters = add_lora(&mut model, &["q_proj", "v_proj", "layers.1.mlp.up_proj"], config).unwrap();
    assert_eq!(adapters.len(), 2 * 5);
    let base = params.read_all_blocking().unwrap();
    let adamw = AdamW::new(&params, AdamWConfig::default()).unwrap();
    let ids: Vec<i32> = (0..14).map(|i| (i * 7 + 3) % 19).collect();
    let logits = |model: &Llama| {
        let step = gpu.step_blocking(Policy::None, |r| model.forward(&r.input::<i32>("ids", [2, 7])?)).unwrap();
        step.run_blocking(&[("ids", (&ids).into())]).unwrap().read_blocking::<f32>().unwrap()
    };
    assert_eq!(logits(&plain), logits(&model.eval()), "B is zero at first");
    let train = gpu
        .step_blocking(Policy::Segments, |r| {
            let ids = r.input::<i32>("ids", [2, 7])?;
            let loss = model.forward(&ids)?.reshape([14, 19])?.cross_entropy(&ids.reshape([14])?)?;
            assert_eq!(adamw.minimize(&loss)?.entries.len(), adapters.len());
            Ok(loss)
        })
        .unwrap();
    let loss = |step: u32| {
        let inputs = [("ids", (&ids).into()), ("lr", 2e-2_f32.into()), ("step", step.into()), ("seed", 1_u32.into())];
        train.run_blocking(&inputs).unwrap().item_blocking::<f32>().unwrap()
    };
    let first = loss(0);
    let last = (1..40).map(loss).last().unwrap();
    assert!(last < 0.8 * first, "{first} became {last}");
    for state in params.read_all_blocking().unwrap() {
        if let Some(before) = base.iter().find(|before| before.name == state.name) {
            let moved = before.bytes != state.bytes;
            assert_eq!(moved, state.name.contains("lora_"), "{}", state.name);
        } else {
            assert!(state.name.contains("lora_"), "a moment of a frozen parameter: {}", state.name);
        }
    }
    // Merged, the plain model is the adapted one.
    let adapted = engine::wide(&logits(&model.eval()));
    gpu.step_blocking(Policy::None, |r| merge_lora(&mut model, r)).unwrap().run_blocking(&[]).unwrap();
    engine::assert_close(&logits(&plain), &adapted, 1e-5, "merged logits");
}

#[test]
fn an_adapter_of_packed_projections_is_split_with_them() {
    let (_turn, gpu) = engine::gpu();
    let params = Params::new(&gpu, 2);
    let config = AttentionConfig { key_value_heads: 1, ..AttentionConfig::new(8, 2) };
    let mut layer = MultiHeadAttention::new(&params, "attn", config).unwrap();
    let adapters = add_lora(&mut layer, &["in_proj", "attn.out_proj"], LoraConfig::new(2)).unwrap();
    for (seed, param) in (1..).zip(&adapters) {
        let values = engine::noise(param.ty().shape.element_count() as usize, seed);
        params.write_blocking(param.name(), &values).unwrap();
    }
    assert_eq!(adapters[1].name(), "attn.in_proj.lora_B.weight");
    assert_eq!(adapters[1].ty().shape.dims(), [8 + 4 + 4, 2]);
    let (x, y) = (engine::noise(2 * 3 * 8, 7), engine::noise(2 * 5 * 8, 8));
    let run = |layer: &MultiHeadAttention| {
        let step = gpu
            .step_blocking(Policy::None, |r| {
                let (x, y) = (r.input::<f32>("x", [2, 3, 8])?, r.input::<f32>("y", [2, 5, 8])?);
                Ok((layer.attend(&x, &y, None)?, layer.forward(&x)?))
            })
            .unwrap();
        let (cross, own) = step.run_blocking(&[("x", (&x).into()), ("y", (&y).into())]).unwrap();
        [cross, own].map(|out| out.read_blocking::<f32>().unwrap())
    };
    let mut plain = layer.clone();
    plain.linears_mut().into_iter().for_each(|linear| linear.lora = None);
    let (adapted, base) = (run(&layer), run(&plain));
    assert!(adapted[0] != base[0], "the adapter is heard");
    gpu.step_blocking(Policy::None, |r| merge_lora(&mut layer, r)).unwrap().run_blocking(&[]).unwrap();
    for (merged, adapted) in run(&plain).iter().zip(&adapted) {
        engine::assert_close(merged, &engine::wide(adapted), 1e-5, "merged");
    }
}

#[test]
fn adapters_that_do_not_fit_are_refused_and_change_nothing() {
    let params = Params::offline(0);
    let mut model = Llama::new(&params, &SMALL).unwrap();
    let count = params.names().len();
    let good = LoraConfig::new(2);
    for (targets, config, argument) in [
        (&["q_proj"][..], LoraConfig { rank: 0, ..good }, "rank"),
        (&["q_proj"], LoraConfig { alpha: f32::NAN, ..good }, "alpha"),
        (&["q_proj"], LoraConfig { dropout: 1.0, ..good }, "p"),
        (&["q_proj", "proj"], good, "targets"),
    ] {
        match add_lora(&mut model, targets, config) {
            Err(Error::Argument { argument: found, .. }) => assert_eq!(found, argument),
            other => panic!("{other:?}"),
        }
        assert_eq!(params.names().len(), count);
        assert!(model.parameters().iter().all(|p| !p.is_frozen()));
    }
    add_lora(&mut model, &["q_proj"], good).unwrap();
    let again = add_lora(&mut model, &["q_proj"], good).unwrap_err();
    assert!(again.to_string().contains("already"), "{again}");
}

/// Random passes and written states of a model's forward pass.
fn marks(record: impl FnOnce(&Recorder) -> Result<Tensor>) -> (bool, usize) {
    let step = offline(|r| Ok(vec![record(r)?]));
    let random = step.program().inputs.iter().any(|input| input.name == "seed");
    (random, step.program().passes.iter().filter(|pass| pass.phase == Phase::Update).count())
}

#[test]
fn evaluation_reaches_every_dropout_and_batch_norm_and_training_switches_back() {
    fn check<M: Module + Clone>(model: &M, input: impl Fn(&Recorder) -> Result<Tensor>, training: (bool, usize)) {
        let forward = |model: &M| marks(|r| model.forward(&input(r)?));
        assert_eq!(forward(model), training, "as made");
        assert_eq!(forward(&model.eval()), (false, 0), "in evaluation");
        assert_eq!(forward(&model.eval().train()), training, "in training again");
    }
    let params = || Params::offline(0);
    let ids = |r: &Recorder| r.input::<i32>("ids", [2, 4]);
    let images = |r: &Recorder| r.input::<f32>("x", [2, 3, 16, 16]);
    check(&Dropout::new(0.5).unwrap(), images, (true, 0));
    check(&Mlp::with_dropout(&params(), 16, 8, 2, 0.5).unwrap(), images, (true, 0));
    let gpt = GptConfig { dropout: 0.1, ..GptConfig::new(9, 4, 8, 2, 2) };
    check(&Gpt::new(&params(), &gpt).unwrap(), ids, (true, 0));
    check(&BertEncoder::new(&params(), &BertConfig::new(9, 4, 8, 2, 2)).unwrap(), ids, (true, 0));
    let mut llama = Llama::new(&params(), &SMALL).unwrap();
    add_lora(&mut llama, &["o_proj"], LoraConfig { dropout: 0.5, ..LoraConfig::new(1) }).unwrap();
    check(&llama, ids, (true, 0));
    // Mean, variance and count of each batch norm.
    let resnet =
        ResNetConfig { widths: vec![4, 8], blocks: vec![1; 2], small_stem: true, ..ResNetConfig::resnet18(3, 5) };
    check(&ResNet::new(&params(), &resnet).unwrap(), images, (false, 3 * (1 + 2 + 3)));
    check(&UNet::new(&params(), [3, 2], 4, 1).unwrap(), images, (false, 3 * 2 * 3));
}
