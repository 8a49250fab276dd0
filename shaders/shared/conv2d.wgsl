// What the kernels of two-dimensional convolution share: its sizes.
// x [N, groups * C, H, W], weight [groups * O, C, KH, KW], y [N, groups * O, HO, WO];
// y's row i and weight's row k meet x's row i * stride + k * dilation - padding.

struct Conv {
    // Invocations.
    count: u32,
    batch: u32,
    groups: u32,
    // Per group.
    in_channels: u32,
    out_channels: u32,
    in_height: u32,
    in_width: u32,
    out_height: u32,
    out_width: u32,
    kernel_height: u32,
    kernel_width: u32,
    stride_y: u32,
    stride_x: u32,
    padding_y: u32,
    padding_x: u32,
    dilation_y: u32,
    dilation_x: u32,
    // Of the weight's gradient: rows of y per part, and parts.
    part_rows: u32,
    parts: u32,
    pad0: u32,
}

fn linear_index(id: vec3<u32>, groups: vec3<u32>) -> u32 {
    return (id.z * groups.y + id.y) * (groups.x * 64u) + id.x;
}
