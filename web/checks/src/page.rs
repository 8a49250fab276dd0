//! What the page offers: files of its server, timers, who it is.

use std::cell::Cell;
use std::rc::Rc;

use js_sys::{Function, Promise, Reflect, Uint8Array};
use wasm_bindgen::prelude::Closure;
use wasm_bindgen::{JsCast, JsValue};
use wasm_bindgen_futures::JsFuture;

/// Text of whatever JavaScript threw.
pub(crate) fn text_of(value: &JsValue) -> String {
    format!("{value:?}")
}

fn global(name: &str) -> Result<Function, String> {
    let function = Reflect::get(&js_sys::global(), &name.into()).map_err(|error| text_of(&error))?;
    function.dyn_into().map_err(|_| format!("the page has no {name}"))
}

async fn settled(promise: JsValue) -> Result<JsValue, String> {
    JsFuture::from(Promise::resolve(&promise)).await.map_err(|error| text_of(&error))
}

/// A file of the server, whole.
///
/// # Errors
/// The server has none, and says why.
pub(crate) async fn fetch(path: &str) -> Result<Vec<u8>, String> {
    let answer = global("fetch")?.call1(&JsValue::UNDEFINED, &path.into()).map_err(|error| text_of(&error))?;
    let response = settled(answer).await?;
    let get = |name: &str| Reflect::get(&response, &name.into()).map_err(|error| text_of(&error));
    let body = get("arrayBuffer")?.dyn_into::<Function>().map_err(|_| "no arrayBuffer".to_owned())?;
    let buffer = settled(body.call0(&response).map_err(|error| text_of(&error))?).await?;
    let bytes = Uint8Array::new(&buffer).to_vec();
    if get("ok")?.is_truthy() { Ok(bytes) } else { Err(format!("{path}: {}", String::from_utf8_lossy(&bytes).trim())) }
}

/// [`fetch`], as text.
///
/// # Errors
/// As [`fetch`], or it is no text.
pub(crate) async fn fetch_text(path: &str) -> Result<String, String> {
    String::from_utf8(fetch(path).await?).map_err(|error| format!("{path}: {error}"))
}

/// True in Firefox.
pub(crate) fn is_firefox() -> bool {
    let navigator = Reflect::get(&js_sys::global(), &"navigator".into());
    let agent = navigator.and_then(|navigator| Reflect::get(&navigator, &"userAgent".into()));
    agent.ok().and_then(|agent| agent.as_string()).is_some_and(|agent| agent.contains("Firefox"))
}

/// Bytes of this module's own memory.
pub(crate) fn module_bytes() -> u64 {
    let memory = wasm_bindgen::memory();
    let length = Reflect::get(&memory, &"buffer".into()).and_then(|buffer| Reflect::get(&buffer, &"byteLength".into()));
    length.ok().and_then(|length| length.as_f64()).unwrap_or(0.0) as u64
}

/// Counts how often the page's event loop gets round to a timer while this lives.
pub(crate) struct Ticks {
    count: Rc<Cell<u32>>,
    timer: JsValue,
    _tick: Closure<dyn FnMut()>,
}

impl Ticks {
    /// Starts a timer that fires as often as the page lets it.
    ///
    /// # Errors
    /// The page has no timers.
    pub(crate) fn start() -> Result<Self, String> {
        let count = Rc::new(Cell::new(0));
        let counted = Rc::clone(&count);
        let tick = Closure::new(move || counted.set(counted.get() + 1));
        let timer = global("setInterval")?
            .call2(&JsValue::UNDEFINED, tick.as_ref(), &0.into())
            .map_err(|error| text_of(&error))?;
        Ok(Self { count, timer, _tick: tick })
    }

    /// How often it fired so far.
    pub(crate) fn count(&self) -> u32 {
        self.count.get()
    }
}

impl Drop for Ticks {
    fn drop(&mut self) {
        if let Ok(clear) = global("clearInterval") {
            // Nothing can be done about a timer that cannot be cleared.
            drop(clear.call1(&JsValue::UNDEFINED, &self.timer));
        }
    }
}
