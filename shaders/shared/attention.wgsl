// What the attention kernels share: sizes, strides, which key a query sees. The
// source of a kernel is this file, a text for the mask and the kernel's own.
//
// Letters: B batch, H query heads, HK heads of keys and values, T queries,
// S keys, D width of queries and keys, E width of values, G = H / HK. Query head h
// reads head h / G of keys and values.
//
// A block of scores is a mat4x4: column r is one query, its elements four keys.

struct Attention {
    // Invocations that have work.
    count: u32,
    // B * H, or B * HK where invocations own keys.
    walks: u32,
    // Tiles of queries, or of keys where invocations own them.
    tiles: u32,
    // Tiles of columns.
    column_tiles: u32,
    // H, G, T, S.
    heads: u32,
    group: u32,
    queries: u32,
    keys: u32,
    // D / 4 and E / 4.
    width: u32,
    value_width: u32,
    // Query t sees keys 0..=t + offset; without causality offset is S.
    offset: u32,
    // First element of the mask.
    mask_start: u32,
    scale: f32,
    // -infinity, which WGSL cannot write: the score of a key that is not seen.
    hidden: f32,
    pad0: u32,
    pad1: u32,
    // Strides of batch, head and row and the place of the first element, in vec4.
    q_strides: vec4<u32>,
    k_strides: vec4<u32>,
    v_strides: vec4<u32>,
    g_strides: vec4<u32>,
    // Strides of batch, head, query and key, in elements.
    mask_strides: vec4<u32>,
}

@group(0) @binding(0) var<uniform> u: Attention;

const CORNERS = vec4<u32>(0u, 1u, 2u, 3u);
const HIDDEN_BITS: u32 = 0xff800000u;

// Neighbouring lanes take the same tile of different heads: under a causal mask
// their loops are equally long, which is what a software adapter wants. Otherwise
// they take neighbouring tiles of one head, and read the same keys.
override WALKS_FIRST: bool = false;

// What an invocation does: head (counted over batches), tile, tile of columns.
struct Place {
    walk: u32,
    tile: u32,
    columns: u32,
}

fn place_of(index: u32) -> Place {
    let per_walk = u.tiles * u.column_tiles;
    var walk = index / per_walk;
    var rest = index % per_walk;
    if (WALKS_FIRST) {
        walk = index % u.walks;
        rest = index / u.walks;
    }
    let turn = rest / u.column_tiles;
    var tile = turn;
    if (WALKS_FIRST) {
        // Short and long loops take turns, so that halves of the grid weigh the same.
        tile = select(turn / 2u, u.tiles - 1u - turn / 2u, (turn & 1u) == 1u);
    }
    return Place(walk, tile, rest % u.column_tiles);
}

// How many keys a query sees, the mask aside.
fn reach(query: u32) -> u32 {
    return min(u.keys, query + u.offset + 1u);
}

// Scores of one query and the keys at four places from their products; `at` is
// where the mask of this batch and head starts.
fn scored(product: vec4<f32>, query: u32, places: vec4<u32>, at: u32) -> vec4<f32> {
    let s = masked(product * u.scale, at + query * u.mask_strides.z, min(places, vec4<u32>(u.keys - 1u)));
    return select(vec4<f32>(u.hidden), s, places < vec4<u32>(reach(query)));
}

// exp(s - m), 0 for keys that are not seen. m is finite.
fn weighed(s: vec4<f32>, m: f32) -> vec4<f32> {
    return select(exp(s - vec4<f32>(m)), vec4<f32>(0.0), bitcast<vec4<u32>>(s) == vec4<u32>(HIDDEN_BITS));
}
