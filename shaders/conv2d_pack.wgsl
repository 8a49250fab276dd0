// packed[g, c, k, l, o] = weight[first + g * by_group + o * by_out + c * by_in + k * by_row + l * by_column]
// for o < O, else 0: a convolution's weight in the order in which shaders/conv2d_rows.wgsl
// reads it. Strides wrap around: a flipped kernel has negative ones.
// weight as it lies; packed [groups, C, KH, KW, OB] of four output channels o each.
// One invocation per four. Grid: ceil(count / 64) workgroups, spread over x, y, z.
struct Pack {
    count: u32,
    // O, OB, C, KH, KW.
    out_channels: u32,
    out_blocks: u32,
    in_channels: u32,
    kernel_height: u32,
    kernel_width: u32,
    first: u32,
    by_group: u32,
    by_out: u32,
    by_in: u32,
    by_row: u32,
    by_column: u32,
}
@group(0) @binding(0) var<uniform> u: Pack;
@group(0) @binding(1) var<storage, read_write> weight: array<f32>;
@group(0) @binding(2) var<storage, read_write> packed: array<vec4<f32>>;

fn weight_at(start: u32, o: u32) -> f32 {
    if (o < u.out_channels) {
        return weight[start + o * u.by_out];
    }
    return 0.0;
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let index = (id.z * groups.y + id.y) * (groups.x * 64u) + id.x;
    if (index >= u.count) {
        return;
    }
    var rest = index;
    let o = (rest % u.out_blocks) * 4u;
    rest = rest / u.out_blocks;
    let l = rest % u.kernel_width;
    rest = rest / u.kernel_width;
    let k = rest % u.kernel_height;
    rest = rest / u.kernel_height;
    let c = rest % u.in_channels;
    let group = rest / u.in_channels;
    let start = u.first + group * u.by_group + c * u.by_in + k * u.by_row + l * u.by_column;
    packed[index] = vec4<f32>(weight_at(start, o), weight_at(start, o + 1u), weight_at(start, o + 2u), weight_at(start, o + 3u));
}
