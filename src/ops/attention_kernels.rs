//! Fused attention: [`Tensor::attention_with`]'s ops with kernels of their own.
//!
//! ```text
//! s = scale q k^T + mask      m = max_j s      l = sum_j exp(s - m)      p = exp(s - m) / l
//! o = p v                     dv = p^T g       dp = g v^T                delta = sum_e g * o
//! ds = p * (dp - delta)       dq = scale ds k  dk = scale ds^T q         dmask = ds
//! ```
//!
//! Nothing of size `[T, S]` is made (Dao et al. 2022): the forward pass keeps, beside
//! its output, each row's log-sum-exp, as its two parts `m` and `log l`, so that
//! nothing of `log l` is lost beside a mask of -3.4e38; backward makes the scores
//! once more, in one kernel for the queries and one for keys and values.
//!
//! A mask's gradient is `[T, S]` anyway, and second derivatives have no kernels:
//! both are recorded as those of [`Tensor::attention_composed`].

use std::borrow::Cow;

use super::attention::AttentionOptions;
use super::kernel::{MOST_ROUNDS, check_rounds, word};
use super::{CallOperand, GradientCall, KernelCall, KernelCalls, KernelContext, KernelOp, Lowering, Op};
use crate::dtype::{DType, Layout, TensorType};
use crate::error::Result;
use crate::fuse::program::Cost;
use crate::graph::{Source, Tensor, ValueId};
use crate::profile::AdapterClass;
use crate::shared::Shared;

const SHARED: &str = include_str!("../../shaders/shared/attention.wgsl");
const UNMASKED: &str = include_str!("../../shaders/shared/attention_mask_none.wgsl");
const ADDED: &str = include_str!("../../shaders/shared/attention_mask_added.wgsl");
const TRUTHS: &str = include_str!("../../shaders/shared/attention_mask_bool.wgsl");
const FORWARD: &str =
    concat!(include_str!("../../shaders/shared/attention_operands.wgsl"), include_str!("../../shaders/attention.wgsl"));
const ROWS: &str = include_str!("../../shaders/attention_rows.wgsl");
const QUERIES: &str = concat!(
    include_str!("../../shaders/shared/attention_operands.wgsl"),
    include_str!("../../shaders/shared/attention_gradient.wgsl"),
    include_str!("../../shaders/attention_grad_queries.wgsl")
);
const KEYS: &str = concat!(
    include_str!("../../shaders/shared/attention_operands.wgsl"),
    include_str!("../../shaders/shared/attention_gradient.wgsl"),
    include_str!("../../shaders/attention_grad_keys.wgsl")
);

/// The widest heads that the kernels are meant for.
const WIDEST_HEAD: usize = 128;

/// `q [B, H, T, D], k [B, HK, S, D], v [B, HK, S, E], mask [B, H, T, S]? ->
/// o [B, T, H, E], lse [B, H, T, 2]`.
#[derive(Debug, Clone, Copy)]
struct Attention {
    scale: f32,
    /// Query `t` sees keys `0..=t + offset` only.
    causal_offset: Option<usize>,
}

/// `o, lse, g [B, T, H, E] -> rows [B, H, T, 4]`: `(m, 1 / l, delta, 0)`.
#[derive(Debug, Clone, Copy)]
struct Rows;

/// `q, k, v, g, rows, mask? -> dq [B, T, H, D]`.
#[derive(Debug, Clone, Copy)]
struct QueriesGrad {
    of: Attention,
}

/// `q, k, v, g, rows, mask? -> [B * S * HK * (D + E)]`: `dk [B, S, HK, D]`, then
/// `dv [B, S, HK, E]`. One output, since there are no bindings for two and a mask.
#[derive(Debug, Clone, Copy)]
struct KeysGrad {
    of: Attention,
}

/// Extents of a call, by their letters.
#[derive(Debug, Clone, Copy)]
struct Extents {
    batch: u64,
    heads: u64,
    shared: u64,
    queries: u64,
    keys: u64,
    width: u64,
    value_width: u64,
}

impl Extents {
    /// From q, k and v.
    fn of(inputs: &[&TensorType]) -> Self {
        let at = |input: usize, axis: usize| inputs[input].shape.dims()[axis] as u64;
        Self {
            batch: at(0, 0),
            heads: at(0, 1),
            shared: at(1, 1),
            queries: at(0, 2),
            keys: at(1, 2),
            width: at(0, 3),
            value_width: at(2, 3),
        }
    }

