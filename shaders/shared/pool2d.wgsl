// Sizes of windows that move over images; `lowest` is -inf.
struct Pool {
    count: u32, height: u32, width: u32, out_height: u32,
    out_width: u32, kernel_y: u32, kernel_x: u32, stride_y: u32,
    stride_x: u32, padding_y: u32, padding_x: u32, lowest: u32,
}
@group(0) @binding(0) var<uniform> u: Pool;

