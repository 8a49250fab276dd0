//! WGSL for an expression fused into the store of a kernel.
//!
//! A kernel with epilogue calls `epilogue_vec4(value, batch, row, col)` (four
//! neighbouring columns) or `epilogue_scalar(value, batch, row, col)` on what it
//! is about to store. Both are written here, with the bindings and uniform
//! words that they read.

use super::codegen::{element_function, loaded};
use super::draft::{Expression, expression_name};
use super::half::with_functions;
use super::program::StorageId;
use crate::dtype::{DType, Shape};
use crate::graph::Graph;
use crate::ops::EpilogueCode;

/// A generated epilogue and the storages that it binds, in order.
pub(super) struct Epilogue {
    pub(super) code: EpilogueCode,
    pub(super) storages: Vec<StorageId>,
    /// Suffix of the pass's name.
    pub(super) name: String,
}

/// Writes the epilogue, or `None` if a leaf cannot be addressed by batch, row
/// and column, or lies in a storage that the kernel binds already.
pub(super) fn generate(
    graph: &Graph,
    expression: &Expression,
    shape: [usize; 3],
    bound: &[StorageId],
    first_binding: u32,
) -> Option<Epilogue> {
    if !expression.ty.dtype.is_float() {
        return None;
    }
    let shape = Shape(shape.to_vec());
    let mut storages: Vec<(StorageId, DType)> = Vec::new();
    let mut words: Vec<u32> = vec![u32::try_from(shape.0[1]).ok()?, u32::try_from(shape.0[2]).ok()?];
    let word = |i: usize| format!("u.epilogue.words[{}].{}", i / 4, ["x", "y", "z", "w"][i % 4]);
    let mut loads = Vec::new();
    let mut bytes = 0.0;
    for (i, leaf) in expression.leaves.iter().enumerate() {
        let layout = leaf.layout.reshaped(&shape)?;
        let storage = leaf.storage?;
        if bound.contains(&storage) {
            return None;
        }
        let binding = storages.iter().position(|(s, _)| *s == storage).unwrap_or_else(|| {
            storages.push((storage, leaf.ty.dtype));
            storages.len() - 1
        });
        let first = words.len();
        words.push(u32::try_from(layout.offset).ok()?);
        let mut address = word(first);
        for (axis, coordinate) in ["batch", "row", "col"].iter().enumerate() {
            let stride = u32::try_from(layout.strides[axis]).ok()?;
            // The text tells which strides are zero, so that loads of a bias stay out of the row loop.
            if stride != 0 && shape.0[axis] != 1 {
                address.push_str(&format!(" + {coordinate} * {}", word(words.len())));
                words.push(stride);
            }
        }
        if layout.strides.iter().zip(&shape.0).any(|(&s, &d)| s != 0 && d != 1) {
            bytes += leaf.ty.dtype.size_bytes() as f64;
        }
        loads.push(match leaf.ty.dtype {
            DType::F16 => format!("e{binding}_half({address})"),
            dtype => loaded(dtype, &format!("e{binding}[{address}]")),
        });
        debug_assert!(i + 1 == loads.len());
    }
    let first_op_word = words.len();
    let function = element_function(graph, expression, &|i| word(first_op_word + i));
    words.extend(&function.words);
    let blocks = words.len().div_ceil(4);
    words.resize(blocks * 4, 0);

    let mut source = format!("struct Epilogue {{ words: array<vec4<u32>, {blocks}> }}\n");
    for (i, (_, dtype)) in storages.iter().enumerate() {
        source.push_str(&format!(
            "@group(0) @binding({}) var<storage, read_write> e{i}: array<{}>;\n",
            first_binding as usize + i,
            dtype.wgsl_storage()
        ));
        if *dtype == DType::F16 {
            source.push_str(&format!("fn e{i}_half(i: u32) -> f32 {{\n    return half_in(e{i}[i >> 1u], i);\n}}\n"));
        }
    }
    source.push_str(&function.source);
    if storages.iter().any(|(_, dtype)| *dtype == DType::F16) {
        source = with_functions(source);
    }
    let mut arguments = vec![format!("(batch * {} + row) * {} + col", word(0), word(1)), "value".to_owned()];
    arguments.extend(loads);
    source.push_str(&format!(
        "fn epilogue_scalar(value: f32, batch: u32, row: u32, col: u32) -> f32 {{\n    return element({});\n}}\n",
        arguments.join(", ")
    ));
    source.push_str(
        "fn epilogue_vec4(value: vec4<f32>, batch: u32, row: u32, col: u32) -> vec4<f32> {\n    return vec4<f32>(epilogue_scalar(value.x, batch, row, col), epilogue_scalar(value.y, batch, row, col + 1u), epilogue_scalar(value.z, batch, row, col + 2u), epilogue_scalar(value.w, batch, row, col + 3u));\n}\n",
    );
    let name = format!("+{}", expression_name(graph, expression));
    let storages = storages.into_iter().map(|(s, _)| s).collect();
    Some(Epilogue { code: EpilogueCode { source, words, flops: function.flops, bytes }, storages, name })
}
