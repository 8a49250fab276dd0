// The gradient of a convolution for its weight, in parts, where shaders/conv2d_rows.wgsl
// computes the convolution: stride 1, rows that keep their length W, a multiple of 4.
// part[p, o, c, k, l] = sum over rows (n, i) of part p, and over j, of
//     y[n, o, i, j] x[n, c, i + k - py, j + l - KERNEL_WIDTH / 2]
// with x taken as 0 outside of it. The batch * out_height rows of y are dealt out in
// runs of part_rows.
//
// One invocation: 4 * OUT_BLOCKS output channels by four input channels of a group, one
// row of the kernel with all its taps, one part. It walks along rows four columns a step.
//
// x [N, groups * C, H, W / 4], y [N, groups * O, HO, W / 4] of four columns each.
// parts: per invocation, KERNEL_WIDTH * 4 * OUT_BLOCKS times four input channels: taps,
// then output channels (shaders/conv2d_weight_gather.wgsl adds them up). Channels
// beyond the last hold copies of it.
// Invocations run over rows of the kernel (fastest), input channels / 4, output
// channels / (4 * OUT_BLOCKS), groups, parts.
// Grid: ceil(count / WORKGROUP_SIZE) workgroups, spread over x, y, z.

@group(0) @binding(0) var<uniform> u: Conv;
@group(0) @binding(1) var<storage, read_write> x: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> y: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> parts: array<vec4<f32>>;

// 1 or 3.
override KERNEL_WIDTH: u32 = 3u;
// 1 or 2.
override OUT_BLOCKS: u32 = 2u;
// A multiple of 8: the lanes of a CPU adapter lie along x.
override WORKGROUP_SIZE: u32 = 16u;

fn store(at: u32, sums: mat4x4<f32>) {
    parts[at] = sums[0];
    parts[at + 1u] = sums[1];
    parts[at + 2u] = sums[2];
    parts[at + 3u] = sums[3];
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
    let in_blocks = (u.in_channels + 3u) / 4u;
    let out_blocks = (u.out_channels + 4u * OUT_BLOCKS - 1u) / (4u * OUT_BLOCKS);
    var rest = index;
    let k = rest % u.kernel_height;
    rest = rest / u.kernel_height;
    let c = (rest % in_blocks) * 4u;
    rest = rest / in_blocks;
    let o = (rest % out_blocks) * 4u * OUT_BLOCKS;
    rest = rest / out_blocks;
    let group = rest % u.groups;
    let part = rest / u.groups;

    let width = u.in_width / 4u;
    let x_plane = u.in_height * width;
    let y_plane = u.out_height * width;
    let corners = vec4<u32>(0u, 1u, 2u, 3u);
    let x_channels = min(vec4<u32>(c) + corners, vec4<u32>(u.in_channels - 1u)) * x_plane;
    let y_channels = min(vec4<u32>(o) + corners, vec4<u32>(u.out_channels - 1u)) * y_plane;
    let y_others = min(vec4<u32>(o + 4u) + corners, vec4<u32>(u.out_channels - 1u)) * y_plane;

    // Row c and column o of each: a tap, then the second four output channels.
    var left0 = mat4x4<f32>();
    var middle0 = mat4x4<f32>();
    var right0 = mat4x4<f32>();
    var left1 = mat4x4<f32>();
    var middle1 = mat4x4<f32>();
    var right1 = mat4x4<f32>();
    let first = part * u.part_rows;
    let end = min(first + u.part_rows, u.batch * u.out_height);
    for (var row = first; row < end; row++) {
        let sample = row / u.out_height;
        let i = row - sample * u.out_height;
        let in_row = i + k - u.padding_y;
        if (in_row < u.in_height) {
            let x_start = (sample * u.groups + group) * u.in_channels * x_plane + in_row * width;
            let y_start = (sample * u.groups + group) * u.out_channels * y_plane + i * width;
            var x_at = vec4<u32>(x_start) + x_channels;
            var y_at = vec4<u32>(y_start) + y_channels;
            var y_more = vec4<u32>(y_start) + y_others;
            var here = mat4x4<f32>(x[x_at.x], x[x_at.y], x[x_at.z], x[x_at.w]);
            var before = vec4<f32>();
            for (var j = 1u; j <= width; j++) {
                // The last block reads itself again instead of what follows.
                x_at += vec4<u32>(select(0u, 1u, j < width));
                let next = mat4x4<f32>(x[x_at.x], x[x_at.y], x[x_at.z], x[x_at.w]);
                let inside = j < width;
                // Rows: columns of x; columns: channels.
                let m = transpose(here);
                let y0 = mat4x4<f32>(y[y_at.x], y[y_at.y], y[y_at.z], y[y_at.w]);
                y_at += vec4<u32>(1u);
                middle0 += m * y0;
                let behind = select(vec4<f32>(), vec4<f32>(next[0].x, next[1].x, next[2].x, next[3].x), inside);
                if (KERNEL_WIDTH == 3u) {
                    left0 += mat4x4<f32>(before, m[0], m[1], m[2]) * y0;
                    right0 += mat4x4<f32>(m[1], m[2], m[3], behind) * y0;
                }
                if (OUT_BLOCKS > 1u) {
                    let y1 = mat4x4<f32>(y[y_more.x], y[y_more.y], y[y_more.z], y[y_more.w]);
                    y_more += vec4<u32>(1u);
                    middle1 += m * y1;
                    if (KERNEL_WIDTH == 3u) {
                        left1 += mat4x4<f32>(before, m[0], m[1], m[2]) * y1;
                        right1 += mat4x4<f32>(m[1], m[2], m[3], behind) * y1;
                    }
                }
                before = m[3];
                here = next;
            }
        }
    }
    var at = index * KERNEL_WIDTH * 4u * OUT_BLOCKS;
    if (KERNEL_WIDTH == 3u) {
        store(at, left0);
        if (OUT_BLOCKS > 1u) {
            store(at + 4u, left1);
        }
        at += 4u * OUT_BLOCKS;
    }
    store(at, middle0);
    if (OUT_BLOCKS > 1u) {
        store(at + 4u, middle1);
    }
    at += 4u * OUT_BLOCKS;
    if (KERNEL_WIDTH == 3u) {
        store(at, right0);
        if (OUT_BLOCKS > 1u) {
            store(at + 4u, right1);
        }
    }
}
