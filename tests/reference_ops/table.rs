//! How each op of the reference cases is recorded: one line per op.

use remat::error::Result;
use remat::graph::{Recorder, Tensor};
use remat::ops::{AttentionOptions, Conv2dOptions, CrossEntropyOptions, Reduction};
use serde_json::Value;

/// Records a case's op: recorder, inputs and attributes in, outputs out.
pub(crate) type Record = fn(&Recorder, &[Tensor], &Value) -> Result<Vec<Tensor>>;

/// Op name and recording. Keep a family together and add at its end.
pub(crate) const TABLE: &[(&str, Record)] = &[
    // Functions of one number.
    ("neg", |_, x, _| one(x[0].neg())),
    ("abs", |_, x, _| one(x[0].abs())),
    ("exp", |_, x, _| one(x[0].exp())),
    ("ln", |_, x, _| one(x[0].ln())),
    ("sqrt", |_, x, _| one(x[0].sqrt())),
    ("rsqrt", |_, x, _| one(x[0].rsqrt())),
    ("recip", |_, x, _| one(x[0].recip())),
    ("sqr", |_, x, _| one(x[0].sqr())),
    ("sin", |_, x, _| one(x[0].sin())),
    ("cos", |_, x, _| one(x[0].cos())),
    ("tanh", |_, x, _| one(x[0].tanh())),
    ("sigmoid", |_, x, _| one(x[0].sigmoid())),
    ("relu", |_, x, _| one(x[0].relu())),
    ("gelu", |_, x, _| one(x[0].gelu())),
    ("gelu_tanh", |_, x, _| one(x[0].gelu_tanh())),
    ("silu", |_, x, _| one(x[0].silu())),
    ("softplus", |_, x, _| one(x[0].softplus())),
    ("erf", |_, x, _| one(x[0].erf())),
    ("sign", |_, x, _| one(x[0].sign())),
    ("floor", |_, x, _| one(x[0].floor())),
    ("ceil", |_, x, _| one(x[0].ceil())),
    ("round", |_, x, _| one(x[0].round())),
    ("elu", |_, x, _| one(x[0].elu(1.0))),
    ("mish", |_, x, _| one(x[0].mish())),
    ("log1p", |_, x, _| one(x[0].log1p())),
    ("expm1", |_, x, _| one(x[0].expm1())),
    ("hardswish", |_, x, _| one(x[0].hardswish())),
    ("clamp", |_, x, a| one(x[0].clamp(number(a, "min"), number(a, "max")))),
    ("leaky_relu", |_, x, a| one(x[0].leaky_relu(number(a, "negative_slope")))),
    ("powf", |_, x, a| one(x[0].powf(number(a, "exponent")))),
    ("add_scalar", |_, x, a| one(x[0].add_scalar(number(a, "value")))),
    ("mul_scalar", |_, x, a| one(x[0].mul_scalar(number(a, "value")))),
    // Functions of two.
    ("add", |_, x, _| one(x[0].add(&x[1]))),
    ("sub", |_, x, _| one(x[0].sub(&x[1]))),
    ("mul", |_, x, _| one(x[0].mul(&x[1]))),
    ("div", |_, x, _| one(x[0].div(&x[1]))),
    ("maximum", |_, x, _| one(x[0].maximum(&x[1]))),
    ("minimum", |_, x, _| one(x[0].minimum(&x[1]))),
    ("pow", |_, x, _| one(x[0].pow(&x[1]))),
    ("mul_same", |_, x, _| one(x[0].mul(&x[0]))),
    ("sub_same", |_, x, _| one(x[0].sub(&x[0]))),
    ("eq", |_, x, _| one(x[0].eq(&x[1])?.to_i32())),
    ("lt", |_, x, _| one(x[0].lt(&x[1])?.to_i32())),
    ("ge", |_, x, _| one(x[0].ge(&x[1])?.to_i32())),
    ("where", |_, x, _| one(x[0].to_bool()?.where_(&x[1], &x[2]))),
    // Reductions.
    ("sum", |_, x, a| one(x[0].sum(&axes(a, "dims"), flag(a, "keepdim")))),
    ("mean", |_, x, a| one(x[0].mean(&axes(a, "dims"), flag(a, "keepdim")))),
    ("max", |_, x, a| one(x[0].max(&axes(a, "dims"), flag(a, "keepdim")))),
    ("min", |_, x, a| one(x[0].min(&axes(a, "dims"), flag(a, "keepdim")))),
    ("var", |_, x, a| one(x[0].var(&axes(a, "dims"), false, flag(a, "unbiased")))),
    ("argmax", |_, x, a| one(x[0].argmax(axis(a, "dim"), false))),
    ("argmin", |_, x, a| one(x[0].argmin(axis(a, "dim"), false))),
    ("logsumexp", |_, x, a| one(x[0].logsumexp(&[axis(a, "dim")], false))),
    ("cumsum", |_, x, a| one(x[0].cumsum(axis(a, "dim")))),
    // Products.
    ("matmul", |_, x, _| one(x[0].matmul(&x[1]))),
    ("matmul_same", |_, x, _| one(x[0].matmul(&x[0]))),
    ("matmul_tb", |_, x, _| one(x[0].matmul(&x[1].transpose(-2, -1)?))),
    ("matmul_ta", |_, x, _| one(x[0].transpose(-2, -1)?.matmul(&x[1]))),
    ("linear", |_, x, _| one(x[0].linear(&x[1], Some(&x[2])))),
    // Shapes and places.
    ("reshape", |_, x, a| one(x[0].reshape(sizes(a, "shape")))),
    ("permute", |_, x, a| one(x[0].permute(&axes(a, "dims")))),
    ("permute_reshape", |_, x, a| one(x[0].permute(&axes(a, "dims"))?.reshape(sizes(a, "shape")))),
    ("narrow", |_, x, a| one(x[0].narrow(axis(a, "dim"), size(a, "start"), size(a, "len")))),
    ("slice", |_, x, a| one(x[0].slice(axis(a, "dim"), size(a, "start"), size(a, "end"), size(a, "step")))),
    ("pad", |_, x, a| {
        let pads: Vec<(usize, usize)> =
            a["pad"].as_array().unwrap().iter().map(|p| (whole(&p[0]), whole(&p[1]))).collect();
        one(x[0].pad(&pads, number(a, "value")))
    }),
    ("broadcast_to", |_, x, a| one(x[0].broadcast_to(sizes(a, "shape")))),
    ("tril", |_, x, a| one(x[0].tril(axis(a, "diagonal") as i32))),
    ("cat", |_, x, a| one(Tensor::cat(x, axis(a, "dim")))),
    ("stack", |_, x, a| one(Tensor::stack(x, axis(a, "dim")))),
    ("flip", |_, x, a| one(x[0].flip(&axes(a, "dims")))),
    ("repeat", |_, x, a| one(x[0].repeat(&sizes(a, "repeats")))),
    ("gather", |_, x, a| one(x[0].gather(axis(a, "dim"), &x[1]))),
    ("scatter_add", |_, x, a| one(x[0].scatter_add(axis(a, "dim"), &x[1], &x[2]))),
    ("index_select", |_, x, a| one(x[0].index_select(axis(a, "dim"), &x[1]))),
    ("one_hot", |_, x, a| one(x[0].one_hot(size(a, "classes")))),
    ("embedding", |_, x, _| one(x[0].embedding(&x[1]))),
    // Images.
    ("conv2d", |_, x, a| one(x[0].conv2d(&x[1], Some(&x[2]), conv_options(a)))),
    ("conv1d", |_, x, a| one(x[0].conv1d(&x[1], Some(&x[2]), size(a, "stride"), size(a, "padding"), 1, 1))),
    ("conv_transpose2d", |_, x, a| {
        one(x[0].conv_transpose2d(&x[1], Some(&x[2]), conv_options(a), [size(a, "output_padding"); 2]))
    }),
    ("max_pool2d", |_, x, a| {
        one(x[0].max_pool2d([size(a, "kernel"); 2], [size(a, "stride"); 2], [size(a, "padding"); 2]))
    }),
    ("avg_pool2d", |_, x, a| {
        let include = flag(a, "count_include_pad");
        one(x[0].avg_pool2d([size(a, "kernel"); 2], [size(a, "stride"); 2], [size(a, "padding"); 2], include))
    }),
    ("adaptive_avg_pool2d", |_, x, a| {
        let size = sizes(a, "output");
        one(x[0].adaptive_avg_pool2d([size[0], size[1]]))
    }),
    ("upsample_nearest2d", |_, x, a| one(x[0].upsample_nearest2d(scaled(&x[0], a)))),
    ("upsample_bilinear2d", |_, x, a| one(x[0].upsample_bilinear2d(scaled(&x[0], a), flag(a, "align_corners")))),
    // Softmax, norms, losses, attention.
    ("softmax", |_, x, a| one(x[0].softmax(axis(a, "dim")))),
    ("log_softmax", |_, x, a| one(x[0].log_softmax(axis(a, "dim")))),
    ("layer_norm", |_, x, a| one(x[0].layer_norm(Some(&x[1]), Some(&x[2]), number(a, "eps")))),
    ("cross_entropy", cross_entropy),
    ("mse_loss", |_, x, a| one(x[0].mse(&x[1], reduction(a)))),
    ("rms_norm", |_, x, a| one(x[0].rms_norm(Some(&x[1]), number(a, "eps")))),
    ("group_norm", |_, x, a| one(x[0].group_norm(size(a, "groups"), Some(&x[1]), Some(&x[2]), number(a, "eps")))),
    ("batch_norm_train", |_, x, a| one(Ok(x[0].batch_norm_train(Some(&x[1]), Some(&x[2]), number(a, "eps"))?.0))),
    ("batch_norm_eval", |_, x, a| one(x[0].batch_norm_eval(&x[1], &x[2], Some(&x[3]), Some(&x[4]), number(a, "eps")))),
    ("l1_loss", |_, x, a| one(x[0].l1_loss(&x[1], reduction(a)))),
    ("huber_loss", |_, x, a| one(x[0].huber_loss(&x[1], number(a, "delta"), reduction(a)))),
    ("bce_with_logits", |_, x, a| one(x[0].bce_with_logits(&x[1], None, reduction(a)))),
    ("kl_div", |_, x, _| {
        // The reduction is the sum divided by the batch.
        let (input, target) = (x[0].log_softmax(1)?, x[1].softmax(1)?);
        let sum = input.kl_div(&target, false, Reduction::Sum)?;
        one(sum.mul_scalar(1.0 / x[0].dims()[0] as f32))
    }),
    ("rope", |_, x, a| one(x[0].rope(number(a, "base"), 0))),
    ("attention", |_, x, a| {
        let options = AttentionOptions { causal: flag(a, "causal"), ..AttentionOptions::default() };
        one(x[0].attention_fused(&x[1], &x[2], options))
    }),
];

