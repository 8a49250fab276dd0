//! Models against the ops that their papers compose them of, recorded here by name of
//! the parameters: wiring, names and order of the parts. The GPT and the MLP have
//! PyTorch's numbers in `training.rs`, BERT plain ones in `language_layers.rs`.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "common/engine.rs"]
mod engine;

use remat::checkpoint::Policy;
use remat::error::Result;
use remat::gpu::{Gpu, InputData};
use remat::graph::{Recorder, Tensor};
use remat::nn::{Llama, LlamaConfig, Module, ResNet, ResNetConfig, ResidualBlock, SwiGlu, UNet};
use remat::ops::Conv2dOptions;
use remat::params::Params;

/// Numbers that tell every parameter and statistic from the others.
fn fill(params: &Params) {
    for (seed, name) in (1..).zip(params.names()) {
        let ty = params.get(&name).unwrap().ty().clone();
        if ty.dtype == remat::dtype::DType::F32 {
            let near = if name.ends_with("var") || name.contains("norm") || name.contains("bn") { 1.0 } else { 0.0 };
            let values = engine::noise(ty.shape.element_count() as usize, seed);
            let values: Vec<f32> = values.iter().map(|v| near + 0.4 * v).collect();
            params.write_blocking(&name, &values).unwrap();
        }
    }
}

/// Records ops on parameters by name.
struct Named<'a> {
    params: &'a Params,
    g: &'a Recorder,
}

impl Named<'_> {
    fn get(&self, name: &str) -> Result<Tensor> {
        self.g.param(&self.params.get(name).unwrap_or_else(|| panic!("{name} of {:?}", self.params.names())))
    }
    fn linear(&self, x: &Tensor, name: &str) -> Result<Tensor> {
        x.linear(&self.get(&format!("{name}.weight"))?, None)
    }
    fn conv(&self, x: &Tensor, name: &str, stride: usize, padding: usize) -> Result<Tensor> {
        x.conv2d(&self.get(&format!("{name}.weight"))?, None, Conv2dOptions::new(stride, padding))
    }
    /// Batch norm in evaluation.
    fn norm(&self, x: &Tensor, name: &str) -> Result<Tensor> {
        let [mean, var, weight, bias] =
            ["running_mean", "running_var", "weight", "bias"].map(|part| self.get(&format!("{name}.{part}")));
        x.batch_norm_eval(&mean?, &var?, Some(&weight?), Some(&bias?), 1e-5)
    }
    fn rms(&self, x: &Tensor, name: &str) -> Result<Tensor> {
        let size = x.sqr()?.mean(&[-1], true)?.add_scalar(1e-6_f32)?.sqrt()?;
        x.div(&size)?.mul(&self.get(&format!("{name}.weight"))?)
    }
    fn swiglu(&self, x: &Tensor, name: &str) -> Result<Tensor> {
        let gate = self.linear(x, &format!("{name}.gate_proj"))?;
        let hidden = gate.mul(&gate.sigmoid()?)?.mul(&self.linear(x, &format!("{name}.up_proj"))?)?;
        self.linear(&hidden, &format!("{name}.down_proj"))
    }
    /// A block of two convolutions, and a third one beside it where the size changes.
    fn residual(&self, x: &Tensor, name: &str, stride: usize) -> Result<Tensor> {
        let name = |part: &str| if name.is_empty() { part.to_owned() } else { format!("{name}.{part}") };
        let h = self.norm(&self.conv(x, &name("conv1"), stride, 1)?, &name("bn1"))?.relu()?;
        let h = self.norm(&self.conv(&h, &name("conv2"), 1, 1)?, &name("bn2"))?;
        let beside = if self.params.get(&name("downsample.0.weight")).is_some() {
            self.norm(&self.conv(x, &name("downsample.0"), stride, 0)?, &name("downsample.1"))?
        } else {
            x.clone()
        };
        h.add(&beside)?.relu()
    }
    fn twice(&self, x: &Tensor, name: &str) -> Result<Tensor> {
        let h = self.norm(&self.conv(x, &format!("{name}.conv1"), 1, 1)?, &format!("{name}.bn1"))?.relu()?;
        self.norm(&self.conv(&h, &format!("{name}.conv2"), 1, 1)?, &format!("{name}.bn2"))?.relu()
    }
}

