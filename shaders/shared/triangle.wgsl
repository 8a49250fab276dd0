// How far an element of [.., rows, columns] lies below the diagonal: its row
// less its column. Needs quotient.wgsl.
fn behind_by_float(index: u32, columns: u32, rows: u32) -> i32 {
    let row = quotient(index, columns);
    return i32(row - quotient(row, rows) * rows) - i32(index - row * columns);
}
// The same where there are too many rows for `quotient`.
fn behind(index: u32, columns: u32, rows: u32) -> i32 {
    let row = index / columns;
    return i32(row % rows) - i32(index - row * columns);
}
