//! Training steps of every model of the library, small enough to plan in a test.

use remat::dtype::DType;
use remat::error::Result;
use remat::graph::{Recorder, Tensor};
use remat::nn::{
    BertConfig, BertEncoder, Gpt, GptConfig, Llama, LlamaConfig, LoraConfig, Mlp, Module, ResNet, ResNetConfig, UNet,
    add_lora,
};
use remat::ops::Reduction;
use remat::optim::{AdamW, AdamWConfig, Optimizer};
use remat::params::Params;
use remat::profile::DeviceProfile;
use remat::step::RecordedStep;

type Recorded = RecordedStep<Tensor>;

fn recorded(
    profile: &DeviceProfile,
    dtype: DType,
    loss: impl FnOnce(&Params, &Recorder) -> Result<Tensor>,
) -> Recorded {
    let params = Params::offline(0);
    RecordedStep::new(profile, |g| {
        let loss = g.autocast(dtype, || loss(&params, g))?;
        AdamW::new(&params, AdamWConfig::default())?.minimize(&loss)?;
        Ok(loss)
    })
    .unwrap()
}

fn next_token(g: &Recorder, shape: [usize; 2], logits: impl FnOnce(&Tensor) -> Result<Tensor>) -> Result<Tensor> {
    let (ids, targets) = (g.input::<i32>("ids", shape)?, g.input::<i32>("targets", shape)?);
    let (logits, rows) = (logits(&ids)?, shape[0] * shape[1]);
    let classes = logits.dims()[2];
    logits.reshape([rows, classes])?.cross_entropy(&targets.reshape([rows])?)
}

fn gpt(params: &Params, g: &Recorder, layers: usize) -> Result<Tensor> {
    let model = Gpt::new(params, &GptConfig { dropout: 0.1, ..GptConfig::new(96, 128, 128, 4, layers) })?;
    next_token(g, [8, 128], |ids| model.logits(ids))
}

fn llama(params: &Params, g: &Recorder, lora: bool) -> Result<Tensor> {
    let config = LlamaConfig {
        vocabulary: 128,
        width: 64,
        layers: 4,
        heads: 8,
        key_value_heads: 2,
        hidden: 172,
        rotary_base: 1e4,
    };
    let mut model = Llama::new(params, &config)?;
    if lora {
        drop(add_lora(&mut model, &["q_proj", "v_proj"], LoraConfig::new(4))?);
    }
    next_token(g, [4, 160], |ids| model.forward(ids))
}

fn bert(params: &Params, g: &Recorder) -> Result<Tensor> {
    let model = BertEncoder::new(params, &BertConfig::new(128, 64, 64, 4, 4))?;
    let ids = g.input::<i32>("ids", [4, 64])?;
    model.forward(&ids)?.sqr()?.mean_all()
}

fn mlp(params: &Params, g: &Recorder, blocks: usize) -> Result<Tensor> {
    let model = Mlp::new(params, 64, 256, blocks)?;
    let x = g.input::<f32>("x", [256, 64])?;
    model.forward_checkpointed(&x)?.mse_loss(&g.input::<f32>("y", [256, 64])?)
}

fn resnet(params: &Params, g: &Recorder, config: &ResNetConfig, side: usize) -> Result<Tensor> {
    let model = ResNet::new(params, config)?;
    let images = g.input::<f32>("images", [4, 3, side, side])?;
    model.forward(&images)?.cross_entropy(&g.input::<i32>("classes", [4])?)
}

fn unet(params: &Params, g: &Recorder) -> Result<Tensor> {
    let model = UNet::new(params, [1, 1], 8, 3)?;
    let shape = [2, 1, 64, 64];
    let logits = model.forward(&g.input::<f32>("x", shape)?)?;
    logits.bce_with_logits(&g.input::<f32>("y", shape)?, None, Reduction::Mean)
}

/// Every one, by name.
pub(crate) fn all(profile: &DeviceProfile) -> Vec<(&'static str, Recorded)> {
    let of = |dtype, loss: &dyn Fn(&Params, &Recorder) -> Result<Tensor>| recorded(profile, dtype, loss);
    let f32 = DType::F32;
    vec![
        ("mlp, 8 blocks", of(f32, &|p, g| mlp(p, g, 8))),
        ("gpt, 4 layers", of(f32, &|p, g| gpt(p, g, 4))),
        ("gpt, 12 layers", of(f32, &|p, g| gpt(p, g, 12))),
        ("gpt, 4 layers, f16", of(DType::F16, &|p, g| gpt(p, g, 4))),
        ("llama, grouped queries", of(f32, &|p, g| llama(p, g, false))),
        ("llama, adapters", of(f32, &|p, g| llama(p, g, true))),
        ("bert", of(f32, &bert)),
        ("resnet18", of(f32, &|p, g| resnet(p, g, &ResNetConfig::resnet18(3, 10), 64))),
        ("resnet50", of(f32, &|p, g| resnet(p, g, &ResNetConfig::resnet50(3, 10), 64))),
        ("unet", of(f32, &unet)),
    ]
}
