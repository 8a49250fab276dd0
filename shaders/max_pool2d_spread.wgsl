// The gradient of max_pool2d where windows tile the image, stride and kernel being equal:
// dx[n, a, b] = g of its window if the window's saved place is a * W + b, else 0.
// g, places [N, HO, WO]; dx [N, H, W], H = HO kernel_y, W = WO kernel_x.
// One invocation per window. Grid: ceil(count / 64) workgroups, spread over x, y, z.
@group(0) @binding(1) var<storage, read_write> g: array<f32>;
@group(0) @binding(2) var<storage, read_write> places: array<u32>;
@group(0) @binding(3) var<storage, read_write> dx: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let index = (id.z * groups.y + id.y) * (groups.x * 64u) + id.x;
    if (index >= u.count) {
        return;
    }
    let line = index / u.out_width;
    let j = index - line * u.out_width;
    let image = line / u.out_height;
    let i = line - image * u.out_height;
    let value = g[index];
    let start = image * u.height * u.width;
    let place = places[index];
    for (var k = 0u; k < u.kernel_y; k++) {
        let row = (i * u.kernel_y + k) * u.width + j * u.kernel_x;
        for (var l = 0u; l < u.kernel_x; l++) {
            dx[start + row + l] = select(0.0, value, place == row + l);
        }
    }
}