    /// Products of a query and a key over all heads.
    fn scores(self) -> f64 {
        (self.batch * self.heads * self.queries) as f64 * self.keys as f64
    }
}

/// Rounds of an invocation's loops, at most, over one head of the group.
fn rounds(walked: u64, width: u64, value_width: u64) -> u64 {
    walked.div_ceil(8) * (width / 4 + value_width / 4 + 1)
}

/// How a kernel's work is dealt to invocations.
struct Dealing {
    walks: u64,
    tiles: u64,
    /// Blocks of four columns, of the widest result.
    columns: u64,
    row_blocks: Option<u64>,
    /// The most blocks that an invocation makes.
    most: u64,
}

impl Attention {
    /// The dispatch of `text`, which `context` gives the inputs q, k, v first; `g` is
    /// the layout of the incoming gradient, `mask` the input that is the mask.
    fn call(
        &self,
        context: &KernelContext<'_>,
        (name, text): (&'static str, &'static str),
        (g, mask): (Option<&Layout>, Option<usize>),
        mut operands: Vec<CallOperand>,
        dealing: &Dealing,
    ) -> KernelCall {
        let types: Vec<&TensorType> = context.inputs.iter().map(|i| i.ty).collect();
        let e = Extents::of(&types);
        let column_tiles = dealing.columns.div_ceil(dealing.most);
        let blocks = dealing.columns.div_ceil(column_tiles);
        let count = dealing.walks * dealing.tiles * column_tiles;
        let cpu = context.profile.class == AdapterClass::Cpu;
        let mask_layout = mask.map(|i| context.inputs[i].layout);
        let mut uniforms = self.words(e, mask_layout.map_or(0, |l| l.offset));
        uniforms.splice(0..4, [count, dealing.walks, dealing.tiles, column_tiles].map(word));
        for operand in 0..3 {
            uniforms.extend(vec_strides(context.inputs[operand].layout));
        }
        uniforms.extend(g.map_or([0; 4], vec_strides));
        uniforms
            .extend(mask_layout.map_or([0; 4], |l| [l.strides[0], l.strides[1], l.strides[2], l.strides[3]].map(word)));
        operands.extend(mask.map(CallOperand::Input));
        let mask_text = match mask {
            None => UNMASKED.to_owned(),
            Some(i) => {
                let text = if context.inputs[i].ty.dtype == DType::Bool { TRUTHS } else { ADDED };
                text.replace("@binding(7)", &format!("@binding({})", operands.len()))
            }
        };
        let group = if cpu { 16 } else { 64 };
        let flag = |on: bool| if on { 1.0 } else { 0.0 };
        let mut constants = vec![
            ("WALKS_FIRST", flag(cpu && dealing.walks >= 8)),
            ("BLOCKS", blocks as f64),
            ("WORKGROUP_SIZE", group as f64),
        ];
        constants.extend(dealing.row_blocks.map(|n| ("ROW_BLOCKS", n as f64)));
        // Half of the scores, if the last query sees the last key.
        let seen = if self.causal_offset.is_some() { 0.5 } else { 1.0 };
        let products = if g.is_some() { 2 * column_tiles + 1 } else { column_tiles + 1 };
        let read: u64 = context.inputs.iter().map(|i| i.ty.size_bytes()).sum();
        let written: u64 = context.outputs.iter().map(|ty| ty.size_bytes()).sum();
        KernelCall {
            name,
            source: Cow::Owned(format!("{SHARED}\n{mask_text}\n{text}")),
            constants,
            operands,
            uniforms,
            grid: context.profile.split_grid(count.div_ceil(group)),
            cost: Cost {
                flops: seen * e.scores() * (2.0 * products as f64 * e.width.max(e.value_width) as f64 + 12.0),
                bytes: (read + written) as f64,
            },
        }
    }

    /// The words up to the strides; the first four are the caller's.
    fn words(&self, e: Extents, mask_start: u64) -> Vec<u32> {
        let offset = self.causal_offset.map_or(e.keys, |offset| (offset as u64).min(e.keys));
        let counts = [
            0,
            0,
            0,
            0,
            e.heads,
            e.heads / e.shared.max(1),
            e.queries,
            e.keys,
            e.width / 4,
            e.value_width / 4,
            offset,
            mask_start,
        ];
        let mut words: Vec<u32> = counts.map(word).to_vec();
        words.extend([self.scale.to_bits(), f32::NEG_INFINITY.to_bits(), 0, 0]);
        words
    }

