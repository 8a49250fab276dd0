//! ResNet and U-Net: shapes, names, equal bits and state under every policy, training.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;
#[path = "common/engine.rs"]
mod engine;

use common::models::{noise, policies, shared_gpu};
use remat::graph::Recorder;
use remat::nn::{InstanceNorm, Module, ResNet, ResNetConfig, ResidualBlock, UNet};
use remat::optim::{Optimizer, Sgd, SgdConfig};
use remat::params::Params;
use remat::step::RecordedStep;

#[test]
fn resnet50_has_the_sizes_and_names_of_torchvision() {
    let params = Params::offline(0);
    let model = ResNet::new(&params, &ResNetConfig::resnet50(3, 1000)).unwrap();
    let count: u64 = model.parameters().iter().map(|p| p.ty().shape.element_count()).sum();
    // What torchvision says of it.
    assert_eq!(count, 25_557_032);
    let shape = |name: &str| {
        let parameter = model.parameters().into_iter().find(|p| p.name() == name);
        parameter.unwrap_or_else(|| panic!("{name} is missing")).ty().shape.clone()
    };
    assert_eq!(shape("layer1.0.conv3.weight").dims(), [256, 64, 1, 1]);
    assert_eq!(shape("layer2.0.downsample.0.weight").dims(), [512, 256, 1, 1]);
    assert_eq!(shape("layer4.2.bn3.weight").dims(), [2048]);
    let recorder = Recorder::new();
    let images = recorder.zeros([2, 3, 64, 64]).unwrap();
    assert_eq!(model.forward(&images).unwrap().dims(), [2, 1000]);
}

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
fn resnet_begins_with_torchvisions_first_values() {
    let (_turn, gpu) = shared_gpu();
    for zero_init_residual in [false, true] {
        let params = Params::new(&gpu, 3);
        let sizes = ResNetConfig { widths: vec![32, 64], zero_init_residual, ..ResNetConfig::resnet18(3, 10) };
        ResNet::new(&params, &sizes).unwrap();
        // Variance 2 / (O K^2), counted by outputs.
        for (name, fan_out) in [("conv1", 32 * 49), ("layer1.0.conv1", 32 * 9), ("layer2.0.downsample.0", 64)] {
            let weight = params.read_blocking::<f32>(&format!("{name}.weight")).unwrap();
            let of = |power: i32| weight.iter().map(|&w| f64::from(w).powi(power)).sum::<f64>() / weight.len() as f64;
            let (mean, ratio) = (of(1), of(2) * f64::from(fan_out) / 2.0);
            // Five standard errors of a normal sample's.
            let error = 5.0 * (2.0 / weight.len() as f64).sqrt();
            assert!((ratio - 1.0).abs() < error, "{name}: {ratio} of the variance meant");
            assert!(mean.abs() < error * of(2).sqrt(), "{name}: mean {mean}");
            assert!((of(4) / of(2).powi(2) - 3.0).abs() < 3.0 * error, "{name}: not normal");
        }
        let expected = if zero_init_residual { 0.0 } else { 1.0 };
        let values = |name: &str| params.read_blocking::<f32>(name).unwrap();
        assert!(values("layer2.1.bn2.weight").iter().all(|&w| w == expected));
        assert!(values("layer2.1.bn1.weight").iter().all(|&w| w == 1.0));
        assert!(values("layer2.1.bn2.bias").iter().all(|&b| b == 0.0));
    }
}

#[test]
fn instance_norm_brings_each_channel_of_each_sample_to_mean_0_and_variance_1() {
    let (_turn, gpu) = shared_gpu();
    let params = Params::new(&gpu, 0);
    let plain = InstanceNorm::new(&params, "plain", 3, false).unwrap();
    let affine = InstanceNorm::new(&params, "affine", 3, true).unwrap();
    assert!(plain.parameters().is_empty());
    let names: Vec<String> = affine.parameters().iter().map(|p| p.name().to_owned()).collect();
    assert_eq!(names, ["affine.weight", "affine.bias"]);
    let (weight, bias) = ([0.5_f32, -2.0, 3.0], [1.0_f32, 0.0, -1.0]);
    let states = [("affine.weight", &weight), ("affine.bias", &bias)];
    params.load_blocking(states.map(|(name, v)| (name, remat::dtype::Shape(vec![3]), &v[..]))).unwrap();
    let x = noise(2 * 3 * 10, 1);
    let step = gpu
        .step_blocking(remat::checkpoint::Policy::None, |g| {
            let x = g.input::<f32>("x", [2, 3, 2, 5])?;
            Ok((plain.forward(&x)?, affine.forward(&x)?))
        })
        .unwrap();
    let (y, z) = step.run_blocking(remat::inputs! { "x" => &x }).unwrap();
    let (y, z) = (y.read_blocking::<f32>().unwrap(), z.read_blocking::<f32>().unwrap());
    for (row, values) in x.chunks(10).enumerate() {
        let mean = values.iter().map(|&v| f64::from(v)).sum::<f64>() / 10.0;
        let variance = values.iter().map(|&v| (f64::from(v) - mean).powi(2)).sum::<f64>() / 10.0;
        for (i, &v) in values.iter().enumerate() {
            let normed = (f64::from(v) - mean) / (variance + 1e-5).sqrt();
            let scaled = normed * f64::from(weight[row % 3]) + f64::from(bias[row % 3]);
            let found = [(y[row * 10 + i], normed), (z[row * 10 + i], scaled)];
            assert!(found.iter().all(|(f, e)| (f64::from(*f) - e).abs() < 1e-5), "{row}, {i}: {found:?}");
        }
    }
    let recorder = Recorder::new();
    for shape in [vec![2, 4, 5], vec![2, 3, 1, 1], vec![3]] {
        let error = plain.forward(&recorder.zeros(remat::dtype::Shape(shape)).unwrap()).unwrap_err().to_string();
        assert!(error.contains("instance_norm"), "{error}");
    }
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
    let config =
        ResNetConfig { small_stem: true, widths: vec![8, 16], blocks: vec![1; 2], ..ResNetConfig::resnet18(1, 4) };
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