/// Both recordings give the same numbers, to the order of sums.
fn same(gpu: &Gpu, what: &str, inputs: &[(&str, InputData<'_>)], both: impl Fn(&Recorder) -> Result<(Tensor, Tensor)>) {
    let step = gpu.step_blocking(Policy::None, both).unwrap();
    let (model, ops) = step.run_blocking(inputs).unwrap();
    let ops = engine::wide(&ops.read_blocking::<f32>().unwrap());
    let spread = ops.iter().fold((f64::MAX, f64::MIN), |(a, b), v| (a.min(*v), b.max(*v)));
    assert!(spread.1 - spread.0 > 1e-2, "{what}: {spread:?}");
    engine::assert_close(&model.read_blocking().unwrap(), &ops, 1e-5, what);
}

#[test]
fn a_llama_is_its_paper() {
    let (_turn, gpu) = engine::gpu();
    let params = Params::new(&gpu, 3);
    let config = LlamaConfig {
        vocabulary: 23,
        width: 24,
        layers: 2,
        heads: 6,
        key_value_heads: 2,
        hidden: 40,
        rotary_base: 100.0,
    };
    let model = Llama::new(&params, &config).unwrap();
    let glu = SwiGlu::new(&params, "alone", 24, 40).unwrap();
    fill(&params);
    let (batch, time, heads, shared, head) = (2, 7, 6, 2, 4);
    let ids: Vec<i32> = (0..14).map(|i| (i * 7 + 3) % 23).collect();
    same(&gpu, "llama", &[("ids", (&ids).into())], |g| {
        let of = Named { params: &params, g };
        let ids = g.input::<i32>("ids", [batch, time])?;
        let mut x = of.get("embed_tokens.weight")?.embedding(&ids)?;
        for layer in 0..2 {
            let name = |part: &str| format!("layers.{layer}.{part}");
            let normed = of.rms(&x, &name("input_layernorm"))?;
            let split = |part: &str, heads: usize| {
                let projected = of.linear(&normed, &name(&format!("self_attn.{part}_proj")))?;
                projected.reshape([batch, time, heads, head])?.permute(&[0, 2, 1, 3])
            };
            let (q, k) = (split("q", heads)?.rope(100.0, 0)?, split("k", shared)?.rope(100.0, 0)?);
            // Every key and value serves three heads of queries.
            let (k, v) = (k.repeat_interleave(3, 1)?, split("v", shared)?.repeat_interleave(3, 1)?);
            let scores = q.matmul(&k.transpose(-1, -2)?)?.mul_scalar(0.5_f32)?;
            let attended = scores.causal_fill(f32::NEG_INFINITY)?.softmax(-1)?.matmul(&v)?;
            let joined = attended.permute(&[0, 2, 1, 3])?.reshape([batch, time, 24])?;
            x = x.add(&of.linear(&joined, &name("self_attn.o_proj"))?)?;
            x = x.add(&of.swiglu(&of.rms(&x, &name("post_attention_layernorm"))?, &name("mlp"))?)?;
        }
        Ok((model.forward(&ids)?, of.linear(&of.rms(&x, "norm")?, "lm_head")?))
    });
    let x = engine::noise(3 * 24, 1);
    same(&gpu, "swiglu", &[("x", (&x).into())], |g| {
        let x = g.input::<f32>("x", [3, 24])?;
        Ok((glu.forward(&x)?, Named { params: &params, g }.swiglu(&x, "alone")?))
    });
}

#[test]
fn residual_networks_and_a_u_net_are_their_papers() {
    let (_turn, gpu) = engine::gpu();
    for (channels, stride) in [([4, 4], 1), ([4, 6], 1), ([4, 6], 2)] {
        let params = Params::new(&gpu, 3);
        let block = ResidualBlock::new(&params, "", channels, stride).unwrap().eval();
        fill(&params);
        let x = engine::noise(2 * 4 * 6 * 6, 1);
        same(&gpu, "residual block", &[("x", (&x).into())], |g| {
            let x = g.input::<f32>("x", [2, 4, 6, 6])?;
            Ok((block.forward(&x)?, Named { params: &params, g }.residual(&x, "", stride)?))
        });
    }
    let params = Params::new(&gpu, 3);
    let config = ResNetConfig { widths: vec![4, 8], blocks: vec![2, 1], ..ResNetConfig::resnet18(3, 5) };
    let model = ResNet::new(&params, &config).unwrap().eval();
    fill(&params);
    let x = engine::noise(2 * 3 * 16 * 16, 2);
    same(&gpu, "resnet", &[("x", (&x).into())], |g| {
        let of = Named { params: &params, g };
        let x = g.input::<f32>("x", [2, 3, 16, 16])?;
        let mut h = of.norm(&of.conv(&x, "conv1", 2, 3)?, "bn1")?.relu()?.max_pool2d([3, 3], [2, 2], [1, 1])?;
        for (name, stride) in [("layer1.0", 1), ("layer1.1", 1), ("layer2.0", 2)] {
            h = of.residual(&h, name, stride)?;
        }
        let logits = h.mean(&[2, 3], false)?.linear(&of.get("fc.weight")?, Some(&of.get("fc.bias")?))?;
        Ok((model.forward(&x)?, logits))
    });
    let params = Params::new(&gpu, 4);
    let model = UNet::new(&params, [2, 3], 4, 2).unwrap().eval();
    fill(&params);
    let x = engine::noise(2 * 2 * 8 * 12, 3);
    same(&gpu, "u-net", &[("x", (&x).into())], |g| {
        let of = Named { params: &params, g };
        let x = g.input::<f32>("x", [2, 2, 8, 12])?;
        let pool = |h: &Tensor| h.max_pool2d([2, 2], [2, 2], [0, 0]);
        let grow = |h: &Tensor, name: &str| {
            let (w, b) = (of.get(&format!("{name}.weight"))?, of.get(&format!("{name}.bias"))?);
            h.conv_transpose2d(&w, Some(&b), Conv2dOptions::new(2, 0), [0, 0])
        };
        let first = of.twice(&x, "down.0")?;
        let second = of.twice(&pool(&first)?, "down.1")?;
        let bottom = of.twice(&pool(&second)?, "bottom")?;
        let h = of.twice(&Tensor::cat(&[&second, &grow(&bottom, "up.0")?], 1)?, "merge.0")?;
        let h = of.twice(&Tensor::cat(&[&first, &grow(&h, "up.1")?], 1)?, "merge.1")?;
        let drawn = h.conv2d(&of.get("head.weight")?, Some(&of.get("head.bias")?), Conv2dOptions::new(1, 0))?;
        Ok((model.forward(&x)?, drawn))
    });
}
