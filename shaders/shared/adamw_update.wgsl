// One element of AdamW (Loshchilov and Hutter, "Decoupled weight decay
// regularization", 2019; the order of operations is PyTorch's):
//
//   p <- p (1 - lr wd)
//   m <- m + (1 - beta1) (g - m)
//   v <- beta2 v + (1 - beta2) g^2
//   p <- p - lr / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + eps)
//
// t counts from 1. 1 - beta^t is -expm1(t ln beta): for small t a power would
// lose most of its digits.

struct AdamW {
    count: u32,
    // 1 if the decay is decoupled (AdamW), 0 if it is added to the gradient (Adam).
    decoupled: u32,
    beta1: f32,
    beta2: f32,
    one_minus_beta1: f32,
    one_minus_beta2: f32,
    ln_beta1: f32,
    ln_beta2: f32,
    eps: f32,
    weight_decay: f32,
    padding0: u32,
    padding1: u32,
}

struct Moments {
    p: f32,
    m: f32,
    v: f32,
}

// e^x - 1 for x <= 0. Near zero by its series, whose ninth term is below
// half a unit in the last place for |x| < 0.5.
fn expm1_negative(x: f32) -> f32 {
    if (x < -0.5) {
        return exp(x) - 1.0;
    }
    var sum = 1.0 / 362880.0;
    sum = sum * x + 1.0 / 40320.0;
    sum = sum * x + 1.0 / 5040.0;
    sum = sum * x + 1.0 / 720.0;
    sum = sum * x + 1.0 / 120.0;
    sum = sum * x + 1.0 / 24.0;
    sum = sum * x + 1.0 / 6.0;
    sum = sum * x + 0.5;
    return x + x * x * sum;
}

fn bias_correction(ln_beta: f32, step: u32) -> f32 {
    return -expm1_negative(f32(step + 1u) * ln_beta);
}

fn adamw_update(w: AdamW, p0: f32, m0: f32, v0: f32, g0: f32, lr: f32, correction1: f32, root_correction2: f32) -> Moments {
    let p = select(p0, p0 * (1.0 - lr * w.weight_decay), w.decoupled == 1u);
    let g = select(g0 + w.weight_decay * p0, g0, w.decoupled == 1u);
    let m = m0 + w.one_minus_beta1 * (g - m0);
    let v = w.beta2 * v0 + w.one_minus_beta2 * g * g;
    let denominator = sqrt(v) / root_correction2 + w.eps;
    return Moments(p - (lr / correction1) * (m / denominator), m, v);
}