    fn queries_dealing(context: &KernelContext<'_>, e: Extents, width: u64) -> Dealing {
        // Two blocks of queries halve a software adapter's loads; a GPU has too few registers.
        let blocks = if context.profile.class == AdapterClass::Cpu && e.queries > 4 { 2 } else { 1 };
        Dealing {
            walks: e.batch * e.heads,
            tiles: e.queries.div_ceil(4 * blocks),
            columns: width / 4,
            row_blocks: Some(blocks),
            // More do not fit a GPU's registers; a software adapter has a stack instead,
            // and making the scores twice costs it more.
            most: if context.profile.class == AdapterClass::Cpu { 16 } else { 8 },
        }
    }

    /// Attention of the same operands as products and a softmax, and its gradients:
    /// what is recorded where no kernel has a rule.
    fn composed(&self, [q, k, v]: [&Tensor; 3], mask: Option<&Tensor>) -> Result<Tensor> {
        let options = AttentionOptions {
            causal: self.causal_offset.is_some(),
            causal_offset: self.causal_offset.unwrap_or(0),
            mask,
            scale: Some(self.scale),
            dropout: 0.0,
        };
        q.attention_composed(k, v, options)?.permute(&[0, 2, 1, 3])
    }

    /// The gradient that a mask of numbers gets.
    fn mask_gradient(&self, inputs: &[Tensor], g: &Tensor) -> Result<Tensor> {
        let [q, k, v, mask] = [0, 1, 2, 3].map(|i| inputs[i].detach());
        let (mask, g) = (mask?, g.detach()?);
        let y = self.composed([&q?, &k?, &v?], Some(&mask))?;
        Ok(y.recorder().gradients(&y.mul(&g)?.sum_all()?, &[&mask])?.swap_remove(0))
    }

    /// Gradients of `<dq, h[0]> + <dk, h[1]> + <dv, h[2]>` with respect to q, k, v, g
    /// and the mask, where dq, dk and dv are attention's gradients: the whole
    /// derivatives, what goes through m, l and delta included.
    fn second_gradient(
        &self,
        call: &GradientCall<'_>,
        through: impl Fn(&[Tensor]) -> Result<Tensor>,
    ) -> Result<Vec<Option<Tensor>>> {
        let mut leaves: Vec<Tensor> = call.inputs[..4].iter().map(Tensor::detach).collect::<Result<_>>()?;
        let numbers = call.inputs.get(5).filter(|mask| mask.dtype().is_float());
        leaves.extend(numbers.map(Tensor::detach).transpose()?);
        let mask = leaves.get(4).or(call.inputs.get(5));
        let y = self.composed([&leaves[0], &leaves[1], &leaves[2]], mask)?;
        let recorder = y.recorder();
        let first = recorder.gradients(&y.mul(&leaves[3])?.sum_all()?, &[&leaves[0], &leaves[1], &leaves[2]])?;
        let loss = through(&first)?;
        let wanted: Vec<usize> = (0..leaves.len()).filter(|&i| call.needed[if i < 4 { i } else { 5 }]).collect();
        let second = recorder.gradients(&loss, &wanted.iter().map(|&i| &leaves[i]).collect::<Vec<_>>())?;
        let mut all = vec![None; call.inputs.len()];
        for (i, gradient) in wanted.into_iter().zip(second) {
            all[if i < 4 { i } else { 5 }] = Some(gradient);
        }
        Ok(all)
    }
}

/// Strides of batch, head and row and the first element, in blocks of four, of
/// `[B, H, T, D]`.
fn vec_strides(layout: &Layout) -> [u32; 4] {
    [layout.strides[0], layout.strides[1], layout.strides[2], layout.offset].map(|n| word(n / 4))
}

/// Whether rows of `[.., .., .., D]` lie contiguous and aligned to blocks of four.
fn in_blocks(layout: &Layout) -> bool {
    let by_four = |axis: usize| layout.shape.dims()[axis] == 1 || layout.strides[axis].is_multiple_of(4);
    layout.strides[3] == 1 && layout.offset.is_multiple_of(4) && (0..3).all(by_four)
}

