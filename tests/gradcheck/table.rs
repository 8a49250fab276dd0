//! The library's operations as functions of a few tensors: what the gradient checker
//! and the tests of segments and of integers go through.

use remat::error::Result;
use remat::graph::{Recorder, Tensor};
use remat::ops::{AttentionOptions, Conv2dOptions, CrossEntropyOptions, NllOptions, PadMode, Reduction, RopeOptions};

pub(crate) type Table = &'static [(&'static str, Record)];
pub(crate) type Record = fn(&Recorder, &[Tensor]) -> Result<Tensor>;

/// Functions of one tensor of noise, of size 0.25 to 1.
pub(crate) const UNARY: Table = &[
    ("neg", |_, x| x[0].neg()),
    ("abs", |_, x| x[0].abs()),
    ("exp", |_, x| x[0].exp()),
    ("recip", |_, x| x[0].add_scalar(3.0_f32)?.recip()),
    ("sqr", |_, x| x[0].sqr()),
    ("sin", |_, x| x[0].sin()),
    ("cos", |_, x| x[0].cos()),
    ("tan", |_, x| x[0].tan()),
    ("asin", |_, x| x[0].mul_scalar(0.7_f32)?.asin()),
    ("acos", |_, x| x[0].mul_scalar(0.7_f32)?.acos()),
    ("atan", |_, x| x[0].atan()),
    ("sinh", |_, x| x[0].sinh()),
    ("cosh", |_, x| x[0].cosh()),
    ("asinh", |_, x| x[0].asinh()),
    ("atanh", |_, x| x[0].mul_scalar(0.7_f32)?.atanh()),
    ("exp2", |_, x| x[0].exp2()),
    ("expm1", |_, x| x[0].expm1()),
    ("erf", |_, x| x[0].erf()),
    ("tanh", |_, x| x[0].tanh()),
    ("sigmoid", |_, x| x[0].sigmoid()),
    ("relu", |_, x| x[0].relu()),
    ("relu6", |_, x| x[0].relu6()),
    ("leaky_relu", |_, x| x[0].leaky_relu(0.1)),
    ("elu", |_, x| x[0].elu(0.7)),
    ("selu", |_, x| x[0].selu()),
    ("gelu", |_, x| x[0].gelu()),
    ("gelu_tanh", |_, x| x[0].gelu_tanh()),
    ("silu", |_, x| x[0].silu()),
    ("mish", |_, x| x[0].mish()),
    ("softplus", |_, x| x[0].softplus()),
    ("logsigmoid", |_, x| x[0].logsigmoid()),
    ("hardswish", |_, x| x[0].hardswish()),
    ("hardsigmoid", |_, x| x[0].hardsigmoid()),
    ("hardtanh", |_, x| x[0].hardtanh(-2.0, 2.0)),
    ("clamp", |_, x| x[0].clamp(-2.0, 2.0)),
    ("add_scalar", |_, x| x[0].add_scalar(2.0_f32)),
    ("sub_scalar", |_, x| x[0].sub_scalar(2.0_f32)),
    ("mul_scalar", |_, x| x[0].mul_scalar(2.0_f32)),
    ("div_scalar", |_, x| x[0].div_scalar(2.0_f32)),
    ("rsub_scalar", |_, x| x[0].rsub_scalar(2.0_f32)),
    ("rdiv_scalar", |_, x| x[0].add_scalar(3.0_f32)?.rdiv_scalar(2.0_f32)),
    ("frac", |_, x| x[0].mul_scalar(0.5_f32)?.frac()),
    // Steps, between them: the gradient is 0.
    ("sign", |_, x| x[0].sign()?.mul(&x[0])),
    ("floor", |_, x| x[0].mul_scalar(0.2_f32)?.floor()?.add(&x[0])),
    ("ceil", |_, x| x[0].mul_scalar(0.2_f32)?.ceil()?.mul(&x[0])),
    ("round", |_, x| x[0].mul_scalar(0.2_f32)?.round()?.add(&x[0])),
    ("trunc", |_, x| x[0].mul_scalar(0.2_f32)?.add_scalar(1.5_f32)?.trunc()?.mul(&x[0])),
    ("lerp_scalar", |_, x| x[0].lerp_scalar(&x[0].sqr()?, 0.25)),
    ("glu", |_, x| x[0].glu(-1)),
    ("sum_all", |_, x| x[0].sqr()?.sum_all()),
    ("mean_all", |_, x| x[0].sqr()?.mean_all()),
    ("sum_to", |_, x| x[0].sum_to(&remat::dtype::Shape(vec![3, 1]))?.sqr()),
    ("expand", |_, x| x[0].unsqueeze(1)?.expand([3, 2, 4])?.sqr()),
    ("squeeze", |_, x| x[0].unsqueeze(0)?.squeeze(0)?.sqr()),
    ("flatten", |_, x| x[0].flatten(0, 1)?.sqr()),
    ("transpose", |_, x| x[0].transpose(0, 1)?.sqr()),
    ("narrow", |_, x| x[0].narrow(1, 1, 2)?.sqr()),
    ("select", |_, x| x[0].select(0, 1)?.sqr()),
    ("chunk", |_, x| x[0].chunk(3, 1)?[1].sqr()),
    ("unbind", |_, x| x[0].unbind(0)?[2].mul(&x[0])),
    ("unflatten", |_, x| x[0].unflatten(1, &[2, 2])?.sqr()),
    ("swapaxes", |_, x| x[0].reshape([2, 3, 2])?.swapaxes(0, 2)?.sqr()),
    ("diag", |_, x| x[0].select(0, 0)?.diag(1)?.sqr()),
    ("rope", |_, x| x[0].rope(10.0, 2)),
    ("rotate", |g, x| {
        let [cos, sin] = g.rope_tables(10.0, 4, 1, 3)?;
        x[0].rotate(&cos, &sin, false)
    }),
    ("to_dtype", |_, x| x[0].to_dtype(remat::dtype::DType::F32)?.to_f32()?.sqr()),
    ("sum", |_, x| x[0].sum(&[0], false)),
    ("mean", |_, x| x[0].mean(&[1], true)),
    ("prod", |_, x| x[0].prod(&[-1], false)),
    ("var", |_, x| x[0].var(&[1], false, true)),
    ("std", |_, x| x[0].std(&[1], false, false)),
    ("norm", |_, x| x[0].norm(3.0, &[0], false)),
    ("logsumexp", |_, x| x[0].logsumexp(&[1], false)),
    ("cumsum", |_, x| x[0].cumsum(1)),
    ("cumprod", |_, x| x[0].cumprod(0)),
    ("softmax", |_, x| x[0].softmax(-1)),
    ("log_softmax", |_, x| x[0].log_softmax(0)),
    ("reshape", |_, x| x[0].reshape([6, 2])),
    ("permute", |_, x| x[0].reshape([2, 3, 2])?.permute(&[2, 0, 1])?.sqr()),
    ("t", |_, x| x[0].t()?.sqr()),
    ("slice", |_, x| x[0].slice(1, 1, 4, 2)),
    ("pad", |_, x| x[0].pad(&[(1, 0), (0, 2)], 0.5)),
    ("split", |_, x| x[0].split(1, &[1, 3])?[1].sqr()),
    ("broadcast_to", |_, x| x[0].broadcast_to([2, 3, 4])?.sqr()),
    ("tril", |_, x| x[0].tril(0)),
    ("triu", |_, x| x[0].triu(1)),
    ("causal_fill", |_, x| x[0].causal_fill(0.0)),
    ("layer_norm", |_, x| x[0].layer_norm(None, None, 1e-5)),
    ("rms_norm", |_, x| x[0].rms_norm(None, 1e-5)),
    ("instance_norm", |_, x| x[0].reshape([1, 3, 4])?.instance_norm(None, None, 1e-5)),
    ("flip", |_, x| x[0].flip(&[0, 1])?.mul(&x[0])),
    ("roll", |_, x| x[0].roll(1, 1)?.mul(&x[0])),
    ("repeat", |_, x| x[0].repeat(&[2, 1, 2])?.sqr()),
    ("repeat_interleave", |_, x| x[0].repeat_interleave(2, 1)?.sqr()),
    ("pad_with", |_, x| x[0].pad_with(&[(1, 0), (2, 1)], PadMode::Reflect)?.sqr()),
    ("diagonal", |_, x| x[0].diagonal(1)?.sqr()),
    ("movedim", |_, x| x[0].reshape([2, 3, 2])?.movedim(0, -1)?.sqr()),
    ("rope_with", |_, x| x[0].rope_with(RopeOptions { base: 10.0, first: 1, interleaved: false })),
    ("rope_with, interleaved", |_, x| x[0].rope_with(RopeOptions { base: 10.0, first: 1, interleaved: true })),
    ("unfold", |_, x| x[0].reshape([1, 1, 3, 4])?.unfold([2, 2], Conv2dOptions::new(2, 1))?.sqr()),
    ("fold", |_, x| x[0].reshape([1, 4, 3])?.fold([2, 4], [2, 2], Conv2dOptions::default())?.sqr()),
];

