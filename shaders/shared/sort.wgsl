// What sort_blocks.wgsl and sort_merge.wgsl share, and stand after: sizes, and
// which of two elements comes first. NaN counts as the largest.

alias Element = f32;

override DESCENDING: u32 = 0u;
// Bit patterns without sign above this are NaN; integers have none.
override NAN_ABOVE: u32 = 0x7f800000u;

struct Sort {
    // O * R * I.
    count: u32,
    // I.
    inner: u32,
    // R.
    extent: u32,
    // Length of the runs that are merged, or of the blocks that are sorted.
    run: u32,
}

@group(0) @binding(0) var<uniform> u: Sort;
@group(0) @binding(1) var<storage, read_write> x: array<Element>;

fn is_nan(a: Element) -> bool {
    return (bitcast<u32>(a) & 0x7fffffffu) > NAN_ABOVE;
}

// Whether `a` stands before `b` wherever they came from; neither does if they are equal.
fn before(a: Element, b: Element) -> bool {
    if (DESCENDING == 1u) {
        return a > b || (is_nan(a) && !is_nan(b));
    }
    return a < b || (is_nan(b) && !is_nan(a));
}
