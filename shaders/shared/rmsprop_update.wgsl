// RMSprop (PyTorch's form):
//
//   d <- g + wd p
//   s <- alpha s + (1 - alpha) d^2
//   a <- a + (1 - alpha) (d - a)                 centred only
//   n <- d / (sqrt(s - a^2) + eps)               a = 0 unless centred
//   b <- momentum b + n                          with momentum only
//   p <- p - lr (with momentum ? b : n)
//
// s - a^2 is at least 0 but for rounding, and taken as 0 below that.
// One of rmsprop_plain, _momentum, _centered and _centered_momentum follows.

struct Rule {
    alpha: f32,
    one_minus_alpha: f32,
    eps: f32,
    weight_decay: f32,
    momentum: f32,
}

fn squares(w: Rule, s: Block, d: Block) -> Block {
    return w.alpha * s + w.one_minus_alpha * d * d;
}

fn centre(w: Rule, a: Block, d: Block) -> Block {
    return a + w.one_minus_alpha * (d - a);
}

fn normalised(w: Rule, variance: Block, d: Block) -> Block {
    // A comparison with NaN is false, so that NaN stays.
    return d / (sqrt(select(variance, Block(0.0), variance < Block(0.0))) + w.eps);
}

