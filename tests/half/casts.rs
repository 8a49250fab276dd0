//! Conversions against the `half` crate, bit by bit.

use remat::checkpoint::Policy;
use remat::dtype::{DType, f16};
use remat::gpu::InputData;
use remat::graph::{Recorder, Tensor};
use remat::params::Params;

use crate::engine::{gpu, planned, record};

/// Runs a recording once; its outputs.
pub(crate) fn outputs(
    inputs: &[(&str, InputData<'_>)],
    body: impl FnOnce(&Recorder) -> remat::Result<Vec<Tensor>>,
) -> Vec<remat::gpu::Output> {
    let (_turn, gpu) = gpu();
    let params = Params::new(&gpu, 0);
    let step = record(&gpu, body);
    let plan = planned(&gpu, &step, &Policy::None).unwrap();
    let run = remat::gpu::Executable::new_blocking(&gpu, step.program().clone(), plan, &params).unwrap();
    run.run_blocking(inputs).unwrap().outputs
}

fn bits(values: &[f16]) -> Vec<u16> {
    values.iter().map(|v| v.to_bits()).collect()
}

/// Every half, both ways.
#[test]
fn every_half_converts_exactly() {
    let all: Vec<f16> = (0..=u16::MAX).map(f16::from_bits).collect();
    let out = outputs(&[("x", (&all).into())], |g| {
        let x = g.input::<f16>("x", [1 << 16])?;
        let wide = x.to_f32()?.named("wide");
        Ok(vec![wide.clone(), wide.to_f16()?, x.to_i32()?, x.to_bool()?.to_u32()?, x.to_u32()?])
    });
    let wide: Vec<u32> = out[0].read_blocking::<f32>().unwrap().iter().map(|v| v.to_bits()).collect();
    let expected: Vec<u32> = all.iter().map(|v| v.to_f32().to_bits()).collect();
    assert_eq!(wide, expected);
    let back: Vec<f16> = all.iter().map(|v| f16::from_f32(v.to_f32())).collect();
    assert_eq!(bits(&out[1].read_blocking::<f16>().unwrap()), bits(&back));
    let whole: Vec<i32> = all.iter().map(|v| v.to_f32() as i32).collect();
    assert_eq!(out[2].read_blocking::<i32>().unwrap(), whole);
    let unsigned: Vec<u32> = all.iter().map(|v| v.to_f32() as u32).collect();
    assert_eq!(out[4].read_blocking::<u32>().unwrap(), unsigned);
    let truth: Vec<u32> = all.iter().map(|v| u32::from(v.to_f32() != 0.0)).collect();
    assert_eq!(out[3].read_blocking::<u32>().unwrap(), truth);
}

/// Ties, their neighbours, the borders of what a half holds, and patterns all over.
#[test]
fn floats_round_as_the_half_crate_rounds() {
    let mut patterns: Vec<u32> = Vec::new();
    // Half way between every two neighbouring halves, and one unit to either side.
    for h in 0..0x7c00_u16 {
        let (a, b) = (f16::from_bits(h).to_f32(), f16::from_bits(h + 1).to_f32());
        let middle = if h == 0x7bff { 65_520.0 } else { a.midpoint(b) };
        let bits = middle.to_bits();
        patterns.extend([bits - 1, bits, bits + 1, bits | 1 << 31]);
    }
    for special in [0, 1, 0x7f_ffff, 0x80_0000, 0x7f7f_ffff, 0x7f80_0000, 0x7f80_0001, 0x7fc0_0000, 0x7fff_ffff] {
        patterns.extend([special, special | 1 << 31]);
    }
    patterns.extend((0..40_000_u32).map(|i| i.wrapping_mul(2_654_435_761)));
    // An odd number: the last word holds one half.
    if patterns.len().is_multiple_of(2) {
        patterns.push(0x3f80_0000);
    }
    let count = patterns.len();
    let floats: Vec<f32> = patterns.iter().map(|p| f32::from_bits(*p)).collect();
    let out = outputs(&[("x", (&floats).into())], |g| {
        let x = g.input::<f32>("x", [count])?;
        Ok(vec![x.to_f16()?, x.to_f16()?.to_f32()?])
    });
    let expected: Vec<f16> = patterns.iter().map(|p| f16::from_f32(f32::from_bits(*p))).collect();
    let found = bits(&out[0].read_blocking::<f16>().unwrap());
    for ((pattern, found), expected) in patterns.iter().zip(&found).zip(bits(&expected)) {
        assert_eq!(*found, expected, "{pattern:#x} = {}", f32::from_bits(*pattern));
    }
    // Rounded within one pass, too.
    let rounded: Vec<u32> = out[1].read_blocking::<f32>().unwrap().iter().map(|v| v.to_bits()).collect();
    assert_eq!(rounded, expected.iter().map(|v| v.to_f32().to_bits()).collect::<Vec<_>>());
}

#[test]
fn integers_and_truth_become_halves() {
    let whole = [0_i32, 1, -1, 2048, 2049, 2050, 2051, 65_504, 65_519, 65_520, -70_000];
    let out = outputs(&[("x", (&whole).into())], |g| {
        let x = g.input::<i32>("x", [whole.len()])?;
        Ok(vec![x.to_f16()?, x.to_u32()?.to_f16()?, x.to_bool()?.to_f16()?])
    });
    let rounded = |f: fn(i32) -> f32| -> Vec<u16> { whole.iter().map(|v| f16::from_f32(f(*v)).to_bits()).collect() };
    assert_eq!(bits(&out[0].read_blocking::<f16>().unwrap()), rounded(|v| v as f32));
    assert_eq!(bits(&out[1].read_blocking::<f16>().unwrap()), rounded(|v| v as u32 as f32));
    assert_eq!(bits(&out[2].read_blocking::<f16>().unwrap()), rounded(|v| f32::from(u8::from(v != 0))));
}

/// States, constants and inputs of halves, odd lengths among them, saved and loaded.
#[test]
fn halves_go_to_the_device_and_back() {
    let (_turn, gpu) = gpu();
    let params = Params::new(&gpu, 3);
    let values: Vec<f16> = (0..7).map(|i| f16::from_f32(i as f32 / 3.0)).collect();
    let ty = remat::dtype::TensorType::new(DType::F16, [7]);
    assert_eq!((ty.data_bytes(), ty.size_bytes()), (14, 16));
    let init = remat::params::Init::from(values.iter().map(|v| v.to_f32()).collect::<Vec<_>>());
    let state = params.create_typed("h", ty, remat::fuse::program::Category::Other, init).unwrap();
    let step = record(&gpu, |g| {
        let sum = g.state(&state)?.add(&g.constant(&values, [7])?)?.add(&g.input::<f16>("x", [7])?)?;
        Ok(vec![sum])
    });
    let plan = planned(&gpu, &step, &Policy::None).unwrap();
    let run = remat::gpu::Executable::new_blocking(&gpu, step.program().clone(), plan, &params).unwrap();
    let out = run.run_blocking(&[("x", (&values).into())]).unwrap();
    let expected: Vec<f16> = values.iter().map(|v| f16::from_f32(3.0 * v.to_f32())).collect();
    assert_eq!(out.outputs[0].read_blocking::<f16>().unwrap(), expected);
    assert_eq!(params.read_blocking::<f16>("h").unwrap(), values);
    let file = pollster::block_on(params.to_safetensors()).unwrap();
    params.write_blocking("h", &expected).unwrap();
    assert_eq!(params.read_blocking::<f16>("h").unwrap(), expected);
    pollster::block_on(params.load_safetensors(&file)).unwrap();
    assert_eq!(params.read_blocking::<f16>("h").unwrap(), values);
    assert!(params.read_blocking::<f32>("h").is_err());
    assert!(run.run_blocking(&[("x", (&values[..6]).into())]).is_err());
}