fn cross_entropy(g: &Recorder, x: &[Tensor], a: &Value) -> Result<Vec<Tensor>> {
    let mut targets = x[1].clone();
    let mut options = CrossEntropyOptions { reduction: reduction(a), ..Default::default() };
    if let Some(ignore) = a["ignore_index"].as_i64() {
        let ignore = ignore as i32;
        let replaced = targets.eq_scalar(axis(a, "ignore_index_where_target_is") as i32)?;
        targets = replaced.where_(&g.full_i32(targets.shape(), ignore)?, &targets)?;
        options.ignore_index = Some(ignore);
    }
    if let Some(smoothing) = a["label_smoothing"].as_f64() {
        options.label_smoothing = smoothing as f32;
    }
    one(x[0].cross_entropy_with(&targets, options))
}

fn conv_options(attrs: &Value) -> Conv2dOptions {
    let or = |key: &str, usual: usize| attrs[key].as_u64().map_or(usual, |n| usize::try_from(n).unwrap());
    Conv2dOptions {
        stride: [or("stride", 1); 2],
        padding: [or("padding", 0); 2],
        dilation: [or("dilation", 1); 2],
        groups: or("groups", 1),
    }
}

fn scaled(x: &Tensor, attrs: &Value) -> [usize; 2] {
    [2, 3].map(|axis| x.dims()[axis] * size(attrs, "scale"))
}

