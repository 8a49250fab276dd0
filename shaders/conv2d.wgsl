// y[n, o, i, j] = sum over c, k, l of x[n, c, i sy + k dy - py, j sx + l dx - px] weight[o, c, k, l]
// with x taken as 0 outside of it (shaders/shared/conv2d.wgsl names the sizes).
// One invocation: four neighbouring output channels of a group by four neighbouring
// columns, so that eight loads serve sixteen products.
// Invocations run over columns / 4 (fastest), rows, channels / 4, groups, batch.
// Grid: ceil(count / 64) workgroups, spread over x, y, z.

@group(0) @binding(0) var<uniform> u: Conv;
@group(0) @binding(1) var<storage, read_write> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> weight: array<f32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let index = linear_index(id, groups);
    if (index >= u.count) {
        return;
    }
    let column_blocks = (u.out_width + 3u) / 4u;
    let channel_blocks = (u.out_channels + 3u) / 4u;
    var rest = index;
    let column = (rest % column_blocks) * 4u;
    rest = rest / column_blocks;
    let row = rest % u.out_height;
    rest = rest / u.out_height;
    let channel = (rest % channel_blocks) * 4u;
    rest = rest / channel_blocks;
    let group = rest % u.groups;
    let sample = rest / u.groups;

    let taps = u.kernel_height * u.kernel_width;
    let filter_size = u.in_channels * taps;
    // Channels beyond the last read the last's weights and are not stored.
    let last = u.out_channels - 1u;
    let w0 = (group * u.out_channels + channel) * filter_size;
    let w1 = (group * u.out_channels + min(channel + 1u, last)) * filter_size;
    let w2 = (group * u.out_channels + min(channel + 2u, last)) * filter_size;
    let w3 = (group * u.out_channels + min(channel + 3u, last)) * filter_size;
    let first_row = row * u.stride_y - u.padding_y;
    let first_column = column * u.stride_x - u.padding_x;
    var s0 = vec4<f32>();
    var s1 = vec4<f32>();
    var s2 = vec4<f32>();
    var s3 = vec4<f32>();
    let plane = u.in_height * u.in_width;
    let planes = (sample * u.groups + group) * u.in_channels * plane;
    // Where a tap lies is told once for all channels.
    for (var tap = 0u; tap < taps; tap++) {
        let k = tap / u.kernel_width;
        let l = tap - k * u.kernel_width;
        let in_row = first_row + k * u.dilation_y;
        // Columns left of x wrap to large ones.
        let columns = vec4<u32>(first_column + l * u.dilation_x) + vec4<u32>(0u, 1u, 2u, 3u) * u.stride_x;
        let inside = columns < vec4<u32>(u.in_width);
        if (in_row < u.in_height) {
            // What lies outside reads the row's first element instead, and counts as 0.
            var at = vec4<u32>(planes + in_row * u.in_width) + select(vec4<u32>(), columns, inside);
            var place = tap;
            for (var c = 0u; c < u.in_channels; c++) {
                let values = select(vec4<f32>(), vec4<f32>(x[at.x], x[at.y], x[at.z], x[at.w]), inside);
                s0 += values * weight[w0 + place];
                s1 += values * weight[w1 + place];
                s2 += values * weight[w2 + place];
                s3 += values * weight[w3 + place];
                at += vec4<u32>(plane);
                place += taps;
            }
        }
    }
    for (var b = 0u; b < 4u; b++) {
        if (channel + b < u.out_channels) {
            var sums = s0;
            if (b == 1u) { sums = s1; }
            if (b == 2u) { sums = s2; }
            if (b == 3u) { sums = s3; }
            let start = (((sample * u.groups + group) * u.out_channels + channel + b) * u.out_height + row) * u.out_width;
            y[start + column] = sums.x;
            if (column + 1u < u.out_width) { y[start + column + 1u] = sums.y; }
            if (column + 2u < u.out_width) { y[start + column + 2u] = sums.z; }
            if (column + 3u < u.out_width) { y[start + column + 3u] = sums.w; }
        }
    }
}
