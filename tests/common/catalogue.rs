//! Recordings that together make every kernel of the library.

use remat::Result;
use remat::dtype::{DType, f16};
use remat::fuse::program::Program;
use remat::graph::{Recorder, Tensor};
use remat::nn::{
    Activation, BatchNorm2d, BertConfig, BertEncoder, Gpt, GptConfig, Llama, LlamaConfig, LoraConfig, Mlp, Module,
    add_lora, merge_lora,
};
use remat::ops::{AttentionOptions, Conv2dOptions, CrossEntropyOptions, NllOptions, Reduction, RopeOptions};
use remat::optim::{
    Accumulator, Adafactor, AdafactorConfig, Adagrad, AdagradConfig, AdamW, AdamWConfig, Ema, Gradients, Lion,
    LionConfig, LossScaler, LossScalerConfig, Optimizer, RmsProp, RmsPropConfig, Sgd, SgdConfig,
};
use remat::params::{Init, Params};
use remat::profile::DeviceProfile;
use remat::step::RecordedStep;

/// A recording by name.
type Entry = (&'static str, Box<dyn Fn(&Recorder) -> Result<Vec<Tensor>>>);

/// Every recording, fused for `profile`.
pub(crate) fn programs(profile: &DeviceProfile) -> Vec<(&'static str, Program)> {
    entries()
        .into_iter()
        .map(|(name, record)| {
            let step = RecordedStep::new(profile, |g| record(g)).unwrap_or_else(|e| panic!("{name}: {e}"));
            (name, (**step.program()).clone())
        })
        .collect()
}

fn entries() -> Vec<Entry> {
    vec![
        ("mlp", Box::new(|g| mlp(g, 64, 256, 8))),
        ("mlp_odd", Box::new(|g| mlp(g, 7, 13, 5))),
        ("mlp_wide", Box::new(|g| mlp(g, 256, 1024, 2048))),
        ("gpt", Box::new(|g| gpt(g, GptConfig::new(256, 128, 128, 4, 2), 8))),
        ("gpt_fixture", Box::new(|g| gpt(g, fixture(), 4))),
        ("gpt_halves", Box::new(|g| g.clone().autocast(DType::F16, || gpt(g, fixture(), 4)))),
        ("halves", Box::new(halves)),
        ("sgd", Box::new(sgd)),
        ("optimisers", Box::new(optimisers)),
        ("averages", Box::new(averages)),
        ("unary", Box::new(unary)),
        ("binary", Box::new(binary)),
        ("integers", Box::new(integers)),
        ("shapes", Box::new(shapes)),
        ("reductions", Box::new(reductions)),
        ("softmax", Box::new(softmax)),
        ("losses", Box::new(losses)),
        ("products", Box::new(products)),
        ("attentions", Box::new(attentions)),
        ("twice", Box::new(twice)),
        ("random", Box::new(random)),
        ("places", Box::new(places)),
        ("images", Box::new(images)),
        ("more_losses", Box::new(more_losses)),
        ("functions", Box::new(functions)),
        ("scans", Box::new(scans)),
        ("encoder", Box::new(encoder)),
        ("decoder", Box::new(decoder)),
    ]
}

fn fixture() -> GptConfig {
    GptConfig { fused_qkv: true, activation: Activation::GeluTanh, dropout: 0.1, ..GptConfig::new(65, 16, 32, 4, 2) }
}

fn mlp(g: &Recorder, width: usize, hidden: usize, batch: usize) -> Result<Vec<Tensor>> {
    let params = Params::offline(0);
    let model = Mlp::with_dropout(&params, width, hidden, 2, 0.1)?;
    let x = g.input::<f32>("x", [batch, width])?;
    let loss = model.forward_checkpointed(&x)?.mse_loss(&g.zeros([batch, width])?)?;
    let gradients = AdamW::new(&params, AdamWConfig::default())?.minimize(&loss)?;
    Ok(vec![loss, gradients.fingerprint(g)?])
}

fn gpt(g: &Recorder, config: GptConfig, batch: usize) -> Result<Vec<Tensor>> {
    let params = Params::offline(0);
    let model = Gpt::new(&params, &config)?;
    let ids = g.input::<i32>("x", [batch, config.context])?;
    let targets = g.input::<i32>("y", [batch * config.context])?;
    let logits = model.logits(&ids)?.reshape([batch * config.context, config.vocabulary])?;
    let loss = logits.cross_entropy(&targets)?;
    let gradients = AdamW::new(&params, AdamWConfig::default())?.minimize(&loss)?;
    Ok(vec![loss, gradients.fingerprint(g)?])
}

fn sgd(g: &Recorder) -> Result<Vec<Tensor>> {
    let params = Params::offline(0);
    let p = params.create("p", [7, 9], Init::Zeros)?;
    let q = params.create("q", [8], Init::Ones)?;
    let loss = g.param(&p)?.sqr()?.sum(&[], false)?.add(&g.param(&q)?.sqr()?.sum(&[], false)?)?;
    let gradients = Gradients::of(&loss)?;
    for (momentum, entry) in [0.0, 0.9].into_iter().zip(&gradients.entries) {
        let optimizer = Sgd::new(&params, SgdConfig { momentum, ..SgdConfig::default() })?;
        optimizer.update(&entry.0, &entry.1)?;
    }
    Ok(vec![loss])
}

/// Every rule on wide and narrow parameters, some of them guarded.
fn optimisers(g: &Recorder) -> Result<Vec<Tensor>> {
    let params = Params::offline(0);
    let mut rules: Vec<Box<dyn Optimizer>> = vec![
        Box::new(Sgd::new(&params, SgdConfig { momentum: 0.5, dampening: 0.1, ..SgdConfig::default() })?),
        Box::new(Adagrad::new(&params, AdagradConfig { lr_decay: 0.1, ..AdagradConfig::default() })?),
        Box::new(Lion::new(&params, LionConfig::default())?),
        Box::new(Adafactor::new(&params, AdafactorConfig::default())?),
    ];
    for (centered, momentum) in [(false, 0.0), (false, 0.5), (true, 0.0), (true, 0.5)] {
        let config = RmsPropConfig { momentum, centered, ..RmsPropConfig::default() };
        rules.push(Box::new(RmsProp::new(&params, config)?));
    }
    let mut loss = g.zeros([])?;
    for index in 0..2 * rules.len() {
        let shape = if index.is_multiple_of(2) { [7, 9] } else { [64, 64] };
        let p = params.create(&format!("p{index}"), shape, Init::Ones)?;
        loss = loss.add(&g.param(&p)?.sqr()?.sum(&[], false)?)?;
    }
    let scaler = LossScaler::new(&params, LossScalerConfig::default())?;
    let gradients = scaler.unscale(g, &Gradients::of(&scaler.scale(&loss)?)?)?;
    for (index, (param, gradient)) in gradients.entries.iter().enumerate() {
        let guard = if index.is_multiple_of(2) { gradients.guard.as_ref() } else { None };
        rules[index / 2].update_guarded(param, gradient, guard)?;
    }
    Ok(vec![loss])
}

/// Averages, sums over micro-batches and clipping.
fn averages(g: &Recorder) -> Result<Vec<Tensor>> {
    let params = Params::offline(0);
    let list = [params.create("p", [7, 9], Init::Ones)?, params.create("q", [3000, 4], Init::Ones)?];
    let loss = g.param(&list[0])?.sqr()?.sum(&[], false)?.add(&g.param(&list[1])?.sqr()?.sum(&[], false)?)?;
    let clipped = Gradients::of(&loss)?.clip_norm(g, 1.0)?;
    Accumulator::new(&params, 2)?.add(&clipped.gradients)?;
    let ema = Ema::new(&params, 0.9)?;
    ema.update(g, &list)?;
    let swapped = [params.create("r", [7], Init::Ones)?, params.create("s", [8], Init::Ones)?];
    ema.swap(g, &swapped)?;
    Ok(vec![loss, clipped.total_norm, clipped.non_finite])
}

/// Values and the gradient of their sum.
fn with_gradients(g: &Recorder, values: Vec<Tensor>, wrt: &[&Tensor]) -> Result<Vec<Tensor>> {
    let mut all = Vec::new();
    for value in values {
        let loss = value.mul(&value)?.sum(&[], false)?;
        all.extend(g.gradients(&loss, wrt)?);
        all.push(value);
    }
    Ok(all)
}

fn unary(g: &Recorder) -> Result<Vec<Tensor>> {
    let x = g.input::<f32>("x", [3, 37])?;
    let values = vec![
        x.neg()?,
        x.abs()?,
        x.exp()?,
        x.ln()?,
        x.sqrt()?,
        x.rsqrt()?,
        x.recip()?,
        x.sqr()?,
        x.sin()?,
        x.cos()?,
        x.tanh()?,
        x.sigmoid()?,
        x.relu()?,
        x.gelu()?,
        x.gelu_tanh()?,
        x.silu()?,
        x.softplus()?,
        x.erf()?,
        x.sign()?,
        x.floor()?,
        x.ceil()?,
        x.round()?,
        x.elu(1.0)?,
        x.mish()?,
        x.log1p()?,
        x.expm1()?,
        x.hardswish()?,
        x.leaky_relu(0.1)?,
        x.powf(3.0)?,
        x.powf(0.5)?,
        x.clamp(-0.5, 0.7)?,
    ];
    with_gradients(g, values, &[&x])
}

fn binary(g: &Recorder) -> Result<Vec<Tensor>> {
    let (x, y) = (g.input::<f32>("x", [4, 3, 5])?, g.input::<f32>("y", [3, 1])?);
    let mask = x.lt(&y)?;
    let values = vec![
        x.add(&y)?,
        x.sub(&y)?,
        x.mul(&y)?,
        x.div(&y)?,
        x.maximum(&y)?,
        x.minimum(&y)?,
        x.pow(&y)?,
        x.remainder(&y)?,
        x.rsub_scalar(2.0_f32)?,
        x.rdiv_scalar(2.0_f32)?,
        mask.where_(&x, &y.broadcast_to([4, 3, 5])?)?,
        x.masked_fill(&mask, f32::NEG_INFINITY)?.exp()?,
        x.isnan()?.to_f32()?,
        x.isinf()?.to_f32()?,
    ];
    with_gradients(g, values, &[&x, &y])
}

fn integers(g: &Recorder) -> Result<Vec<Tensor>> {
    let (i, u) = (g.input::<i32>("i", [5, 7])?, g.input::<u32>("u", [5, 7])?);
    Ok(vec![
        i.add(&i.neg()?)?,
        u.mul(&u)?,
        i.to_f32()?,
        u.to_i32()?,
        i.to_u32()?,
        i.to_bool()?,
        i.sum(&[0], false)?,
        u.max(&[1], true)?,
        i.eq(&u.to_i32()?)?,
        g.iota([5, 7], 1)?,
        g.full_bool([3], true)?.logical_not()?,
        u.digest()?,
    ])
}

fn shapes(g: &Recorder) -> Result<Vec<Tensor>> {
    let x = g.input::<f32>("x", [6, 8, 5])?;
    let many: Vec<Tensor> = (0..20).map(|i| x.narrow(1, i % 8, 1)).collect::<Result<_>>()?;
    let values = vec![
        x.permute(&[2, 0, 1])?.reshape([40, 6])?,
        x.narrow(1, 2, 3)?,
        x.slice(1, 1, 8, 3)?,
        x.pad(&[(0, 0), (1, 2), (0, 1)], 0.5)?,
        Tensor::cat(&many.iter().collect::<Vec<_>>(), 1)?,
        Tensor::stack(&[&x, &x], 1)?,
        x.tril(0)?,
        x.triu(1)?,
    ];
    let mut all = with_gradients(g, values, &[&x])?;
    all.push(g.input::<f32>("nothing", [0, 5])?.pad(&[(0, 3), (0, 0)], 0.5)?);
    Ok(all)
}

fn reductions(g: &Recorder) -> Result<Vec<Tensor>> {
    let x = g.input::<f32>("x", [6, 40, 8])?;
    let long = g.input::<f32>("long", [70_000, 4])?;
    let values = vec![
        x.sum(&[], false)?,
        x.sum(&[0], false)?,
        x.mean(&[1], true)?,
        x.sum(&[0, 2], false)?,
        x.max(&[1], false)?,
        x.min(&[2], false)?,
        long.sum(&[], false)?.add(&x.sum(&[], false)?)?,
        long.sum(&[0], false)?.sum(&[], false)?.add(&x.sum(&[2], false)?)?,
    ];
    let mut all = with_gradients(g, values, &[&x])?;
    all.extend([x.argmax(1, false)?, x.argmin(0, false)?, long.max(&[], false)?, long.argmax(0, false)?]);
    Ok(all)
}

fn softmax(g: &Recorder) -> Result<Vec<Tensor>> {
    let (x, odd) = (g.input::<f32>("x", [6, 9, 8])?, g.input::<f32>("odd", [5, 7])?);
    let w = g.input::<f32>("w", [8])?;
    let plain = odd.layer_norm(None, None, 1e-5)?.sum(&[], false)?;
    let values = vec![
        x.softmax(-1)?,
        x.softmax(1)?,
        x.log_softmax(-1)?,
        x.log_softmax(0)?,
        x.layer_norm(Some(&w), Some(&w), 1e-5)?,
        x.add(&odd.softmax(-1)?.sum(&[], false)?)?,
        x.add(&plain)?,
    ];
    let mut all = with_gradients(g, values, &[&x, &w, &odd])?;
    all.push(odd.log_softmax(0)?);
    Ok(all)
}

fn losses(g: &Recorder) -> Result<Vec<Tensor>> {
    let (x, y) = (g.input::<f32>("x", [12, 16])?, g.input::<f32>("y", [12, 16])?);
    let (signed, unsigned) = (g.input::<i32>("t", [12])?, g.input::<u32>("u", [12])?);
    let smooth =
        CrossEntropyOptions { label_smoothing: 0.1, ignore_index: Some(-100), ..CrossEntropyOptions::default() };
    let table = g.input::<f32>("table", [12, 16])?;
    let values = vec![
        x.cross_entropy(&signed)?,
        x.cross_entropy(&unsigned)?,
        x.cross_entropy_with(&signed, smooth)?,
        x.mse_loss(&y)?,
        table.embedding(&signed)?.add(&x)?,
        table.embedding(&unsigned)?.add(&x)?,
    ];
    with_gradients(g, values, &[&x, &table])
}

fn products(g: &Recorder) -> Result<Vec<Tensor>> {
    let (x, y) = (g.input::<f32>("x", [2, 3, 8, 12])?, g.input::<f32>("y", [2, 3, 12, 16])?);
    let (odd, column) = (g.input::<f32>("odd", [7, 12])?, g.input::<f32>("column", [12])?);
    let (a, b) = (g.input::<f32>("a", [512, 512])?, g.input::<f32>("b", [512, 512])?);
    let square = g.input::<f32>("square", [16, 16])?;
    let values = vec![
        x.matmul(&y)?,
        x.matmul_t(&x)?.relu()?,
        odd.matmul_t(&x)?,
        odd.matmul(&column)?,
        x.matmul(&column)?,
        a.matmul(&b)?,
        a.matmul_t(&b)?,
        a.t()?.matmul(&b)?,
        a.t()?.matmul_t(&b)?,
        square.matmul(&square)?,
        x.attention(&x, &x, true)?,
        x.linear(&odd, Some(&g.full([7], 0.5)?))?,
        odd.t()?.matmul(&odd)?,
    ];
    with_gradients(g, values, &[&x, &y, &odd, &column, &a, &square])
}

fn attentions(g: &Recorder) -> Result<Vec<Tensor>> {
    let (q, k) = (g.input::<f32>("q", [2, 4, 9, 72])?, g.input::<f32>("k", [2, 2, 11, 72])?);
    let (v, added) = (g.input::<f32>("v", [2, 2, 11, 40])?, g.input::<f32>("added", [9, 11])?);
    let truths = added.gt_scalar(0.0_f32)?;
    let mut values = vec![q.attention(&k, &v, true)?, q.narrow(2, 0, 3)?.attention(&k, &v, false)?];
    for mask in [&added, &truths] {
        values.push(q.attention_fused(&k, &v, AttentionOptions { mask: Some(mask), ..Default::default() })?);
    }
    with_gradients(g, values, &[&q, &k, &v, &added])
}

fn places(g: &Recorder) -> Result<Vec<Tensor>> {
    let x = g.input::<f32>("x", [6, 5])?;
    let (ids, rows) = (g.input::<i32>("ids", [6, 3])?, g.input::<i32>("rows", [4])?);
    let source = g.input::<f32>("source", [6, 3])?;
    let values = vec![
        x.gather(1, &ids)?,
        x.scatter_add(1, &ids, &source)?,
        x.index_select(0, &rows)?,
        x.flip(&[0, 1])?,
        x.roll(2, 1)?,
        x.repeat(&[2, 1, 3])?,
        x.repeat_interleave(3, 0)?,
    ];
    let mut all = with_gradients(g, values, &[&x])?;
    all.extend(with_gradients(g, vec![x.scatter(1, &ids, &source)?], &[&x, &source])?);
    all.push(ids.one_hot(7)?);
    Ok(all)
}

fn images(g: &Recorder) -> Result<Vec<Tensor>> {
    let params = Params::offline(0);
    let x = g.input::<f32>("x", [4, 4, 64, 64])?;
    let w = g.input::<f32>("w", [6, 2, 3, 3])?;
    let norm = BatchNorm2d::new(&params, "norm", 4)?;
    let options = Conv2dOptions { groups: 2, ..Conv2dOptions::new(2, 1) };
    let values = vec![norm.forward(&x)?.conv2d(&w, None, options)?];
    let mut all = with_gradients(g, values, &[&x, &w])?;
    // Kernels for rows that keep their length, in their widths and tiles.
    let (v, t) = (g.input::<f32>("v", [12, 4, 3, 3])?, g.input::<f32>("t", [3, 12, 1, 1])?);
    let kept = x.conv2d(&v, None, Conv2dOptions::new(1, 1))?.conv2d(&t, None, Conv2dOptions::new(1, 0))?;
    all.extend(with_gradients(g, vec![kept], &[&x, &v, &t])?);
    let small = x.narrow(0, 0, 1)?;
    let values = vec![
        small.max_pool2d([3, 3], [2, 2], [1, 1])?,
        small.max_pool2d([2, 4], [2, 4], [0, 0])?,
        small.avg_pool2d([2, 2], [2, 2], [1, 1], false)?,
        small.adaptive_avg_pool2d([3, 5])?,
        small.adaptive_max_pool2d([3, 5])?,
        small.unfold([3, 2], Conv2dOptions::new(2, 1))?,
        small.upsample_nearest2d([128, 128])?,
        small.upsample_bilinear2d([96, 128], true)?,
        small.pixel_shuffle(2)?,
        norm.eval().forward(&small)?,
        small.group_norm(2, None, None, 1e-5)?,
    ];
    all.extend(with_gradients(g, values, &[&x])?);
    Ok(all)
}

fn more_losses(g: &Recorder) -> Result<Vec<Tensor>> {
    let (x, y) = (g.input::<f32>("x", [6, 5])?, g.input::<f32>("y", [6, 5])?);
    let (t, signs) = (g.input::<i32>("t", [6])?, g.input::<f32>("signs", [6])?);
    let w = g.input::<f32>("w", [5])?;
    let mean = Reduction::Mean;
    let values = vec![
        x.l1_loss(&y, mean)?,
        x.huber_loss(&y, 0.7, mean)?,
        x.smooth_l1_loss(&y, 0.7, mean)?,
        x.bce_with_logits(&y, None, mean)?,
        x.bce_with_logits(&y, Some(&w), mean)?,
        x.bce_loss(&y, mean)?,
        x.kl_div(&y, false, mean)?,
        x.kl_div(&y, true, mean)?,
        x.nll_loss(&t, mean)?,
        x.cosine_embedding_loss(&y, &signs, 0.1, mean)?,
        x.rms_norm(Some(&w), 1e-6)?,
    ];
    with_gradients(g, values, &[&x, &y])
}

fn twice(g: &Recorder) -> Result<Vec<Tensor>> {
    let (x, w) = (g.input::<f32>("x", [6, 8])?, g.input::<f32>("w", [8])?);
    let mut all = Vec::new();
    for value in [x.softmax(-1)?, x.layer_norm(Some(&w), None, 1e-5)?, x.gelu()?, x.matmul_t(&x)?, x.mean(&[0], false)?]
    {
        let first = g.gradients(&value.mul(&value)?.sum(&[], false)?, &[&x])?.swap_remove(0);
        all.extend(g.gradients(&first.sqr()?.sum(&[], false)?, &[&x, &w])?);
    }
    Ok(all)
}

fn random(g: &Recorder) -> Result<Vec<Tensor>> {
    let x = g.input::<f32>("x", [5, 12])?;
    let mut all = with_gradients(g, vec![x.dropout(0.3)?], &[&x])?;
    all.extend([g.rand_uniform([9])?, g.bernoulli([7], 0.25)?, g.rand_normal([9])?]);
    Ok(all)
}

fn functions(g: &Recorder) -> Result<Vec<Tensor>> {
    let (x, y) = (g.input::<f32>("x", [3, 38])?, g.input::<f32>("y", [3, 38])?);
    let values = vec![
        x.tan()?,
        x.asin()?,
        x.acos()?,
        x.atan()?,
        x.sinh()?,
        x.cosh()?,
        x.asinh()?,
        x.acosh()?,
        x.atanh()?,
        x.log2()?,
        x.log10()?,
        x.exp2()?,
        x.frac()?,
        x.hardsigmoid()?,
        x.relu6()?,
        x.logsigmoid()?,
        x.selu()?,
        x.prelu(&y)?,
        x.glu(-1)?,
        x.fmod(&y)?,
        x.lerp(&y, &x)?,
    ];
    with_gradients(g, values, &[&x, &y])
}

fn scans(g: &Recorder) -> Result<Vec<Tensor>> {
    let (x, long) = (g.input::<f32>("x", [3, 40, 5])?, g.input::<f32>("long", [3000])?);
    let words = g.input::<u32>("words", [37])?;
    let values = vec![
        x.cumsum(1)?,
        x.cumprod(-1)?,
        x.prod(&[1], false)?,
        x.logsumexp(&[0, 2], true)?,
        x.std(&[1], false, true)?,
        x.norm(2.0, &[], false)?,
        x.sort(1, false)?.0,
        x.topk(2, 0, true)?.0,
    ];
    let mut all = with_gradients(g, values, &[&x])?;
    all.extend([long.cumsum(0)?, long.argsort(0, true)?, words.cumsum(0)?, words.argsort(0, false)?]);
    all.extend([words.prod(&[], false)?, x.any(&[0], false)?, words.all(&[], false)?]);
    all.extend([g.permutation(50)?, g.rand_int([5], -3, 4)?, x.median(1, false)?]);
    Ok(all)
}

fn encoder(g: &Recorder) -> Result<Vec<Tensor>> {
    let params = Params::offline(0);
    let model = BertEncoder::new(&params, &BertConfig::new(17, 8, 16, 2, 2))?;
    let seen = g.input::<i32>("seen", [2, 6])?.to_bool()?;
    let y = model.encode(&g.input::<i32>("ids", [2, 6])?, Some(&g.input::<i32>("types", [2, 6])?), Some(&seen))?;
    let y = y.rope_with(RopeOptions { base: 1e4, first: 0, interleaved: true })?;
    let weights = g.input::<f32>("weights", [16])?;
    let options = NllOptions { weights: Some(&weights), ignore_index: Some(-1), reduction: Reduction::Mean };
    let loss = y.reshape([12, 16])?.log_softmax(1)?.nll_loss_with(&g.input::<i32>("t", [12])?, options)?;
    Ok(vec![Gradients::of(&loss)?.fingerprint(g)?, loss])
}

fn decoder(g: &Recorder) -> Result<Vec<Tensor>> {
    let params = Params::offline(0);
    let config = LlamaConfig {
        vocabulary: 17,
        width: 16,
        layers: 2,
        heads: 4,
        key_value_heads: 2,
        hidden: 24,
        rotary_base: 1e4,
    };
    let mut model = Llama::new(&params, &config)?;
    add_lora(&mut model, &["q_proj"], LoraConfig { dropout: 0.1, ..LoraConfig::new(2) })?;
    let cache = model.cache(&params, "cache", 2, 8)?;
    let logits = model.decode(&g.input::<i32>("ids", [2, 3])?, &cache)?;
    let loss = model.forward(&g.input::<i32>("all", [2, 8])?)?.sqr()?.mean_all()?;
    let gradients = Gradients::of(&loss)?.fingerprint(g)?;
    merge_lora(&mut model, g)?;
    Ok(vec![logits, gradients])
}

/// Values of halves at odd and even places, through kernels that store them and
/// kernels that cannot.
fn halves(g: &Recorder) -> Result<Vec<Tensor>> {
    let mut all = Vec::new();
    for [rows, columns] in [[8, 12], [5, 7]] {
        let x = g.input::<f16>(&format!("x{columns}"), [rows, columns])?;
        let y = x.gelu()?.add(&x.narrow(0, 0, 1)?)?;
        all.extend([y.clone(), x.transpose(0, 1)?.matmul(&y)?.relu()?, x.matmul_t(&y)?]);
        all.extend([y.softmax(-1)?, y.softmax(0)?, y.log_softmax(-1)?, y.sum(&[0], false)?, y.mean(&[1], false)?]);
        all.extend([y.layer_norm(None, None, 1e-5)?, y.cumsum(1)?, y.sort(1, false)?.0, y.roll(1, 1)?]);
        all.push(y.to_f32()?.sum_all()?);
        let loss = y.softmax(-1)?.log_softmax(0)?.layer_norm(None, None, 1e-5)?.to_f32()?.sqr()?.sum_all()?;
        all.extend(g.gradients(&loss, &[&x])?);
        all.push(Tensor::cat(&[y.clone(), x.clone()], 0)?);
        all.push(y.narrow(1, 1, 3)?.to_i32()?.to_f16()?);
    }
    Ok(all)
}
