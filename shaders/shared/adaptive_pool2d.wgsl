// Sizes of adaptive pooling of x [N, H, W] to y [N, HO, WO]: the window of y's row i is
// x's rows floor(i H / HO) to ceil((i + 1) H / HO), and so for columns. H HO is below 2^32.
struct Pool {
    count: u32, height: u32, width: u32, out_height: u32,
    out_width: u32, pad0: u32, pad1: u32, pad2: u32,
}

// The first and the end of window i.
fn window(i: u32, extent: u32, windows: u32) -> vec2<u32> {
    return vec2<u32>(i * extent / windows, ((i + 1u) * extent + windows - 1u) / windows);
}
