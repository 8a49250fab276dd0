// y[n, o, i, j] = sum over c, k, l of x[n, c, i + k - py, j + l - KERNEL_WIDTH / 2] weight[o, c, k, l]
// with x taken as 0 outside of it: convolution of stride 1 whose rows keep their length
// W = in_width = out_width, a multiple of 4 * COL_BLOCKS (shaders/shared/conv2d.wgsl
// names the sizes). With a weight packed for it, the gradient for the input as well.
//
// An implicit matrix product in registers, without workgroup memory or barrier. One
// invocation: 4 * OUT_BLOCKS output channels of a group by 4 * COL_BLOCKS neighbouring
// columns, as 4x4 blocks. One row of x, read once, serves all KERNEL_WIDTH taps.
//
// x [N, groups * C, H, W / 4], y [N, groups * O, HO, W / 4] of four columns each.
// packed [groups, C, KH, KERNEL_WIDTH, OB] of four output channels each, zeros beyond
// the last (shaders/conv2d_pack.wgsl); OB is O / 4, rounded up to whole OUT_BLOCKS.
// Invocations run over columns / (4 * COL_BLOCKS) (fastest), rows, channels /
// (4 * OUT_BLOCKS), groups, batch.
// Grid: ceil(count / WORKGROUP_SIZE) workgroups, spread over x, y, z.

@group(0) @binding(0) var<uniform> u: Conv;
@group(0) @binding(1) var<storage, read_write> x: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> packed: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> y: array<vec4<f32>>;

// 1 or 3.
override KERNEL_WIDTH: u32 = 3u;
// 1 or 2.
override OUT_BLOCKS: u32 = 2u;
// 1, 2 or 4.
override COL_BLOCKS: u32 = 4u;
// A multiple of 8: the lanes of a CPU adapter lie along x.
override WORKGROUP_SIZE: u32 = 16u;

// Column o of the result: four columns of x for output channel o.
fn outer(values: vec4<f32>, weights: vec4<f32>) -> mat4x4<f32> {
    return mat4x4<f32>(values * weights.x, values * weights.y, values * weights.z, values * weights.w);
}

