//! Every case of `tests/reference/ops.json` whose op is elementwise or a shape's.

use std::collections::BTreeMap;

use remat::dtype::{DType, TensorType};
use remat::error::Result;
use remat::graph::{Recorder, Tensor};
use serde_json::Value;

use super::{Inputs, device, floats, gradients};

fn number(attrs: &Value, key: &str) -> f32 {
    attrs[key].as_f64().unwrap() as f32
}
fn whole(attrs: &Value, key: &str) -> usize {
    attrs[key].as_u64().unwrap() as usize
}
fn list(attrs: &Value, key: &str) -> Vec<usize> {
    attrs[key].as_array().unwrap().iter().map(|v| v.as_u64().unwrap() as usize).collect()
}
fn axes(attrs: &Value, key: &str) -> Vec<isize> {
    list(attrs, key).into_iter().map(|a| a as isize).collect()
}

/// The op of a reference case, or `None` if it is another file's.
fn apply(op: &str, attrs: &Value, x: &[Tensor]) -> Option<Result<Tensor>> {
    let a = &x[0];
    Some(match op {
        "neg" => a.neg(),
        "abs" => a.abs(),
        "exp" => a.exp(),
        "ln" => a.ln(),
        "sqrt" => a.sqrt(),
        "rsqrt" => a.rsqrt(),
        "recip" => a.recip(),
        "sqr" => a.sqr(),
        "sin" => a.sin(),
        "cos" => a.cos(),
        "tanh" => a.tanh(),
        "sigmoid" => a.sigmoid(),
        "relu" => a.relu(),
        "gelu" => a.gelu(),
        "gelu_tanh" => a.gelu_tanh(),
        "silu" => a.silu(),
        "softplus" => a.softplus(),
        "erf" => a.erf(),
        "sign" => a.sign(),
        "floor" => a.floor(),
        "ceil" => a.ceil(),
        "round" => a.round(),
        "elu" => a.elu(1.0),
        "mish" => a.mish(),
        "log1p" => a.log1p(),
        "expm1" => a.expm1(),
        "hardswish" => a.hardswish(),
        "clamp" => a.clamp(number(attrs, "min"), number(attrs, "max")),
        "leaky_relu" => a.leaky_relu(number(attrs, "negative_slope")),
        "powf" => a.powf(number(attrs, "exponent")),
        "add_scalar" => a.add_scalar(number(attrs, "value")),
        "mul_scalar" => a.mul_scalar(number(attrs, "value")),
        "add" => a.add(&x[1]),
        "sub" => a.sub(&x[1]),
        "mul" => a.mul(&x[1]),
        "div" => a.div(&x[1]),
        "maximum" => a.maximum(&x[1]),
        "minimum" => a.minimum(&x[1]),
        "pow" => a.pow(&x[1]),
        "mul_same" => a.mul(a),
        "sub_same" => a.sub(a),
        "eq" => a.eq(&x[1]).and_then(|t| t.to_f32()),
        "lt" => a.lt(&x[1]).and_then(|t| t.to_f32()),
        "ge" => a.ge(&x[1]).and_then(|t| t.to_f32()),
        "where" => a.to_bool().and_then(|c| c.where_(&x[1], &x[2])),
        "reshape" => a.reshape(list(attrs, "shape")),
        "permute" => a.permute(&axes(attrs, "dims")),
        "permute_reshape" => a.permute(&axes(attrs, "dims")).and_then(|t| t.reshape(list(attrs, "shape"))),
        "narrow" => a.narrow(whole(attrs, "dim") as isize, whole(attrs, "start"), whole(attrs, "len")),
        "slice" => {
            a.slice(whole(attrs, "dim") as isize, whole(attrs, "start"), whole(attrs, "end"), whole(attrs, "step"))
        }
        "pad" => {
            let pads: Vec<(usize, usize)> = attrs["pad"]
                .as_array()
                .unwrap()
                .iter()
                .map(|p| (p[0].as_u64().unwrap() as usize, p[1].as_u64().unwrap() as usize))
                .collect();
            a.pad(&pads, number(attrs, "value"))
        }
        "broadcast_to" => a.broadcast_to(list(attrs, "shape")),
        "tril" => a.tril(attrs["diagonal"].as_i64().unwrap() as i32),
        _ => return None,
    })
}

