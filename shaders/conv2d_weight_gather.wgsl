// weight[o, c, k, l] = sum over p of part p's, in rising p: adds up what
// shaders/conv2d_weight_rows.wgsl makes (shaders/shared/conv2d.wgsl names the sizes).
// parts [P, groups, out_blocks, in_blocks, KH, KW, per_block, 4]: per_block output and
// four input channels to a block. weight [groups * O, C, KH, KW].
// One invocation per element of the weight; pad0 of the sizes is per_block.
// Grid: ceil(count / 64) workgroups, spread over x, y, z.

@group(0) @binding(0) var<uniform> u: Conv;
@group(0) @binding(1) var<storage, read_write> parts: array<f32>;
@group(0) @binding(2) var<storage, read_write> weight: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let index = linear_index(id, groups);
    if (index >= u.count) {
        return;
    }
    let taps = u.kernel_height * u.kernel_width;
    let per_block = u.pad0;
    let in_blocks = (u.in_channels + 3u) / 4u;
    let out_blocks = (u.out_channels + per_block - 1u) / per_block;
    var rest = index;
    let tap = rest % taps;
    rest = rest / taps;
    let c = rest % u.in_channels;
    rest = rest / u.in_channels;
    let o = rest % u.out_channels;
    let group = rest / u.out_channels;
    let block = ((group * out_blocks + o / per_block) * in_blocks + c / 4u) * taps + tap;
    var at = (block * per_block + o % per_block) * 4u + c % 4u;
    let step = u.groups * out_blocks * in_blocks * taps * per_block * 4u;
    var sum = 0.0;
    for (var p = 0u; p < u.parts; p++) {
        sum += parts[at];
        at += step;
    }
    weight[index] = sum;
}