@compute @workgroup_size(WORKGROUP_SIZE)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let index = (workgroup.x + workgroups.x * (workgroup.y + workgroups.y * workgroup.z)) * WORKGROUP_SIZE + lane;
    if (index >= u.count) {
        return;
    }
    let width = u.in_width / 4u;
    let tiles = width / COL_BLOCKS;
    let out_blocks = (u.out_channels + 4u * OUT_BLOCKS - 1u) / (4u * OUT_BLOCKS);
    var rest = index;
    let block = (rest % tiles) * COL_BLOCKS;
    rest = rest / tiles;
    let row = rest % u.out_height;
    rest = rest / u.out_height;
    let out_block = (rest % out_blocks) * OUT_BLOCKS;
    rest = rest / out_blocks;
    let group = rest % u.groups;
    let sample = rest / u.groups;

    // The rows of the kernel that meet rows of x.
    let first = u.padding_y - min(u.padding_y, row);
    let end = min(u.kernel_height, u.in_height + u.padding_y - row);
    // Columns beyond the edge read a neighbour instead, and count as 0.
    let has_left = block > 0u;
    let has_right = block + COL_BLOCKS < width;
    let left = select(0u, 1u, has_left);
    let right = COL_BLOCKS - 1u + select(0u, 1u, has_right);
    let plane = u.in_height * width;
    let packed_row = KERNEL_WIDTH * out_blocks * OUT_BLOCKS;
    let packed_tap = out_blocks * OUT_BLOCKS;
    var x_plane = (sample * u.groups + group) * u.in_channels * plane + (row + first - u.padding_y) * width + block;
    var packed_plane = group * u.in_channels * u.kernel_height * packed_row + first * packed_row + out_block;

    var s00 = mat4x4<f32>();
    var s01 = mat4x4<f32>();
    var s02 = mat4x4<f32>();
    var s03 = mat4x4<f32>();
    var s10 = mat4x4<f32>();
    var s11 = mat4x4<f32>();
    var s12 = mat4x4<f32>();
    var s13 = mat4x4<f32>();
    for (var c = 0u; c < u.in_channels; c++) {
        var at = x_plane;
        var w = packed_plane;
        for (var k = first; k < end; k++) {
            let x0 = x[at];
            var x1 = x0;
            var x2 = x0;
            var x3 = x0;
            if (COL_BLOCKS > 1u) {
                x1 = x[at + 1u];
            }
            if (COL_BLOCKS > 2u) {
                x2 = x[at + 2u];
                x3 = x[at + 3u];
            }
            if (KERNEL_WIDTH == 3u) {
                let before = select(0.0, x[at - left].w, has_left);
                let w0 = packed[w];
                let l0 = vec4<f32>(before, x0.xyz);
                let l1 = vec4<f32>(x0.w, x1.xyz);
                let l2 = vec4<f32>(x1.w, x2.xyz);
                let l3 = vec4<f32>(x2.w, x3.xyz);
                s00 += outer(l0, w0);
                if (COL_BLOCKS > 1u) {
                    s01 += outer(l1, w0);
                }
                if (COL_BLOCKS > 2u) {
                    s02 += outer(l2, w0);
                    s03 += outer(l3, w0);
                }
                if (OUT_BLOCKS > 1u) {
                    let w1 = packed[w + 1u];
                    s10 += outer(l0, w1);
                    if (COL_BLOCKS > 1u) {
                        s11 += outer(l1, w1);
                    }
                    if (COL_BLOCKS > 2u) {
                        s12 += outer(l2, w1);
                        s13 += outer(l3, w1);
                    }
                }
                w += packed_tap;
            }
            let w0 = packed[w];
            s00 += outer(x0, w0);
            if (COL_BLOCKS > 1u) {
                s01 += outer(x1, w0);
            }
            if (COL_BLOCKS > 2u) {
                s02 += outer(x2, w0);
                s03 += outer(x3, w0);
            }
            if (OUT_BLOCKS > 1u) {
                let w1 = packed[w + 1u];
                s10 += outer(x0, w1);
                if (COL_BLOCKS > 1u) {
                    s11 += outer(x1, w1);
                }
                if (COL_BLOCKS > 2u) {
                    s12 += outer(x2, w1);
                    s13 += outer(x3, w1);
                }
            }
            w += packed_tap;
            if (KERNEL_WIDTH == 3u) {
                let behind = select(0.0, x[at + right].x, has_right);
                let w0 = packed[w];
                let r0 = vec4<f32>(x0.yzw, select(behind, x1.x, COL_BLOCKS > 1u));
                let r1 = vec4<f32>(x1.yzw, select(behind, x2.x, COL_BLOCKS > 2u));
                let r2 = vec4<f32>(x2.yzw, x3.x);
                let r3 = vec4<f32>(x3.yzw, behind);
                s00 += outer(r0, w0);
                if (COL_BLOCKS > 1u) {
                    s01 += outer(r1, w0);
                }
                if (COL_BLOCKS > 2u) {
                    s02 += outer(r2, w0);
                    s03 += outer(r3, w0);
                }
                if (OUT_BLOCKS > 1u) {
                    let w1 = packed[w + 1u];
                    s10 += outer(r0, w1);
                    if (COL_BLOCKS > 1u) {
                        s11 += outer(r1, w1);
                    }
                    if (COL_BLOCKS > 2u) {
                        s12 += outer(r2, w1);
                        s13 += outer(r3, w1);
                    }
                }
                w += packed_tap;
            }
            at += width;
        }
        x_plane += plane;
        packed_plane += u.kernel_height * packed_row;
    }

    // Channels move up through column 0, so that there is one copy of the stores.
    let o_end = min(4u * (out_block + OUT_BLOCKS), u.out_channels);
    let out_plane = u.out_height * width;
    var y_at = ((sample * u.groups + group) * u.out_channels + 4u * out_block) * out_plane + row * width + block;
    for (var o = 4u * out_block; o < o_end; o++) {
        y[y_at] = s00[0];
        if (COL_BLOCKS > 1u) {
            y[y_at + 1u] = s01[0];
        }
        if (COL_BLOCKS > 2u) {
            y[y_at + 2u] = s02[0];
            y[y_at + 3u] = s03[0];
        }
        s00 = mat4x4<f32>(s00[1], s00[2], s00[3], s10[0]);
        s01 = mat4x4<f32>(s01[1], s01[2], s01[3], s11[0]);
        s02 = mat4x4<f32>(s02[1], s02[2], s02[3], s12[0]);
        s03 = mat4x4<f32>(s03[1], s03[2], s03[3], s13[0]);
        s10 = mat4x4<f32>(s10[1], s10[2], s10[3], s10[3]);
        s11 = mat4x4<f32>(s11[1], s11[2], s11[3], s11[3]);
        s12 = mat4x4<f32>(s12[1], s12[2], s12[3], s12[3]);
        s13 = mat4x4<f32>(s13[1], s13[2], s13[3], s13[3]);
        y_at += out_plane;
    }
}
