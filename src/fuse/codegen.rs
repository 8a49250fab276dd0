//! WGSL for fused expressions: one function per element, and the kernel around it.

use super::draft::{Expression, Placed, StepOperand};
use crate::dtype::{DType, collapse_together};
use crate::graph::Graph;
use crate::ops::{ElementCall, Lowering};
use crate::profile::DeviceProfile;

/// Invocations per workgroup of generated kernels.
const WORKGROUP: u64 = 64;

/// The function `element(index, ..)` of an expression.
pub(super) struct ElementFunction {
    /// Functions that it calls, then the function itself.
    pub(super) source: String,
    /// Uniform words, in the order of the `words` names that were handed in.
    pub(super) words: Vec<u32>,
    /// Floating-point operations per element.
    pub(super) flops: f64,
}

/// Writes `fn element(index: u32, [acc: f32,] x0: T0, ..) -> T`.
/// `word` names the uniform word of an index as a `u32` expression.
pub(super) fn element_function(
    graph: &Graph,
    expression: &Expression,
    word: &dyn Fn(usize) -> String,
) -> ElementFunction {
    let mut helpers: Vec<&'static str> = Vec::new();
    let mut body = String::new();
    let mut words = Vec::new();
    let mut flops = 0.0;
    let mut uses_accumulator = false;
    for (index, step) in expression.steps.iter().enumerate() {
        let operands: Vec<String> = step
            .operands
            .iter()
            .map(|operand| match operand {
                StepOperand::Leaf(i) => format!("x{i}"),
                StepOperand::Step(i) => format!("t{i}"),
                StepOperand::Accumulator => {
                    uses_accumulator = true;
                    "acc".to_owned()
                }
            })
            .collect();
        let text = match step.node.map(|n| graph.node(n).op.lowering()) {
            Some(Lowering::Elementwise(op)) => {
                for function in op.functions() {
                    if !helpers.contains(function) {
                        helpers.push(function);
                    }
                }
                let own = op.words();
                let names: Vec<String> = (0..own.len()).map(|i| word(words.len() + i)).collect();
                words.extend(own);
                flops += op.flops();
                op.expression(&ElementCall { operands: &operands, words: &names, index: "index" })
            }
            // A copy.
            _ => operands[0].clone(),
        };
        body.push_str(&format!("    let t{index}: {} = {text};\n", step.ty.dtype.wgsl_value()));
    }
    let mut parameters = vec!["index: u32".to_owned()];
    if uses_accumulator {
        parameters.push("acc: f32".to_owned());
    }
    for (i, leaf) in expression.leaves.iter().enumerate() {
        parameters.push(format!("x{i}: {}", leaf.ty.dtype.wgsl_value()));
    }
    let mut source = helpers.join("\n");
    source.push_str(&format!(
        "\nfn element({}) -> {} {{\n{body}    return t{};\n}}\n",
        parameters.join(", "),
        expression.ty.dtype.wgsl_value(),
        expression.steps.len() - 1
    ));
    ElementFunction { source, words, flops }
}

/// A stored word as an expression's value.
pub(super) fn loaded(dtype: DType, text: &str) -> String {
    if dtype == DType::Bool { format!("({text} != 0u)") } else { text.to_owned() }
}

/// An expression's value as a stored word.
pub(super) fn stored(dtype: DType, text: &str) -> String {
    if dtype == DType::Bool { format!("select(0u, 1u, {text})") } else { text.to_owned() }
}

/// A generated kernel with its words and grid.
pub(super) struct Generated {
    pub(super) source: String,
    pub(super) words: Vec<u32>,
    pub(super) grid: [u32; 3],
    pub(super) flops: f64,
}

/// How a binding of the generated kernel is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BindingUse {
    /// Read by leaves.
    pub(super) read: bool,
    /// Holds the output.
    pub(super) written: bool,
    /// Data type of its elements.
    pub(super) dtype: DType,
}