impl Op for Attention {
    fn name(&self) -> &'static str {
        "attention"
    }

    fn output_types(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        let [b, h, t, _] = [0, 1, 2, 3].map(|axis| inputs[0].shape.dims()[axis]);
        let e = inputs[2].shape.dims()[3];
        Ok(vec![TensorType::new(inputs[0].dtype, [b, t, h, e]), TensorType::new(DType::F32, [b, h, t, 2])])
    }

    fn gradient(&self, call: &GradientCall<'_>) -> Result<Vec<Option<Tensor>>> {
        let (o, lse) = (&call.outputs[0], &call.outputs[1]);
        let (g, recorder) = (call.grad()?, o.recorder());
        let mut all = vec![None; call.inputs.len()];
        if call.needed[..3].contains(&true) {
            let rows = o.apply_with(Rows, &[lse, g])?;
            let [q, k, v] = [0, 1, 2].map(|i| &call.inputs[i]);
            let mut operands = vec![q, k, v, g, &rows];
            operands.extend(call.inputs.get(3));
            if call.needed[0] {
                let dq = recorder.record(Shared::new(QueriesGrad { of: *self }), &operands)?.swap_remove(0);
                all[0] = Some(dq.permute(&[0, 2, 1, 3])?);
            }
            if call.needed[1] || call.needed[2] {
                let both = recorder.record(Shared::new(KeysGrad { of: *self }), &operands)?.swap_remove(0);
                let [dk, dv] = parts(&both, k, v)?;
                (all[1], all[2]) = (Some(dk), Some(dv));
            }
        }
        if call.needed.get(3) == Some(&true) {
            all[3] = Some(self.mask_gradient(call.inputs, g)?);
        }
        Ok(all)
    }

    fn lowering(&self) -> Lowering<'_> {
        Lowering::Kernel(self)
    }
}

/// dk and dv of what [`KeysGrad`] makes, shaped as `k` and `v`.
fn parts(both: &Tensor, k: &Tensor, v: &Tensor) -> Result<[Tensor; 2]> {
    let lengths = [k, v].map(|t| t.element_count() as usize);
    let part = |start: usize, of: &Tensor, length: usize| {
        let [b, h, s, width] = [0, 1, 2, 3].map(|axis| of.dims()[axis]);
        both.narrow(0, start, length)?.reshape([b, s, h, width])?.permute(&[0, 2, 1, 3])
    };
    Ok([part(0, k, lengths[0])?, part(lengths[0], v, lengths[1])?])
}

impl KernelOp for Attention {
    fn accepts(&self, operand: usize, layout: &Layout) -> bool {
        operand == 3 || in_blocks(layout)
    }

    fn kernels(&self, context: &KernelContext<'_>) -> Result<KernelCalls> {
        let types: Vec<&TensorType> = context.inputs.iter().map(|i| i.ty).collect();
        let e = Extents::of(&types);
        check_rounds(context.profile, self.name(), e.keys, rounds(e.keys, e.width, 0))?;
        let operands = [0, 1, 2].map(CallOperand::Input).into_iter().chain([0, 1].map(CallOperand::Output)).collect();
        let mask = (context.inputs.len() > 3).then_some(3);
        let dealing = Self::queries_dealing(context, e, e.value_width);
        let call = self.call(context, (self.name(), FORWARD), (None, mask), operands, &dealing);
        Ok(KernelCalls { scratch_bytes: Vec::new(), calls: vec![call] })
    }
}

impl Op for Rows {
    fn name(&self) -> &'static str {
        "attention_rows"
    }

    fn output_types(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        let mut dims = inputs[1].shape.dims().to_vec();
        dims[3] = 4;
        Ok(vec![TensorType::new(DType::F32, dims)])
    }

    /// Nothing: the gradients that read the rows give the whole derivatives.
    fn gradient(&self, call: &GradientCall<'_>) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![None; call.inputs.len()])
    }

    fn lowering(&self) -> Lowering<'_> {
        Lowering::Kernel(self)
    }
}

impl KernelOp for Rows {
    fn accepts(&self, operand: usize, layout: &Layout) -> bool {
        if operand == 2 { in_blocks(layout) } else { layout.is_contiguous() && layout.offset == 0 }
    }

    fn kernels(&self, context: &KernelContext<'_>) -> Result<KernelCalls> {
        let [b, t, h, width] = [0, 1, 2, 3].map(|axis| context.inputs[0].ty.shape.dims()[axis] as u64);
        let e = Extents { batch: b, heads: h, shared: h, queries: t, keys: 0, width: 0, value_width: width };
        let count = b * h * t;
        let mut uniforms = Attention { scale: 0.0, causal_offset: None }.words(e, 0);
        uniforms[0] = word(count);
        uniforms.extend([0; 12]);
        // The gradient is given as [B, T, H, E].
        let [batch, query, head, start] = vec_strides(context.inputs[2].layout);
        uniforms.extend([batch, head, query, start]);
        uniforms.extend([0; 4]);
        let elements = (count * width) as f64;
        let call = KernelCall {
            name: self.name(),
            source: Cow::Owned(format!("{SHARED}\n{UNMASKED}\n{ROWS}")),
            constants: Vec::new(),
            operands: [0, 1, 2].map(CallOperand::Input).into_iter().chain([CallOperand::Output(0)]).collect(),
            uniforms,
            grid: context.profile.split_grid(count.div_ceil(64)),
            cost: Cost { flops: 2.0 * elements, bytes: 8.0 * elements },
        };
        Ok(KernelCalls { scratch_bytes: Vec::new(), calls: vec![call] })
    }
}

