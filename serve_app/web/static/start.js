// How a first mesh is connected: three ways, each with a command to copy. The page shows the mesh when its first snapshot arrives.
import { command } from "./command.js";
import { by, el } from "./dom.js";
import { ROOT } from "./feed.js";
import { time } from "./words.js";

const TOKEN = "TOKEN_FILE"; // in commands: a file with an access token

const SNAPSHOT = `{
  "observed_at": "'$(date -u +%Y-%m-%dT%H:%M:%SZ)'",
  "services": [
    {"namespace": "shop", "name": "web", "metrics": {"request_rate": 120, "error_rate": 0.001, "p99_latency": 0.21}},
    {"namespace": "shop", "name": "cart", "metrics": {"request_rate": 40, "p99_latency": 0.08}}
  ],
  "calls": [{"source": "shop/web", "destination": "shop/cart", "requests_per_second": 40}]
}`;

/** The ways: a name, and steps of a sentence and a command. */
function ways(needsToken) {
  const service = ROOT.replace(/\/$/, ""),
    { port } = new URL(ROOT),
    atPort = port && port !== "8000" ? ` --port ${port}` : "",
    header = needsToken ? ` -H "Authorization: Bearer $(cat ${TOKEN})"` : "",
    option = needsToken ? ` --token-file ${TOKEN}` : "";
  return [
    {
      name: "Prometheus",
      steps: [
        ["Check what TAGAE can read from your Prometheus.", "tagae doctor --prometheus http://127.0.0.1:9090"],
        [
          "Stop this service, and start it with that address. It polls every 15 s.",
          `tagae serve${atPort} --set meshes.shop.prometheus=http://127.0.0.1:9090`,
        ],
      ],
    },
    {
      name: "Push",
      steps: [
        [
          "Push a snapshot every 15 s. This loop pushes two services; replace their metrics by yours.",
          `while curl -sS ${service}/v1/meshes/shop/snapshots -H 'Content-Type: application/json'${header} -d '${SNAPSHOT}'; do sleep 15; done`,
        ],
      ],
    },
    {
      name: "Demo",
      steps: [
        [
          "Record a simulated mesh in which one service becomes slow.",
          "tagae simulate out/try --services 40 --snapshots 150 --seed 3 --first-fault 120 --fault latency_injection --severity critical",
        ],
        ["Send the recording to this service.", `tagae score out/try --url ${service} --mesh try${option} --output out/try.jsonl`],
      ],
    },
  ];
}

/** A way, folded but the first one. */
function way({ name, steps }, i) {
  return el("details", { open: i === 0, name: "ways" }, el("summary", {}, name), el("ol", {}, ...steps.map(step)));
}

const step = ([text, code]) => el("li", {}, el("p", {}, text), command(code, text));

/** Show the ways. @param {boolean} needsToken whether programs need an access token. */
export function drawStart(needsToken) {
  const place = by("ways"),
    key = String(needsToken);
  if (place.dataset.token !== key) place.replaceChildren(...ways(needsToken).map(way));
  place.dataset.token = key;
  by("start").hidden = false;
  by("start-check").textContent = `No snapshot has arrived yet. Checked at ${time(Date.now(), true)}, and every 3 s.`;
}
