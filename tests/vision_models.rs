//! ResNet and U-Net: shapes, names, equal bits and state under every policy, training.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;
#[path = "common/engine.rs"]
mod engine;

use common::models::{noise, policies, shared_gpu};
use remat::graph::Recorder;
use remat::nn::{Module, ResNet, ResNetConfig, ResidualBlock, UNet};
use remat::optim::{Optimizer, Sgd, SgdConfig};
use remat::params::Params;
use remat::step::RecordedStep;

#[test]
fn resnet18_has_the_shapes_and_names_of_torchvision() {
    let params = Params::offline(0);
    let model = ResNet::new(&params, &ResNetConfig::resnet18(3, 1000)).unwrap();
    let count: u64 = model.parameters().iter().map(|p| p.ty().shape.element_count()).sum();
    // What torchvision says of it.
    assert_eq!(count, 11_689_512);
    let names: Vec<String> = model.parameters().iter().map(|p| p.name().to_owned()).collect();
    for name in ["conv1.weight", "bn1.bias", "layer1.1.bn2.weight", "layer3.0.downsample.0.weight", "fc.bias"] {
        assert!(names.iter().any(|n| n == name), "{name} is not in {names:?}");
    }
    assert!(!names.iter().any(|n| n.contains("layer1.0.downsample")));
    let recorder = Recorder::new();
    let images = recorder.zeros([2, 3, 64, 64]).unwrap();
    assert_eq!(model.eval().forward(&images).unwrap().dims(), [2, 1000]);
}

#[test]
fn wrong_sizes_of_models_are_typed_errors() {
    let params = Params::offline(0);
    assert!(ResidualBlock::new(&params, "b", [4, 4], 0).unwrap_err().to_string().contains("stride"));
    let none = ResNetConfig { widths: Vec::new(), ..ResNetConfig::resnet18(1, 10) };
    assert!(ResNet::new(&params, &none).unwrap_err().to_string().contains("widths"));
    assert!(UNet::new(&params, [1, 1], 8, 64).unwrap_err().to_string().contains("depth"));
    let model = UNet::new(&params, [1, 1], 4, 2).unwrap();
    let error = model.forward(&Recorder::new().zeros([1, 1, 8, 6]).unwrap()).unwrap_err().to_string();
    assert!(error.contains("unet") && error.contains("[1, 1, 8, 6]"), "{error}");
}

#[test]
fn models_train_with_equal_bits_and_running_statistics_under_every_policy() {
    let (_turn, gpu) = shared_gpu();
    let config = ResNetConfig { small_stem: true, widths: vec![8, 16], blocks: 1, ..ResNetConfig::resnet18(1, 4) };
    let images = noise(4 * 8 * 8, 1);
    let classes = [0_i32, 1, 2, 3];
    let target = noise(4 * 8 * 8, 2);
    let settings = SgdConfig { momentum: 0.9, ..SgdConfig::default() };
    let record = |params: &Params, g: &Recorder, sgd: &Sgd| {
        let x = g.input::<f32>("x", [4, 1, 8, 8])?;
        let resnet = ResNet::new(params, &config)?;
        let unet = UNet::new(params, [1, 1], 4, 2)?;
        let loss = resnet.forward(&x)?.cross_entropy(&g.input::<i32>("y", [4])?)?;
        let drawn = unet.forward(&x)?;
        let loss = loss.add(&drawn.mse_loss(&g.input::<f32>("target", [4, 1, 8, 8])?)?)?;
        sgd.minimize(&loss)?;
        Ok(loss)
    };
    let recorded = {
        let params = Params::offline(0);
        let sgd = Sgd::new(&params, settings).unwrap();
        RecordedStep::new(gpu.profile(), |g| record(&params, g, &sgd)).unwrap()
    };
    let mut first: Option<(Vec<f32>, Vec<f32>)> = None;
    for policy in policies(&recorded) {
        let params = Params::new(&gpu, 0);
        let sgd = Sgd::new(&params, settings).unwrap();
        let step = gpu.step_blocking(policy.clone(), |g| record(&params, g, &sgd)).unwrap();
        let mut losses = Vec::new();
        for _ in 0..6 {
            let inputs = remat::inputs! { "x" => &images, "y" => &classes, "target" => &target, "lr" => 0.05 };
            losses.push(step.run_blocking(inputs).unwrap().item_blocking::<f32>().unwrap());
        }
        assert!(losses[5] < 0.9 * losses[0], "{policy}: {losses:?}");
        let mut state = Vec::new();
        for name in
            ["bn1.running_mean", "layer2.0.bn2.running_var", "merge.1.bn2.running_var", "fc.weight", "up.0.weight"]
        {
            state.extend(params.read_blocking::<f32>(name).unwrap());
        }
        assert_eq!(params.read_blocking::<i32>("bottom.bn1.num_batches_tracked").unwrap(), [6], "{policy}");
        let found = (losses, state);
        assert!(first.get_or_insert_with(|| found.clone()) == &found, "{policy}: other numbers");
    }
}
