// x[n, c, a, b] = sum over k, l of columns[n, (c KH + k) KW + l, i WO + j]
// where a = i sy + k dy - py and b = j sx + l dx - px for whole i, j
// (shaders/shared/unfold.wgsl names the sizes).
// One invocation per element of x. Grid: ceil(count / 64) workgroups, over x, y, z.
@group(0) @binding(0) var<uniform> u: Unfold;
@group(0) @binding(1) var<storage, read_write> columns: array<f32>;
@group(0) @binding(2) var<storage, read_write> x: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let index = (id.z * groups.y + id.y) * (groups.x * 64u) + id.x;
    if (index >= u.count) {
        return;
    }
    let line = index / u.width;
    let column = index - line * u.width;
    let image = line / u.height;
    let row = line - image * u.height;
    let taps = u.kernel_y * u.kernel_x;
    var sum = 0.0;
    for (var tap = 0u; tap < taps; tap++) {
        let k = tap / u.kernel_x;
        let l = tap - k * u.kernel_x;
        // What lies before the first window wraps to a large number, and no stride leads there.
        let behind_row = row + u.padding_y - k * u.dilation_y;
        let behind_column = column + u.padding_x - l * u.dilation_x;
        let i = behind_row / u.stride_y;
        let j = behind_column / u.stride_x;
        if (i < u.out_height && j < u.out_width && i * u.stride_y == behind_row && j * u.stride_x == behind_column) {
            sum += columns[((image * taps + tap) * u.out_height + i) * u.out_width + j];
        }
    }
    x[index] = sum;
}
