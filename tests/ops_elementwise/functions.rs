//! Inverse trigonometric, hyperbolic and other functions against `f64`, and all
//! pairs of casts.

use super::*;

type Function = fn(&Tensor) -> Result<Tensor>;
type Plain = fn(f64) -> f64;

const CASES: [(&str, Function, Plain); 20] = [
    ("tan", |x| x.tan(), f64::tan),
    ("asin", |x| x.asin(), f64::asin),
    ("acos", |x| x.acos(), f64::acos),
    ("atan", |x| x.atan(), f64::atan),
    ("sinh", |x| x.sinh(), f64::sinh),
    ("cosh", |x| x.cosh(), f64::cosh),
    ("asinh", |x| x.asinh(), f64::asinh),
    ("acosh", |x| x.acosh(), f64::acosh),
    ("atanh", |x| x.atanh(), f64::atanh),
    ("log2", |x| x.log2(), f64::log2),
    ("log10", |x| x.log10(), f64::log10),
    ("exp2", |x| x.exp2(), f64::exp2),
    ("trunc", |x| x.trunc(), f64::trunc),
    ("frac", |x| x.frac(), f64::fract),
    ("relu6", |x| x.relu6(), |x| x.clamp(0.0, 6.0)),
    ("hardtanh", |x| x.hardtanh(-1.0, 2.0), |x| x.clamp(-1.0, 2.0)),
    ("hardsigmoid", |x| x.hardsigmoid(), |x| (x + 3.0).clamp(0.0, 6.0) / 6.0),
    ("logsigmoid", |x| x.logsigmoid(), |x| x.min(0.0) - (-x.abs()).exp().ln_1p()),
    (
        "selu",
        |x| x.selu(),
        |x| 1.050_700_987_355_480_5 * if x > 0.0 { x } else { 1.673_263_242_354_377_3 * x.exp_m1() },
    ),
    ("lerp", |x| x.lerp_scalar(&x.sqr()?, 0.25), |x| x + 0.25 * (x * x - x)),
];

#[test]
fn functions_agree_with_f64_everywhere() {
    let mut points: Vec<f32> = (-400..=400).map(|i| i as f32 * 0.0201).collect();
    points.extend([-1.0, 1.0, 1e-6, -1e-6, 0.999, -0.999, 0.5, -0.5, 1.0001, 30.0, -30.0, 80.0, 1e5, 1e15, -1e15]);
    let out = device()
        .run_recording(&inputs([("x", bits(&points))]), |r| {
            let x = r.input::<f32>("x", [points.len()])?;
            CASES.iter().map(|(_, f, _)| f(&x)).collect()
        })
        .unwrap();
    for ((name, _, plain), words) in CASES.iter().zip(&out) {
        for (&x, found) in points.iter().zip(floats(words)) {
            let expected = plain(f64::from(x));
            if matches!(*name, "tan" | "lerp") && x.abs() > 100.0 {
                continue;
            }
            let found = f64::from(found);
            let agrees = (found - expected).abs() <= 2e-6 * expected.abs() + 5e-7
                || (found.is_nan() && expected.is_nan())
                || (expected.abs() > f64::from(f32::MAX) && found.is_infinite() && (found > 0.0) == (expected > 0.0));
            // Poles and large values magnify the rounding of the argument.
            let magnified = *name == "tan" && (found - expected).abs() <= 3e-6 * (1.0 + expected * expected);
            let steep = matches!(*name, "sinh" | "cosh" | "exp2") && (found - expected).abs() <= 1e-5 * expected.abs();
            assert!(agrees || magnified || steep, "{name}({x}) = {found}, expected {expected}");
        }
    }
}

