// Sizes of unfold and fold: windows of KH x KW over images x [N, C, H, W], side by side
// in columns [N, C * KH * KW, HO * WO].
struct Unfold {
    // Invocations.
    count: u32,
    channels: u32,
    height: u32,
    width: u32,
    out_height: u32,
    out_width: u32,
    kernel_y: u32,
    kernel_x: u32,
    stride_y: u32,
    stride_x: u32,
    padding_y: u32,
    padding_x: u32,
    dilation_y: u32,
    dilation_x: u32,
    pad0: u32,
    pad1: u32,
}
