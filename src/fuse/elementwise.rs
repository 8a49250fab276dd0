//! The kernel of an elementwise pass.
//!
//! One invocation computes four neighbours where the innermost extent allows
//! it, else one element. What lies like the output is addressed by the linear
//! index; only other leaves need coordinates, and those only along axes where
//! they move. Of halves, two of which share a word, one invocation computes two
//! neighbours where it cannot compute four. Extents, strides and offsets are uniform words: the text tells
//! only which of them are 0 or 1, so equal structure gives equal text.

use std::fmt::Write;

use super::codegen::{element_function, loaded, stored};
use super::draft::Expression;
use super::half::with_functions;
use crate::dtype::{DType, Shape, collapse_together};
use crate::graph::Graph;
use crate::ops::kernel::word as count_word;
use crate::profile::DeviceProfile;

/// Invocations per workgroup: the most that WebGPU promises. On lavapipe 256
/// reach 5.4 GB/s where 64 reach 4.2; several vectors per invocation gain nothing more.
const WORKGROUP: u64 = 256;

const QUOTIENT: &str = include_str!("../../shaders/shared/quotient.wgsl");
const LANES: [&str; 4] = ["x", "y", "z", "w"];

/// A generated kernel with its words and grid.
pub(super) struct Generated {
    pub(super) source: String,
    pub(super) words: Vec<u32>,
    pub(super) grid: [u32; 3],
    pub(super) flops: f64,
}

/// An expression with the bindings that it reads and writes.
pub(super) struct BoundExpression<'a> {
    pub(super) expression: &'a Expression,
    /// The binding of each leaf, counted from 0.
    pub(super) leaf_bindings: &'a [usize],
    /// What each binding holds.
    pub(super) dtypes: &'a [DType],
    /// The binding of the output.
    pub(super) output: usize,
}

/// Writes the kernel of an elementwise pass.
pub(super) fn generate(graph: &Graph, profile: &DeviceProfile, bound: &BoundExpression<'_>) -> Generated {
    let mut writer = Writer::new(bound);
    let first_op_word = writer.words.len();
    let function = element_function(graph, bound.expression, &|i| word(first_op_word + i));
    writer.words.extend(&function.words);
    writer.declarations(&function.source);
    if writer.per_invocation() == 2 {
        writer.two();
    } else {
        writer.index();
        writer.addresses();
        if writer.wide {
            writer.four();
        } else {
            writer.one();
        }
    }
    writer.text.push_str("}\n");
    let count = bound.expression.ty.shape.element_count();
    Generated {
        grid: profile.split_grid(count.div_ceil(writer.per_invocation()).div_ceil(WORKGROUP)),
        flops: function.flops * count as f64,
        source: writer.text,
        words: writer.words,
    }
}

/// The uniform word of an index.
fn word(index: usize) -> String {
    format!("u.words[{}].{}", index / 4, LANES[index % 4])
}

struct Writer<'a> {
    bound: &'a BoundExpression<'a>,
    /// The output's extents, axes joined where every leaf allows it.
    shape: Shape,
    /// Each leaf's strides along them, then the output's.
    strides: Vec<Vec<u64>>,
    /// Four elements per invocation.
    wide: bool,
    /// Bindings declared as vectors of four.
    wide_bindings: Vec<bool>,
    words: Vec<u32>,
    /// Where each leaf's offset stands among the words; its strides follow.
    leaf_words: Vec<usize>,
    text: String,
}

impl<'a> Writer<'a> {
    fn new(bound: &'a BoundExpression<'a>) -> Self {
        let expression = bound.expression;
        let own = expression.ty.shape.contiguous_strides();
        let mut strides: Vec<&[u64]> = expression.leaves.iter().map(|l| l.layout.strides.as_slice()).collect();
        strides.push(&own);
        let (shape, strides) = collapse_together(&expression.ty.shape, &strides);
        let wide = shape.0.last().copied().unwrap_or(1).is_multiple_of(4);
        // 0 count, then each axis' extent, then each leaf's offset and strides; the ops' words follow.
        let mut words = vec![count_word(expression.ty.shape.element_count())];
        words.extend(shape.0.iter().map(|&d| count_word(d as u64)));
        let mut leaf_words = Vec::with_capacity(expression.leaves.len());
        for (leaf, strides) in expression.leaves.iter().zip(&strides) {
            leaf_words.push(words.len());
            words.push(count_word(leaf.layout.offset));
            words.extend(strides.iter().map(|&s| count_word(s)));
        }
        let mut writer =
            Self { bound, shape, strides, wide, wide_bindings: Vec::new(), words, leaf_words, text: String::new() };
        writer.wide_bindings = (0..bound.dtypes.len())
            .map(|b| wide && (0..expression.leaves.len()).all(|i| bound.leaf_bindings[i] != b || writer.loads_four(i)))
            .collect();
        writer
    }