/// Writes the kernel of an elementwise pass. `leaf_bindings[i]` is the operand
/// index (0-based) of leaf `i`; `output` that of the output.
pub(super) fn elementwise_kernel(
    graph: &Graph,
    profile: &DeviceProfile,
    expression: &Expression,
    leaf_bindings: &[usize],
    bindings: &[BindingUse],
    output: usize,
) -> Generated {
    let own = expression.ty.shape.contiguous_strides();
    let mut strides: Vec<&[u64]> = expression.leaves.iter().map(|l| l.layout.strides.as_slice()).collect();
    strides.push(&own);
    let (shape, strides) = collapse_together(&expression.ty.shape, &strides);
    let rank = shape.rank();
    let inner = shape.0.last().copied().unwrap_or(1);
    let wide = inner.is_multiple_of(4);
    let inner_stride = |i: usize| strides[i].last().copied().unwrap_or(0);
    // A leaf of four neighbours at an aligned place can be loaded at once.
    let leaf_wide = |i: usize, leaf: &Placed| {
        wide && inner_stride(i) == 1
            && leaf.layout.offset.is_multiple_of(4)
            && strides[i][..rank.saturating_sub(1)].iter().all(|s| s.is_multiple_of(4))
    };
    let binding_wide: Vec<bool> = (0..bindings.len())
        .map(|b| {
            wide && expression.leaves.iter().enumerate().all(|(i, leaf)| leaf_bindings[i] != b || leaf_wide(i, leaf))
        })
        .collect();
    let count = expression.ty.shape.element_count();
    // words: 0 count, then per axis its extent, then per leaf offset and strides, then the ops'.
    let mut words: Vec<u32> = vec![narrow(count)];
    words.extend(shape.0.iter().map(|&d| narrow(d as u64)));
    let mut leaf_words = Vec::new();
    for (i, leaf) in expression.leaves.iter().enumerate() {
        leaf_words.push(words.len());
        words.push(narrow(leaf.layout.offset));
        words.extend(strides[i].iter().map(|&s| narrow(s)));
    }
    let first_op_word = words.len();
    let word = |i: usize| format!("u.words[{}].{}", i / 4, ["x", "y", "z", "w"][i % 4]);
    let function = element_function(graph, expression, &|i| word(first_op_word + i));
    words.extend(&function.words);
    let blocks = words.len().div_ceil(4);
    words.resize(blocks * 4, 0);

    let mut text = format!(
        "struct Uniforms {{ words: array<vec4<u32>, {blocks}> }}\n@group(0) @binding(0) var<uniform> u: Uniforms;\n"
    );
    for (b, binding) in bindings.iter().enumerate() {
        let scalar = binding.dtype.wgsl_storage();
        let ty = if binding_wide[b] { format!("vec4<{scalar}>") } else { scalar.to_owned() };
        text.push_str(&format!("@group(0) @binding({}) var<storage, read_write> b{b}: array<{ty}>;\n", b + 1));
    }
    text.push_str(&function.source);
    let per_invocation: u64 = if wide { 4 } else { 1 };
    text.push_str(&format!(
        "@compute @workgroup_size({WORKGROUP})\nfn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {{\n    let place = (id.z * groups.y + id.y) * (groups.x * {WORKGROUP}u) + id.x;\n    if (place >= {} / {per_invocation}u) {{\n        return;\n    }}\n    let index = place * {per_invocation}u;\n",
        word(0)
    ));
    let contiguous = |i: usize| strides[i] == strides[expression.leaves.len()];
    if (0..expression.leaves.len()).any(|i| !contiguous(i) && strides[i].iter().any(|&s| s != 0)) {
        text.push_str("    var rest = index;\n");
        for axis in (0..rank).rev() {
            if axis == 0 {
                text.push_str("    let c0 = rest;\n");
            } else {
                let extent = word(1 + axis);
                text.push_str(&format!("    let c{axis} = rest % {extent};\n    rest = rest / {extent};\n"));
            }
        }
    }
    let mut addresses = Vec::new();
    for i in 0..expression.leaves.len() {
        let base = word(leaf_words[i]);
        let address = if contiguous(i) {
            format!("{base} + index")
        } else {
            let terms: Vec<String> = (0..rank)
                .filter(|&axis| strides[i][axis] != 0)
                .map(|axis| format!("c{axis} * {}", word(leaf_words[i] + 1 + axis)))
                .collect();
            if terms.is_empty() { base } else { format!("{base} + {}", terms.join(" + ")) }
        };
        text.push_str(&format!("    let a{i} = {address};\n"));
        addresses.push(format!("a{i}"));
    }
    let out_dtype = expression.ty.dtype;
    if wide {
        for (i, leaf) in expression.leaves.iter().enumerate() {
            let b = leaf_bindings[i];
            let scalar = leaf.ty.dtype.wgsl_storage();
            let line = if binding_wide[b] {
                format!("let v{i} = b{b}[a{i} / 4u];")
            } else if inner_stride(i) == 0 {
                format!("let v{i} = vec4<{scalar}>(b{b}[a{i}]);")
            } else {
                let step = if inner_stride(i) == 1 { "1u".to_owned() } else { word(leaf_words[i] + rank) };
                format!(
                    "let v{i} = vec4<{scalar}>(b{b}[a{i}], b{b}[a{i} + {step}], b{b}[a{i} + 2u * {step}], b{b}[a{i} + 3u * {step}]);"
                )
            };
            text.push_str(&format!("    {line}\n"));
        }
        let lane = |k: usize| {
            let name = ["x", "y", "z", "w"][k];
            let mut arguments = vec![format!("index + {k}u")];
            for (i, leaf) in expression.leaves.iter().enumerate() {
                arguments.push(loaded(leaf.ty.dtype, &format!("v{i}.{name}")));
            }
            stored(out_dtype, &format!("element({})", arguments.join(", ")))
        };
        let lanes = [lane(0), lane(1), lane(2), lane(3)].join(", ");
        let value = format!("vec4<{}>({lanes})", out_dtype.wgsl_storage());
        if binding_wide[output] {
            text.push_str(&format!("    b{output}[place] = {value};\n"));
        } else {
            text.push_str(&format!("    let r = {value};\n"));
            for k in 0..4 {
                text.push_str(&format!("    b{output}[index + {k}u] = r.{};\n", ["x", "y", "z", "w"][k]));
            }
        }
    } else {
        let mut arguments = vec!["index".to_owned()];
        for (i, leaf) in expression.leaves.iter().enumerate() {
            arguments.push(loaded(leaf.ty.dtype, &format!("b{}[a{i}]", leaf_bindings[i])));
        }
        let value = stored(out_dtype, &format!("element({})", arguments.join(", ")));
        text.push_str(&format!("    b{output}[index] = {value};\n"));
    }
    text.push_str("}\n");
    let groups = (count / per_invocation).div_ceil(WORKGROUP);
    Generated { source: text, words, grid: profile.split_grid(groups), flops: function.flops * count as f64 }
}

/// Element counts and strides inside one binding: limits were checked, and a
/// binding is below 2^32 elements on every device.
fn narrow(n: u64) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}
