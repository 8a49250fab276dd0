// sin and cos by our own polynomials: some adapters' are off by 1.9e-4.
// The argument is reduced to [-pi/4, pi/4] by subtracting k pi/2 in three parts
// whose products with k <= 2^15 are exact or nearly so (Cody and Waite); the
// polynomials are those of Cephes' sinf and cosf (S. Moshier), below 1e-7 there.
// Good to 2e-7 for |x| <= 100 and to 1e-6 up to about 10,000.
fn sine_of_quadrant(x: f32, shift: i32) -> f32 {
    let k = round(x * 0.6366197724);
    let r = ((x - k * 1.5703125) - k * 4.837512969970703125e-4) - k * 7.54978995489188216e-8;
    let z = r * r;
    let s = r + r * z * (-1.6666654611e-1 + z * (8.3321608736e-3 - z * 1.9515295891e-4));
    let c = 1.0 - 0.5 * z + z * z * (4.166664568298827e-2 + z * (-1.388731625493765e-3 + z * 2.443315711809948e-5));
    let quadrant = i32(k) + shift;
    let y = select(s, c, (quadrant & 1) != 0);
    return select(y, -y, (quadrant & 2) != 0);
}
fn sine(x: f32) -> f32 {
    return sine_of_quadrant(x, 0);
}
fn cosine(x: f32) -> f32 {
    return sine_of_quadrant(x, 1);
}