fn tolerance(op: &str) -> (f32, f32) {
    let transcendental = [
        "exp",
        "ln",
        "tanh",
        "erf",
        "gelu",
        "gelu_tanh",
        "pow",
        "powf",
        "sigmoid",
        "softplus",
        "silu",
        "elu",
        "mish",
        "log1p",
        "expm1",
        "sin",
        "cos",
    ];
    if transcendental.contains(&op) { (1e-4, 1e-5) } else { (2e-5, 0.0) }
}

fn check(what: &str, op: &str, found: &[f32], expected: &[f32]) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let (rtol, atol) = tolerance(op);
    let largest = expected.iter().fold(0.0_f32, |m, v| m.max(v.abs()));
    let atol = atol.max(2e-6 * largest).max(2e-6);
    for (i, (f, e)) in found.iter().zip(expected).enumerate() {
        let close = (f - e).abs() <= atol + rtol * e.abs() || (f.is_nan() && e.is_nan()) || f == e;
        assert!(close, "{what}[{i}]: {f} but PyTorch has {e}");
    }
}

#[test]
fn every_reference_case_agrees_with_pytorch() {
    let cases: Vec<Value> = serde_json::from_str(include_str!("../reference/ops.json")).unwrap();
    let bytes = std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/reference/ops.safetensors")).unwrap();
    let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let words = |name: &str| -> Vec<u32> { bytemuck::pod_collect_to_vec(file.tensor(name).unwrap().data()) };
    let device = device();
    let mut checked = 0;
    let mut failures = Vec::new();
    for case in &cases {
        let (id, op) = (case["id"].as_str().unwrap(), case["op"].as_str().unwrap());
        let grad = case["grad"].as_bool().unwrap();
        let count = whole(case, "inputs");
        let mut data = Inputs::new();
        let mut wanted = Vec::new();
        let mut run = |data: &mut Inputs, wanted: &mut Vec<String>| {
            let recorder = Recorder::new();
            let mut x = Vec::new();
            for i in 0..count {
                let name = format!("{id}/in{i}");
                let view = file.tensor(&name).unwrap();
                let dtype = if matches!(view.dtype(), safetensors::Dtype::F32) { DType::F32 } else { DType::I32 };
                x.push(recorder.typed_input(&name, TensorType::new(dtype, view.shape())).unwrap());
                data.insert(name.clone(), words(&name));
            }
            let y = apply(op, &case["attrs"], &x)?.unwrap();
            let out = format!("{id}/out0");
            assert_eq!(y.dims(), file.tensor(&out).unwrap().shape(), "{id}");
            wanted.push(out);
            let mut outputs = vec![y.clone()];
            if grad {
                let name = format!("{id}/gout0");
                let seed = recorder.input::<f32>(&name, y.shape()).unwrap();
                data.insert(name.clone(), words(&name));
                let floats: Vec<&Tensor> = x.iter().filter(|t| t.dtype() == DType::F32).collect();
                for (i, t) in x.iter().enumerate() {
                    if t.dtype() == DType::F32 && file.tensor(&format!("{id}/gin{i}")).is_ok() {
                        wanted.push(format!("{id}/gin{i}"));
                    }
                }
                let Ok(all) = gradients(&y, &seed, &floats) else {
                    failures.push(format!("{id} gradient"));
                    return None;
                };
                outputs.extend(all.into_iter().zip(&floats).filter_map(|(g, t)| {
                    let i = x.iter().position(|x| x.id() == t.id()).unwrap();
                    file.tensor(&format!("{id}/gin{i}")).is_ok().then_some(g)
                }));
            }
            let named: Vec<(String, &Tensor)> =
                outputs.iter().enumerate().map(|(i, t)| (format!("out{i}"), t)).collect();
            Some(recorder.finish(&named).unwrap())
        };
        let Some(graph) = run(&mut data, &mut wanted) else { continue };
        let program = remat::fuse::fuse(&graph, &remat::profile::DeviceProfile::default()).unwrap();
        program.validate().unwrap();
        let (out, _) = device.run(&program, &data, &BTreeMap::new());
        for (name, found) in wanted.iter().zip(&out) {
            let view = file.tensor(name).unwrap();
            let expected: Vec<f32> = match view.dtype() {
                safetensors::Dtype::F32 => floats(&words(name)),
                _ => words(name).iter().map(|w| *w as i32 as f32).collect(),
            };
            let found = floats(found);
            let result = std::panic::catch_unwind(|| check(name, op, &found, &expected));
            if result.is_err() {
                failures.push(name.clone());
            }
        }
        checked += 1;
    }
    assert!(failures.is_empty(), "{failures:?}");
    assert!(checked >= 70, "only {checked} cases");
}
