// The gradient of conv2d for its weight, in parts:
// part[p, o, c, k, l] = sum over rows (n, i) of part p, and over j, of
//     y[n, o, i, j] x[n, c, i sy + k dy - py, j sx + l dx - px]
// with x taken as 0 outside of it (shaders/shared/conv2d.wgsl names the sizes). The
// batch * out_height rows of y are dealt out in runs of part_rows.
// One invocation: four neighbouring output channels by four neighbouring input
// channels of a group, one tap, one part. Invocations run over taps (fastest), input
// channels / 4, output channels / 4, groups, parts.
// Grid: ceil(count / 64) workgroups, spread over x, y, z.

@group(0) @binding(0) var<uniform> u: Conv;
@group(0) @binding(1) var<storage, read_write> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@group(0) @binding(3) var<storage, read_write> parts: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let index = linear_index(id, groups);
    if (index >= u.count) {
        return;
    }
    let taps = u.kernel_height * u.kernel_width;
    let in_blocks = (u.in_channels + 3u) / 4u;
    let out_blocks = (u.out_channels + 3u) / 4u;
    var rest = index;
    let tap = rest % taps;
    rest = rest / taps;
    let c = (rest % in_blocks) * 4u;
    rest = rest / in_blocks;
    let o = (rest % out_blocks) * 4u;
    rest = rest / out_blocks;
    let group = rest % u.groups;
    let part = rest / u.groups;

    let k = tap / u.kernel_width;
    let l = tap - k * u.kernel_width;
    let x_plane = u.in_height * u.in_width;
    let y_plane = u.out_height * u.out_width;
    // Channels beyond the last read the last and are not stored.
    let x_step = vec3<u32>(min(c + 1u, u.in_channels - 1u), min(c + 2u, u.in_channels - 1u), min(c + 3u, u.in_channels - 1u)) * x_plane;
    let y_step = vec3<u32>(min(o + 1u, u.out_channels - 1u), min(o + 2u, u.out_channels - 1u), min(o + 3u, u.out_channels - 1u)) * y_plane;
    let first_column = l * u.dilation_x - u.padding_x;
    var s0 = vec4<f32>();
    var s1 = vec4<f32>();
    var s2 = vec4<f32>();
    var s3 = vec4<f32>();
    let first = part * u.part_rows;
    let end = min(first + u.part_rows, u.batch * u.out_height);
    for (var row = first; row < end; row++) {
        let sample = row / u.out_height;
        let i = row - sample * u.out_height;
        let in_row = i * u.stride_y + k * u.dilation_y - u.padding_y;
        if (in_row < u.in_height) {
            let x_start = (sample * u.groups + group) * u.in_channels * x_plane + in_row * u.in_width;
            let y_start = (sample * u.groups + group) * u.out_channels * y_plane + i * u.out_width;
            for (var j = 0u; j < u.out_width; j++) {
                let column = first_column + j * u.stride_x;
                if (column < u.in_width) {
                    let at = x_start + column;
                    let xs = vec4<f32>(x[at + c * x_plane], x[at + x_step.x], x[at + x_step.y], x[at + x_step.z]);
                    let out = y_start + j;
                    s0 += xs * y[out + o * y_plane];
                    s1 += xs * y[out + y_step.x];
                    s2 += xs * y[out + y_step.y];
                    s3 += xs * y[out + y_step.z];
                }
            }
        }
    }
    for (var b = 0u; b < 4u; b++) {
        if (o + b < u.out_channels) {
            var sums = s0;
            if (b == 1u) { sums = s1; }
            if (b == 2u) { sums = s2; }
            if (b == 3u) { sums = s3; }
            let start = (((part * u.groups + group) * u.out_channels + o + b) * u.in_channels + c) * taps + tap;
            parts[start] = sums.x;
            if (c + 1u < u.in_channels) { parts[start + taps] = sums.y; }
            if (c + 2u < u.in_channels) { parts[start + 2u * taps] = sums.z; }
            if (c + 3u < u.in_channels) { parts[start + 3u * taps] = sums.w; }
        }
    }
}
