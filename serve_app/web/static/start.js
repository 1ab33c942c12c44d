// How a first mesh is connected: three ways, each with a command to copy. The page shows the mesh when its first snapshot arrives.
import { copy } from "./copy.js";
import { by, el, show } from "./dom.js";
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

export function startView() {
  let selected = 0,
    needsToken = false;

  function choose(index) {
    selected = index;
    redraw();
    by(`way-${index}`).focus();
  }

  function tab({ name }, i) {
    const isSelected = i === selected;
    return el(
      "button",
      {
        type: "button",
        role: "tab",
        id: `way-${i}`,
        "aria-selected": String(isSelected),
        "aria-controls": "way",
        tabindex: isSelected ? 0 : -1,
        click: () => choose(i),
        keydown: (event) => {
          const direction = { ArrowRight: 1, ArrowLeft: -1 }[event.key],
            count = ways(needsToken).length;
          if (direction) choose((i + direction + count) % count);
        },
      },
      name,
    );
  }

  function step([text, command]) {
    const code = el("code", {}, command),
      button = el("button", { type: "button", "aria-label": `Copy: ${text}` }, "Copy");
    button.addEventListener("click", () => copy(command, code, button));
    return el("li", {}, el("p", {}, text), el("div", { class: "command" }, el("pre", { tabindex: 0, "aria-label": text }, code), button));
  }

  function redraw() {
    const all = ways(needsToken),
      { steps } = all[selected];
    show(by("ways"), ...all.map(tab));
    show(by("way"), el("ol", {}, ...steps.map(step)));
    by("way").setAttribute("aria-labelledby", `way-${selected}`);
  }

  return {
    /** @param {any} next `{needsToken}`: whether programs need an access token. */
    draw(next) {
      needsToken = next.needsToken;
      by("start").hidden = false;
      by("start-check").textContent = `No snapshot has arrived yet. Checked at ${time(Date.now(), true)}, and every 3 s.`;
      redraw();
    },
  };
}