/// The gradient `[B, T, H, E]` seen as `[B, H, T, E]`.
fn heads_first(layout: &Layout) -> Layout {
    let mut layout = layout.clone();
    layout.shape.0.swap(1, 2);
    layout.strides.swap(1, 2);
    layout
}

/// Which operands of the gradients are read through strides.
fn gradient_accepts(operand: usize, layout: &Layout) -> bool {
    match operand {
        0..4 => in_blocks(layout),
        4 => layout.is_contiguous() && layout.offset == 0,
        _ => true,
    }
}

/// The bindings of a gradient but for the mask, and which input that is.
fn gradient_operands(context: &KernelContext<'_>) -> (Vec<CallOperand>, Option<usize>) {
    let operands = (0..5).map(CallOperand::Input).chain([CallOperand::Output(0)]).collect();
    (operands, (context.inputs.len() > 5).then_some(5))
}

impl Op for QueriesGrad {
    fn name(&self) -> &'static str {
        "attention_grad_queries"
    }

    fn output_types(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        let [b, h, t, d] = [0, 1, 2, 3].map(|axis| inputs[0].shape.dims()[axis]);
        Ok(vec![TensorType::new(inputs[0].dtype, [b, t, h, d])])
    }

    fn gradient(&self, call: &GradientCall<'_>) -> Result<Vec<Option<Tensor>>> {
        let h = call.grad()?.permute(&[0, 2, 1, 3])?.detach()?;
        self.of.second_gradient(call, |first| first[0].mul(&h)?.sum_all())
    }

    fn lowering(&self) -> Lowering<'_> {
        Lowering::Kernel(self)
    }
}

impl KernelOp for QueriesGrad {
    fn accepts(&self, operand: usize, layout: &Layout) -> bool {
        gradient_accepts(operand, layout)
    }

    fn kernels(&self, context: &KernelContext<'_>) -> Result<KernelCalls> {
        let types: Vec<&TensorType> = context.inputs.iter().map(|i| i.ty).collect();
        let e = Extents::of(&types);
        check_rounds(context.profile, self.name(), e.keys, rounds(e.keys, e.width, e.value_width))?;
        let (operands, mask) = gradient_operands(context);
        let g = heads_first(context.inputs[3].layout);
        let dealing = Attention::queries_dealing(context, e, e.width);
        let call = self.of.call(context, (self.name(), QUERIES), (Some(&g), mask), operands, &dealing);
        Ok(KernelCalls { scratch_bytes: Vec::new(), calls: vec![call] })
    }
}

impl Op for KeysGrad {
    fn name(&self) -> &'static str {
        "attention_grad_keys"
    }

    fn output_types(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        let length = [1, 2].iter().fold(0_usize, |sum, &i| {
            sum.saturating_add(usize::try_from(inputs[i].shape.element_count()).unwrap_or(usize::MAX))
        });
        Ok(vec![TensorType::new(inputs[1].dtype, [length])])
    }

    fn gradient(&self, call: &GradientCall<'_>) -> Result<Vec<Option<Tensor>>> {
        let [k, v] = [1, 2].map(|i| &call.inputs[i]);
        let [of_k, of_v] = parts(&call.grad()?.detach()?, k, v)?;
        self.of.second_gradient(call, |first| first[1].mul(&of_k)?.sum_all()?.add(&first[2].mul(&of_v)?.sum_all()?))
    }

    fn lowering(&self) -> Lowering<'_> {
        Lowering::Kernel(self)
    }
}

impl KernelOp for KeysGrad {
    fn accepts(&self, operand: usize, layout: &Layout) -> bool {
        gradient_accepts(operand, layout)
    }