#[test]
fn fmod_prelu_glu_and_their_errors() {
    let (a, b) = ([7.5_f32, -7.5, 7.5, -7.5, 1.0], [2.0_f32, 2.0, -2.0, -2.0, 3.0]);
    let whole = [7_i32, -7, 5, -1, 0];
    let data = inputs([
        ("a", bits(&a)),
        ("b", bits(&b)),
        ("g", bits(&[1.0; 5])),
        ("i", whole.iter().map(|v| *v as u32).collect()),
    ]);
    let out = device()
        .run_recording(&data, |r| {
            let (a, b, g) = (r.input::<f32>("a", [5])?, r.input::<f32>("b", [5])?, r.input::<f32>("g", [5])?);
            let y = a.fmod(&b)?;
            let mut all = gradients(&y, &g, &[&a, &b])?;
            all.extend([y, a.prelu(&r.full([1], 0.25)?)?, r.input::<i32>("i", [5])?.fmod(&r.full_i32([], 3)?)?]);
            all.push(a.narrow(0, 0, 4)?.glu(0)?);
            Ok(all)
        })
        .unwrap();
    assert_eq!(floats(&out[0]), [1.0; 5]);
    for i in 0..5 {
        assert_eq!(floats(&out[1])[i], -(a[i] / b[i]).trunc(), "{i}");
        assert_eq!(floats(&out[2])[i], a[i] % b[i]);
        assert_eq!(floats(&out[3])[i], if a[i] > 0.0 { a[i] } else { 0.25 * a[i] });
        assert_eq!(out[4][i] as i32, whole[i] % 3);
    }
    let gate = |v: f32| 1.0 / (1.0 + (-v).exp());
    for i in 0..2 {
        assert!((floats(&out[5])[i] - a[i] * gate(a[i + 2])).abs() < 1e-5);
    }
    let r = Recorder::new();
    let x = r.input::<f32>("x", [5]).unwrap();
    assert!(matches!(x.glu(0), Err(Error::Argument { op: "split", .. })));
    assert!(matches!(x.hardtanh(1.0, 0.0), Err(Error::Argument { .. })));
    assert!(matches!(r.input::<i32>("i", [5]).unwrap().atan(), Err(Error::DType { op: "atan", .. })));
}

#[test]
fn every_pair_of_casts() {
    let f = [0.0, -0.0, 1.0, -1.5, 3e9, -3e9, f32::INFINITY, f32::NAN, 1e-30, 16_777_217.0];
    let u = [0_u32, 1, 7, 16_777_217, 0x8000_0000, u32::MAX];
    let data = inputs([("f", bits(&f)), ("u", u.to_vec()), ("i", u.to_vec())]);
    let out = device()
        .run_recording(&data, |g| {
            let mut all = Vec::new();
            let bool_of = g.input::<u32>("u", [6])?.to_bool()?;
            for x in [g.input::<f32>("f", [10])?, g.input::<u32>("u", [6])?, g.input::<i32>("i", [6])?, bool_of] {
                all.extend([x.to_f32()?, x.to_u32()?, x.to_i32()?, x.to_bool()?.to_u32()?]);
            }
            Ok(all)
        })
        .unwrap();
    let truth = |t: bool| u32::from(t);
    for (i, &x) in f.iter().enumerate() {
        let expected = [x.to_bits(), x as u32, x as i32 as u32, truth(x != 0.0)];
        for (to, e) in expected.iter().enumerate().skip(usize::from(x.is_nan())) {
            assert_eq!(out[to][i], *e, "{x} to {to}");
        }
    }
    for (i, &x) in u.iter().enumerate() {
        let signed = x as i32;
        let one = truth(x != 0);
        let rows = [
            [(x as f32).to_bits(), x, x, one],
            [(signed as f32).to_bits(), x, x, one],
            [(one as f32).to_bits(), one, one, one],
        ];
        for (from, row) in rows.iter().enumerate() {
            for (to, e) in row.iter().enumerate() {
                assert_eq!(out[4 * (from + 1) + to][i], *e, "{x} from {from} to {to}");
            }
        }
    }
}
