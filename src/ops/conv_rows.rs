//! Fast kernels for the convolutions of stride 1 whose rows keep their length, a
//! multiple of four: implicit matrix products in registers, reading four columns at
//! once. `conv.rs` holds the op, its formula and the kernels for everything else.
//!
//! The gradient for the input is the convolution with the kernel flipped and its
//! channels exchanged, so one kernel serves both; what differs is how the weight
//! is packed for it, in a small pass of its own.

use super::conv::{Geometry, MOST_PARTS, SIZES, Side};
use super::kernel::{MOST_ROUNDS, busy_invocations, check_rounds, word};
use super::{CallOperand, KernelCall, KernelCalls, KernelContext};
use crate::error::Result;
use crate::fuse::program::Cost;
use crate::profile::{AdapterClass, DeviceProfile};

const ROWS: &str = include_str!("../../shaders/conv2d_rows.wgsl");
const PACK: &str = include_str!("../../shaders/conv2d_pack.wgsl");
const WEIGHT_ROWS: &str = include_str!("../../shaders/conv2d_weight_rows.wgsl");
const WEIGHT_GATHER: &str = include_str!("../../shaders/conv2d_weight_gather.wgsl");

/// Invocations per workgroup: enough groups for every core of a software adapter.
const fn workgroup(profile: &DeviceProfile) -> u64 {
    match profile.class {
        AdapterClass::Cpu => 16,
        _ => 64,
    }
}

/// A tile of 8 channels by 16 columns does most with what it loads, and is what a
/// software adapter wants; a GPU hides loads behind other invocations and wants many.
const fn wide_tiles(profile: &DeviceProfile) -> bool {
    matches!(profile.class, AdapterClass::Cpu)
}

/// Whether these kernels compute `side`: a matter of sizes alone, so that every
/// replay runs the same one.
pub(super) fn fits(g: &Geometry) -> bool {
    let [kernel_height, kernel_width] = g.kernel;
    let o = &g.options;
    o.stride == [1, 1]
        && o.dilation == [1, 1]
        && (kernel_width == 1 || kernel_width == 3)
        && o.padding[0] < kernel_height
        && 2 * o.padding[1] + 1 == kernel_width
        && g.input[1] == g.output[1]
        && g.input[1].is_multiple_of(4)
}

/// The dispatches; only where [`fits`] says so.
pub(super) fn kernels(
    g: &Geometry,
    side: Side,
    name: &'static str,
    context: &KernelContext<'_>,
) -> Result<KernelCalls> {
    match side {
        Side::Output => forward(g, Pack::plain(g), name, context),
        Side::Input => {
            let mut flipped = *g;
            (flipped.in_channels, flipped.out_channels) = (g.out_channels, g.in_channels);
            (flipped.input, flipped.output) = (g.output, g.input);
            flipped.options.padding[0] = g.kernel[0] - 1 - g.options.padding[0];
            forward(&flipped, Pack::flipped(g), name, context)
        }
        Side::Weight => weight(g, name, context),
    }
}

/// Where the element of group, output channel, input channel, row and column lies
/// in the weight: a start and a stride for each, wrapping around.
struct Pack {
    first: u32,
    strides: [u32; 5],
}

impl Pack {
    fn plain(g: &Geometry) -> Self {
        let [row, column] = g.kernel.map(|n| word(n as u64));
        let by_in = row.wrapping_mul(column);
        let by_out = by_in.wrapping_mul(word(g.in_channels as u64));
        let by_group = by_out.wrapping_mul(word(g.out_channels as u64));
        Self { first: 0, strides: [by_group, by_out, by_in, column, 1] }
    }

    /// With the kernel flipped both ways and the channels exchanged.
    fn flipped(g: &Geometry) -> Self {
        let Self { strides: [by_group, by_out, by_in, by_row, by_column], .. } = Self::plain(g);
        let strides = [by_group, by_in, by_out, by_row.wrapping_neg(), by_column.wrapping_neg()];
        Self { first: by_in - 1, strides }
    }
}

