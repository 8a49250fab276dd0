// What the reductions share: element types, kinds, sizes, and how two blocks
// are combined. Stands before reduce_rows.wgsl, reduce_columns.wgsl and
// reduce_columns_wide.wgsl. Where a Block is one element, or elements are
// integers, the aliases are replaced.

alias Element = f32;
alias Block = vec4<f32>;
alias BlockBits = vec4<u32>;

// 0 sum, 1 largest, 2 smallest, 3 product.
override KIND: u32 = 0u;
// Bit patterns without sign above this are NaN, which wins every comparison;
// integers have none.
override NAN_ABOVE: u32 = 0x7f800000u;

struct Reduce {
    // Invocations that do something.
    count: u32,
    // I, in the Blocks that a kernel walks.
    inner: u32,
    // R, likewise.
    reduced: u32,
    // S.
    chunks: u32,
    // Rows, or Blocks, of a chunk.
    chunk: u32,
    // The bits of an f32.
    scale: u32,
    pad0: u32,
    pad1: u32,
}

@group(0) @binding(0) var<uniform> u: Reduce;
@group(0) @binding(1) var<storage, read_write> x: array<Block>;

fn combine(a: Block, b: Block) -> Block {
    if (KIND == 0u) {
        return a + b;
    }
    if (KIND == 3u) {
        return a * b;
    }
    let nan = (bitcast<BlockBits>(a) & BlockBits(0x7fffffffu)) > BlockBits(NAN_ABOVE);
    if (KIND == 1u) {
        return select(b, a, (a > b) | nan);
    }
    return select(b, a, (a < b) | nan);
}

