// The reference of the API: Swagger UI with the OpenAPI document of this service.
import { ROOT } from "./feed.js";

const response = await fetch(`${ROOT}openapi.json`),
  spec = await response.json();

SwaggerUIBundle({
  spec: { ...spec, servers: [{ url: ROOT.replace(/\/$/, "") }] }, // a proxy may serve it below a path
  dom_id: "#reference",
  deepLinking: true,
  filter: true,
  supportedSubmitMethods: ["get"], // nothing here changes a mesh
  validatorUrl: "none", // asks no other host
});