    fn per_invocation(&self) -> u64 {
        match self.bound.expression.ty.dtype {
            _ if self.wide => 4,
            DType::F16 => 2,
            _ => 1,
        }
    }

    /// Whether a leaf's four neighbours lie together at an aligned place.
    fn loads_four(&self, leaf: usize) -> bool {
        let Some((inner, outer)) = self.strides[leaf].split_last() else { return false };
        *inner == 1
            && self.bound.expression.leaves[leaf].layout.offset.is_multiple_of(4)
            && outer.iter().all(|s| s.is_multiple_of(4))
    }

    /// Whether a leaf lies like the output.
    fn is_alike(&self, leaf: usize) -> bool {
        self.strides[leaf] == self.strides[self.bound.expression.leaves.len()]
    }

    fn line(&mut self, line: &str) {
        self.text.push_str("    ");
        self.text.push_str(line);
        self.text.push('\n');
    }

    fn declarations(&mut self, function: &str) {
        let blocks = self.words.len().div_ceil(4);
        self.words.resize(blocks * 4, 0);
        let divides = self.divides_by_float() && self.needs_coordinates() && !function.contains("fn quotient(");
        let text = &mut self.text;
        // Writing into a String cannot fail.
        let _ = writeln!(text, "struct Uniforms {{ words: array<vec4<u32>, {blocks}> }}");
        text.push_str("@group(0) @binding(0) var<uniform> u: Uniforms;\n");
        for (b, dtype) in self.bound.dtypes.iter().enumerate() {
            let scalar = dtype.wgsl_storage();
            let ty = match (self.wide_bindings[b], dtype) {
                (true, DType::F16) => "vec2<u32>".to_owned(),
                (true, _) => format!("vec4<{scalar}>"),
                (false, _) => scalar.to_owned(),
            };
            let _ = writeln!(text, "@group(0) @binding({}) var<storage, read_write> b{b}: array<{ty}>;", b + 1);
            if *dtype == DType::F16 && !self.wide_bindings[b] {
                let _ = writeln!(text, "fn b{b}_half(i: u32) -> f32 {{\n    return half_in(b{b}[i >> 1u], i);\n}}");
            }
        }
        text.push_str(function);
        if self.bound.dtypes.contains(&DType::F16) {
            *text = with_functions(std::mem::take(text));
        }
        if divides {
            text.push_str(QUOTIENT);
        }
    }

    /// The invocation's first element, guarded.
    fn index(&mut self) {
        let per = self.per_invocation();
        let _ = write!(
            self.text,
            "@compute @workgroup_size({WORKGROUP})\nfn main(@builtin(global_invocation_id) id: vec3<u32>, \
             @builtin(num_workgroups) groups: vec3<u32>) {{\n    \
             let place = (id.z * groups.y + id.y) * (groups.x * {WORKGROUP}u) + id.x;\n    \
             if (place >= {}) {{\n        return;\n    }}\n    let index = place * {per}u;\n",
            if per == 2 { format!("({} + 1u) / 2u", word(0)) } else { format!("{} / {per}u", word(0)) }
        );
    }

    /// Axes along which a leaf moves that does not lie like the output.
    fn axes_used(&self) -> Vec<bool> {
        let mut used = vec![false; self.shape.rank()];
        for leaf in (0..self.bound.expression.leaves.len()).filter(|&i| !self.is_alike(i)) {
            for (axis, stride) in self.strides[leaf].iter().enumerate() {
                used[axis] |= *stride != 0;
            }
        }
        used
    }

    fn needs_coordinates(&self) -> bool {
        self.axes_used().contains(&true)
    }

    /// Whether `quotient` is right for every division by an extent.
    fn divides_by_float(&self) -> bool {
        let count = self.shape.element_count();
        let inner = self.shape.0.last().copied().unwrap_or(1) as u64;
        count < 1 << 30 && count / inner.max(1) < 1 << 21
    }

    fn addresses(&mut self) {
        let used = self.axes_used();
        let by_float = self.divides_by_float();
        if let Some(outermost) = used.iter().position(|u| *u) {
            let mut rest = "index".to_owned();
            for axis in (outermost..self.shape.rank()).rev() {
                if axis == 0 {
                    self.line(&format!("let c0 = {rest};"));
                    break;
                }
                let extent = word(1 + axis);
                let over = if by_float { format!("quotient({rest}, {extent})") } else { format!("{rest} / {extent}") };
                self.line(&format!("let q{axis} = {over};"));
                if used[axis] {
                    self.line(&format!("let c{axis} = {rest} - q{axis} * {extent};"));
                }
                rest = format!("q{axis}");
            }
        }
        for leaf in 0..self.bound.expression.leaves.len() {
            let first = self.leaf_words[leaf];
            let mut address = word(first);
            if self.is_alike(leaf) {
                address.push_str(" + index");
            } else {
                for (axis, _) in self.strides[leaf].iter().enumerate().filter(|(_, s)| **s != 0) {
                    let _ = write!(address, " + c{axis} * {}", word(first + 1 + axis));
                }
            }
            self.line(&format!("let a{leaf} = {address};"));
        }
    }