fn forward(g: &Geometry, pack: Pack, name: &'static str, context: &KernelContext<'_>) -> Result<KernelCalls> {
    let profile = context.profile;
    let (groups, ins, outs) = (g.options.groups as u64, g.in_channels as u64, g.out_channels as u64);
    let [height, width] = g.kernel.map(|n| n as u64);
    let blocks = g.output[1] as u64 / 4;
    check_rounds(profile, name, ins, ins * (height + 1) + 8)?;
    let out_blocks = if wide_tiles(profile) && outs > 4 { 2 } else { 1 };
    let col_blocks = match blocks {
        _ if !wide_tiles(profile) => 1,
        n if n.is_multiple_of(4) => 4,
        n if n.is_multiple_of(2) => 2,
        _ => 1,
    };
    let channel_tiles = outs.div_ceil(4 * out_blocks);
    let packed = groups * ins * height * width * channel_tiles * out_blocks;
    let mut words = vec![word(packed)];
    words.extend([outs, channel_tiles * out_blocks, ins, height, width].map(word));
    words.push(pack.first);
    words.extend(pack.strides);
    let packing = KernelCall {
        name: "conv2d_pack",
        source: PACK.into(),
        constants: Vec::new(),
        operands: vec![CallOperand::Input(1), CallOperand::Scratch(0)],
        uniforms: words,
        grid: profile.split_grid(packed.div_ceil(64)),
        cost: Cost { flops: 0.0, bytes: (32 * packed) as f64 },
    };
    let count = blocks / col_blocks * g.output[0] as u64 * channel_tiles * groups * g.batch as u64;
    let group = workgroup(profile);
    let product = KernelCall {
        name,
        source: format!("{SIZES}{ROWS}").into(),
        constants: vec![
            ("KERNEL_WIDTH", width as f64),
            ("OUT_BLOCKS", out_blocks as f64),
            ("COL_BLOCKS", col_blocks as f64),
            ("WORKGROUP_SIZE", group as f64),
        ],
        operands: vec![CallOperand::Input(0), CallOperand::ScratchRead(0), CallOperand::Output(0)],
        uniforms: g.words(count, [0; 3]),
        grid: profile.split_grid(count.div_ceil(group)),
        cost: Cost { flops: g.flops(), bytes: g.bytes(context) },
    };
    Ok(KernelCalls { scratch_bytes: vec![16 * packed], calls: vec![packing, product] })
}

fn weight(g: &Geometry, name: &'static str, context: &KernelContext<'_>) -> Result<KernelCalls> {
    let profile = context.profile;
    let (groups, ins, outs) = (g.options.groups as u64, g.in_channels as u64, g.out_channels as u64);
    let [height, width] = g.kernel.map(|n| n as u64);
    let out_blocks = if wide_tiles(profile) && outs > 4 { 2 } else { 1 };
    let tiles = height * ins.div_ceil(4) * outs.div_ceil(4 * out_blocks) * groups;
    let rows = g.batch as u64 * g.output[0] as u64;
    // A row takes its blocks and itself; enough parts that none takes too many rounds.
    let row_rounds = g.output[1] as u64 / 4 + 1;
    let least = (rows * row_rounds).div_ceil(MOST_ROUNDS);
    let wished = busy_invocations(profile).div_ceil(tiles).min(MOST_PARTS);
    let part_rows = rows.div_ceil(wished.max(least).min(rows));
    let parts = rows.div_ceil(part_rows);
    check_rounds(profile, name, rows, (part_rows * row_rounds).max(parts))?;
    let count = tiles * parts;
    let part_vectors = width * 4 * out_blocks;
    let group = workgroup(profile);
    let product = KernelCall {
        name,
        source: format!("{SIZES}{WEIGHT_ROWS}").into(),
        constants: vec![
            ("KERNEL_WIDTH", width as f64),
            ("OUT_BLOCKS", out_blocks as f64),
            ("WORKGROUP_SIZE", group as f64),
        ],
        operands: vec![CallOperand::Input(0), CallOperand::Input(1), CallOperand::Scratch(0)],
        uniforms: g.words(count, [part_rows, parts, 0]),
        grid: profile.split_grid(count.div_ceil(group)),
        cost: Cost { flops: g.flops(), bytes: g.bytes(context) },
    };
    let elements = context.outputs[0].shape.element_count();
    let gather = KernelCall {
        name: "conv2d_weight_gather",
        source: format!("{SIZES}{WEIGHT_GATHER}").into(),
        constants: Vec::new(),
        operands: vec![CallOperand::ScratchRead(0), CallOperand::Output(0)],
        uniforms: g.words(elements, [part_rows, parts, 4 * out_blocks]),
        grid: profile.split_grid(elements.div_ceil(64)),
        cost: Cost { flops: (elements * parts) as f64, bytes: 4.0 * (elements * (parts + 1)) as f64 },
    };
    Ok(KernelCalls { scratch_bytes: vec![16 * count * part_vectors], calls: vec![product, gather] })
}
