//! Memory over one step as a picture, one panel per policy.

use std::fmt::Write as _;
use std::path::Path;

use plotters::prelude::*;
use remat::plan::LiveBytes;

use super::Outcome;

/// One policy's memory over its dispatches.
pub(crate) struct Curve {
    pub title: String,
    pub timeline: Vec<LiveBytes>,
}

type Part = (&'static str, RGBColor, fn(&LiveBytes) -> u64);

/// What is told apart, from the bottom of the stack to its top.
const PARTS: [Part; 7] = [
    ("parameters", RGBColor(54, 84, 134), |l| l.parameters),
    ("optimiser", RGBColor(127, 159, 196), |l| l.optimizer),
    ("inputs and others", RGBColor(150, 150, 150), |l| l.inputs + l.other),
    ("activations", RGBColor(226, 125, 65), |l| l.activations),
    ("gradients of activations", RGBColor(242, 190, 84), |l| l.gradients),
    ("gradients of parameters", RGBColor(94, 158, 107), |l| l.parameter_gradients),
    ("workspace", RGBColor(150, 99, 160), |l| l.workspace),
];

/// Draws the curves into an SVG file, all on one scale of bytes.
pub(crate) fn draw(path: &Path, curves: &[Curve]) -> Outcome<()> {
    let size = (1200, 60 + 300 * curves.len().div_ceil(2) as u32);
    let root = SVGBackend::new(path, size).into_drawing_area();
    root.fill(&WHITE)?;
    let (legend, panels) = root.split_vertically(60);
    for (i, (name, color, _)) in PARTS.iter().enumerate() {
        let x = 20 + (i as i32 % 4) * 290;
        let y = 10 + (i as i32 / 4) * 24;
        legend.draw(&Rectangle::new([(x, y), (x + 14, y + 14)], color.filled()))?;
        legend.draw(&Text::new(*name, (x + 20, y), ("sans-serif", 16)))?;
    }
    let most = curves.iter().flat_map(|c| &c.timeline).map(LiveBytes::total).max().unwrap_or(1);
    let top = most as f64 / 1e6 * 1.08;
    for (area, curve) in panels.split_evenly((curves.len().div_ceil(2), 2)).iter().zip(curves) {
        panel(area, curve, top)?;
    }
    root.present()?;
    Ok(())
}

fn panel(area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>, curve: &Curve, top: f64) -> Outcome<()> {
    let length = curve.timeline.len().max(1) as f64;
    let mut chart = ChartBuilder::on(area)
        .caption(&curve.title, ("sans-serif", 18))
        .margin(10)
        .x_label_area_size(36)
        .y_label_area_size(64)
        .build_cartesian_2d(0.0..length, 0.0..top)?;
    chart
        .configure_mesh()
        .x_desc("dispatch")
        .y_desc("MB")
        .x_label_formatter(&|x| format!("{x:.0}"))
        .y_label_formatter(&|y| format!("{y:.0}"))
        .disable_x_mesh()
        .light_line_style(WHITE)
        .draw()?;
    // Each part is drawn from zero to the top of what lies under it and itself, the highest first.
    for count in (1..=PARTS.len()).rev() {
        let height = |live: &LiveBytes| PARTS[..count].iter().map(|(_, _, part)| part(live)).sum::<u64>() as f64 / 1e6;
        // A step function: each dispatch's bytes hold over its whole width.
        let mut points = vec![(0.0, 0.0)];
        for (i, live) in curve.timeline.iter().enumerate() {
            points.push((i as f64, height(live)));
            points.push((i as f64 + 1.0, height(live)));
        }
        points.push((length, 0.0));
        chart.draw_series(std::iter::once(Polygon::new(points, PARTS[count - 1].1.filled())))?;
    }
    Ok(())
}

/// Writes a page that shows the picture and the table.
pub(crate) fn page(path: &Path, picture: &str, adapter: &str, rows: &[Vec<String>], notes: &[String]) -> Outcome<()> {
    let mut html = String::from(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>remat: memory over one step</title>\n<style>body{font:16px/1.5 system-ui,sans-serif;max-width:1220px;margin:2em auto;padding:0 1em;color:#222}table{border-collapse:collapse;margin:1em 0}td,th{padding:.3em .8em;text-align:right;border-bottom:1px solid #ddd}td:first-child,th:first-child{text-align:left}td:last-child{font-family:monospace;font-size:13px}img{width:100%}pre{background:#f6f6f6;padding:1em;white-space:pre-wrap}</style></head><body>\n<h1>Memory over one training step</h1>\n",
    );
    writeln!(
        html,
        "<p>Adapter: {}. The same model, batch and parameters under each policy; the gradients are equal bit for bit.</p>",
        escape(adapter)
    )?;
    writeln!(
        html,
        "<img src=\"{picture}\" alt=\"Stacked memory over the dispatches of one step, one panel per policy\">"
    )?;
    html.push_str("<table>\n");
    for (i, row) in rows.iter().enumerate() {
        let tag = if i == 0 { "th" } else { "td" };
        let cells: String = row.iter().map(|cell| format!("<{tag}>{}</{tag}>", escape(cell))).collect();
        writeln!(html, "<tr>{cells}</tr>")?;
    }
    html.push_str("</table>\n");
    for note in notes {
        writeln!(html, "<pre>{}</pre>", escape(note))?;
    }
    html.push_str("</body></html>\n");
    std::fs::write(path, html)?;
    Ok(())
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