    /// The call of `element` at `index`, its leaves loaded one by one.
    fn call(&self) -> String {
        let mut arguments = vec!["index".to_owned()];
        for (i, leaf) in self.bound.expression.leaves.iter().enumerate() {
            arguments.push(self.load(leaf.ty.dtype, self.bound.leaf_bindings[i], &format!("a{i}")));
        }
        format!("element({})", arguments.join(", "))
    }

    /// One element of a binding that is declared as scalars.
    fn load(&self, dtype: DType, binding: usize, address: &str) -> String {
        match dtype {
            DType::F16 => format!("b{binding}_half({address})"),
            dtype => loaded(dtype, &format!("b{binding}[{address}]")),
        }
    }

    /// One element.
    fn one(&mut self) {
        let value = stored(self.bound.expression.ty.dtype, &self.call());
        self.line(&format!("b{}[index] = {value};", self.bound.output));
    }

    /// Two halves, which share a word.
    fn two(&mut self) {
        self.text.push_str("fn value(index: u32) -> f32 {\n");
        self.addresses();
        self.line(&format!("return {};", self.call()));
        self.text.push_str("}\n");
        self.index();
        self.line("var second = 0.0;");
        self.line(&format!("if (index + 1u < {}) {{", word(0)));
        self.line("    second = value(index + 1u);");
        self.line("}");
        let output = self.bound.output;
        self.line(&format!("b{output}[place] = pack_halves(vec4<f32>(value(index), second, 0.0, 0.0)).x;"));
    }

    /// Four neighbours.
    fn four(&mut self) {
        let bound = self.bound;
        for (i, leaf) in bound.expression.leaves.iter().enumerate() {
            let (b, dtype) = (bound.leaf_bindings[i], leaf.ty.dtype);
            let scalar = if dtype == DType::F16 { "f32" } else { dtype.wgsl_storage() };
            let value = match self.strides[i].last() {
                _ if self.wide_bindings[b] && dtype == DType::F16 => format!("unpack_halves(b{b}[a{i} / 4u])"),
                _ if self.wide_bindings[b] => format!("b{b}[a{i} / 4u]"),
                None | Some(0) if dtype == DType::F16 => format!("vec4<f32>(b{b}_half(a{i}))"),
                None | Some(0) => format!("vec4<{scalar}>(b{b}[a{i}])"),
                Some(stride) => {
                    let step =
                        if *stride == 1 { "1u".to_owned() } else { word(self.leaf_words[i] + self.shape.rank()) };
                    let places = [
                        format!("a{i}"),
                        format!("a{i} + {step}"),
                        format!("a{i} + 2u * {step}"),
                        format!("a{i} + 3u * {step}"),
                    ];
                    let at = |place: &String| match dtype {
                        DType::F16 => format!("b{b}_half({place})"),
                        _ => format!("b{b}[{place}]"),
                    };
                    format!("vec4<{scalar}>({})", places.iter().map(at).collect::<Vec<_>>().join(", "))
                }
            };
            self.line(&format!("let v{i} = {value};"));
        }
        let dtype = bound.expression.ty.dtype;
        let lanes: Vec<String> = LANES
            .iter()
            .enumerate()
            .map(|(k, lane)| {
                let mut arguments = vec![format!("index + {k}u")];
                for (i, leaf) in bound.expression.leaves.iter().enumerate() {
                    arguments.push(loaded(leaf.ty.dtype, &format!("v{i}.{lane}")));
                }
                stored(dtype, &format!("element({})", arguments.join(", ")))
            })
            .collect();
        let output = bound.output;
        if dtype == DType::F16 {
            self.line(&format!("b{output}[place] = pack_halves(vec4<f32>({}));", lanes.join(", ")));
            return;
        }
        let value = format!("vec4<{}>({})", dtype.wgsl_storage(), lanes.join(", "));
        if self.wide_bindings[output] {
            self.line(&format!("b{output}[place] = {value};"));
        } else {
            self.line(&format!("let r = {value};"));
            for (k, lane) in LANES.iter().enumerate() {
                self.line(&format!("b{output}[index + {k}u] = r.{lane};"));
            }
        }
    }
}