/// Functions of one positive tensor.
pub(crate) const POSITIVE: Table = &[
    ("ln", |_, x| x[0].ln()),
    ("log2", |_, x| x[0].log2()),
    ("log10", |_, x| x[0].log10()),
    ("log1p", |_, x| x[0].log1p()),
    ("sqrt", |_, x| x[0].sqrt()),
    ("rsqrt", |_, x| x[0].rsqrt()),
    ("acosh", |_, x| x[0].add_scalar(1.0_f32)?.acosh()),
    ("powf", |_, x| x[0].powf(2.5)),
];

/// Functions of x `[3, 4]`, y `[3, 4]` and w `[4]`.
pub(crate) const SEVERAL: Table = &[
    ("add", |_, x| x[0].add(&x[2])),
    ("sub", |_, x| x[0].sub(&x[2])),
    ("mul", |_, x| x[0].mul(&x[2])),
    ("div", |_, x| x[0].div(&x[2].add_scalar(3.0_f32)?)),
    ("pow", |_, x| x[0].add_scalar(2.0_f32)?.pow(&x[1])),
    // Whole quotients, 3 here, do not change nearby.
    ("remainder", |_, x| {
        let b = x[2].mul_scalar(0.1_f32)?.add_scalar(3.0_f32)?;
        x[0].mul_scalar(0.1_f32)?.add_scalar(10.0_f32)?.remainder(&b)
    }),
    ("fmod", |_, x| {
        let b = x[2].mul_scalar(0.1_f32)?.add_scalar(3.0_f32)?;
        x[0].mul_scalar(0.1_f32)?.sub_scalar(10.0_f32)?.fmod(&b)
    }),
    ("lerp", |_, x| x[0].lerp(&x[1], &x[2])),
    ("meshgrid", |_, x| {
        let grids = Tensor::meshgrid(&[&x[2], &x[0].select(1, 0)?])?;
        grids[0].mul(&grids[1].sqr()?)
    }),
    ("attention_composed", |_, x| {
        let [q, k] = [&x[0], &x[1]].map(|t| t.reshape([1, 1, 3, 4]));
        let (q, k) = (q?, k?);
        q.attention_composed(&k, &k, AttentionOptions { causal: true, ..AttentionOptions::default() })
    }),
    ("prelu", |_, x| x[0].prelu(&x[2])),
    ("where", |_, x| x[0].gt_scalar(0.0_f32)?.where_(&x[0].sqr()?, &x[1])),
    ("masked_fill", |_, x| x[1].masked_fill(&x[0].gt_scalar(0.0_f32)?, 0.5)),
    ("cat", |_, x| Tensor::cat(&[&x[0], &x[1]], 1)),
    ("stack", |_, x| Tensor::stack(&[&x[0], &x[1]], 1)),
    ("matmul", |_, x| x[0].matmul(&x[1].t()?)),
    ("matmul_t", |_, x| x[0].matmul_t(&x[1])),
    ("linear", |_, x| x[0].linear(&x[1], None)?.add(&x[2].narrow(0, 0, 3)?)),
    ("einsum", |_, x| Tensor::einsum("ij,kj->ki", &[&x[0], &x[1]])),
    ("outer", |_, x| x[2].outer(&x[0].reshape([12])?)),
    ("dot", |_, x| x[0].reshape([12])?.dot(&x[1].reshape([12])?)),
    ("addmm", |_, x| x[2].narrow(0, 0, 3)?.addmm(&x[0], &x[1].t()?, 0.5, 2.0)),
    ("layer_norm", |_, x| x[0].layer_norm(Some(&x[2]), Some(&x[2]), 1e-5)),
    ("batch_norm", |_, x| x[0].batch_norm_train(Some(&x[2]), Some(&x[2]), 1e-5).map(|y| y.0)),
    ("conv2d of rows that keep their length", |_, x| {
        let options = Conv2dOptions { padding: [0, 1], ..Conv2dOptions::default() };
        x[0].reshape([1, 1, 3, 4])?.conv2d(&x[1].reshape([4, 1, 1, 3])?, Some(&x[2]), options)
    }),
    ("conv_transpose2d that tiles", |_, x| {
        let options = Conv2dOptions { stride: [2, 2], ..Conv2dOptions::default() };
        x[0].reshape([1, 1, 3, 4])?.conv_transpose2d(&x[1].reshape([1, 3, 2, 2])?, None, options, [0, 0])
    }),
    ("scatter", |g, x| {
        x[0].scatter(1, &g.constant(&[1_i32, 0, 3, 1, 2, 2, 2, 9, 0, 1, 2, 3], [3, 4])?, &x[1])?.mul(&x[2])
    }),
    ("mse_loss", |_, x| x[0].mse_loss(&x[1])),
    ("attention", |_, x| {
        let [q, k] = [&x[0], &x[1]].map(|t| t.reshape([1, 1, 3, 4]));
        q?.attention(k.as_ref().map_err(Clone::clone)?, k.as_ref().map_err(Clone::clone)?, false)
    }),
    ("rms_norm", |_, x| x[0].rms_norm(Some(&x[2]), 1e-5)),
    ("gather", |g, x| x[0].gather(1, &g.constant(&[3_i32, 3, 0, 1, 2, 2], [3, 2])?)?.mul(&x[1].narrow(1, 0, 2)?)),
    ("gather, first axis", |g, x| x[0].gather(0, &g.constant(&[2_i32, 0, 0, 1, 2, 0, 1, 1], [2, 4])?)?.sqr()),
    ("scatter_add", |g, x| {
        let ids = g.constant(&[3_i32, 3, 0, 1, 2, 2, 1, 1, 1, 0, 0, 2], [3, 4])?;
        x[0].scatter_add(1, &ids, &x[1].sqr()?)?.mul(&x[0])
    }),
    ("index_select", |g, x| x[0].index_select(1, &g.constant(&[3_i32, 0, 3], [3])?)?.mul(&x[1].narrow(1, 0, 3)?)),
    ("index_add", |g, x| x[0].index_add(0, &g.constant(&[2_i32, 0, 2], [3])?, &x[1].sqr()?)?.mul(&x[0])),
    ("l1_loss", |_, x| x[0].l1_loss(&x[1].add_scalar(3.0_f32)?, Reduction::Mean)),
    ("huber_loss, near", |_, x| x[0].huber_loss(&x[1], 4.0, Reduction::None)),
    ("huber_loss, far", |_, x| x[0].huber_loss(&x[1].add_scalar(3.0_f32)?, 0.5, Reduction::None)),
    ("smooth_l1_loss", |_, x| x[0].smooth_l1_loss(&x[1], 5.0, Reduction::Sum)),
    ("mse", |_, x| x[0].mse(&x[2], Reduction::BatchMean)),
    ("bce_with_logits", |_, x| x[0].bce_with_logits(&x[1].sigmoid()?, None, Reduction::None)),
    ("bce_with_logits, weighted", |_, x| x[0].bce_with_logits(&x[1].sigmoid()?, Some(&x[2]), Reduction::None)),
    ("bce_loss", |_, x| x[0].sigmoid()?.bce_loss(&x[1].sigmoid()?, Reduction::None)),
    ("kl_div", |_, x| x[0].log_softmax(1)?.kl_div(&x[1].softmax(1)?, false, Reduction::BatchMean)),
    ("kl_div of logarithms", |_, x| x[0].log_softmax(1)?.kl_div(&x[1].log_softmax(1)?, true, Reduction::None)),
    ("nll_loss", |g, x| x[0].log_softmax(1)?.nll_loss(&g.constant(&[2_i32, 0, 3], [3])?, Reduction::None)),
    ("nll_loss_with", |g, x| {
        let options = NllOptions { weights: Some(&x[2].sqr()?), ignore_index: Some(9), reduction: Reduction::Mean };
        x[0].log_softmax(1)?.nll_loss_with(&g.constant(&[2_i32, 9, 3], [3])?, options)
    }),
    ("cross_entropy_with", |g, x| {
        let options = CrossEntropyOptions { reduction: Reduction::None, ignore_index: Some(9), label_smoothing: 0.2 };
        x[0].cross_entropy_with(&g.constant(&[2_i32, 9, 3], [3])?, options)
    }),
    ("cross_entropy_weighted", |g, x| {
        let options = CrossEntropyOptions { label_smoothing: 0.2, ..CrossEntropyOptions::default() };
        x[0].cross_entropy_weighted(&g.constant(&[2_i32, 0, 3], [3])?, &x[2].sqr()?, options)
    }),
    ("cosine_similarity", |_, x| x[0].cosine_similarity(&x[1], 1, 1e-6)),
    ("cosine_embedding_loss", |g, x| {
        x[0].cosine_embedding_loss(&x[1], &g.constant(&[1.0_f32, -1.0, 1.0], [3])?, -1.5, Reduction::None)
    }),
    ("attention_with", |_, x| {
        let [q, k] = [&x[0], &x[1]].map(|t| t.reshape([1, 1, 3, 4]));
        let (q, k) = (q?, k?);
        q.attention_with(&k, &k, AttentionOptions { causal: true, causal_offset: 1, ..Default::default() })
    }),
    ("attention_fused", |_, x| {
        // Two query heads share one of keys; the mask has a gradient too.
        let (q, k) =
            (x[0].reshape([1, 2, 3, 2])?.pad(&[(0, 0), (0, 0), (0, 0), (0, 2)], 0.5)?, x[1].reshape([1, 1, 3, 4])?);
        let mask = x[0].matmul_t(&x[1])?;
        let options = AttentionOptions { causal: true, mask: Some(&mask), scale: Some(0.8), ..Default::default() };
        q.attention_fused(&k, &k, options)?.mul(&x[2])
    }),
    ("embedding", |g, x| x[0].embedding(&g.constant(&[2_i32, 0, 2], [3])?)?.mul(&x[1])),
    ("cross_entropy", |g, x| x[0].cross_entropy(&g.constant(&[2_i32, 0, 3], [3])?)),
];

