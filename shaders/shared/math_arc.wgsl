// Inverse trigonometric functions by polynomials, since WGSL allows its own an
// error of 4096 units in the last place: those of Cephes' atanf and asinf
// (S. Moshier), within 2e-7 of the value.
fn arc_tangent(x: f32) -> f32 {
    let a = abs(x);
    let far = a > 2.414213562;
    let middle = a > 0.4142135624;
    // A quotient only where it is used: 1 / 0 is no number for some compilers.
    let t = select(select(a, (a - 1.0) / (a + 1.0), middle), -1.0 / max(a, 1.0), far);
    let base = select(select(0.0, 0.7853981634, middle), 1.570796327, far);
    let z = t * t;
    let y = base + t + t * z * (-3.33329491539e-1 + z * (1.99777106478e-1 + z * (-1.38776856032e-1 + z * 8.05374449538e-2)));
    return select(y, -y, x < 0.0);
}
// NaN outside [-1, 1], where the root has no value.
fn arc_sine(x: f32) -> f32 {
    let a = abs(x);
    let far = a > 0.5;
    let z = select(a * a, 0.5 * (1.0 - a), far);
    let t = select(a, sqrt(max(z, 0.0)), far);
    let p = t + t * z * (1.6666752422e-1 + z * (7.4953002686e-2 + z * (4.5470025998e-2 + z * (2.4181311049e-2 + z * 4.2163199048e-2))));
    let y = select(p, 1.570796327 - 2.0 * p, far);
    let undefined = bitcast<f32>(bitcast<u32>(x) | 0x7fc00000u);
    return select(select(y, -y, x < 0.0), undefined, !(a <= 1.0));
}
// Without the cancellation of pi/2 - asin(x) around 1.
fn arc_cosine(x: f32) -> f32 {
    let a = abs(x);
    let near = 1.570796327 - arc_sine(x);
    let beyond = 2.0 * arc_sine(sqrt(max(0.5 * (1.0 - a), 0.0)));
    let y = select(near, select(beyond, 3.141592654 - beyond, x < 0.0), a > 0.5);
    let undefined = bitcast<f32>(bitcast<u32>(x) | 0x7fc00000u);
    return select(y, undefined, !(a <= 1.0));
}
