// How a first mesh is connected: by the address of its Prometheus, or with commands to copy. The page shows the mesh when its first
// snapshot arrives.
import { command } from "./command.js";
import { by, el } from "./dom.js";
import { connectMesh, ROOT } from "./feed.js";
import { capitalized, plural } from "./words.js";

const TOKEN = "TOKEN_FILE"; // in commands: a file with an access token

const SNAPSHOT = `{
  "observed_at": "'$(date -u +%Y-%m-%dT%H:%M:%SZ)'",
  "services": [
    {"namespace": "shop", "name": "web", "metrics": {"request_rate": 120, "error_rate": 0.001, "p99_latency": 0.21}},
    {"namespace": "shop", "name": "cart", "metrics": {"request_rate": 40, "p99_latency": 0.08}}
  ],
  "calls": [{"source": "shop/web", "destination": "shop/cart", "requests_per_second": 40}]
}`;

/** The ways: a name, and steps of a sentence, and a command or a form. */
function ways(needsToken) {
  const service = ROOT.replace(/\/$/, ""),
    header = needsToken ? ` -H "Authorization: Bearer $(cat ${TOKEN})"` : "",
    option = needsToken ? ` --token-file ${TOKEN}` : "";
  return [
    {
      name: "Prometheus",
      steps: [
        ["Connect it. TAGAE reads it once, and then every 15 s, also after a restart.", connection()],
        ["Which metrics are missing, and what you lose without them:", "tagae doctor --prometheus http://127.0.0.1:9090"],
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

/** A form that connects a mesh, and says what its Prometheus shows or why it shows nothing. */
function connection() {
  const address = el("input", { type: "url", name: "prometheus", required: true, value: "http://127.0.0.1:9090" }),
    mesh = el("input", { name: "mesh", required: true, maxlength: 63, value: "shop" }),
    result = el("p", { role: "status" });
  const submit = async (event) => {
    event.preventDefault();
    result.textContent = "Reading it";
    try {
      const { services, calls, odd } = await connectMesh(mesh.value.trim(), address.value.trim());
      result.textContent = [`Connected: ${plural(services, "service")}, ${plural(calls, "call")}.`, ...odd.map((text) => `${capitalized(text)}.`)].join(" ");
    } catch (error) {
      result.textContent = error.message;
    }
  };
  const label = (text, input) => el("label", { class: "field" }, text, " ", input);
  return el("form", { submit }, label("Prometheus", address), label("Mesh", mesh), el("button", {}, "Connect"), result);
}

/** A way, folded but the first one. */
function way({ name, steps }, i) {
  return el("details", { open: i === 0, name: "ways" }, el("summary", {}, name), el("ol", {}, ...steps.map(step)));
}

const step = ([text, what]) => el("li", {}, el("p", {}, text), typeof what === "string" ? command(what, text) : what);

/** Show the ways. @param {boolean} needsToken whether programs need an access token. @param {string} state what is awaited. */
export function drawStart(needsToken, state = "") {
  const place = by("ways"),
    key = String(needsToken);
  if (place.dataset.token !== key) place.replaceChildren(...ways(needsToken).map(way));
  place.dataset.token = key;
  by("start").hidden = false;
  by("start-check").textContent = state;
}
