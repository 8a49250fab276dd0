// The gradient of conv2d for its input, which is transposed convolution:
// x[n, c, a, b] = sum over o, k, l of y[n, o, i, j] weight[o, c, k, l]
// where a = i sy + k dy - py and b = j sx + l dx - px for whole i, j within y
// (shaders/shared/conv2d.wgsl names the sizes).
// One invocation: four neighbouring input channels of a group by four neighbouring
// columns. Invocations run over columns / 4 (fastest), rows, channels / 4, groups, batch.
// Grid: ceil(count / 64) workgroups, spread over x, y, z.

@group(0) @binding(0) var<uniform> u: Conv;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<storage, read_write> weight: array<f32>;
@group(0) @binding(3) var<storage, read_write> x: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let index = linear_index(id, groups);
    if (index >= u.count) {
        return;
    }
    let column_blocks = (u.in_width + 3u) / 4u;
    let channel_blocks = (u.in_channels + 3u) / 4u;
    var rest = index;
    let column = (rest % column_blocks) * 4u;
    rest = rest / column_blocks;
    let row = rest % u.in_height;
    rest = rest / u.in_height;
    let channel = (rest % channel_blocks) * 4u;
    rest = rest / channel_blocks;
    let group = rest % u.groups;
    let sample = rest / u.groups;

    let taps = u.kernel_height * u.kernel_width;
    let last = u.in_channels - 1u;
    let w0 = channel * taps;
    let w1 = min(channel + 1u, last) * taps;
    let w2 = min(channel + 2u, last) * taps;
    let w3 = min(channel + 3u, last) * taps;
    var s0 = vec4<f32>();
    var s1 = vec4<f32>();
    var s2 = vec4<f32>();
    var s3 = vec4<f32>();
    let plane = u.out_height * u.out_width;
    let planes = (sample * u.groups + group) * u.out_channels * plane;
    let filter_size = u.in_channels * taps;
    // Where a tap leads is told once for all channels.
    for (var tap = 0u; tap < taps; tap++) {
        let k = tap / u.kernel_width;
        let l = tap - k * u.kernel_width;
        // What lies before y wraps to a large number, and no stride leads there.
        let behind_row = row + u.padding_y - k * u.dilation_y;
        let out_row = behind_row / u.stride_y;
        if (out_row < u.out_height && out_row * u.stride_y == behind_row) {
            let behind = vec4<u32>(column + u.padding_x - l * u.dilation_x) + vec4<u32>(0u, 1u, 2u, 3u);
            let columns = behind / u.stride_x;
            let inside = (columns < vec4<u32>(u.out_width)) & (columns * u.stride_x == behind);
            // What lies outside reads the row's first element instead, and counts as 0.
            var at = vec4<u32>(planes + out_row * u.out_width) + select(vec4<u32>(), columns, inside);
            var place = group * u.out_channels * filter_size + tap;
            for (var o = 0u; o < u.out_channels; o++) {
                let values = select(vec4<f32>(), vec4<f32>(y[at.x], y[at.y], y[at.z], y[at.w]), inside);
                s0 += values * weight[place + w0];
                s1 += values * weight[place + w1];
                s2 += values * weight[place + w2];
                s3 += values * weight[place + w3];
                at += vec4<u32>(plane);
                place += filter_size;
            }
        }
    }
    for (var b = 0u; b < 4u; b++) {
        if (channel + b < u.in_channels) {
            var sums = s0;
            if (b == 1u) { sums = s1; }
            if (b == 2u) { sums = s2; }
            if (b == 3u) { sums = s3; }
            let start = (((sample * u.groups + group) * u.in_channels + channel + b) * u.in_height + row) * u.in_width;
            x[start + column] = sums.x;
            if (column + 1u < u.in_width) { x[start + column + 1u] = sums.y; }
            if (column + 2u < u.in_width) { x[start + column + 2u] = sums.z; }
            if (column + 3u < u.in_width) { x[start + column + 3u] = sums.w; }
        }
    }
}
