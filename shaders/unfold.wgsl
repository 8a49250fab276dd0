// columns[n, (c KH + k) KW + l, i WO + j] = x[n, c, i sy + k dy - py, j sx + l dx - px]
// with x taken as 0 outside of it (shaders/shared/unfold.wgsl names the sizes).
// One invocation per element of columns. Grid: ceil(count / 64) workgroups, over x, y, z.
@group(0) @binding(0) var<uniform> u: Unfold;
@group(0) @binding(1) var<storage, read_write> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> columns: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let index = (id.z * groups.y + id.y) * (groups.x * 64u) + id.x;
    if (index >= u.count) {
        return;
    }
    var rest = index / u.out_width;
    let j = index - rest * u.out_width;
    let i = rest % u.out_height;
    rest = rest / u.out_height;
    let l = rest % u.kernel_x;
    rest = rest / u.kernel_x;
    let k = rest % u.kernel_y;
    // n C + c.
    let image = rest / u.kernel_y;
    // What lies above or left of the image wraps to large numbers.
    let row = i * u.stride_y + k * u.dilation_y - u.padding_y;
    let column = j * u.stride_x + l * u.dilation_x - u.padding_x;
    var value = 0.0;
    if (row < u.height && column < u.width) {
        value = x[(image * u.height + row) * u.width + column];
    }
    columns[index] = value;
}