/// Functions of images x `[1, 4, 3, 4]`, a weight w `[4, 2, 2, 3]` and one value per channel c `[4]`.
pub(crate) const IMAGES: Table = &[
    ("conv2d", |_, x| {
        let options = Conv2dOptions { stride: [2, 1], padding: [1, 2], dilation: [1, 2], groups: 2 };
        x[0].conv2d(&x[1], Some(&x[2]), options)
    }),
    ("conv2d, depthwise", |_, x| {
        let options = Conv2dOptions { groups: 4, ..Conv2dOptions::default() };
        x[0].conv2d(&x[1].narrow(1, 0, 1)?, None, options)
    }),
    ("conv_transpose2d", |_, x| {
        let options = Conv2dOptions { stride: [2, 1], padding: [1, 0], ..Conv2dOptions::default() };
        x[0].conv_transpose2d(&x[1], Some(&x[2].narrow(0, 0, 2)?), options, [1, 0])
    }),
    ("conv1d", |_, x| x[0].reshape([1, 4, 12])?.conv1d(&x[1].reshape([4, 4, 3])?, Some(&x[2]), 2, 1, 1, 1)),
    ("conv1d, dilated, in groups", |_, x| {
        x[0].reshape([1, 4, 12])?.conv1d(&x[1].narrow(2, 0, 1)?.reshape([4, 2, 3])?, Some(&x[2]), 1, 2, 2, 2)
    }),
    ("conv_transpose1d", |_, x| {
        let (x0, w) = (x[0].reshape([1, 4, 12])?, x[1].narrow(2, 0, 1)?.reshape([4, 2, 3])?);
        x0.conv_transpose1d(&w, Some(&x[2].narrow(0, 0, 2)?), Conv2dOptions::new(2, 1), 1)
    }),
    ("conv_transpose2d, dilated, in groups", |_, x| {
        let options = Conv2dOptions { stride: [1, 2], padding: [0, 1], dilation: [2, 1], groups: 2 };
        x[0].conv_transpose2d(&x[1], Some(&x[2]), options, [0, 1])
    }),
    ("avg_pool1d", |_, x| x[0].reshape([1, 4, 12])?.avg_pool1d(3, 2, 1, true)?.sqr()),
    ("adaptive_avg_pool1d", |_, x| x[0].reshape([1, 4, 12])?.adaptive_avg_pool1d(5)?.sqr()),
    ("avg_pool2d", |_, x| x[0].avg_pool2d([2, 3], [1, 2], [1, 1], false)?.mul(&x[2].reshape([4, 1, 1])?)),
    ("avg_pool2d, padding counted", |_, x| x[0].avg_pool2d([2, 2], [2, 2], [1, 0], true)),
    ("adaptive_avg_pool2d", |_, x| x[0].adaptive_avg_pool2d([2, 3])),
    ("upsample_nearest2d", |_, x| x[0].upsample_nearest2d([5, 4])),
    ("upsample_bilinear2d", |_, x| x[0].upsample_bilinear2d([5, 6], false)),
    ("pixel_shuffle", |_, x| x[0].pixel_shuffle(2)?.sqr()),
    ("pixel_unshuffle", |_, x| x[0].reshape([1, 1, 6, 8])?.pixel_unshuffle(2)?.sqr()),
    ("group_norm", |_, x| x[0].group_norm(2, Some(&x[2]), Some(&x[2]), 1e-5)),
    ("instance_norm", |_, x| x[0].instance_norm(Some(&x[2]), None, 1e-5)),
    ("batch_norm_train", |_, x| Ok(x[0].batch_norm_train(Some(&x[2]), Some(&x[2]), 1e-5)?.0)),
    ("batch_norm_eval", |g, x| {
        // Into the running statistics no gradient flows.
        let [mean, var] = [[0.1_f32, -0.3, 0.0, 0.4], [0.5, 1.5, 0.25, 2.0]].map(|c| g.constant(&c, [4]));
        x[0].batch_norm_eval(&mean?, &var?, Some(&x[2]), Some(&x[2]), 1e-5)
    }),
];

