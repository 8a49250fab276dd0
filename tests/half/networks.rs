//! The other networks in halves: language and vision models, close to `f32` and
//! with equal bits under every policy.

use remat::dtype::DType;
use remat::nn::{Llama, LlamaConfig, Mlp, Module, ResNet, ResNetConfig, UNet};
use remat::optim::{LossScaler, LossScalerConfig, Optimizer, Sgd, SgdConfig};
use remat::params::Params;

use crate::engine::{gpu, noise, record, run_all};

/// Loss and gradients' fingerprint of one step in `dtype`, the same under every
/// policy, then the losses of further steps.
fn losses(dtype: DType, name: &str) -> Vec<f32> {
    let (_turn, gpu) = gpu();
    let params = Params::new(&gpu, 3);
    let sgd = Sgd::new(&params, SgdConfig { momentum: 0.9, ..SgdConfig::default() }).unwrap();
    let scaler =
        LossScaler::new(&params, LossScalerConfig { init_scale: 256.0, ..LossScalerConfig::default() }).unwrap();
    let step = record(&gpu, |g| {
        let images = || g.constant(&noise(256, 4), [4, 1, 8, 8])?.to_dtype(dtype);
        let loss = g.autocast(dtype, || match name {
            "llama" => {
                let config = LlamaConfig {
                    vocabulary: 33,
                    width: 32,
                    layers: 2,
                    heads: 4,
                    key_value_heads: 2,
                    hidden: 48,
                    rotary_base: 1e4,
                };
                let ids: Vec<i32> = (0..18).map(|i| (i * 7 + 3) % 33).collect();
                let logits = Llama::new(&params, &config)?.forward(&g.constant(&ids, [2, 9])?)?;
                logits.reshape([18, 33])?.cross_entropy(&g.constant(&ids, [18])?)
            }
            "resnet" => {
                let config = ResNetConfig { widths: vec![8, 16], blocks: vec![1; 2], ..ResNetConfig::resnet18(1, 4) };
                let config = ResNetConfig { small_stem: true, ..config };
                ResNet::new(&params, &config)?.forward(&images()?)?.cross_entropy(&g.constant(&[0, 1, 2, 3], [4])?)
            }
            "unet" => UNet::new(&params, [1, 1], 4, 2)?.forward(&images()?)?.mse_loss(&images()?),
            _ => {
                let x = g.constant(&noise(48, 5), [6, 8])?.to_dtype(dtype)?;
                Mlp::new(&params, 8, 12, 3)?.forward_checkpointed(&x)?.mse_loss(&x)
            }
        })?;
        assert_eq!(loss.dtype(), DType::F32, "{name}");
        let gradients = remat::optim::Gradients::of(&scaler.scale(&loss)?)?;
        let gradients = scaler.unscale(g, &gradients)?;
        sgd.apply(&gradients)?;
        Ok(vec![loss, gradients.fingerprint(g)?])
    });
    run_all(&gpu, &params, &step, &[("lr", 0.05_f32.into())]);
    let plan = step.plan(&remat::checkpoint::Policy::Segments).unwrap();
    let run = remat::gpu::Executable::new_blocking(&gpu, step.program().clone(), plan, &params).unwrap();
    let loss = || run.run_blocking(&[("lr", 0.05_f32.into())]).unwrap().outputs[0].item_blocking::<f32>().unwrap();
    let losses = (0..6).map(|_| loss()).collect();
    assert_eq!(params.read_blocking::<u32>("scaler.updates").unwrap(), [6], "{name}: no update was skipped");
    losses
}

#[test]
fn networks_train_in_halves_as_in_f32() {
    for name in ["llama", "resnet", "unet", "mlp"] {
        let (half, full) = (losses(DType::F16, name), losses(DType::F32, name));
        let off = half.iter().zip(&full).map(|(h, f)| (h / f - 1.0).abs());
        let worst = off.fold(0.0, |m: f32, v| if v.is_nan() { v } else { m.max(v) });
        println!("{name}: within {worst:.1e}; {half:?}");
        assert!(worst <= 0.02, "{name}: {half:?} for {full:?}");
        assert!(half[5] < half[0], "{name} learns: {half:?}");
    }
}
