//! WGSL for fused expressions: one function per element.

use super::draft::{Expression, StepOperand};
use crate::dtype::DType;
use crate::graph::Graph;
use crate::ops::{ElementCall, Lowering};

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