/// Functions that choose: of values a tenth and more apart.
pub(crate) const CHOICES: Table = &[
    ("max", |_, x| x[0].max(&[1], false)),
    ("min", |_, x| x[0].min(&[0], false)),
    ("adaptive_max_pool1d", |_, x| x[0].reshape([1, 3, 4])?.adaptive_max_pool1d(3)),
    ("max_pool1d_with_indices", |_, x| x[0].reshape([1, 3, 4])?.max_pool1d_with_indices(2, 1, 0).map(|y| y.0)),
    ("max_pool2d_with_indices", |_, x| {
        x[0].reshape([1, 1, 3, 4])?.max_pool2d_with_indices([3, 2], [1, 1], [1, 1]).map(|y| y.0)
    }),
    ("adaptive_max_pool2d_with_indices", |_, x| {
        x[0].reshape([1, 1, 3, 4])?.adaptive_max_pool2d_with_indices([2, 2]).map(|y| y.0)
    }),
    ("max_pool1d", |_, x| x[0].reshape([1, 3, 4])?.max_pool1d(3, 2, 1)),
    ("max_pool2d that tiles", |_, x| x[0].reshape([1, 2, 2, 3])?.max_pool2d([2, 3], [2, 3], [0, 0])),
    ("adaptive_max_pool2d", |_, x| x[0].reshape([1, 1, 3, 4])?.adaptive_max_pool2d([2, 3])),
    ("sort", |_, x| x[0].sort(1, true).map(|y| y.0)),
    ("topk", |_, x| x[0].topk(2, 0, false).map(|y| y.0)),
    ("median", |_, x| x[0].median(1, true)),
    ("max_pool2d", |_, x| x[0].reshape([1, 1, 3, 4])?.max_pool2d([2, 2], [1, 2], [1, 0])),
    ("sort, first axis", |_, x| x[0].sort(0, false)?.0.mul(&x[0])),
    ("topk, last axis", |_, x| x[0].topk(3, 1, true)?.0.sqr()),
    ("cumprod", |_, x| x[0].cumprod(1)),
    ("prod", |_, x| x[0].prod(&[0], false)),
    ("maximum", |_, x| x[0].maximum(&x[0].t()?.reshape([3, 4])?.add_scalar(0.05)?)),
    ("minimum", |_, x| x[0].minimum(&x[0].t()?.reshape([3, 4])?.add_scalar(0.05)?)),
];
