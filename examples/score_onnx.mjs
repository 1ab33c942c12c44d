// Score a mesh with the exported network in JavaScript.
//
//     tagae export out/tagae.onnx --sample out/shop
//     npm install onnxruntime-node
//     node examples/score_onnx.mjs out/tagae.onnx out/tagae.onnx.sample.json
//
// Prints the services whose metrics differ most from what their past and their neighbours explain, in sigmas. Ends with
// status 1 if the outputs differ from the outputs in the sample.

import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { join } from "node:path";

const TOLERANCE = 1e-4;
const SHOWN = 5; // services

// The package of the folder in which this runs, wherever this file is.
const { InferenceSession, Tensor } = createRequire(join(process.cwd(), "package.json"))("onnxruntime-node");
const [model, sample] = process.argv.slice(2);
const session = await InferenceSession.create(model);
const { services, channels, inputs, outputs } = JSON.parse(await readFile(sample, "utf-8"));

const ARRAYS = {
  float32: (data) => Float32Array.from(data),
  int64: (data) => BigInt64Array.from(data, BigInt),
  bool: (data) => Uint8Array.from(data),
};
const feeds = Object.fromEntries(
  Object.entries(inputs).map(([name, { type, shape, data }]) => [name, new Tensor(type, ARRAYS[type](data), shape)]),
);
const results = await session.run(feeds);

const count = channels.length;
const width = inputs.nodes.shape[1]; // a block of `count` columns each: now, observed, standing, two averages
const unexplained = services.map((service, row) => {
  const [now, observed] = [0, count].map((first) => inputs.nodes.data.slice(row * width + first).slice(0, count));
  const expected = results.node_expected.data.slice(row * count, (row + 1) * count);
  const sigmas = now.map((value, i) => (observed[i] ? Math.sinh(value) - Math.sinh(expected[i]) : 0));
  const channel = sigmas.reduce((best, value, i) => (Math.abs(value) > Math.abs(sigmas[best]) ? i : best), 0);
  return { service, channel: channels[channel], sigmas: sigmas[channel] };
});
unexplained.sort((a, b) => Math.abs(b.sigmas) - Math.abs(a.sigmas));
for (const { service, channel, sigmas } of unexplained.slice(0, SHOWN)) {
  console.log(`${service}: ${channel} ${sigmas < 0 ? "" : "+"}${sigmas.toFixed(1)} sigmas`);
}

for (const [name, { data }] of Object.entries(outputs)) {
  const errors = data.map((value, i) => Math.abs(results[name].data[i] - value) / Math.max(Math.abs(value), 1));
  const largest = errors.reduce((most, error) => Math.max(most, error), 0);
  if (!(largest <= TOLERANCE)) {
    console.error(`${name}: expected at most ${TOLERANCE} from the sample, got ${largest}`);
    process.exitCode = 1;
  }
}