    fn kernels(&self, context: &KernelContext<'_>) -> Result<KernelCalls> {
        let types: Vec<&TensorType> = context.inputs.iter().map(|i| i.ty).collect();
        let e = Extents::of(&types);
        let heads = e.heads / e.shared.max(1);
        let rounds = heads * (rounds(e.queries, e.width, e.value_width) + 1);
        check_rounds(context.profile, self.name(), e.queries, rounds)?;
        let (operands, mask) = gradient_operands(context);
        let g = heads_first(context.inputs[3].layout);
        let dealing = Dealing {
            walks: e.batch * e.shared,
            tiles: e.keys.div_ceil(4),
            columns: e.width.max(e.value_width) / 4,
            row_blocks: None,
            // Two gradients: on a GPU half as many columns of each fit its registers.
            most: if context.profile.class == AdapterClass::Cpu { 16 } else { 4 },
        };
        let call = self.of.call(context, (self.name(), KEYS), (Some(&g), mask), operands, &dealing);
        Ok(KernelCalls { scratch_bytes: Vec::new(), calls: vec![call] })
    }
}

/// Whether the kernels serve attention of these shapes, which were checked. A matter
/// of shapes alone, so that a recording is the same on every machine.
pub(super) fn is_fused(queries: &Tensor, keys: &Tensor, values: &Tensor) -> bool {
    let all = [queries, keys, values];
    let rank = queries.rank();
    let last = |t: &Tensor, from_end: usize| t.dims()[rank - from_end];
    let (width, value_width) = (last(queries, 1), last(values, 1));
    let fits = |n: usize| n.is_multiple_of(4) && (4..=WIDEST_HEAD).contains(&n);
    let (t, s) = (last(queries, 2) as u64, last(keys, 2) as u64);
    let (w, vw) = (width as u64, value_width as u64);
    let group = last(queries, 3) as u64 / (last(keys, 3) as u64).max(1);
    all.iter().all(|x| x.dtype().is_float() && x.dtype() == queries.dtype() && x.element_count() > 0)
        && all.iter().all(|x| x.dims()[..rank - 3] == queries.dims()[..rank - 3])
        && last(keys, 3) == last(values, 3)
        && (last(keys, 1), last(values, 2)) == (width, last(keys, 2))
        && fits(width)
        && fits(value_width)
        && rounds(s, w, vw) <= MOST_ROUNDS
        && group.saturating_mul(rounds(t, w, vw) + 1) <= MOST_ROUNDS
}

/// The value that a view looks at, through other views; what is no view, itself.
fn viewed(tensor: &Tensor) -> ValueId {
    tensor.recorder().with_graph(|graph| {
        let mut id = tensor.id();
        // A recording that was planned has no nodes any more; recording the op says so.
        while let Some(Source::Node { node, .. }) = graph.values.get(id.index()).map(|value| value.source) {
            let Some(node) = graph.nodes.get(node.index()) else { break };
            match (node.op.lowering(), node.inputs.first()) {
                (Lowering::View(_), Some(&input)) => id = input,
                _ => break,
            }
        }
        id
    })
}

/// Attention by kernels; [`is_fused`] holds and `mask`, if any, broadcasts to
/// `[.., H, T, S]`.
pub(super) fn fused(
    [queries, keys, values]: [&Tensor; 3],
    scale: f32,
    causal_offset: Option<usize>,
    mask: Option<&Tensor>,
) -> Result<Tensor> {
    let rank = queries.rank();
    let batch = queries.dims()[..rank - 3].iter().product::<usize>();
    let flat = |t: &Tensor| {
        let mut dims = vec![batch];
        dims.extend_from_slice(&t.dims()[t.rank() - 3..]);
        t.reshape(dims)
    };
    let mut operands = vec![flat(queries)?, flat(keys)?, flat(values)?];
    if let Some(mask) = mask {
        let mut dims = queries.dims()[..rank - 1].to_vec();
        dims.push(keys.dims()[rank - 2]);
        // The kernels read numbers one by one in a mask and by fours elsewhere, which
        // one binding cannot: what is both a mask and an operand is copied.
        let shared = operands.iter().any(|operand| viewed(operand) == viewed(mask));
        let mask = if shared { &mask.add_scalar(0.0_f32)? } else { mask };
        operands.push(flat(&mask.broadcast_to(dims)?)?);
    }
    let op = Shared::new(Attention { scale, causal_offset });
    let o = queries.recorder().record(op, &operands.iter().collect::<Vec<_>>())?.swap_remove(0);
    let mut dims = queries.dims().to_vec();
    dims[rank - 1] = values.dims()[rank - 1];
    o.permute(&[0, 2, 1, 3])?.reshape(dims)
}
