//! What kernels of several ops share: how much work an invocation gets, how far
//! it may loop, and texts for other element types.

use std::borrow::Cow;

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::profile::{AdapterClass, DeviceProfile};

/// Longest run of elements that one invocation reduces.
const LONGEST_CHUNK: u64 = 2048;

/// Shortest run worth an invocation of its own: on a software adapter another
/// dispatch costs as much as a few thousand additions.
const fn shortest_chunk(profile: &DeviceProfile) -> u64 {
    match profile.class {
        AdapterClass::Cpu => 256,
        _ => 32,
    }
}

/// Invocations that keep a device of this class busy.
pub(crate) const fn busy_invocations(profile: &DeviceProfile) -> u64 {
    match profile.class {
        AdapterClass::Cpu => 1024,
        AdapterClass::Integrated => 16_384,
        AdapterClass::Discrete | AdapterClass::Other => 65_536,
    }
}

/// Splits `reduced` elements, for each of `outputs` invocations, into chunks
/// that are multiples of `align`: the number of chunks and the length of one.
/// No chunk is empty; only the last may be shorter.
pub(crate) fn split_chunks(profile: &DeviceProfile, outputs: u64, reduced: u64, align: u64) -> (u64, u64) {
    split_chunks_of(profile, outputs, reduced, align, LONGEST_CHUNK)
}

/// Mesa's software adapter ends an invocation's loops after 65,535 rounds in
/// all, without a word; a few are left for loops of fixed length.
pub(crate) const MOST_ROUNDS: u64 = 65_000;

/// Refuses a kernel whose invocations would walk `extent` elements in more
/// `rounds` than a software adapter runs: never a silent number.
///
/// # Errors
/// [`Error::Argument`] naming the op.
pub(crate) fn check_rounds(profile: &DeviceProfile, op: &'static str, extent: u64, rounds: u64) -> Result<()> {
    if profile.class != AdapterClass::Cpu || rounds <= MOST_ROUNDS {
        return Ok(());
    }
    Err(Error::Argument {
        op,
        argument: "extent",
        value: extent.to_string(),
        detail: format!(
            "a software adapter ends the loops of an invocation after {MOST_ROUNDS} rounds, and this would take {rounds}; \
             split the axis, or use a GPU"
        ),
    })
}

/// [`split_chunks`] of a column: an invocation strides through memory row by row.
pub(crate) fn split_column(profile: &DeviceProfile, outputs: u64, reduced: u64) -> (u64, u64) {
    // On a software adapter neighbouring columns are walked one after the other;
    // short chunks leave the rows in cache, and their pages mapped, for the next.
    let longest = if profile.class == AdapterClass::Cpu { 256 } else { LONGEST_CHUNK };
    split_chunks_of(profile, outputs, reduced, 1, longest)
}

fn split_chunks_of(profile: &DeviceProfile, outputs: u64, reduced: u64, align: u64, longest: u64) -> (u64, u64) {
    let shortest = shortest_chunk(profile);
    if reduced <= 2 * shortest {
        return (1, reduced.next_multiple_of(align));
    }
    let for_work = busy_invocations(profile).div_ceil(outputs.max(1)).min(reduced.div_ceil(shortest));
    let chunks = for_work.max(reduced.div_ceil(longest)).max(1);
    let chunk = reduced.div_ceil(chunks).next_multiple_of(align).max(1);
    (reduced.div_ceil(chunk), chunk)
}

/// How many neighbouring blocks of a row one invocation of a kernel without sums
/// makes. On a software adapter what is the same along a row (a division, a few
/// loads) costs as much as several blocks; on a GPU neighbours read neighbours.
pub(crate) fn span(profile: &DeviceProfile, rows: u64, blocks: u64) -> u64 {
    match profile.class {
        AdapterClass::Cpu => (rows * blocks / busy_invocations(profile)).clamp(1, 32).min(blocks),
        _ => 1,
    }
}

/// The text for another element type and width; the texts are written for `f32`.
pub(crate) fn specialised(text: &'static str, dtype: DType, wide: bool) -> Cow<'static, str> {
    let mut text = Cow::Borrowed(text);
    if dtype != DType::F32 {
        let scalar = dtype.wgsl_storage();
        text = text
            .replace("alias Element = f32;", &format!("alias Element = {scalar};"))
            .replace("alias Block = vec4<f32>;", &format!("alias Block = vec4<{scalar}>;"))
            .into();
    }
    if !wide {
        let block = format!("alias Block = vec4<{}>;", dtype.wgsl_storage());
        text = text
            .replace(&block, "alias Block = Element;")
            .replace("alias BlockBits = vec4<u32>;", "alias BlockBits = u32;")
            .replace("{ return (v.x + v.y) + (v.z + v.w); }", "{ return v; }")
            .replace("{ return max(max(v.x, v.y), max(v.z, v.w)); }", "{ return v; }")
            .into();
    }
    text
}

/// Counts as uniform words; a count that does not fit was refused as a limit before.
pub(crate) fn word(n: u64) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}
