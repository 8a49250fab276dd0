// Epilogue: identity. Stands before a matmul kernel's text when nothing is fused.
//
// An epilogue text defines both functions below; the kernel calls one of them
// once per stored value and stores the result.
//   batch  linear batch index, b0 * batch1 + b1
//   row    index along M
//   col    index along N; in epilogue_vec4 that of the first of four columns
// Its operands, if any, are bound in group 0 from binding 4 on.

struct Epilogue {
    words: array<vec4<u32>, 1>,
}

fn epilogue_vec4(value: vec4<f32>, batch: u32, row: u32, col: u32) -> vec4<f32> {
    return value;
}

fn epilogue_scalar(value: f32, batch: u32, row: u32, col: u32) -> f32 {
    return value;
}
