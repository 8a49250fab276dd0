// AdamW (Loshchilov and Hutter, "Decoupled weight decay
// regularization", 2019; the order of operations is PyTorch's):
//
//   p <- p (1 - lr wd)
//   m <- m + (1 - beta1) (g - m)
//   v <- beta2 v + (1 - beta2) g^2
//   p <- p - lr / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + eps)
//
// t counts from 1. 1 - beta^t is -expm1(t ln beta): for small t a power would
// lose most of its digits.

struct Rule {
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

fn update(w: Rule, lr: f32, step: u32, e: Elements) -> Elements {
    let correction1 = bias_correction(w.ln_beta1, step);
    let root_correction2 = sqrt(bias_correction(w.ln_beta2, step));
    let coupled = w.decoupled == 0u;
    let p = select(e.param * (1.0 - lr * w.weight_decay), e.param, coupled);
    let g = select(e.grad, e.grad + w.weight_decay * e.param, coupled);
    let m = e.exp_avg + w.one_minus_beta1 * (g - e.exp_avg);
    let v = w.beta2 * e.exp_avg_sq + w.one_minus_beta2 * g * g;
    let denominator = sqrt(v) / root_correction2 + w.eps;
    return Elements(p - (lr / correction1) * (m / denominator), m, v, e.grad);
}