fn one(output: Result<Tensor>) -> Result<Vec<Tensor>> {
    Ok(vec![output?])
}
fn number(attrs: &Value, key: &str) -> f32 {
    attrs[key].as_f64().unwrap() as f32
}
fn flag(attrs: &Value, key: &str) -> bool {
    attrs[key].as_bool().unwrap()
}
fn whole(value: &Value) -> usize {
    usize::try_from(value.as_u64().unwrap()).unwrap()
}
fn size(attrs: &Value, key: &str) -> usize {
    whole(&attrs[key])
}
fn sizes(attrs: &Value, key: &str) -> Vec<usize> {
    attrs[key].as_array().unwrap().iter().map(whole).collect()
}
fn axis(attrs: &Value, key: &str) -> isize {
    isize::try_from(attrs[key].as_i64().unwrap()).unwrap()
}
/// A list of axes; "all" is the empty list, as the library has it.
fn axes(attrs: &Value, key: &str) -> Vec<isize> {
    let list = attrs[key].as_array().map(Vec::as_slice).unwrap_or_default();
    list.iter().map(|v| isize::try_from(v.as_i64().unwrap()).unwrap()).collect()
}
fn reduction(attrs: &Value) -> Reduction {
    match attrs["reduction"].as_str().unwrap() {
        "mean" => Reduction::Mean,
        "sum" => Reduction::Sum,
        _ => Reduction::None,
    }
}
