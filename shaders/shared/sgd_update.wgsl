// One element of SGD with momentum (PyTorch's form, dampening 0):
//
//   d <- g + wd p
//   b <- momentum b + d
//   p <- p - lr (nesterov ? d + momentum b : b)
//
// b starts at zero, so that the first step takes b = d.

struct Sgd {
    count: u32,
    nesterov: u32,
    momentum: f32,
    weight_decay: f32,
}

struct Moved {
    p: f32,
    b: f32,
}

fn sgd_update(w: Sgd, p: f32, b0: f32, g: f32, lr: f32) -> Moved {
    let d = g + w.weight_decay * p;
    let b = w.momentum * b0 + d;
    return Moved(p - lr * select(b, d + w.momentum * b, w.nesterov == 1u), b);
}
