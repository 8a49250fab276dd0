// Runs the checks of this page and reports each to the server that served it.
// `test.html?only=NAME` runs the checks whose names begin with NAME.

const only = new URLSearchParams(location.search).get('only') ?? '';

// One message at a time, in order; resolves to the server's answer, so whoever
// awaits it knows that the server has seen the page as it is now.
let last = Promise.resolve();
function report(message) {
  document.getElementById('log').textContent += JSON.stringify(message) + '\n';
  const post = async () => {
    const response = await fetch('/report', { method: 'POST', body: JSON.stringify(message) });
    if (!response.ok) throw new Error(`report refused: ${await response.text()}`);
    return response.json();
  };
  last = last.then(post, post);
  return last;
}

// What nobody caught ends the run: a check that died would otherwise look like
// one that takes its time.
addEventListener('error', (event) => report({ fatal: `uncaught: ${event.message}` }));
addEventListener('unhandledrejection', (event) => report({ fatal: `unhandled: ${event.reason}` }));

const counts = { passed: 0, failed: 0 };
async function result(name, started, { error, detail }) {
  const ok = error === undefined;
  counts[ok ? 'passed' : 'failed'] += 1;
  await report({ check: name, ok, ms: performance.now() - started, error, detail });
}

// Compiles every shader of the library with this browser's own compiler, each
// with every set of constants that is in use.
async function shaders() {
  await report({ start: 'shaders' });
  const started = performance.now();
  const response = await fetch('/shaders.json');
  if (!response.ok) throw new Error(await response.text());
  const list = await response.json();
  const adapter = await navigator.gpu?.requestAdapter();
  if (!adapter) throw new Error('no WebGPU adapter');
  const wanted = new Set(list.flatMap((shader) => shader.features));
  const requiredFeatures = [...wanted].filter((feature) => adapter.features.has(feature));
  const device = await adapter.requestDevice({ requiredFeatures });
  const detail = { modules: 0, pipelines: 0, skipped: [] };
  for (const shader of list) {
    const lacking = shader.features.find((feature) => !device.features.has(feature));
    if (lacking !== undefined) {
      detail.skipped.push(`${shader.name} (no ${lacking})`);
      continue;
    }
    const begun = performance.now();
    const errors = await compile(device, shader);
    detail.modules += 1;
    detail.pipelines += shader.pipelines.length;
    if (errors.length > 0) {
      await result(`shader ${shader.name}`, begun, { error: errors.join('\n') });
    }
  }
  device.destroy();
  await result('shaders', started, { detail });
}

async function compile(device, { name, source, pipelines }) {
  device.pushErrorScope('validation');
  const module = device.createShaderModule({ label: name, code: source });
  const { messages } = await module.getCompilationInfo();
  const errors = messages
    .filter((message) => message.type === 'error')
    .map((message) => `line ${message.lineNum}: ${message.message}`);
  const scope = await device.popErrorScope();
  if (errors.length === 0 && scope) errors.push(scope.message);
  // A pipeline of a broken module only says so again.
  if (errors.length > 0) return errors;
  const pending = pipelines.map(async ({ entry, constants }) => {
    const compute = { module, entryPoint: entry, constants };
    try {
      await device.createComputePipelineAsync({ label: name, layout: 'auto', compute });
    } catch (error) {
      errors.push(`${entry ?? ''} ${JSON.stringify(constants ?? {})}: ${error.message}`);
    }
  });
  await Promise.all(pending);
  return errors;
}

async function engine() {
  const { default: init, run_tests } = await import('./remat_web_checks.js');
  await init();
  const { passed, failed } = JSON.parse(await run_tests(report, only));
  counts.passed += passed;
  counts.failed += failed;
}

async function run(name, part) {
  const started = performance.now();
  try {
    await part();
  } catch (error) {
    await result(name, started, { error: String(error) });
  }
}

if ('shaders'.startsWith(only)) await run('shaders', shaders);
await run('engine', engine);
await report({ done: true, ...counts });
